"""Compare each number that a paper prints with a study.

A preset here is a configuration of the presets that fills rows of the paper. A configuration of
the study stands for the rows of the preset from which it differs in the fewest hyperparameters.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Literal

import pandas as pd
from scipy.stats import t

from tune_sentcl.analysis.frames import StudyFrames, lines_of
from tune_sentcl.analysis.papers.paper_results import (
    Number,
    Paper,
    PaperCell,
    paper_cells,
    presets_of,
)
from tune_sentcl.config import (
    TrialConfig,
    Values,
    draws,
    knobs,
    shown,
    source_names,
    weight_values,
)
from tune_sentcl.history import Result
from tune_sentcl.judging.statistics import mean
from tune_sentcl.objective import DEFAULT
from tune_sentcl.results.standings import Estimate

CellVerdict = Literal[
    "MATCH", "WITHIN SEED NOISE", "NOT ENOUGH SEEDS", "MISS", "NOT COMPARABLE", "NOT RUN"
]

MIN_SEEDS = 3
"""With fewer seeds, the prediction interval holds nearly every number."""

NO_SEEDS = Estimate.of(())

_HALF = 0.005 + 1e-9
"""Half a unit of the papers' last decimal (the second), plus rounding error."""

_NAMED_BY = "name lambda temperature num_positives num_negatives strategy whitening"
_NAMING = [f"method.{name}" for name in _NAMED_BY.split()]
"""The hyperparameters by which the papers name their models."""

_WHOLE_SETS = {
    "snli": ("nli/snli_train.parquet", "stanfordnlp/snli"),
    "nli": ("nli/snli_train.parquet + nli/mnli_train.parquet",),
    "sts-b": ("STSBenchmark/sts-train.csv",),
    "wiki": ("wiki/wiki1m_for_simcse.txt",),
}
"""The names of a paper's whole training set in the column `data_source`, by its preset's name."""

_HUB_OWNERS = ("google-bert/", "FacebookAI/")
"""Owners of the papers' encoders on the hub. The encoders' older hub names have no owner."""

_PRINT = "checkpoint_fingerprint"
_READ = ("trial_id", "data_source", "encoder.checkpoint", _PRINT)
_ENDED = {"failed": "failed", "pruned": "were stopped at the end of a stage"}


@dataclass(frozen=True)
class VerifiedCell:
    """One printed number and the study's value for it.

    Attributes:
        cell: The number.
        ours: The study's score over seeds, times 100; `NO_SEEDS` if the study has no score.
        reasons: Why the two are not comparable, or why there is no value.
        drawn: Whether the score depends on the seed; if not, one seed is enough.
        others: How many further configurations of the study stand for the same row.
    """

    cell: PaperCell
    ours: Estimate = NO_SEEDS
    reasons: tuple[str, ...] = ()
    drawn: bool = True
    others: int = 0

    @property
    def delta(self) -> float:
        """The study's mean minus the paper's number or corrected average; NaN without a mean."""
        return self.ours.mean - self.cell.right

    @property
    def verdict(self) -> CellVerdict:
        """The result of the comparison."""
        if not self.ours.n:
            return "NOT RUN"
        if self.reasons:
            return "NOT COMPARABLE"
        if equal_after_rounding(self.ours.mean, self.cell.right):
            return "MATCH"
        if not self.drawn:
            # The trials draw no random numbers, so more seeds would give the same score again.
            return "MISS"
        if self.ours.n < MIN_SEEDS:
            return "NOT ENOUGH SEEDS"
        low, high = prediction_interval(self.ours)
        return "WITHIN SEED NOISE" if low <= self.cell.right <= high else "MISS"

    @property
    def footnotes(self) -> list[str]:
        """The reasons as one text, further remarks and the errata."""
        found = ["; ".join(self.reasons)] if self.reasons else []
        if self.others:
            found.append(f"{self.others} other configurations of the study fit this cell too")
        if self.cell.right != self.cell.printed:
            found.append(
                f"our mean is compared with {self.cell.right:g}, the mean of the scores "
                "beside this cell"
            )
        if self.ours.n and not self.drawn:
            found.append("every seed gives the same score")
        return [*found, *(f"erratum: {text}" for text in self.cell.errata)]


def verify(study: StudyFrames, paper: Paper, table: int | None = None) -> list[VerifiedCell]:
    """Compare a study with every number that a paper prints; confirmation seeds take no part.

    Args:
        study: From `read_study`.
        paper: The paper's short name.
        table: Compare with this table only; None: with all.

    Returns:
        One line per printed number, in the paper's order.

    Raises:
        ConfigError: The table does not exist or has no scores.
    """
    cells, scores = paper_cells(paper, table), _scores_of_tasks(study.scores)
    presets = [(preset, preset.dotted()) for preset in presets_of(paper)]
    standing: dict[TrialConfig, list[tuple[_Tried, list[str]]]] = {}
    for tried in _all_tried(study):
        name = [tried.values.get(key) for key in _NAMING]
        differing = {
            preset: _differences(tried, preset)
            for preset, values in presets
            if name == [values.get(key) for key in _NAMING]
        }
        least = min((number for number, _ in differing.values()), default=0)
        for preset, (number, texts) in differing.items():
            if number == least:
                standing.setdefault(preset, []).append((tried, texts))
    return [_verified(cell, standing, scores) for cell in cells]


