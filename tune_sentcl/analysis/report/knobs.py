"""Knobs: the score against each of them, and all of them together in parallel coordinates.

The first are the papers' ablation figures. In the last each configuration is a line through its
knobs to its score.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

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
    rounded,
    tooltips,
)
from tune_sentcl.analysis.report.points import Points, evenly, in_order
from tune_sentcl.analysis.report.table import number

_CROWDED = 4
_DENSE = 500
_METHOD = "method.name"
_COLOURS = 8
_BEST, _OTHERS = 100, 300
_LEAST = 10  # fewer lines show no pattern
_TICKS, _AXES, _MANY_LINES = 5, 10, 60


def knob_figures(points: Points) -> Iterator[Figure]:
    """One figure per varied knob, in the order of the config, the method's knobs first."""
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
    caption = f"{len(there):,} configurations; ring: the winner."
    if len(stopped):
        score = points.subject.title(points.subject.targets[0])
        caption += f" Triangles: {len(stopped):,} stopped ones by their last {score}."
    if there[points.line(key)].notna().any():
        caption += " Lines join configurations that differ in this knob alone."
    if (there["n"] > 1).any():
        caption += " Bars: ± one sd over seeds."
    if strips and crowded:
        caption += " Points of one value stand side by side."
    return Figure(
        name=f"knob-{key.replace('.', '-')}",
        title=title,
        caption=caption,
        spec=_spec(points, key, place, there, len(stopped)),
        data={"stopped": stopped} if len(stopped) else {},
        height=250,
    )


def _spec(points: Points, key: str, place: Spec, there: pd.DataFrame, stopped: int) -> Spec:
    """Stopped ones, lines, bars, points and a ring around the best, in this order."""
    scale = {"zero": False, "nice": False, "padding": 6, "domainMin": "@floor"}
    score = quantitative("@score", "@title", scale=scale, axis={"format": ".6~g"})
    at, column, line = {**place, "y": score}, points.knob(key), points.line(key)
    own = {**at, **_colour(points, column)} if key != _METHOD else at
    dense = len(there) > _DENSE
    known = f"isValid(datum.{column})"  # on an axis of names, null would become a name
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
    if log and distinct[0] <= 0:  # a logarithmic axis has no zero
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
    """Colour by method, if there are between two methods and the number of colours."""
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


def parallel_figure(points: Points) -> Iterator[Figure]:
    """The figure, if at least two knobs vary and ten configurations have scores."""
    subject = points.subject
    keys = [key for key in subject.knobs if points.frame[points.knob(key)].nunique() > 1][:_AXES]
    target = subject.targets[0]
    scored = points.frame[points.frame["t0"].notna()]
    if len(keys) < 2 or len(scored) < _LEAST:
        return
    others = evenly(max(0, len(scored) - _BEST), _OTHERS)
    drawn = scored.iloc[[*range(min(_BEST, len(scored))), *(_BEST + place for place in others)]]
    axes = {subject.labels[key]: _knob_axis(points, key, drawn) for key in keys}
    axes[subject.title(target)] = _axis(drawn["t0"], score=True)
    lines = pd.concat(
        drawn[["id"]].assign(place=place, y=heights, value=drawn["t0"], order=-drawn["rank"])
        for place, (heights, _) in enumerate(axes.values())
    )
    ticks = pd.concat(labels.assign(place=n) for n, (_, labels) in enumerate(axes.values()))
    ends = pd.DataFrame({"place": range(len(axes)), "name": list(axes), "y": 0.0, "top": 1.0})
    some = ""
    if len(drawn) < len(scored):
        count = f"{len(scored) - _BEST:,}"
        some = f" The best {_BEST} and {_OTHERS} of the {count} others, evenly by rank."
    yield Figure(
        name="parallel",
        title="Parallel coordinates",
        caption=f"One line per configuration; stronger colour means a better score.{some} A line "
        "is broken where a method lacks a knob. Point at a line to identify it.",
        spec=_parallel_spec(subject.title(target), len(axes), dense=len(drawn) > _MANY_LINES),
        data={"lines": rounded(lines, 4), "ticks": rounded(ticks, 4), "axes": ends},
        wide=True,
        height=360,
    )


