"""Compare each number that a paper prints with a study."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import pandas as pd

from tune_sentcl.analysis.conversion import lines_of
from tune_sentcl.analysis.frames import StudyFrames
from tune_sentcl.analysis.papers.paper_cells import (
    Number,
    PaperCell,
    VerifiedCell,
    errata_without_cells,
    named_values,
    paper_cells,
)
from tune_sentcl.analysis.papers.paper_results import Paper
from tune_sentcl.config import (
    TrialConfig,
    draws,
    flatten,
    knobs,
    shown,
    source_names,
    weight_values,
)
from tune_sentcl.history import CONFIRM_ORIGIN
from tune_sentcl.judging.statistics import mean

_SETTINGS = ("encoder.pooling", "optimizer.batch_size")
"""Knobs that distinguish rows of a paper although they are not part of the method."""

_WHOLE_SETS = {
    "snli": ("nli/snli_train.parquet", "stanfordnlp/snli"),
    "nli": ("nli/snli_train.parquet + nli/mnli_train.parquet",),
    "sts-b": ("STSBenchmark/sts-train.csv",),
    "wiki": ("wiki/wiki1m_for_simcse.txt",),
}
"""The names, as in the column `data_source`, under which trials read a paper's whole set."""

_HUB_OWNERS = ("google-bert/", "FacebookAI/")
"""Owners of the papers' encoders, whose hub names had no owner before."""

_PRINT = "checkpoint_fingerprint"
_COLUMNS = ("trial_id", "configuration", "origin", "status", "seed", "config", "error_type")
_READS = ("data.source", "data.limit", "data_source", "encoder.checkpoint", _PRINT)
_ENDED = {"failed": "failed", "pruned": "were stopped at the end of a stage"}


@dataclass(frozen=True)
class Verification:
    """The comparison of a study with a paper.

    Attributes:
        cells: One line per printed number, in the paper's order.
        errata: Errors outside the tables' numbers; empty if one table was requested.
    """

    cells: tuple[VerifiedCell, ...]
    errata: tuple[str, ...]


def verify(study: StudyFrames, paper: Paper, table: int | None = None) -> Verification:
    """Compare a study with every number that a paper prints; fresh seeds take no part.

    Args:
        study: From `read_study`.
        paper: The paper's short name.
        table: Compare with this table only; None: with all.

    Raises:
        ConfigError: The table does not exist or has no scores.
    """
    cells, measured = paper_cells(paper, table), _Measured(study, paper)
    return Verification(
        cells=tuple(map(measured.verified, cells)),
        errata=() if table is not None else tuple(errata_without_cells(paper, cells)),
    )


class _Candidate:
    """A configuration of a study, and what its trials read."""

    def __init__(self, trials: Sequence[Mapping[str, Any]]) -> None:
        self.trials = trials
        self.values = dict(flatten(json.loads(trials[0]["config"])))
        self.weight_values = weight_values(self.values)
        self.encoders = {line["encoder.checkpoint"] for line in trials}
        self.prints = {line[_PRINT] for line in trials if _PRINT in line}

    def has_encoder(self, paper: str) -> bool:
        """Whether a name of its encoder is that of a paper's."""
        return any(_is_encoder(name, paper) for name in self.encoders)

    def value(self, key: str) -> Any:
        """A knob's value; the default if the config was written before the knob existed."""
        if key in self.values:
            return self.values[key]
        return knobs()[key].default(self.values.get(f"{key.partition('.')[0]}.name", ""))


