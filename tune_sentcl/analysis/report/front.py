"""The Pareto front: quality on STS and on transfer against the cost of a trial."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from tune_sentcl.analysis.report.figure import (
    BRUSH,
    CONFIGURATIONS,
    Figure,
    Spec,
    fading,
    layer,
    layered,
    quantitative,
    tooltips,
)
from tune_sentcl.analysis.report.points import Points
from tune_sentcl.analysis.report.subject import STS_AVERAGE, TRANSFER_AVERAGE
from tune_sentcl.analysis.report.table import Estimate, Hours, Row, Table, Value
from tune_sentcl.analysis.summary import front_of

_COST = "cost"


def front(points: Points, most: int) -> Iterator[Table | Figure]:
    """The configurations of the front, and a figure for each pair of axes."""
    subject, frame = points.subject, points.frame
    averages = [name for name in (STS_AVERAGE, TRANSFER_AVERAGE) if name in subject.targets]
    quality = {points.target(name): name for name in averages or subject.targets[:1]}
    if frame.empty or frame[_COST].isna().all():
        return
    values = np.column_stack([*(frame[column] for column in quality), -frame[_COST]])
    best = np.array(front_of(values.astype(float)), bool)
    yield _table(points, quality, best, most)
    axes = {column: subject.title(name) for column, name in quality.items()}
    axes[_COST] = points.cost_title
    for x, y in combinations(reversed(axes), 2):
        yield _figure(points, axes, x, y, best)


def _table(points: Points, quality: dict[str, str], best: np.ndarray, most: int) -> Table:
    subject = points.subject
    # The points of the figures are rounded; a table that rounded them again could differ.
    order = subject.over_seeds[best]
    ranks = points.frame["rank"][best]
    rows: list[Row] = []
    for rank, (name, row) in zip(ranks, order.iterrows(), strict=True):
        scores: list[Value] = [Estimate(*row[one]) for one in quality.values()]
        cost = Hours(row[subject.cost, "mean"])
        knobs = subject.stated(str(name))
        rows.append((int(rank), *scores, cost, *knobs, subject.brief(str(name))))
    titles = [*map(subject.title, quality.values()), subject.cost_title]
    note = (
        f"No other configuration is better in one of {', '.join(titles)} and as good in "
        f"all, by means over seeds. Times exclude start-up.{subject.averaged(titles)}"
    )
    return Table(
        "front",
        "Pareto front",
        ("rank", *titles, *subject.labels.values(), "configuration"),
        tuple(rows[: most or None]),
        note=note,
        more=max(0, len(rows) - (most or len(rows))),
        ids=tuple(str(row[-1]) for row in rows),
    )


def _figure(points: Points, axes: dict[str, str], x: str, y: str, best: np.ndarray) -> Figure:
    subject = points.subject
    slugs = {
        column: title.lower().replace(":", "-").replace(" ", "-") for column, title in axes.items()
    }
    slugs[_COST] = subject.cost.lower().replace(" ", "-")
    at = {}
    for key, column in (("x", x), ("y", y)):
        # Nice ends would lie above a score of 100 and below a time of 0.
        scale = {"zero": False, "nice": False, "padding": 8}
        if column != _COST:
            scale["domainMin"] = points.scores[int(column[1:])]["floor"]
        at[key] = quantitative(column, axes[column], scale=scale, axis={"format": ".6~g"})
    shown = {"tooltip": tooltips({"id": "configuration", **axes, "n": "seeds"})}
    size = 12 if len(points.frame) > 500 else 40
    look: Spec = {"params": [BRUSH], "fill": "@pale", "size": size, "clip": True}
    layers = [layer("circle", {**at, **shown, **fading(0.8)}, CONFIGURATIONS, **look)]
    if len(axes) == 2:
        step: Spec = {"stroke": "@accent", "interpolate": "step-after", "clip": True}
        layers.append(layer("line", {**at, "order": {"field": x}}, "front", **step))
    look = {"fill": "@accent", "size": 55, "clip": True}
    layers.append(layer("circle", {**at, **shown, **fading(1)}, "front", **look))
    return Figure(
        name=f"front-{slugs[y]}-{slugs[x]}",
        title=f"{axes[y][:1].upper()}{axes[y][1:]} against {axes[x]}",
        caption=f"Orange points: the front over {', '.join(axes.values())}."
        + subject.averaged((axes[x], axes[y])),
        spec=layered(*layers, height=240),
        data={"front": points.frame[["id", "n", *axes]][best]},
        height=300,
    )
