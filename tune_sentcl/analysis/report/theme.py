"""How figures look, on paper and in the page: Vega-Lite's `config`, light and dark.

The colours of categories are Okabe and Ito's, which people with any kind of colour blindness tell
apart (https://jfly.uni-koeln.de/color/); a score's ramp goes from pale to deep in one hue, so that
it reads in grey too.
"""

import json
import re
from typing import Any, Literal

from tune_sentcl.analysis.report.figure import Spec

Scheme = Literal["light", "dark"]

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
_CATEGORIES: dict[Scheme, list[str]] = {
    "light": [
        "#0072b2",
        "#d55e00",
        "#009e73",
        "#cc79a7",
        "#e69f00",
        "#56b4e9",
        "#7a7a00",
        "#333333",
    ],
    "dark": [
        "#56b4e9",
        "#e69f00",
        "#2fc49a",
        "#e39cc4",
        "#f0e442",
        "#ff8b4d",
        "#8ab0ff",
        "#dddddd",
    ],
}
_RAMP: dict[Scheme, list[str]] = {
    "light": ["#dbe7f1", "#7fb2d8", "#0b4f86", "#062f52"],
    "dark": ["#24384a", "#2f6ea3", "#7fc4ff", "#e3f3ff"],
}
_COLOURS: dict[Scheme, dict[str, str]] = {
    "light": {
        "ink": "#1c2430",
        "soft": "#566070",
        "line": "#e3e7ec",
        "pale": "#b4bdc8",
        "accent": "#d55e00",
        "paper": "#ffffff",
    },
    "dark": {
        "ink": "#e6e9ee",
        "soft": "#a3adba",
        "line": "#2c343f",
        "pale": "#5a6675",
        "accent": "#ffa057",
        "paper": "#14181e",
    },
}


def colours(scheme: Scheme) -> dict[str, str]:
    """What `@ink`, `@soft`, `@pale`, `@accent` and `@paper` stand for in a specification."""
    return _COLOURS[scheme]


def themed(spec: Spec, scheme: Scheme) -> Spec:
    """A specification with a scheme's colours in the place of their names."""
    found: Spec = json.loads(
        re.sub(r'"@(\w+)"', lambda name: f'"{_COLOURS[scheme][name[1]]}"', json.dumps(spec))
    )
    return {**found, "config": config(scheme)}


def config(scheme: Scheme) -> dict[str, Any]:
    """The `config` of every figure's specification."""
    ink, soft, line, pale, *_ = _COLOURS[scheme].values()
    first = _CATEGORIES[scheme][0]
    return {
        "background": None,
        "font": _FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": soft,
            "titleColor": ink,
            "titleFontWeight": 500,
            "titleFontSize": 12,
            "labelFontSize": 11,
            "titlePadding": 8,
            "gridColor": line,
            "domainColor": pale,
            "tickColor": pale,
            "labelOverlap": True,
        },
        "axisX": {"grid": False},
        "legend": {
            "labelColor": ink,
            "titleColor": soft,
            "titleFontWeight": 500,
            "labelFontSize": 11.5,
            "titleFontSize": 11.5,
            "symbolOpacity": 1,
            "symbolStrokeWidth": 2,
        },
        "range": {"category": _CATEGORIES[scheme], "ramp": _RAMP[scheme]},
        "mark": {"color": first},
        "rule": {"color": first},
        "text": {"color": ink, "fontSize": 11},
    }
