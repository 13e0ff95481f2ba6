"""Learning curves of the best configurations, with the others in grey."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from tune_sentcl.analysis.report.figure import (
    CHOSEN,
    LINES,
    Figure,
    Spec,
    fading,
    in_lines,
    nominal,
    quantitative,
    rounded,
    tooltips,
)
from tune_sentcl.analysis.report.subject import Subject, title_of
from tune_sentcl.objective import DEFAULT, early_stopping_objective

_BEST, _OTHERS, _POINTS = 6, 120, 200
_OTHER = "others"
_LINE = 48  # characters of a line of the legend


def curve_figures(subject: Subject) -> Iterator[Figure]:
    """A figure of the early-stopping objective, and one of the training loss."""
    # Only scores that were measured during training have a curve.
    there = set(subject.frames.curves["metric"].unique())
    drawn = [one for one in (DEFAULT, *subject.own.values()) if one.curve in there]
    compared = early_stopping_objective(subject.objectives[0], drawn)
    for metric, title in ((compared.curve, title_of(compared)), ("loss", "training loss")):
        frame, num_others = _frame(subject, metric)
        if frame["samples"].nunique() > 1:
            yield _figure(f"curve-{metric.replace('.', '-')}", title, frame, num_others)


def _frame(subject: Subject, metric: str) -> tuple[pd.DataFrame, int]:
    """The points to draw, and the number of other configurations that have a curve."""
    curves = subject.frames.curves
    kept = curves[
        (curves["metric"] == metric) & curves["value"].notna() & curves["samples"].notna()
    ]
    trials = subject.trials[["trial_id", "configuration"]]
    points = kept[["trial_id", "samples", "value"]].merge(trials, on="trial_id")
    best = subject.over_seeds["configuration", ""].head(_BEST).tolist()
    there = points["configuration"].drop_duplicates()
    others = there[~there.isin(best)].sort_values()
    count = len(others)
    if count > _OTHERS:
        others = others.iloc[np.linspace(0, len(others) - 1, _OTHERS).round().astype(int)]
    points = points[points["configuration"].isin([*best, *others])]
    means = points.groupby(["configuration", "samples"])["value"].agg(["mean", "std", "count"])
    means = means.reset_index()
    shown = enumerate(zip(best, subject.named(best), strict=True), 1)
    names = {key: in_lines(f"{index}: {text}", _LINE) for index, (key, text) in shown}
    found = pd.DataFrame(
        {
            "id": means["configuration"].map(subject.brief),
            "group": [names.get(key, _OTHER) for key in means["configuration"]],
            "samples": means["samples"].astype(int),
            "mean": means["mean"],
            "low": means["mean"] - means["std"],
            "high": means["mean"] + means["std"],
            "n": means["count"],
        }
    )
    thinned = found.groupby("id", group_keys=False)[list(found.columns)].apply(_thin)
    return rounded(thinned.reset_index(drop=True), 5), count


def _thin(curve: pd.DataFrame) -> pd.DataFrame:
    """At most `_POINTS` points, with the last one."""
    if len(curve) <= _POINTS:
        return curve
    return curve.iloc[np.linspace(0, len(curve) - 1, _POINTS).round().astype(int)]


def _figure(name: str, title: str, frame: pd.DataFrame, num_others: int) -> Figure:
    groups = sorted(set(frame["group"]) - {_OTHER}, key=lambda text: int(text.split(":")[0]))
    seeds = bool(frame.loc[frame["group"] != _OTHER, "low"].notna().any())
    x = quantitative("samples", "rows seen", axis={"format": "~s"}, scale={"nice": False})
    y = quantitative("mean", title, scale={"zero": False, "nice": False})
    colour = nominal(
        "group",
        "",
        scale={"domain": groups},
        legend={**LINES, "orient": "bottom", "columns": 1, "title": None, "labelLimit": 320},
    )
    shown = tooltips(
        {"group": "configuration", "samples": "rows seen", "mean": "mean", "n": "seeds"}
    )
    own = {"transform": [{"filter": f"datum.group != '{_OTHER}'"}]}
    pale: list[Spec] = [
        {
            "transform": [{"filter": f"datum.group == '{_OTHER}'"}],
            "mark": {"type": "line", "stroke": "@pale", "strokeWidth": 0.8},
            "encoding": {"x": x, "y": y, "detail": {"field": "id"}, **fading(0.6)},
        }
    ]
    layers: list[Spec] = [
        {
            **own,
            "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 18}},
            "encoding": {"x": x, "y": y, "color": colour, "tooltip": shown, **fading(1)},
        }
    ]
    if seeds:
        band = {"type": "area", "opacity": 0.15}
        edges = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
        layers.insert(0, {**own, "mark": band, "encoding": {"x": x, **edges, "color": colour}})
    caption = f"The {len(groups)} best configurations by rank."
    if _OTHER in set(frame["group"]):
        layers = pale + layers
        others = (
            f"{_OTHERS} of the {num_others:,} others" if num_others > _OTHERS else "the others"
        )
        caption += f" Grey: {others}, including pruned ones."
    if seeds:
        caption += " Bands: ± one sd over seeds."
    return Figure(
        name=name,
        title=f"Learning curves: {title}",
        caption=caption,
        spec={"params": [CHOSEN], "data": {"name": "curves"}, "height": 280, "layer": layers},
        data={"curves": frame},
        height=340,
    )
