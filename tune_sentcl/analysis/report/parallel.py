"""Parallel coordinates: each configuration is a line through its knobs to its score."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from tune_sentcl.analysis.report.figure import CHOSEN, Figure, Spec, fading, rounded, tooltips
from tune_sentcl.analysis.report.points import Points, in_order
from tune_sentcl.analysis.report.table import number

_BEST, _OTHERS = 100, 300
_LEAST = 10  # fewer lines show no pattern
_LINES, _TICKS, _AXES = "lines", "ticks", "axes"
_FEW, _MOST, _DENSE = 5, 10, 60


def parallel_figure(points: Points) -> Iterator[Figure]:
    """The figure, if at least two knobs vary and ten configurations have scores."""
    subject = points.subject
    keys = [key for key in subject.knobs if points.frame[points.knob(key)].nunique() > 1][:_MOST]
    target = subject.targets[0]
    scored = points.frame[points.frame[points.target(target)].notna()]
    if len(keys) < 2 or len(scored) < _LEAST:
        return
    drawn = _drawn(scored)
    axes = [
        _axis(
            drawn[points.knob(key)],
            points.is_number(key),
            log=points.is_number(key) and points.is_logarithmic(key, drawn[points.knob(key)]),
        )
        for key in keys
    ]
    axes.append(_axis(drawn[points.target(target)], True, score=True))
    lines = pd.concat(
        pd.DataFrame(
            {
                "id": drawn["id"],
                "place": place,
                "y": heights,
                "value": drawn[points.target(target)],
                "order": -drawn["rank"],
            }
        )
        for place, (heights, _) in enumerate(axes)
    )
    ticks = pd.concat(
        (ticks.assign(place=place) for place, (_, ticks) in enumerate(axes)), ignore_index=True
    )
    names = [*(subject.labels[key] for key in keys), subject.title(target)]
    ends = pd.DataFrame({"place": range(len(axes)), "name": names, "y": 0.0, "top": 1.0})
    left = len(scored) - len(drawn)
    some = (
        f" The best {_BEST} and {_OTHERS} of the {len(scored) - _BEST:,} others, evenly by rank."
        if left
        else ""
    )
    yield Figure(
        name="parallel",
        title="Parallel coordinates",
        caption="One line per configuration; stronger colour means a better score."
        + some
        + " A line is broken where a method lacks a knob. Point at a line to identify it.",
        spec=_spec(subject.title(target), len(axes), dense=len(drawn) > _DENSE),
        data={_LINES: rounded(lines), _TICKS: rounded(ticks), _AXES: ends},
        wide=True,
        height=360,
    )


def _drawn(scored: pd.DataFrame) -> pd.DataFrame:
    if len(scored) <= _BEST + _OTHERS:
        return scored
    others = np.linspace(_BEST, len(scored) - 1, _OTHERS).round().astype(int)
    return scored.iloc[[*range(_BEST), *others]]


def _axis(
    values: "pd.Series[Any]", scaled: bool, *, score: bool = False, log: bool = False
) -> tuple[Any, pd.DataFrame]:
    """Heights of the values on an axis of length 1, and its tick labels."""
    if not scaled:
        order = in_order(values)
        height_of = {text: (number_ + 0.5) / len(order) for number_, text in enumerate(order)}
        return values.map(height_of), pd.DataFrame(
            {"y": list(height_of.values()), "text": [t[:22] for t in order]}
        )
    numbers = values.astype(float)
    low, high = float(numbers.min()), float(numbers.max())
    logarithmic = log and low > 0
    there, ends = (np.log(numbers), np.log([low, high])) if logarithmic else (numbers, [low, high])
    span = (ends[1] - ends[0]) or 1.0
    distinct = sorted(set(numbers.dropna()))
    if len(distinct) <= _FEW and not score:
        marks = distinct
    elif logarithmic:
        marks = np.geomspace(low, high, _FEW).tolist()
    else:
        marks = np.linspace(low, high, _FEW).tolist()
    scale = np.log if logarithmic else np.asarray
    heights = (scale(np.array(marks, float)) - ends[0]) / span
    # Scores may differ only in their last digits.
    digits = 1 - math.floor(math.log10(span)) if score else 0
    if score:
        texts = [f"{mark:.{max(1, digits)}f}" for mark in marks]
    elif marks is distinct:
        texts = [number(mark, 4) for mark in marks]
    else:
        texts = [number(float(f"{mark:.3g}")) for mark in marks]
    return (there - ends[0]) / span, pd.DataFrame({"y": heights, "text": texts})


def _spec(target: str, count: int, *, dense: bool) -> Spec:
    x: Spec = {
        "field": "place",
        "type": "quantitative",
        "axis": None,
        "scale": {"domain": [0, count - 1], "nice": False, "padding": 46},
    }
    y: Spec = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [0, 1.06]}}
    hover = {
        "name": "pointed",
        "select": {
            "type": "point",
            "on": "pointerover",
            "fields": ["id"],
            "nearest": False,
            "clear": "pointerout",
        },
    }
    lines = {
        "data": {"name": _LINES},
        "params": [hover],
        "mark": {"type": "line", "interpolate": "linear", "invalid": "break-paths-show-domains"},
        "encoding": {
            "x": x,
            "y": y,
            "detail": {"field": "id"},
            "order": {"field": "place"},
            "color": {
                "field": "value",
                "type": "quantitative",
                "title": target,
                "legend": {"orient": "bottom", "gradientLength": 200, "direction": "horizontal"},
            },
            "strokeWidth": {
                "condition": {"param": "pointed", "empty": False, "value": 3.5},
                "value": 1.1 if dense else 2.2,
            },
            **fading(0.55 if dense else 0.9, {"param": "pointed", "empty": False, "value": 1}),
            "tooltip": tooltips({"id": "configuration", "value": target}),
        },
    }
    rules = {
        "data": {"name": _AXES},
        "mark": {"type": "rule", "stroke": "@soft", "strokeWidth": 1.2},
        "encoding": {"x": x, "y": y, "y2": {"field": "top"}},
    }
    label: Spec = {"type": "text", "align": "left", "dx": 5, "fontSize": 10.5}
    texts = [
        {
            "data": {"name": _TICKS},
            "mark": {**label, **ink},
            "encoding": {"x": x, "y": y, "text": {"field": "text"}},
        }
        # A rim in the page's colour separates labels from lines.
        for ink in ({"stroke": "@paper", "strokeWidth": 4, "opacity": 0.85}, {"fill": "@ink"})
    ]
    names = {
        "data": {"name": _AXES},
        "mark": {
            "type": "text",
            "fontSize": 12,
            "fontWeight": 600,
            "baseline": "bottom",
            "dy": -8,
        },
        "encoding": {"x": x, "y": {**y, "field": "top"}, "text": {"field": "name"}},
    }
    return {"params": [CHOSEN], "height": 320, "layer": [lines, rules, *texts, names]}
