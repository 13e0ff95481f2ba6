"""Figures of the score against each hyperparameter, and of the hyperparameters' importances."""

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

from tune_sentcl.analysis.report.figure import (
    BRUSH,
    CONFIGURATIONS,
    Figure,
    Spec,
    fading,
    layer,
    layered,
    nominal,
    quantitative,
    tooltips,
)
from tune_sentcl.analysis.report.points import Points, evenly, in_order
from tune_sentcl.config import knobs

_CROWDED = 4
_DENSE = 500
_METHOD = "method.name"
_COLOURS = 8


def knob_figures(points: Points) -> Iterator[Figure]:
    """One figure per varied hyperparameter, in the order of the config."""
    for key in points.subject.knobs:
        if points.frame[points.knob(key)].nunique() > 1:
            yield _figure(points, key)


def _figure(points: Points, key: str) -> Figure:
    column, title = points.knob(key), points.subject.labels[key]
    there = points.frame[points.frame[column].notna()]
    stopped = points.stopped[points.stopped[column].notna()]
    values = pd.concat([there[column], stopped[column]]) if len(stopped) else there[column]
    crowded = len(values) > _CROWDED * values.nunique()
    few = values.nunique() <= 10 and not points.subject.declared_log.get(key)
    strips = not points.is_number(key) or (few and crowded)
    if strips:
        place = _strips(points, key, values, crowded=crowded)
    else:
        place = _scale(title, column, values, log=points.is_logarithmic(key, values))
    caption = f"Each point is one of {len(there):,} configurations; a ring marks the winner."
    if len(stopped):
        score = points.subject.title(points.subject.targets[0])
        caption += (
            f" Triangles show {len(stopped):,} configurations that were stopped early, by their "
            f"last {score}."
        )
    if there[points.line(key)].notna().any():
        caption += " Lines join configurations that differ only in this hyperparameter."
    if (there["n"] > 1).any():
        caption += " Bars: ± one standard deviation over seeds."
    if strips and crowded:
        caption += " Points with the same value stand side by side."
    return Figure(
        name=f"knob-{key.replace('.', '-')}",
        title=title,
        caption=caption,
        spec=_spec(points, key, place, there, len(stopped)),
        data={"stopped": stopped} if len(stopped) else {},
        height=250,
    )


def _spec(points: Points, key: str, place: Spec, there: pd.DataFrame, stopped: int) -> Spec:
    scale = {"zero": False, "nice": False, "padding": 6, "domainMin": "@floor"}
    score = quantitative("@score", "@title", scale=scale, axis={"format": ".6~g"})
    at, column, line = {**place, "y": score}, points.knob(key), points.line(key)
    own = {**at, **_colour(points, column)} if key != _METHOD else at
    dense = len(there) > _DENSE
    # Vega-Lite would show a missing value on an axis of names as the name "null".
    known = f"isValid(datum.{column})"
    named = {"id": "configuration", column: points.subject.labels[key]}
    shown = tooltips({**named, "@score": "mean", "@sd": "sd", "n": "seeds"})
    layers, look = [], Spec()
    if stopped:
        last = tooltips({**named, "last": "last score", "seen": "of its training"})
        look = {"shape": "triangle-down", "size": 24, "clip": True}
        encoding = {**own, "tooltip": last, **fading(0.25 if dense else 0.5)}
        layers.append(layer("point", encoding, "stopped", **look))
    if points.frame[line].notna().any():
        look = {"where": [f"isValid(datum.{line})"], "stroke": "@pale", "strokeWidth": 1}
        encoding = {**at, "detail": {"field": line}}
        layers.append(layer("line", encoding, CONFIGURATIONS, clip=True, **look))
    if (points.frame["n"] > 1).any():
        ends = {"y": {**score, "field": "@low"}, "y2": {"field": "@high"}}
        encoding = {**own, **ends, **fading(0.25 if dense else 0.7)}
        look = {"where": [known, {"field": "@low", "valid": True}], "strokeWidth": 1.2}
        layers.append(layer("rule", encoding, CONFIGURATIONS, clip=True, **look))
    encoding = {**own, "tooltip": shown, **fading(0.35 if dense else 0.85)}
    look = {"where": [known], "params": [BRUSH], "size": 14 if dense else 42, "clip": True}
    layers.append(layer("circle", encoding, CONFIGURATIONS, **look))
    ring: Spec = {"stroke": "@ink", "strokeWidth": 2, "size": 160, "opacity": 1, "clip": True}
    layers.append(layer("point", at, CONFIGURATIONS, where=[known, "datum.best"], **ring))
    return layered(*layers)


