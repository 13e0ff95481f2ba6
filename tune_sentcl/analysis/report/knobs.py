"""Score against each varied knob, as in the papers' ablation figures."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from tune_sentcl.analysis.report.figure import (
    CONFIGURATIONS,
    HIGH,
    LOW,
    SCORE,
    SPREAD,
    Figure,
    Spec,
    nominal,
    quantitative,
    tooltips,
)
from tune_sentcl.analysis.report.points import Points, in_order, is_logarithmic, is_number

_FEW, _BINS = 20, 12
_CROWDED = 4
_TREND = "trend"
_METHOD = "method.name"
_COLOURS = 8


def knob_figures(points: Points) -> Iterator[Figure]:
    """One figure per varied knob, in the order of the config, the method's knobs first."""
    for key in points.subject.knobs:
        column = points.knob(key)
        if points.frame[column].nunique() > 1:
            yield _figure(points, key, column)


def _figure(points: Points, key: str, column: str) -> Figure:
    subject = points.subject
    there = points.frame[points.frame[column].notna()]
    crowded = len(there) > _CROWDED * there[column].nunique()
    strips = not is_number(key) or (there[column].nunique() <= 10 and crowded)
    where = (
        _strips(key, subject.labels[key], column, there[column], crowded=crowded)
        if strips
        else _scale(subject.labels[key], column, there[column])
    )
    trend = pd.concat(
        [_trend(there, column, index, strips) for index in range(len(subject.targets))],
        ignore_index=True,
    )
    # With one configuration per value, means would repeat the points.
    means = len(there) > there[column].nunique()
    return Figure(
        name=f"knob-{key.replace('.', '-')}",
        title=subject.labels[key],
        caption=_caption(key, there, column, strips, means=means),
        spec={"layer": _layers(points, key, where, len(there), means=means)},
        shared=("id", "n", "jitter", "best", column, *_method(points)),
        data={_TREND: trend},
        by_target=True,
        height=250,
    )


def _layers(points: Points, key: str, where: Spec, count: int, *, means: bool) -> list[Spec]:
    score = quantitative(SCORE, "", scale={"zero": False, "padding": 6}, axis={"format": ".6~g"})
    spread = {**score, "field": LOW}
    colour = _colour(points, points.knob(key)) if key != _METHOD else {}
    dense = count > 500
    shown = {
        "id": "configuration",
        where["x"]["field"]: points.subject.labels[key],
        SCORE: "mean",
        SPREAD: "sd",
        "n": "seeds",
    }
    # On an axis of names, null would become a name.
    there: list[Spec] = [{"filter": f"isValid(datum['{where['x']['field']}'])"}]
    marks: list[Spec] = []
    if int((points.frame["n"] > 1).sum()):
        marks.append(
            {
                "data": {"name": CONFIGURATIONS},
                "transform": [*there, {"filter": f"datum.{LOW} != null"}],
                "mark": {
                    "type": "rule",
                    "strokeWidth": 1.2,
                    "opacity": 0.25 if dense else 0.7,
                    "clip": True,
                },
                "encoding": {**where, "y": spread, "y2": {"field": HIGH}, **colour},
            }
        )
    marks += [
        {
            "data": {"name": CONFIGURATIONS},
            "transform": there,
            "mark": {
                "type": "circle",
                "size": 14 if dense else 42,
                "opacity": 0.35 if dense else 0.85,
                "clip": True,
            },
            "encoding": {**where, "y": score, **colour, "tooltip": tooltips(shown)},
        },
        {
            "data": {"name": _TREND},
            "mark": _line(key, dots=means),
            "encoding": {"x": where["x"], "y": score},
        },
        {
            "data": {"name": CONFIGURATIONS},
            "transform": [*there, {"filter": "datum.best"}],
            "mark": {
                "type": "point",
                "stroke": "@ink",
                "strokeWidth": 2,
                "size": 160,
                "opacity": 1,
                "clip": True,
            },
            "encoding": {**where, "y": score},
        },
    ]
    return marks if means or is_number(key) else [m for m in marks if m["data"]["name"] != _TREND]


