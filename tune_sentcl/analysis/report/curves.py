"""Learning curves of the best configurations, with the others in grey."""

from collections.abc import Iterator

import pandas as pd

from tune_sentcl.analysis.report.figure import (
    LINES,
    Figure,
    Spec,
    fading,
    in_lines,
    layer,
    layered,
    nominal,
    quantitative,
    rounded,
    tooltips,
)
from tune_sentcl.analysis.report.points import evenly
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
    points = curves[curves["metric"] == metric].dropna(subset=["value", "samples"])
    points = points.merge(subject.trials[["trial_id", "configuration"]], on="trial_id")
    best = subject.over_seeds.index[:_BEST].tolist()
    named = enumerate(zip(best, subject.named(best), strict=True), 1)
    names = {key: in_lines(f"{rank}: {text}", _LINE) for rank, (key, text) in named}
    others = sorted({*points["configuration"]} - {*best})
    drawn = [*best, *(others[place] for place in evenly(len(others), _OTHERS))]
    points = points[points["configuration"].isin(drawn)]
    groups = points.groupby(["configuration", "samples"])["value"]
    frame = groups.agg(["mean", "std", "count"]).reset_index()
    frame = frame.assign(
        id=frame["configuration"].map(subject.brief),
        group=frame["configuration"].map(lambda name: names.get(name, _OTHER)),
        samples=frame["samples"].astype(int),
        low=frame["mean"] - frame["std"],
        high=frame["mean"] + frame["std"],
        n=frame["count"],
    )
    frame = frame[["id", "group", "samples", "mean", "low", "high", "n"]]
    every = frame.groupby("id").indices.values()
    kept = sorted(own[place] for own in every for place in evenly(len(own), _POINTS))
    return rounded(frame.iloc[kept], 5), len(others)


def _figure(name: str, title: str, frame: pd.DataFrame, num_others: int) -> Figure:
    groups = sorted({*frame["group"]} - {_OTHER}, key=lambda text: int(text.split(":")[0]))
    seeds = bool(frame.loc[frame["group"] != _OTHER, "low"].notna().any())
    x = quantitative("samples", "rows seen", axis={"format": "~s"}, scale={"nice": False})
    y = quantitative("mean", title, scale={"zero": False, "nice": False})
    legend = {**LINES, "orient": "bottom", "columns": 1, "title": None, "labelLimit": 320}
    colour = {"color": nominal("group", "", scale={"domain": groups}, legend=legend)}
    shown = {"group": "configuration", "samples": "rows seen", "mean": "mean", "n": "seeds"}
    layers = []
    caption = f"The {len(groups)} best configurations by rank."
    if _OTHER in set(frame["group"]):
        every = f"{_OTHERS} of the {num_others:,} others" if num_others > _OTHERS else "the others"
        caption += f" Grey: {every}, including pruned ones."
        encoding = {"x": x, "y": y, "detail": {"field": "id"}, **fading(0.6)}
        grey: Spec = {
            "where": [f"datum.group == '{_OTHER}'"],
            "stroke": "@pale",
            "strokeWidth": 0.8,
        }
        layers.append(layer("line", encoding, "curves", **grey))
    own = [f"datum.group != '{_OTHER}'"]
    if seeds:
        caption += " Bands: ± one sd over seeds."
        edges = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
        band = {"x": x, **edges, **colour}
        layers.append(layer("area", band, "curves", where=own, opacity=0.15))
    encoding = {"x": x, "y": y, **colour, "tooltip": tooltips(shown), **fading(1)}
    look: Spec = {"strokeWidth": 2, "point": {"size": 18}}
    layers.append(layer("line", encoding, "curves", where=own, **look))
    return Figure(
        name=name,
        title=f"Learning curves: {title}",
        caption=caption,
        spec=layered(*layers, height=280),
        data={"curves": frame},
        height=340,
    )