def _scale(title: str, column: str, values: "pd.Series[Any]", *, log: bool) -> Spec:
    distinct = sorted(values.astype(float).unique().tolist())
    axis: Spec = {"format": ".6~g"}
    if len(distinct) <= 12:
        axis["values"] = distinct
    scale: Spec = {"nice": False, "padding": 14}
    if log and distinct[0] <= 0:
        # A logarithmic axis cannot show 0, so `symlog` is linear near 0.
        scale |= {"type": "symlog", "constant": min(x for x in distinct if x > 0)}
    elif log:
        scale["type"] = "log"
        axis["format"] = "~e" if distinct[-1] < 0.01 else ".6~g"
    else:
        scale["zero"] = False
    return {"x": quantitative(column, title, scale=scale, axis=axis)}


def _strips(points: Points, key: str, values: "pd.Series[Any]", *, crowded: bool) -> Spec:
    is_number = points.is_number(key)
    order: list[Any] = sorted(values.unique().tolist()) if is_number else in_order(values)
    tilted = sum(len(str(value)) for value in order) > 40
    axis = {"labelAngle": -30 if tilted else 0, "labelLimit": 120}
    x = nominal(points.knob(key), points.subject.labels[key], sort=order, axis=axis)
    x["type"] = "ordinal" if is_number else "nominal"
    offset = {"field": "jitter", "type": "quantitative", "scale": {"domain": [-1, 1]}}
    return {"x": x, "xOffset": offset} if crowded else {"x": x}


def _colour(points: Points, shown: str) -> Spec:
    """Colours by method, if the study has 2 to `_COLOURS` methods; else none."""
    if _METHOD not in points.subject.knobs:
        return {}
    column = points.knob(_METHOD)
    names = in_order(points.frame[column])
    if not 1 < len(names) <= _COLOURS:
        return {}
    there = points.frame.loc[points.frame[shown].notna(), column]
    used = in_order(there)
    legend = {"orient": "top", "title": None, "values": used} if len(used) > 1 else None
    return {"color": nominal(column, "method", scale={"domain": names}, legend=legend)}


_LEAST = 8
_MOST = 1000
_TREES, _DEPTH = 32, 6
"""fANOVA's time grows with rows and leaves much faster than its accuracy.

64 full trees over 300 rows take 7 s; these trees over 3,000 rows take less than 1 s. The shares
differ by about 0.03.
"""
_CHOICES = 10


def importance_figures(points: Points) -> Iterator[Figure]:
    """One figure over all configurations, and one per method with hyperparameters of its own."""
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
            # If all scores are equal, Optuna's importances are not finite.
            if len(shares) and np.isfinite(shares["share"].to_numpy(float)).all():
                yield _importance_figure(points, name, len(rows), shares)


def _varied(points: Points, rows: pd.DataFrame) -> list[str]:
    """The hyperparameters that all rows have and in which rows differ."""
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
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # `create_study` would log a line
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
    if not points.is_number(key) or values.nunique() <= _CHOICES:
        return CategoricalDistribution(sorted(values.unique().tolist()))
    low, high = values.min(), values.max()
    log = low > 0 and points.is_logarithmic(key, values)
    if knobs()[key].kind == "int":
        return IntDistribution(int(low), int(high), log=log)
    return FloatDistribution(float(low), float(high), log=log)


def _importance_figure(points: Points, name: str, count: int, shares: pd.DataFrame) -> Figure:
    """Horizontal bars, the largest first."""
    of = f" of {name}" if name else ""
    taken = f", of which {_MOST:,} are taken evenly by rank" if count > _MOST else ""
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
        f"Hyperparameter importances{of}",
        f"Each bar is the share of the variance of {target} over {count:,} "
        f"configurations{of}{taken} that a hyperparameter explains, by fANOVA ({_TREES} "
        f"trees of depth {_DEPTH}). Hyperparameters that some configurations lack are left "
        "out.",
        {"data": {"name": "bars"}, "height": height, "mark": mark, "encoding": encoding},
        {"bars": shares.round(4)},
        height=80 + height,
    )
