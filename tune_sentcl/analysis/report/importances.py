"""Knob importances by Optuna's evaluators."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.importance import (
    BaseImportanceEvaluator,
    FanovaImportanceEvaluator,
    PedAnovaImportanceEvaluator,
    get_param_importances,
)

from tune_sentcl.analysis.report.figure import Figure, bars, quantitative
from tune_sentcl.analysis.report.points import Points
from tune_sentcl.config import knobs

_LEAST = 8
_MOST = 1000
_PED_ANOVA = "PED-ANOVA"
_LEAST_TENTH = 50  # of fewer configurations the best tenth is too small to say anything
_TREES, _DEPTH = 32, 6
"""The cost of fANOVA grows with rows and leaves much faster than its accuracy: 64 full trees over
300 rows take 7 s; these over 3,000 rows take less than 1 s. Their shares differ by about 0.03."""
_CHOICES = 10


@dataclass(frozen=True)
class _Group:
    """Configurations with the same knobs."""

    name: str
    rows: pd.DataFrame
    columns: dict[str, str]


def importance_figures(points: Points) -> Iterator[Figure]:
    """One figure over all configurations, and one per method with knobs of its own."""
    target = points.subject.targets[0]
    scored = points.frame[points.frame[points.target(target)].notna()]
    for group in _groups(points, scored):
        frame = _importances(points, group, target)
        if len(frame):
            yield _figure(group, frame, points.subject.title(target))


def _groups(points: Points, scored: pd.DataFrame) -> Iterator[_Group]:
    subject = points.subject
    columns = {key: points.knob(key) for key in subject.knobs}
    common = _varied(scored, columns)
    whole = _Group("", scored, common)
    if len(scored) >= _LEAST and len(common) > 1:
        yield whole
    if "method.name" not in columns:
        return
    for name, rows in scored.groupby(columns["method.name"], sort=True):
        own = _varied(rows, {key: c for key, c in columns.items() if key != "method.name"})
        if len(rows) >= _LEAST and len(own) > 1 and not own.keys() <= common.keys():
            yield _Group(str(name), rows, own)


def _varied(rows: pd.DataFrame, columns: dict[str, str]) -> dict[str, str]:
    """The knobs that all rows have and in which they differ."""
    return {k: c for k, c in columns.items() if rows[c].notna().all() and rows[c].nunique() > 1}


def _importances(points: Points, group: _Group, target: str) -> pd.DataFrame:
    kept = np.unique(np.linspace(0, len(group.rows) - 1, min(_MOST, len(group.rows))).astype(int))
    study = _study(points, group, group.rows.iloc[kept], points.target(target))
    found = []
    for name, evaluator in _evaluators(len(kept)):
        shares = get_param_importances(study, evaluator=evaluator)
        labels = points.subject.labels
        found += [{"place": labels[k], "kind": name, "share": s} for k, s in shares.items()]
    frame = pd.DataFrame(found, columns=["place", "kind", "share"])
    # If all scores are equal, the shares are not finite.
    return frame if np.isfinite(frame["share"].to_numpy(float)).all() else frame.iloc[:0]


def _evaluators(count: int) -> Iterator[tuple[str, BaseImportanceEvaluator]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield "fANOVA", FanovaImportanceEvaluator(n_trees=_TREES, max_depth=_DEPTH, seed=0)
        if count >= _LEAST_TENTH:
            yield _PED_ANOVA, PedAnovaImportanceEvaluator()


def _study(points: Points, group: _Group, rows: pd.DataFrame, target: str) -> optuna.Study:
    distributions = {k: _distribution(points, k, group.rows[c]) for k, c in group.columns.items()}
    columns = {key: rows[column].tolist() for key, column in group.columns.items()}
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # creating a study logs a line
    try:
        study = optuna.create_study(direction="maximize")
    finally:
        optuna.logging.set_verbosity(verbosity)
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={key: column[index] for key, column in columns.items()},
                distributions=distributions,
                value=value,
            )
            for index, value in enumerate(rows[target].astype(float).tolist())
        ]
    )
    return study


def _distribution(points: Points, key: str, values: "pd.Series[Any]") -> BaseDistribution:
    """The range of a knob's values, as a distribution."""
    if not points.is_number(key) or values.nunique() <= _CHOICES:
        return CategoricalDistribution(sorted(values.unique().tolist()))
    low, high = values.min(), values.max()
    log = low > 0 and points.is_logarithmic(key, values)
    if knobs()[key].kind == "int":
        return IntDistribution(int(low), int(high), log=log)
    return FloatDistribution(float(low), float(high), log=log)


def _figure(group: _Group, frame: pd.DataFrame, target: str) -> Figure:
    of = f" of {group.name}" if group.name else ""
    taken = f", evenly by rank {_MOST:,} of them" if len(group.rows) > _MOST else ""
    has_tenth = bool((frame["kind"] == _PED_ANOVA).any())
    tenth = f"; {_PED_ANOVA}: share of what separates the best tenth" * has_tenth
    caption = (
        f"Share of the variance of {target}, over {len(group.rows):,} configurations{of}{taken}. "
        f"fANOVA ({_TREES} trees of depth {_DEPTH}): share of all variance"
        f"{tenth}. Knobs that some configurations lack are left out."
    )
    name = f"importance-{group.name}" if group.name else "importance"
    x = quantitative("share", "importance", axis={"format": ".0%"}, scale={"domainMin": 0})
    return bars(name, f"Knob importances{of}", caption, frame.round(4), x)