class _Measured:
    """The scores of one study, looked up by the cells of one paper."""

    def __init__(self, study: StudyFrames, paper: Paper) -> None:
        self._paper = paper
        trials: dict[str, list[dict[str, Any]]] = {}
        for line in lines_of(study.trials[[*_COLUMNS, *_READS]]):
            if line["origin"] != CONFIRM_ORIGIN:
                trials.setdefault(line["configuration"], []).append(line)
        self._candidates = [_Candidate(trials[name]) for name in sorted(trials)]
        self._scores = _scores_of_tasks(study.scores)
        self._matches: dict[tuple[str, str], list[tuple[_Candidate, list[str]]]] = {}

    def verified(self, cell: PaperCell) -> VerifiedCell:
        """The study's best value for a printed number."""
        if not cell.presets:
            return VerifiedCell(cell, reasons=("another system, whose number the paper copied",))
        row = cell.table, cell.row
        if row not in self._matches:
            self._matches[row] = list(self._matching(cell))
        found = [self._reproduced(cell, *match) for match in self._matches[row]]
        if not found:
            return VerifiedCell(cell, reasons=("the study has no such trial",))
        first = min(found, key=lambda one: (not one.values, len(one.reasons), -one.n))
        others = sum(bool(one.values) and not one.reasons for one in found) - 1
        if first.values and not first.reasons and others:
            return replace(
                first, notes=(f"{others} more of the study's configurations could stand here",)
            )
        return first

    def _matching(self, cell: PaperCell) -> Iterator[tuple[_Candidate, list[str]]]:
        """The configurations that can stand for a row, and how each differs from its preset."""
        for candidate in self._candidates:
            found = [self._differences(candidate, cell, preset) for preset in cell.presets]
            if known := [reasons for reasons in found if reasons is not None]:
                yield candidate, min(known, key=len)

    def _differences(
        self, candidate: _Candidate, cell: PaperCell, preset: TrialConfig
    ) -> list[str] | None:
        """How a configuration differs from a row's; None if it is the configuration of another."""
        method = {key: value for key, value in cell.said.items() if key.startswith("method.")}
        if any(candidate.value(key) != value for key, value in method.items()):
            return None
        settings = {key: cell.said[key] for key in _SETTINGS if key in cell.said}
        if preset.method.rows != "nothing":
            settings["data.source"] = preset.data.source
        for key, value in settings.items():
            if candidate.value(key) in named_values(self._paper, key) - {value}:
                return None
        encoder = self._encoder(candidate, preset.encoder.checkpoint)
        papers = named_values(self._paper, "encoder.checkpoint")
        if encoder and any(candidate.has_encoder(name) for name in papers):
            return None
        rows, others = _training_rows(candidate, preset), _other_settings(candidate, preset)
        return [*filter(None, (encoder, rows, others))]

    def _encoder(self, candidate: _Candidate, paper: str) -> str | None:
        """How the encoder differs; the same weights may have another name."""
        same = [other.prints for other in self._candidates if other.has_encoder(paper)]
        if candidate.has_encoder(paper) or candidate.prints & set().union(*same):
            return None
        name = ", ".join(sorted(candidate.encoders))
        fingerprint = ", ".join(sorted(candidate.prints)) or "not recorded"
        return f"base model: {name} (fingerprint {fingerprint}); the paper's is {paper}"

    def _reproduced(
        self, cell: PaperCell, candidate: _Candidate, differences: Sequence[str]
    ) -> VerifiedCell:
        drawn, reasons, lacking = draws(cell.presets[0].dotted()), [], dict[str, None]()
        seeds: list[tuple[float, list[str]]] = []
        finished = [line for line in candidate.trials if line["status"] == "finished"]
        for line in finished:
            near = [self._nearest(line["trial_id"], number) for number in cell.numbers]
            if lost := [one for one in near if isinstance(one, str)]:
                lacking |= dict.fromkeys(lost)
                continue
            whole = [one for one in near if not isinstance(one, str)]
            said = [reason for _, own in whole for reason in own]
            seeds.append((mean([value for value, _ in whole]), said))
        # If some seeds were measured exactly as in the paper, the others are ignored.
        kept = [seed for seed in seeds if not seed[1]] or seeds
        if kept:
            reasons = [*differences, *dict.fromkeys(reason for _, own in kept for reason in own)]
        elif finished:
            reasons = [f"not measured: {', '.join(lacking)}"]
        else:
            ends = dict.fromkeys(map(_end, candidate.trials))
            reasons = [f"its trials {', '.join(ends)}"]
        return VerifiedCell(cell, [value for value, _ in kept], tuple(reasons), drawn=drawn)

    def _nearest(self, trial_id: str, number: Number) -> tuple[float, list[str]] | str:
        """The most similar score of a task and its differences; else the task and the reason."""
        near = self._scores.get((trial_id, *number[:3]), [])
        measured = [
            (line["value"], list(_score_differences(line, number)))
            for line in near
            if "value" in line
        ]
        if measured:
            return min(measured, key=lambda pair: len(pair[1]))
        why = next((line["reason"] for line in near if line.get("reason")), "")
        return f"{number.task} ({why})" if why else number.task