def equal_after_rounding(ours: float, printed: float) -> bool:
    """Whether a value rounds to the printed number, with two decimals.

    A value halfway between two printed numbers equals both: the papers do not state how they
    round.
    """
    return math.isclose(ours, printed, rel_tol=0, abs_tol=_HALF)


def prediction_interval(score: Estimate) -> tuple[float, float]:
    """The interval that contains one more normal value of the same kind in 95 of 100 cases.

    The interval is `mean -+ t * sd * sqrt(1 + 1/n)` with Student's t of n - 1 degrees of freedom
    (Hahn and Meeker, Statistical Intervals, 1991, chapter 4).

    Args:
        score: Mean and standard deviation over at least two seeds.
    """
    scale = score.sd * math.sqrt(1 + 1 / score.n)
    low, high = t.interval(0.95, score.n - 1, score.mean, scale)
    return float(low), float(high)


@dataclass(frozen=True)
class _Tried:
    """A configuration of a study, without its confirmation seeds.

    Attributes:
        values: Its dotted values, without hyperparameters that are unset or newer than its trials.
        results: How its trials ended.
        encoders: The study's names of the weights with which its trials start.
        fingerprint: The fingerprint of these weights, if it is recorded.
        read: The training data that its trials have read, if recorded.
    """

    values: Values
    results: Mapping[str, Result]
    encoders: Collection[str]
    fingerprint: str | None
    read: Collection[str]

    def value(self, key: str) -> Any:
        """A hyperparameter's value; its default if the config is older than the hyperparameter."""
        return self.values.get(key, knobs()[key].default(self.values["method.name"]))


def _all_tried(study: StudyFrames) -> Iterator[_Tried]:
    # Any objective serves here, because the ranking is not used.
    standings = study.standings(DEFAULT)
    rows = {row["trial_id"]: row for row in standings.tables.trials(_READ).to_pylist()}
    names: dict[str, set[str]] = {}
    for row in rows.values():
        row[_PRINT] = row[_PRINT] or ""
        names.setdefault(row[_PRINT], set()).add(row["encoder.checkpoint"])
    for _, one in sorted(standings.tried.items()):
        chose = sorted(one.search_seeds)
        results = {one.trials[seed]: one.results[seed] for seed in chose}
        if results:
            values = {key: value for key, value in one.values.items() if value is not None}
            own = [rows[name] for name in results]
            fingerprint = own[0][_PRINT]
            encoders = names[fingerprint] if fingerprint else {values["encoder.checkpoint"]}
            read = {row["data_source"] for row in own} - {None}
            yield _Tried(values, results, encoders, fingerprint, read)


def _differences(tried: _Tried, preset: TrialConfig) -> tuple[int, list[str]]:
    """How many hyperparameters differ between a configuration and a preset, and texts for them."""
    own, meant = weight_values(tried.values), _weights_of(preset)
    keys = [key for key in knobs() if key != "seed" and own.get(key) != meant.get(key)]
    if tried.value("evaluation.select") == "last" == preset.evaluation.select:
        # Without a selection of weights, the interval of evaluations does not change the weights.
        keys = [key for key in keys if key != "evaluation.every"]
    values = preset.dotted()
    changed = [
        f"{key} = {shown(tried.value(key))} instead of {shown(values.get(key))}" for key in keys
    ]
    others = f"other hyperparameters: {', '.join(changed)}" if changed else ""
    texts = [_other_encoder(tried, preset), _other_rows(tried, preset)]
    return len(keys) + sum(map(bool, texts)), [*filter(None, (*texts, others))]


@cache
def _weights_of(preset: TrialConfig) -> Values:
    return weight_values(preset.dotted())


def _other_encoder(tried: _Tried, preset: TrialConfig) -> str:
    paper = preset.encoder.checkpoint
    if any(_is_encoder(name, paper) for name in tried.encoders):
        return ""
    known = f"fingerprint {tried.fingerprint or 'not recorded'}"
    return f"base model: {', '.join(sorted(tried.encoders))} ({known}); the paper's is {paper}"


def _is_encoder(name: str, paper: str) -> bool:
    """Whether a checkpoint's name means the encoder with which a paper started.

    A path is compared by its last component. A hub name is compared whole, because any user can
    give a repository the same last component.
    """
    is_path = name.startswith(("/", "~", "./", "../")) or name.endswith(".txt")
    same = is_path and PurePosixPath(name).name == PurePosixPath(paper).name
    return same or name in (paper, *(f"{owner}{paper}" for owner in _HUB_OWNERS))


