"""Score against each varied knob, as in the papers' ablation figures."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from tune_sentcl.analysis.report.figure import (
    BRUSH,
    CHOSEN,
    CONFIGURATIONS,
    HIGH,
    LOW,
    SCORE,
    SPREAD,
    Figure,
    Spec,
    fading,
    nominal,
    quantitative,
    tooltips,
)
from tune_sentcl.analysis.report.points import Points, in_order

_CROWDED = 4
_METHOD = "method.name"
_COLOURS = 8
_STOPPED = "stopped"


def knob_figures(points: Points) -> Iterator[Figure]:
    """One figure per varied knob, in the order of the config, the method's knobs first."""
    for key in points.subject.knobs:
        column = points.knob(key)
        if points.frame[column].nunique() > 1:
            yield _figure(points, key, column)


def _figure(points: Points, key: str, column: str) -> Figure:
    subject = points.subject
    there = points.frame[points.frame[column].notna()]
    stopped = points.stopped[points.stopped[column].notna()]
    values = pd.concat([there[column], stopped[column]]) if len(stopped) else there[column]
    crowded = len(values) > _CROWDED * values.nunique()
    log = points.is_number(key) and points.is_logarithmic(key, values)
    few = values.nunique() <= 10 and not subject.declared_log.get(key)
    strips = not points.is_number(key) or (few and crowded)
    where = (
        _strips(points, key, values, crowded=crowded)
        if strips
        else _scale(subject.labels[key], column, values, log=log)
    )
    drawn = ("id", "jitter", "last", "at", "seen", column, *_method(points))
    return Figure(
        name=f"knob-{key.replace('.', '-')}",
        title=subject.labels[key],
        caption=_caption(points, there, points.line(key), len(stopped), strips and crowded),
        spec={"params": [CHOSEN], "layer": _layers(points, key, where, len(there))},
        data={_STOPPED: stopped[list(dict.fromkeys(drawn))]} if len(stopped) else {},
        shared=("id", "n", "jitter", "best", column, points.line(key), *_method(points)),
        by_target=True,
        height=250,
    )


def _layers(points: Points, key: str, where: Spec, count: int) -> list[Spec]:
    scale = {"zero": False, "nice": False, "padding": 6}
    score = quantitative(SCORE, "", scale=scale, axis={"format": ".6~g"})
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
    if len(points.stopped):
        told = {**dict(list(shown.items())[:2]), "last": "last score", "seen": "of its training"}
        marks.append(
            {
                "data": {"name": _STOPPED},
                "mark": {"type": "point", "shape": "triangle-down", "size": 24, "clip": True},
                "encoding": {
                    **{**where, "y": {**score, "field": "at"}, **colour},
                    **{"tooltip": tooltips(told), **fading(0.25 if dense else 0.5)},
                },
            }
        )
    if points.frame[points.line(key)].notna().any():
        marks.append(
            {
                "data": {"name": CONFIGURATIONS},
                "transform": [{"filter": f"isValid(datum.{points.line(key)})"}],
                "mark": {"type": "line", "stroke": "@pale", "strokeWidth": 1, "clip": True},
                "encoding": {**where, "y": score, "detail": {"field": points.line(key)}},
            }
        )
    if int((points.frame["n"] > 1).sum()):
        marks.append(
            {
                "data": {"name": CONFIGURATIONS},
                "transform": [*there, {"filter": f"datum.{LOW} != null"}],
                "mark": {"type": "rule", "strokeWidth": 1.2, "clip": True},
                "encoding": {
                    **{**where, "y": spread, "y2": {"field": HIGH}, **colour},
                    **fading(0.25 if dense else 0.7),
                },
            }
        )
    marks += [
        {
            "data": {"name": CONFIGURATIONS},
            "transform": there,
            "params": [BRUSH],
            "mark": {"type": "circle", "size": 14 if dense else 42, "clip": True},
            "encoding": {
                **{**where, "y": score, **colour, "tooltip": tooltips(shown)},
                **fading(0.35 if dense else 0.85),
            },
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
    return marks


def _scale(title: str, column: str, values: "pd.Series[Any]", *, log: bool) -> Spec:
    distinct = sorted(values.astype(float).unique().tolist())
    axis: Spec = {"format": ".6~g"}
    if len(distinct) <= 12:
        axis["values"] = distinct
    scale: Spec = {"nice": False, "padding": 14}
    if log and distinct[0] <= 0:  # a logarithmic axis has no zero
        scale |= {"type": "symlog", "constant": min(x for x in distinct if x > 0)}
    elif log:
        scale["type"] = "log"
        axis["format"] = "~e" if distinct[-1] < 0.01 else ".6~g"
    else:
        scale["zero"] = False
    return {"x": quantitative(column, title, scale=scale, axis=axis)}


def _strips(points: Points, key: str, values: "pd.Series[Any]", *, crowded: bool) -> Spec:
    order: list[Any] = (
        sorted(values.unique().tolist()) if points.is_number(key) else in_order(values)
    )
    tilted = sum(len(str(value)) for value in order) > 40
    axis = {"labelAngle": -30 if tilted else 0, "labelLimit": 120}
    kind = "ordinal" if points.is_number(key) else "nominal"
    title = points.subject.labels[key]
    x = {"field": points.knob(key), "type": kind, "title": title, "sort": order, "axis": axis}
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


def _caption(points: Points, there: pd.DataFrame, line: str, stopped: int, spread: bool) -> str:
    joined = " Lines join configurations that differ in this knob alone." * bool(
        there[line].notna().any()
    )
    bars = " Bars: ± one sd over seeds." * bool((there["n"] > 1).any())
    beside = " Points of one value stand side by side." * spread
    score = points.subject.title(points.subject.targets[0])
    early = f" Triangles: {stopped:,} stopped ones by their last {score}." if stopped else ""
    return f"{len(there):,} configurations; ring: the best.{early}{joined}{bars}{beside}"