def _scores_of_tasks(scores: pd.DataFrame) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """The scores of whole tasks, each the mean over the classifier's seeds.

    They are looked up by trial, task, split and metric.
    """
    key = ["trial_id", "task", "split", "metric", "protocol", "aggregation", "data"]
    groups = scores[scores["subset"].isna()].groupby(key, dropna=False, sort=False)
    means = groups.agg(value=("value", "mean"), n=("n", "min"), reason=("reason", "first"))
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for line in lines_of(means.reset_index()):
        found.setdefault(tuple(line[name] for name in key[:4]), []).append(line)
    return found


def _score_differences(score: dict[str, Any], number: Number) -> Iterator[str]:
    """How a score differs from a number of a paper."""
    task, data, n = number.task, score["data"], score.get("n", 0)
    if data != "root":
        yield f"{task} is scored on the {data} sets"
    if score["protocol"] != number.protocol:
        yield f"{task} by the protocol {score['protocol']}; the paper's {number.protocol}"
    if score.get("aggregation") != number.aggregation:
        yield f"{task} aggregated by {score.get('aggregation')}; the paper's {number.aggregation}"
    if data == "root" and n != number.n:
        of = " of a truncated file" if number.protocol == "scl-paper-compat" else ""
        yield f"{task} on {n:,} rows; the paper's on {number.n:,}{of}"


def _end(trial: Mapping[str, Any]) -> str:
    why = f" ({trial['error_type']})" if trial.get("error_type") else ""
    return f"{_ENDED[trial['status']]}{why}"


def _is_encoder(name: str, paper: str) -> bool:
    """Whether a checkpoint's name denotes the encoder that a paper started from.

    A path is compared by its last component. A hub name is compared whole, because any user can
    give a repository the same last component.
    """
    is_path = name.startswith(("/", "~", "./", "../")) or name.endswith(".txt")
    same = is_path and PurePosixPath(name).name == PurePosixPath(paper).name
    return same or name in (paper, *(f"{owner}{paper}" for owner in _HUB_OWNERS))


def _training_rows(candidate: _Candidate, preset: TrialConfig) -> str | None:
    """Why the training rows are not those of a paper; None if they are."""
    kind = preset.method.rows
    if kind == "nothing":
        return None
    lacks = [_lacking_rows(line, _WHOLE_SETS[preset.data.source]) for line in candidate.trials]
    if all(lacks):
        return min(lacks)
    given, meant = candidate.value("data.min_score"), preset.data.min_score
    if kind == "positive_pairs" and given != meant:
        return f"training rows: pairs with a score from {given:g}; the paper's from {meant:g}"
    return None


def _lacking_rows(trial: Mapping[str, Any], names: Sequence[str]) -> str:
    """Why a trial did not train on a whole set with one of these names; empty if it did."""
    asked, limit = trial["data.source"], trial.get("data.limit")
    read = trial.get("data_source", asked)
    if len(source_names(asked)) > 1:
        read = f"{asked}, one source per batch"
    elif any(mark in read for mark in ("partial", "first2000")):
        read = f"{read}, a partial set"
    elif read in names and limit is None:
        return ""
    first = "" if limit is None else f"the first {limit:,} rows of "
    return f"training rows: {first}{read}; the paper's are all of {names[0]}"


def _other_settings(candidate: _Candidate, preset: TrialConfig) -> str:
    """The other knobs that change the weights and differ; empty if there are none."""
    own, meant = candidate.weight_values, weight_values(preset_values := preset.dotted())
    keys = [key for key in knobs() if key != "seed" and own.get(key) != meant.get(key)]
    if candidate.value("evaluation.select") == "last" == preset.evaluation.select:
        keys = [key for key in keys if key != "evaluation.every"]  # has no effect on the weights
    changed = [
        f"{key} = {shown(candidate.value(key))} instead of {shown(preset_values.get(key))}"
        for key in keys
    ]
    return f"other settings: {', '.join(changed)}" if changed else ""
