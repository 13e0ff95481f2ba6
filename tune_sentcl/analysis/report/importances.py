"""Knob importances by Optuna's fANOVA."""

from collections.abc import Iterator
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
    FanovaImportanceEvaluator,
    get_param_importances,
)

from tune_sentcl.analysis.report.figure import Figure, nominal, quantitative, tooltips
from tune_sentcl.analysis.report.points import Points, evenly
from tune_sentcl.config import knobs

_METHOD = "method.name"
_LEAST = 8
_MOST = 1000
_TREES, _DEPTH = 32, 6
"""The cost of fANOVA grows with rows and leaves much faster than its accuracy: 64 full trees over
300 rows take 7 s; these over 3,000 rows take less than 1 s. Their shares differ by about 0.03."""
_CHOICES = 10


def importance_figures(points: Points) -> Iterator[Figure]:
    """One figure over all configurations, and one per method with knobs of its own."""
    scored = points.frame[points.frame["t0"].notna()]
    common = _varied(points, scored)
    groups = [("", scored, common)]
    if _METHOD in points.subject.knobs:
        for name, rows in scored.groupby(points.knob(_METHOD), sort=True):
            own = _varied(points, rows)
            groups += [] if {*own} <= {*common} else [(str(name), rows, own)]
    for name, rows, keys in groups:
        if len(rows) >= _LEAST and len(keys) > 1:
            shares = _importances(points, rows, keys)
            # If all scores are equal, the shares are not finite.
            if len(shares) and np.isfinite(shares["share"].to_numpy(float)).all():
                yield _figure(points, name, len(rows), shares)


def _varied(points: Points, rows: pd.DataFrame) -> list[str]:
    """The knobs that all rows have and in which they differ."""
    own = {key: rows[points.knob(key)] for key in points.subject.knobs}
    return [key for key, one in own.items() if one.notna().all() and one.nunique() > 1]


def _importances(points: Points, rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    drawn = rows.iloc[evenly(len(rows), _MOST)]
    distributions = {key: _distribution(points, key, rows[points.knob(key)]) for key in keys}
    columns = zip(*(drawn[points.knob(key)].tolist() for key in keys), strict=True)
    trials = [
        optuna.trial.create_trial(
            params=dict(zip(keys, own, strict=True)), distributions=distributions, value=value
        )
        for own, value in zip(columns, drawn["t0"].astype(float), strict=True)
    ]
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # creating a study logs a line
    try:
        study = optuna.create_study(direction="maximize")
    finally:
        optuna.logging.set_verbosity(verbosity)
    study.add_trials(trials)
    evaluator = FanovaImportanceEvaluator(n_trees=_TREES, max_depth=_DEPTH, seed=0)
    shares = get_param_importances(study, evaluator=evaluator)
    labels = points.subject.labels
    return pd.DataFrame({"place": map(labels.get, shares), "share": shares.values()})


def _distribution(points: Points, key: str, values: "pd.Series[Any]") -> BaseDistribution:
    """The range of a knob's values, as a distribution."""
    if not points.is_number(key) or values.nunique() <= _CHOICES:
        return CategoricalDistribution(sorted(values.unique().tolist()))
    low, high = values.min(), values.max()
    log = low > 0 and points.is_logarithmic(key, values)
    if knobs()[key].kind == "int":
        return IntDistribution(int(low), int(high), log=log)
    return FloatDistribution(float(low), float(high), log=log)


def _figure(points: Points, name: str, count: int, shares: pd.DataFrame) -> Figure:
    """Horizontal bars, the largest first."""
    of = f" of {name}" if name else ""
    taken = f", evenly by rank {_MOST:,} of them" if count > _MOST else ""
    target = points.subject.title(points.subject.targets[0])
    axis = {"ticks": False, "domain": False, "labelLimit": 140}
    encoding = {
        "y": nominal("place", "", sort=shares["place"].tolist(), axis=axis),
        "x": quantitative("share", "importance", axis={"format": ".0%"}, scale={"domainMin": 0}),
        "tooltip": tooltips({"place": "of", "share": "importance"}),
    }
    height, mark = 18 * len(shares), {"type": "bar", "cornerRadiusEnd": 2}
    return Figure(
        f"importance-{name}" if name else "importance",
        f"Knob importances{of}",
        f"Share of the variance of {target}, over {count:,} configurations{of}{taken}. fANOVA "
        f"({_TREES} trees of depth {_DEPTH}): share of all variance. Knobs that some "
        "configurations lack are left out.",
        {"data": {"name": "bars"}, "height": height, "mark": mark, "encoding": encoding},
        {"bars": shares.round(4)},
        height=80 + height,
    )