def _other_rows(tried: _Tried, preset: TrialConfig) -> str:
    """Why the training examples differ from the paper's; empty if they do not differ."""
    if preset.method.rows == "nothing":
        return ""
    whole = _WHOLE_SETS[preset.data.source]
    asked, limit = tried.value("data.source"), tried.value("data.limit")
    read = set(tried.read) or {asked}
    if len(source_names(asked)) > 1:
        read = {f"{asked}, one source per batch"}
    if limit is not None or read.isdisjoint(whole):
        first = "" if limit is None else f"the first {limit:,} rows of "
        return f"training rows: {first}{min(read)}; the paper's are all of {whole[0]}"
    given, meant = tried.value("data.min_score"), preset.data.min_score
    if preset.method.rows == "positive_pairs" and given != meant:
        return (
            f"training rows: pairs with a score of {given:g} or more; the paper's: {meant:g} or "
            "more"
        )
    return ""


_Scores = Mapping[tuple[str, ...], Sequence[Mapping[str, Any]]]
"""The scores of whole tasks by trial, task, split and metric."""


def _verified(
    cell: PaperCell,
    standing: Mapping[TrialConfig, Sequence[tuple[_Tried, Sequence[str]]]],
    scores: _Scores,
) -> VerifiedCell:
    if not cell.presets:
        return VerifiedCell(cell, reasons=("the paper copied this number of another system",))
    found = [
        _reproduced(cell, tried, texts, scores)
        for preset in cell.presets
        for tried, texts in standing.get(preset, ())
    ]
    if not found:
        return VerifiedCell(cell, reasons=("the study has no trial of this configuration",))
    first = min(found, key=lambda one: (not one.ours.n, len(one.reasons), -one.ours.n))
    if not first.ours.n or first.reasons:
        return first
    return replace(first, others=sum(bool(o.ours.n) and not o.reasons for o in found) - 1)


def _reproduced(
    cell: PaperCell, tried: _Tried, differences: Sequence[str], scores: _Scores
) -> VerifiedCell:
    """A configuration's value for a printed number: the mean over its seeds."""
    lacking: list[str] = []
    seeds: list[tuple[float, list[str]]] = []
    finished = [name for name, result in tried.results.items() if result.status == "finished"]
    for trial_id in finished:
        near = [_nearest(scores.get((trial_id, *one[:3]), ()), one) for one in cell.numbers]
        values = [value for value, _ in near if value is not None]
        if len(values) == len(near):
            seeds.append((mean(values), [text for _, texts in near for text in texts]))
        else:
            lacking += [text for value, texts in near if value is None for text in texts]
    # If some seeds were measured exactly as in the paper, only these seeds enter the mean.
    kept = [seed for seed in seeds if not seed[1]] or seeds
    if kept:
        reasons = [*differences, *(text for _, texts in kept for text in texts)]
    elif finished:
        reasons = [f"these scores are not measured: {', '.join(dict.fromkeys(lacking))}"]
    else:
        ends = dict.fromkeys(map(_end, tried.results.values()))
        reasons = [f"the trials of this configuration {', '.join(ends)}"]
    drawn = draws(cell.presets[0].dotted())
    ours = Estimate.of([value for value, _ in kept])
    return VerifiedCell(cell, ours, tuple(dict.fromkeys(reasons)), drawn)


def _end(result: Result) -> str:
    why = f" ({result.error_type})" if result.error_type else ""
    return f"{_ENDED[result.status]}{why}"


def _nearest(
    near: Sequence[Mapping[str, Any]], number: Number
) -> tuple[float | None, Sequence[str]]:
    """The score of a task that differs least, and its differences; else None and what lacks."""
    measured = [
        (line["value"], list(_score_differences(line, number))) for line in near if "value" in line
    ]
    if measured:
        return min(measured, key=lambda pair: len(pair[1]))
    why = [f" ({line['reason']})" for line in near if line.get("reason")]
    return None, ["".join((number.task, *why[:1]))]


def _scores_of_tasks(scores: pd.DataFrame) -> _Scores:
    """The scores of whole tasks; each is the mean over the classifier's seeds."""
    key = ["trial_id", "task", "split", "metric", "protocol", "aggregation", "data"]
    groups = scores[scores["subset"].isna()].groupby(key, dropna=False, sort=False)
    means = groups.agg(value=("value", "mean"), n=("n", "min"), reason=("reason", "first"))
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for line in lines_of(means.reset_index()):
        found.setdefault(tuple(line[name] for name in key[:4]), []).append(line)
    return found


def _score_differences(score: Mapping[str, Any], number: Number) -> Iterator[str]:
    task, data, n = number.task, score["data"], score.get("n", 0)
    if data != "root":
        yield f"{task} is scored on the {data} sets"
    if score["protocol"] != number.protocol:
        yield (
            f"{task} is scored by the protocol {score['protocol']}; the paper's by "
            f"{number.protocol}"
        )
    if score.get("aggregation") != number.aggregation:
        yield (
            f"{task} is aggregated by {score.get('aggregation')}; the paper's by "
            f"{number.aggregation}"
        )
    if data == "root" and n != number.n:
        of = " of a truncated file" if number.protocol == "scl-paper-compat" else ""
        yield f"{task} is scored on {n:,} rows; the paper's on {number.n:,}{of}"