def _line(key: str, *, dots: bool) -> Spec:
    """A line through the means; diamonds without a line for knobs without a numeric scale."""
    dot = {"filled": True, "fill": "@ink", "stroke": "@paper", "strokeWidth": 1, "size": 46}
    if not is_number(key):
        return {"type": "point", "shape": "diamond", **dot, "size": 90, "opacity": 1, "clip": True}
    line = {"type": "line", "stroke": "@ink", "strokeWidth": 1.8, "clip": True}
    return {**line, "point": dot if dots else False}


def _scale(title: str, column: str, values: "pd.Series[Any]") -> Spec:
    distinct = sorted(values.astype(float).unique().tolist())
    axis: Spec = {"format": ".6~g"}
    if len(distinct) <= 12:
        axis["values"] = distinct
    scale: Spec = {"nice": False, "padding": 14}
    if is_logarithmic(values):
        scale["type"] = "log"
        axis["format"] = "~e" if distinct[-1] < 0.01 else ".6~g"
    else:
        scale["zero"] = False
    return {"x": quantitative(column, title, scale=scale, axis=axis)}


def _strips(key: str, title: str, column: str, values: "pd.Series[Any]", *, crowded: bool) -> Spec:
    order: list[Any] = sorted(values.unique().tolist()) if is_number(key) else in_order(values)
    tilted = sum(len(str(value)) for value in order) > 40
    axis = {"labelAngle": -30 if tilted else 0, "labelLimit": 120}
    kind = "ordinal" if is_number(key) else "nominal"
    x = {"field": column, "type": kind, "title": title, "sort": order, "axis": axis}
    if not crowded:
        return {"x": x}
    offset = {"field": "jitter", "type": "quantitative", "scale": {"domain": [-1, 1]}}
    return {"x": x, "xOffset": offset}


def _method(points: Points) -> tuple[str, ...]:
    return (points.knob(_METHOD),) if _METHOD in points.subject.knobs else ()


def _colour(points: Points, shown: str) -> Spec:
    """Colour by method, if there are between two methods and the number of colours."""
    if not _method(points):
        return {}
    (column,) = _method(points)
    names = in_order(points.frame[column])
    if not 1 < len(names) <= _COLOURS:
        return {}
    there = points.frame.loc[points.frame[shown].notna(), column]
    legend = {"orient": "top", "title": None, "values": in_order(there)}
    return {"color": nominal(column, "method", scale={"domain": names}, legend=legend)}


def _trend(there: pd.DataFrame, column: str, target: int, strips: bool) -> pd.DataFrame:
    """Mean score per value; if there are many values, per twelfth of the configurations."""
    found = there[[column, f"t{target}"]].dropna()
    if strips or found[column].nunique() <= _FEW:
        means = found.groupby(column, sort=True)[f"t{target}"].mean().reset_index()
    else:
        order = found.sort_values(column, kind="stable")
        part = np.arange(len(order)) * _BINS // len(order)
        # The median is the middle of a part also on a logarithmic scale.
        means = order.groupby(part).agg({column: "median", f"t{target}": "mean"})
    means.columns = pd.Index([column, SCORE])
    return means.assign(target=target).round(6)


def _caption(key: str, there: pd.DataFrame, column: str, strips: bool, *, means: bool) -> str:
    count, values = len(there), there[column].nunique()
    each = "value" if strips or values <= _FEW else "twelfth of the configurations"
    shown = f" {'Line' if is_number(key) else 'Diamonds'}: mean of each {each}." if means else ""
    bars = " Bars: ± one sd over seeds." if int((there["n"] > 1).sum()) else ""
    return f"{count:,} configurations; ring: the best.{shown}{bars}"