_Axis = tuple["pd.Series[Any]", pd.DataFrame]
"""Heights of the values on an axis of length 1, and its tick labels."""


def _knob_axis(points: Points, key: str, drawn: pd.DataFrame) -> _Axis:
    values = drawn[points.knob(key)]
    if points.is_number(key):
        return _axis(values, log=points.is_logarithmic(key, values))
    order = in_order(values)
    heights = [(place + 0.5) / len(order) for place in range(len(order))]
    labels = pd.DataFrame({"y": heights, "text": [text[:22] for text in order]})
    return values.map(dict(zip(order, heights, strict=True))), labels


def _axis(values: "pd.Series[Any]", *, score: bool = False, log: bool = False) -> _Axis:
    numbers = values.astype(float)
    low, high = float(numbers.min()), float(numbers.max())
    scale, space = (np.log, np.geomspace) if log and low > 0 else (np.asarray, np.linspace)
    start = float(scale(low))
    span = float(scale(high)) - start or 1.0
    marks = sorted(set(numbers.dropna()))
    if score:
        marks = np.linspace(low, high, _TICKS).tolist()
        # Scores may differ only in their last digits.
        texts = [f"{mark:.{max(1, 1 - math.floor(math.log10(span)))}f}" for mark in marks]
    elif len(marks) <= _TICKS:
        texts = [number(mark, 4) for mark in marks]
    else:
        marks = space(low, high, _TICKS).tolist()
        texts = [number(float(f"{mark:.3g}")) for mark in marks]
    heights = (scale(np.array(marks, float)) - start) / span
    found: pd.Series[Any] = pd.Series((scale(numbers.to_numpy()) - start) / span, values.index)
    return found, pd.DataFrame({"y": heights, "text": texts})


def _parallel_spec(target: str, count: int, *, dense: bool) -> Spec:
    across = {"domain": [0, count - 1], "nice": False, "padding": 46}
    x = quantitative("place", "", axis=None, scale=across)
    y = quantitative("y", "", axis=None, scale={"domain": [0, 1.06]})
    at = {"x": x, "y": y}
    pointing = {"type": "point", "on": "pointerover", "fields": ["id"], "clear": "pointerout"}
    pointed = {"param": "pointed", "empty": False}
    legend = {"orient": "bottom", "gradientLength": 200, "direction": "horizontal"}
    width = {"condition": {**pointed, "value": 3.5}, "value": 1.1 if dense else 2.2}
    line = {
        **at,
        "detail": {"field": "id"},
        "order": {"field": "place"},
        "color": quantitative("value", target, legend=legend),
        "strokeWidth": width,
        **fading(0.55 if dense else 0.9, {**pointed, "value": 1}),
        "tooltip": tooltips({"id": "configuration", "value": target}),
    }
    broken: Spec = {"interpolate": "linear", "invalid": "break-paths-show-domains"}
    texts: Spec = {"align": "left", "dx": 5, "fontSize": 10.5}
    rim: Spec = {
        "stroke": "@paper",
        "strokeWidth": 4,
        "opacity": 0.85,
    }  # separates labels from lines
    label = {**at, "text": {"field": "text"}}
    name = {"x": x, "y": {**y, "field": "top"}, "text": {"field": "name"}}
    heading: Spec = {"fontSize": 12, "fontWeight": 600, "baseline": "bottom", "dy": -8}
    return layered(
        layer("line", line, "lines", params=[{"name": "pointed", "select": pointing}], **broken),
        layer("rule", {**at, "y2": {"field": "top"}}, "axes", stroke="@soft", strokeWidth=1.2),
        layer("text", label, "ticks", **texts, **rim),
        layer("text", label, "ticks", **texts, fill="@ink"),
        layer("text", name, "axes", **heading),
        height=320,
    )
