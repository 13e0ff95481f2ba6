"""A plot of regret against cost from the rows of `replay.py`."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from replay_search import DEFAULT

_OURS = "this search"
_SCHEME = ["#d1495b", "#30638e", "#edae49", "#00798c", "#8d6a9f", "#6b705c", "#adb5bd"]


def draw(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Write an SVG with a line a policy: the mean over the tables, with a 95 % interval.

    Where rows have `regret_held_out`, that is drawn.
    """
    import vl_convert

    file.write_text(vl_convert.vegalite_to_svg(chart(list(points(rows)))))


def points(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The means over the tables, by policy and budget."""

    def key(row: dict[str, Any]) -> tuple[str, float]:
        return row["policy"], row["budget"]

    for (policy, budget), group in groupby(sorted(rows, key=key), key):
        found = list(group)
        is_held_out = all(row["regret_held_out"] is not None for row in found)
        mean = fmean(row["regret_held_out" if is_held_out else "regret_mean"] for row in found)
        half = half_interval(found, "held_out" if is_held_out else "regret")
        name = _OURS if policy == DEFAULT else policy
        ends = {"low": max(0.0, mean - half), "high": mean + half}
        yield {"policy": name, "budget": budget, "regret": mean, **ends}


def chart(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The Vega-Lite specification."""
    names = sorted({one["policy"] for one in found}, key=lambda name: (name != _OURS, name))
    colors = {"domain": names, "range": _SCHEME[: len(names)]}
    budgets = sorted({one["budget"] for one in found})
    x = {
        "field": "budget",
        "type": "quantitative",
        "title": "cost, in whole trainings of one seed",
        "scale": {"type": "log", "domain": [budgets[0], budgets[-1]]},
        "axis": {"values": budgets, "grid": False},
    }
    regret = {"type": "quantitative", "title": "mean regret"}
    legend = {"title": None, "symbolOpacity": 1, "symbolType": "stroke"}
    color = {"field": "policy", "type": "nominal", "scale": colors, "legend": legend}
    width = {"condition": {"test": f"datum.policy === '{_OURS}'", "value": 3}, "value": 1.5}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": 460,
        "height": 280,
        "background": "#ffffff",
        "padding": 12,
        "data": {"values": list(found)},
        "encoding": {"x": x, "color": color},
        "layer": [
            {
                "mark": {"type": "area", "opacity": 0.13},
                "encoding": {"y": {"field": "low", **regret}, "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "line", "point": True},
                "encoding": {"y": {"field": "regret", **regret}, "strokeWidth": width},
            },
        ],
    }


def half_interval(rows: Sequence[dict[str, Any]], prefix: str = "regret") -> float:
    """Half of a 95 % interval of the mean over the tables."""
    squares = sum((row[f"{prefix}_high"] - row[f"{prefix}_low"]) ** 2 for row in rows)
    return float(squares**0.5 / 2 / len(rows))
