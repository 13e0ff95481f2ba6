"""Parallel coordinates: each configuration is a line through its knobs to its score."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from tune_sentcl.analysis.report.figure import (
    Figure,
    Spec,
    fading,
    layer,
    layered,
    quantitative,
    rounded,
    tooltips,
)
from tune_sentcl.analysis.report.points import Points, evenly, in_order
from tune_sentcl.analysis.report.table import number

_BEST, _OTHERS = 100, 300
_LEAST = 10  # fewer lines show no pattern
_FEW, _MOST, _DENSE = 5, 10, 60


def parallel_figure(points: Points) -> Iterator[Figure]:
    """The figure, if at least two knobs vary and ten configurations have scores."""
    subject = points.subject
    keys = [key for key in subject.knobs if points.frame[points.knob(key)].nunique() > 1][:_MOST]
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
        spec=_spec(subject.title(target), len(axes), dense=len(drawn) > _DENSE),
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
        marks = np.linspace(low, high, _FEW).tolist()
        # Scores may differ only in their last digits.
        texts = [f"{mark:.{max(1, 1 - math.floor(math.log10(span)))}f}" for mark in marks]
    elif len(marks) <= _FEW:
        texts = [number(mark, 4) for mark in marks]
    else:
        marks = space(low, high, _FEW).tolist()
        texts = [number(float(f"{mark:.3g}")) for mark in marks]
    heights = (scale(np.array(marks, float)) - start) / span
    found: pd.Series[Any] = pd.Series((scale(numbers.to_numpy()) - start) / span, values.index)
    return found, pd.DataFrame({"y": heights, "text": texts})


def _spec(target: str, count: int, *, dense: bool) -> Spec:
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
