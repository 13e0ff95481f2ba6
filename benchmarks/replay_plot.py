"""Draw regret against cost from the rows of `replay.py`.

    python benchmarks/replay.py TABLE... --budget 5 10 20 40 --policy default ... --json |
        python benchmarks/replay_plot.py FILE.svg [--title TEXT]

The input is one JSON array of rows, or several. A line is the mean over the tables of a policy,
with a 95 % interval. Where rows have `regret_held_out`, that is drawn, without an interval.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from replay import half_interval
from replay_search import DEFAULT

from tune_sentcl.analysis.report.pictures import check_pictures

_OURS = "this search"
_SCHEME = ["#d1495b", "#30638e", "#edae49", "#00798c", "#8d6a9f", "#6b705c", "#adb5bd"]


def main() -> None:
    """Read rows, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--title", default="")
    given = parser.parse_args()
    check_pictures()
    import vl_convert

    found = list(points(read(sys.stdin.read())))
    given.file.write_text(vl_convert.vegalite_to_svg(chart(found, given.title)))


def read(text: str) -> list[dict[str, Any]]:
    """The rows of one JSON array or of several behind each other."""
    decoder, rows = json.JSONDecoder(), []
    while text := text.strip():
        found, end = decoder.raw_decode(text)
        rows += found
        text = text[end:]
    return rows


def points(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The means over the tables, by policy and budget."""

    def key(row: dict[str, Any]) -> tuple[str, float]:
        return row["policy"], row["budget"]

    for (policy, budget), group in groupby(sorted(rows, key=key), key):
        found = list(group)
        held_out = [row["regret_held_out"] for row in found]
        is_held_out = None not in held_out
        mean = fmean(held_out if is_held_out else (row["regret_mean"] for row in found))
        half = 0.0 if is_held_out else half_interval(found)
        name = _OURS if policy == DEFAULT else policy
        ends = {"low": max(0.0, mean - half), "high": mean + half}
        yield {"policy": name, "budget": budget, "regret": mean, **ends}


def chart(found: Sequence[dict[str, Any]], title: str) -> dict[str, Any]:
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
    color = {"field": "policy", "type": "nominal", "scale": colors, "title": None}
    width = {"condition": {"test": f"datum.policy === '{_OURS}'", "value": 3}, "value": 1.5}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": title,
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


if __name__ == "__main__":
    main()
