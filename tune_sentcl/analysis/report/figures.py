"""The figures of the best configurations: scores by seed, learning curves and Pareto front."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from tune_sentcl.analysis.frames import front_of
from tune_sentcl.analysis.report.figure import (
    BRUSH,
    CONFIGURATIONS,
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
    slug,
    tooltips,
)
from tune_sentcl.analysis.report.first_screen import FirstScreen
from tune_sentcl.analysis.report.points import Points, evenly, is_logarithmic
from tune_sentcl.analysis.report.report_data import (
    STS_AVERAGE,
    TRANSFER_AVERAGE,
    ReportData,
    measure_of,
    metric_of,
    title_of,
)
from tune_sentcl.analysis.report.table import Hours, Row, Table
from tune_sentcl.config import draws
from tune_sentcl.history import Configuration
from tune_sentcl.objective import DEFAULT, Objective, objective_named

_DRAWN = 10
_KINDS = ("search seeds", "confirmation seeds")
_LABEL_LINE = 34  # the largest number of characters in a line of a label
_GROUPS = {"winner": "winner", "": "not proven worse", "worse": "proven worse"}
# The largest numbers of highlighted curves, of grey curves, and of points of a curve.
_BEST, _OTHERS, _POINTS = 6, 120, 200
_OTHER = "others"
_LEGEND_LINE = 48
_COST = "cost"
_ROW = 34  # height of a row in pixels


def role_figure(screen: FirstScreen) -> Iterator[Figure]:
    """The first figure: for each labelled configuration, the score of each seed and the mean."""
    rows, (objective, *tests) = screen.rows, screen.measured
    frames = []
    for one in (objective, *tests):
        means = {label: screen.score(label, one).mean for label in rows}
        frames.append(_seeds(screen.subject, one, rows, means).assign(split=one.split))
    frame = pd.concat(frames)
    if frame.empty:
        return
    frame["end"] = frame.groupby(["name", "split"])["score"].transform("max")
    splits = [one.split for one in (objective, *tests)]
    at = {
        "x": quantitative("score", "", scale={**_TIGHT, "padding": 44}),
        "y": nominal("name", "", sort=[*rows], axis={"ticks": False, "domain": False}),
        "color": nominal("split", "", **_coloured(splits, ["@accent", "@mark"])),
    }
    at |= {"yOffset": {"field": "split", "sort": splits}} if tests else {}
    height = len(rows) * _ROW * len(splits)
    yield Figure(
        name="gain",
        title=f"{measure_of(objective) if not tests else metric_of(objective)}",
        caption="Each point is one seed. Bar and number show the mean over the seeds that the "
        "verdict compares; without a verdict, over the search seeds.",
        spec=layered(*_seed_layers(frame, at, metric_of(objective), values=True), height=height),
        data={"seeds": frame.round(4)},
        height=70 + height,
    )


def serving_figure(subject: ReportData) -> Iterator[Figure]:
    """Score, milliseconds and bytes in one figure, if no trial trained and costs were measured."""
    objective = subject.objectives[0]
    columns = {"score": str(objective)}
    columns |= {name: f"cost:{name}:dev" for name in ("milliseconds_64", "embedding_bytes")}
    is_trained = any(draws(one.values) for one in subject.shown)
    if is_trained or not {*columns.values()} <= {*subject.trials.columns}:
        return
    names = [*subject.seeds]
    frame = pd.DataFrame({"id": map(subject.brief, names), "name": subject.named(names)}, names)
    for name, column in columns.items():
        means = {one: found.mean for one, found in subject.over_seeds(column).items()}
        frame[name] = pd.Series(means, dtype=float)
    frame = frame.dropna()
    if frame.empty:
        return
    better = frame[[*columns]].to_numpy() * [-1 if objective.is_cost else 1, -1, -1]
    best = np.array(front_of(better), bool)
    titles = {"name": "configuration", "score": title_of(objective)}
    titles |= {name: title_of(objective_named(columns[name])) for name in [*columns][1:]}
    slow: Spec = {"scale": {"range": ["@accent", "@mark"]}, "legend": {"orient": "top"}}
    at = {
        "x": quantitative("embedding_bytes", titles["embedding_bytes"], scale=_IN_RATIOS),
        "y": quantitative("score", titles["score"], scale=_TIGHT),
        "color": quantitative("milliseconds_64", titles["milliseconds_64"], **slow),
        "tooltip": tooltips(titles),
    }
    others = layer("point", {**at, **fading(0.5)}, "all", size=40)
    front = layer("circle", {**at, **fading(1)}, "front", size=90)
    data = {"all": rounded(frame), "front": rounded(frame[best])}
    yield Figure(
        name="serving",
        title=f"{titles['score']} against bytes and milliseconds",
        caption="Filled points form the Pareto front of the three values.",
        spec=layered(others, front, height=260),
        data=data,
        height=340,
    )


def seed_figure(subject: ReportData) -> Iterator[Figure]:
    """The score of each seed of the best configurations; no figure without scores."""
    drawn = [one for one in subject.shown if one.chosen_scores()][:_DRAWN]
    if not drawn:
        return
    labels, ranks = subject.named([one.name for one in drawn]), subject.standings.ranks
    places: dict[str, Configuration] = {}
    for one, label in zip(drawn, labels, strict=True):
        place = in_lines(f"{ranks.get(one.name, '-')}: {label}", _LABEL_LINE)
        places[f"{place} ({subject.brief(one.name)})" if place in places else place] = one
    objective, standings = subject.objectives[0], subject.standings
    known = standings.by_score(objective) | standings.by_score(objective, confirming=True)
    means = {place: known[one.name].mean for place, one in places.items()}
    frame = _seeds(subject, objective, places, means)
    groups = [name for name in _GROUPS.values() if name in set(frame["group"])]
    title = title_of(objective)
    axis = {**LINES, "labelLimit": 240, "ticks": False, "domain": False}
    colours = {"winner": "@accent", "not proven worse": "@ink", "proven worse": "@pale"}
    at = {
        "x": quantitative("score", title, scale=_TIGHT),
        "y": nominal("name", "", sort=[*places], axis=axis),
        "color": nominal("group", "", **_coloured(groups, [colours[name] for name in groups])),
    }
    height = sum(max(24, 10 + 14 * len(place.splitlines())) for place in places)
    yield Figure(
        name="seeds",
        title="Scores of the best configurations by seed",
        caption=f"The {len(drawn)} configurations with the highest means. Each point is one seed. "
        "The bar is the mean over the confirmation seeds of a configuration, if it has any, else "
        "over its search seeds.",
        spec=layered(*_seed_layers(frame, at, title), height=height),
        data={"seeds": frame.round(4)},
        height=90 + height,
    )


_TIGHT: Spec = {"zero": False, "nice": False, "padding": 8}
_IN_RATIOS: Spec = {"type": "log", "nice": False, "padding": 8}


def _seeds(
    subject: ReportData,
    objective: Objective,
    rows: Mapping[str, Configuration],
    means: Mapping[str, float],
) -> pd.DataFrame:
    """One row per seed of some configurations: its score, and the mean that the figure draws."""
    standings, found = subject.standings, []
    values = standings.scores[str(objective)].dropna().to_dict() if rows else {}
    for label, one in rows.items():
        for seed, trial in one.trials.items():
            if trial in values:
                kind, group = _KINDS[seed in one.confirming], _GROUPS[standings.mark(one.name)]
                row = (subject.brief(one.name), label, group, seed, values[trial], kind)
                found.append((*row, means[label]))
    names = ["id", "name", "group", "seed", "score", "kind", "mean"]
    return pd.DataFrame(found, columns=names)


def _coloured(names: Sequence[str], colours: Sequence[str]) -> Spec:
    """The colours of some groups, with a legend if there are several groups."""
    legend = {"orient": "top", "title": None} if len(names) > 1 else None
    return {"scale": {"domain": [*names], "range": [*colours][: len(names)]}, "legend": legend}


def _seed_layers(frame: pd.DataFrame, at: Spec, title: str, *, values: bool = False) -> list[Spec]:
    kinds = [kind for kind in _KINDS if kind in set(frame["kind"])]
    shown = {"name": "configuration", "score": title, "seed": "seed", "kind": "kind"}
    point = {**at, **fading(0.8), "tooltip": tooltips(shown)}
    if len(kinds) > 1:
        shapes = {"domain": kinds, "range": ["circle", "diamond"]}
        legend = {"orient": "bottom", "title": None}
        point["shape"] = nominal("kind", "", scale=shapes, legend=legend)
    mean = {**at, "x": {**at["x"], "field": "mean", "aggregate": "min"}}
    layers = [
        layer("point", point, "seeds", size=50, strokeWidth=1.5),
        layer("tick", mean, "seeds", thickness=3, height=18),
    ]
    if values:
        end = {**at, "x": {**at["x"], "field": "end", "aggregate": "max"}, "text": _TEXT}
        look: Spec = {"align": "left", "dx": 9, "fontSize": 13, "fontWeight": 600}
        layers.append(layer("text", end, "seeds", **look))
    return layers


_TEXT: Spec = {"field": "mean", "aggregate": "min", "type": "quantitative", "format": ".1f"}


def curve_figures(subject: ReportData) -> Iterator[Figure]:
    """A figure of the stage objective, and one of the training loss."""
    # Scores that were measured only after training have no curve.
    there = set(subject.frames.curves["metric"].unique())
    drawn = [one for one in (DEFAULT, *subject.own.values()) if one.curve in there]
    compared = next(
        (one for one in (subject.objectives[0], *drawn) if one.curve in there), DEFAULT
    )
    for metric, title in ((compared.curve, title_of(compared)), ("loss", "training loss")):
        frame, num_others = _curves(subject, metric)
        if frame["samples"].nunique() > 1:
            yield _curve_figure(f"curve-{metric.replace('.', '-')}", title, frame, num_others)


def _curves(subject: ReportData, metric: str) -> tuple[pd.DataFrame, int]:
    """The points to draw, and the number of other configurations that have a curve."""
    points = subject.frames.curves.query("metric == @metric").dropna(subset=["value", "samples"])
    points = points.merge(subject.trials[["trial_id", "configuration"]], on="trial_id")
    best = [*subject.seeds][:_BEST]
    named = enumerate(zip(best, subject.named(best), strict=True), 1)
    names = {key: in_lines(f"{rank}: {text}", _LEGEND_LINE) for rank, (key, text) in named}
    others = sorted({*points["configuration"]} - {*best})
    drawn = [*best, *(others[place] for place in evenly(len(others), _OTHERS))]
    groups = points[points["configuration"].isin(drawn)].groupby(["configuration", "samples"])
    frame = groups["value"].agg(["mean", "std", "count"]).reset_index()
    frame = frame.assign(
        id=frame["configuration"].map(subject.brief),
        group=frame["configuration"].map(lambda name: names.get(name, _OTHER)),
        samples=frame["samples"].astype(int),
        low=frame["mean"] - frame["std"],
        high=frame["mean"] + frame["std"],
        n=frame["count"],
    )[["id", "group", "samples", "mean", "low", "high", "n"]]
    every = frame.groupby("id").indices.values()
    kept = sorted(own[place] for own in every for place in evenly(len(own), _POINTS))
    return rounded(frame.iloc[kept]), len(others)


def _curve_figure(name: str, title: str, frame: pd.DataFrame, num_others: int) -> Figure:
    groups = sorted({*frame["group"]} - {_OTHER}, key=lambda text: int(text.split(":")[0]))
    x = quantitative("samples", "rows seen", axis={"format": "~s"}, scale={"nice": False})
    y = quantitative("mean", title, scale={"zero": False, "nice": False})
    legend = {**LINES, "orient": "bottom", "columns": 1, "title": None, "labelLimit": 320}
    best = {"x": x, "y": y, "color": nominal("group", "", scale={"domain": groups}, legend=legend)}
    layers = []
    caption = f"The {len(groups)} best configurations by rank."
    if _OTHER in set(frame["group"]):
        every = f"{_OTHERS} of the {num_others:,} others" if num_others > _OTHERS else "the others"
        caption += f" Grey lines: {every}, including pruned ones."
        where, grey = [f"datum.group == '{_OTHER}'"], {"x": x, "y": y, "detail": {"field": "id"}}
        look: Spec = {"where": where, "stroke": "@pale", "strokeWidth": 0.8}
        layers.append(layer("line", {**grey, **fading(0.6)}, "curves", **look))
    own = [f"datum.group != '{_OTHER}'"]
    if frame.loc[frame["group"] != _OTHER, "low"].notna().any():
        caption += " Bands: ± one standard deviation over seeds."
        edges = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
        layers.append(layer("area", {**best, **edges}, "curves", where=own, opacity=0.15))
    shown = {"group": "configuration", "samples": "rows seen", "mean": "mean", "n": "seeds"}
    line = {**best, "tooltip": tooltips(shown), **fading(1)}
    look = {"strokeWidth": 2, "point": {"size": 18}}
    layers.append(layer("line", line, "curves", where=own, **look))
    spec, data = layered(*layers, height=280), {"curves": frame}
    return Figure(name, f"Learning curves: {title}", caption, spec, data, height=340)


def front(points: Points, most: int) -> Iterator[Table | Figure]:
    """The Pareto front of quality and cost: a table, and a figure for each pair of axes.

    The cost is that of the training, unless the objectives include costs of the encoder in use.
    """
    subject, frame = points.subject, points.frame
    averages = [name for name in (STS_AVERAGE, TRANSFER_AVERAGE) if name in subject.targets]
    quality = [*(averages or subject.targets[:1]), *subject.costs_in_use]
    axes = {points.target(name): subject.title(name) for name in quality}
    if not subject.costs_in_use:
        axes[_COST] = points.cost_title
    if frame.empty or any(frame[column].isna().all() for column in axes):
        return
    costs = {_COST, *map(points.target, subject.costs_in_use)}
    trained = [bool(subject.costs_in_use) or draws(one.values) for one in subject.shown]
    values = np.column_stack([-frame[c] if c in costs else frame[c] for c in axes])
    # A method without training takes no training time, so it would win every comparison of times;
    # NaN keeps it out of the front.
    values = np.where(np.array(trained)[:, None], values.astype(float), np.nan)
    best = np.array(front_of(values), bool)
    yield _front_table(points, quality, best, most)
    for x, y in combinations(reversed(axes), 2):
        yield _front_figure(points, axes, x, y, best)


def _front_table(points: Points, quality: Sequence[str], best: np.ndarray, most: int) -> Table:
    subject = points.subject
    # The figures' points are already rounded, and rounding twice can change a digit, so the table
    # starts from the exact means.
    found, cost = list(map(subject.over_seeds, quality)), subject.over_seeds(subject.cost)
    rows: list[Row] = []
    for name in points.frame.index[best]:
        scores = (one[name] for one in found)
        hours = [] if subject.costs_in_use else [Hours(cost[name].mean)]
        rank = subject.standings.ranks.get(name)
        rows.append((rank, *scores, *hours, *subject.stated(name), subject.brief(name)))
    titles, times = list(map(subject.title, quality)), ""
    if not subject.costs_in_use:
        titles.append(subject.cost_title)
        times = " Times exclude start-up."
    return Table(
        "front",
        "Pareto front",
        ("rank", *titles, *subject.labels.values(), "configuration"),
        tuple(rows[: most or None]),
        note=f"A configuration is listed if no other is as good in all of {', '.join(titles)} and "
        f"better in one of them, by means over seeds.{times}{subject.averaged(titles)}",
        more=max(0, len(rows) - (most or len(rows))),
        ids=tuple(str(row[-1]) for row in rows),
    )


def _front_figure(
    points: Points, axes: Mapping[str, str], x: str, y: str, best: np.ndarray
) -> Figure:
    subject, at = points.subject, {}
    for key, column in (("x", x), ("y", y)):
        # "Nice" ends of an axis would extend it above a score of 100 or below a time of 0.
        scale: Spec = {"zero": False, "nice": False, "padding": 8}
        target = None if column == _COST else subject.targets[int(column[1:])]
        if target in subject.costs_in_use:
            scale["type"] = "log" if is_logarithmic(points.frame[column]) else "linear"
        elif target is not None:
            scale["domainMin"] = points.scores[int(column[1:])]["floor"]
        at[key] = quantitative(column, axes[column], scale=scale, axis={"format": ".6~g"})
    mark = {**at, "tooltip": tooltips({"id": "configuration", **axes, "n": "seeds"})}
    look: Spec = {"fill": "@pale", "size": 12 if len(points.frame) > 500 else 40, "clip": True}
    layers = [layer("circle", {**mark, **fading(0.8)}, CONFIGURATIONS, params=[BRUSH], **look)]
    if len(axes) == 2:
        step: Spec = {"stroke": "@accent", "interpolate": "step-after", "clip": True}
        layers.append(layer("line", {**at, "order": {"field": x}}, "front", **step))
    look = {"fill": "@accent", "size": 55, "clip": True}
    layers.append(layer("circle", {**mark, **fading(1)}, "front", **look))
    slugs = [slug(subject.cost if column == _COST else axes[column]) for column in (y, x)]
    return Figure(
        name="-".join(("front", *slugs)),
        title=f"{axes[y][:1].upper()}{axes[y][1:]} against {axes[x]}",
        caption=f"Orange points form the Pareto front of {', '.join(axes.values())}."
        + subject.averaged((axes[x], axes[y])),
        spec=layered(*layers, height=240),
        data={"front": points.frame[["id", "n", *axes]][best]},
        height=300,
    )
