"""Look up a trial's scores for the numbers of a paper."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from tune_sentcl.analysis.conversion import lines_of
from tune_sentcl.analysis.papers.paper_cells import Number
from tune_sentcl.analysis.papers.required_data import task_rows
from tune_sentcl.judging.statistics import mean


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
        """Average each score of a study over the seeds of a randomly initialized classifier."""
        key = ["trial_id", "data", *Number._fields]
        groups = scores[scores["subset"].isna()].groupby(key, dropna=False, sort=False)
        means = groups.agg(
            value=("value", "mean"), n=("n", "min"), reason=("reason", "first")
        ).reset_index()
        self._scores: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for line in lines_of(means):
            of = line["trial_id"], line["task"], line["split"], line["metric"]
            self._scores.setdefault(of, []).append(line)

    def lookup(self, trial_id: str, numbers: tuple[Number, ...]) -> TrialNumber:
        """The mean of some numbers of a trial; the nearest score stands for each."""
        values, reasons, lacking = [], [], []
        for number in numbers:
            task, split, metric, *_ = number
            near = self._scores.get((trial_id, task, split, metric), [])
            measured = [
                (line["value"], _differences(line, number)) for line in near if "value" in line
            ]
            if measured:
                value, differences = min(measured, key=lambda pair: len(pair[1]))
                values.append(value)
                reasons += differences
            else:
                why = next((line["reason"] for line in near if line.get("reason")), "")
                lacking.append(f"{task} ({why})" if why else task)
        return TrialNumber(None if lacking else mean(values), tuple(reasons), tuple(lacking))


def _differences(score: dict[str, Any], number: Number) -> list[str]:
    """How a score differs from a number of a paper."""
    task, split, _, protocol, aggregation = number
    data, n, reasons = score["data"], score.get("n", 0), []
    if data != "root":
        reasons.append(f"{task} is scored on the {data} sets")
    if score["protocol"] != protocol:
        reasons.append(f"{task} by the protocol {score['protocol']}; the paper's {protocol}")
    if score.get("aggregation") != aggregation:
        own = score.get("aggregation")
        reasons.append(f"{task} aggregated by {own}; the paper's {aggregation}")
    rows = task_rows(task, split, protocol)
    if data == "root" and n != rows:
        of = " of a truncated file" if rows < task_rows(task, split, "") else ""
        reasons.append(f"{task} on {n:,} rows; the paper's on {rows:,}{of}")
    return reasons
