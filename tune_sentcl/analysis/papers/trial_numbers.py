"""Look up a trial's scores for the numbers of a paper."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tune_sentcl.analysis.conversion import plain
from tune_sentcl.analysis.papers.paper_cells import Number
from tune_sentcl.analysis.papers.required_data import task_rows
from tune_sentcl.judging.statistics import mean

_NumberKey = tuple[str, str, str]
"""A task, a split and a metric."""


@dataclass(frozen=True)
class TrialNumber:
    """A trial's score for a number, or the nearest score of the same task.

    Attributes:
        value: Times 100; None if there is neither.
        reasons: How it differs from the requested number.
        lacking: The tasks without a score, each with the reason if known.
    """

    value: float | None
    reasons: tuple[str, ...]
    lacking: tuple[str, ...]


class TrialNumbers:
    """The scores of whole tasks by trial."""

    def __init__(self, scores: pd.DataFrame) -> None:
        """Sort the rows of a study's scores by trial; a trial's scores are built on demand."""
        whole = scores[scores["subset"].isna()]
        names = ("trial_id", "data", *Number._fields, "value", "n", "reason")
        self._lines: dict[str, list[Sequence[Any]]] = {}
        for trial_id, *line in zip(*(plain(whole[name]) for name in names), strict=True):
            self._lines.setdefault(trial_id, []).append(line)
        self._read: dict[str, dict[_NumberKey, list[_Score]]] = {}
        self._numbers: dict[tuple[str, Number], TrialNumber] = {}

    def lookup(self, trial_id: str, numbers: tuple[Number, ...]) -> TrialNumber:
        """The mean of some numbers of a trial; the nearest score stands for each."""
        parts = [self._one(trial_id, number) for number in numbers]
        return parts[0] if len(parts) == 1 else _joined(parts)

    def _one(self, trial_id: str, number: Number) -> TrialNumber:
        key = (trial_id, number)
        if key not in self._numbers:
            self._numbers[key] = self._nearest(trial_id, number)
        return self._numbers[key]

    def _nearest(self, trial_id: str, number: Number) -> TrialNumber:
        near = self._scores(trial_id).get((number.task, number.split, number.metric), [])
        found = [(score, score.differences(number)) for score in near if score.value is not None]
        if found:
            score, reasons = min(found, key=lambda pair: len(pair[1]))
            return TrialNumber(score.value, tuple(reasons), ())
        why = next((score.reason for score in near if score.reason), "")
        return TrialNumber(None, (), (f"{number.task}{f' ({why})' if why else ''}",))

    def _scores(self, trial_id: str) -> dict[_NumberKey, list["_Score"]]:
        if trial_id not in self._read:
            found = self._read[trial_id] = {}
            for score in _over_classifier_seeds(self._lines.get(trial_id, ())):
                number = score.number
                found.setdefault((number.task, number.split, number.metric), []).append(score)
        return self._read[trial_id]


@dataclass(frozen=True)
class _Score:
    number: Number
    data: str
    value: float | None
    n: int
    reason: str

    def differences(self, wanted: Number) -> list[str]:
        """How the score differs from the wanted number."""
        task, split, _, protocol, aggregation = wanted
        found = []
        if self.data != "root":
            found.append(f"{task} is scored on the {self.data} sets")
        if self.number.protocol != protocol:
            found.append(f"{task} by the protocol {self.number.protocol}; the paper's {protocol}")
        if self.number.aggregation != aggregation:
            found.append(
                f"{task} aggregated by {self.number.aggregation}; the paper's {aggregation}"
            )
        rows = task_rows(task, split, protocol)
        if self.data == "root" and self.n != rows:
            cut = rows < task_rows(task, split, "")
            printed_rows = f"{rows:,} of a truncated file" if cut else f"{rows:,}"
            found.append(f"{task} on {self.n:,} rows; the paper's on {printed_rows}")
        return found


def _over_classifier_seeds(lines: Iterable[Sequence[Any]]) -> list[_Score]:
    """One score per number: the mean over the seeds of a randomly initialized classifier."""
    groups: dict[tuple[str, Number], list[Sequence[Any]]] = {}
    for data, task, split, metric, protocol, joined, *found in lines:
        number = Number(task, split, metric, protocol, joined)
        groups.setdefault((data, number), []).append(found)
    scores = []
    for (data, number), found in groups.items():
        values = [value for value, _, _ in found if value is not None]
        reason = next((reason for _, _, reason in found if reason), "")
        rows = min((n for _, n, _ in found if n is not None), default=0)
        scores.append(_Score(number, data, mean(values) if values else None, rows, reason))
    return scores


def _joined(parts: Sequence[TrialNumber]) -> TrialNumber:
    """The mean of several numbers; None if one is missing."""
    reasons = tuple(reason for part in parts for reason in part.reasons)
    lacking = tuple(text for part in parts for text in part.lacking)
    values = [part.value for part in parts if part.value is not None]
    return TrialNumber(None if lacking else mean(values), reasons, lacking)
