"""The Pareto front: quality on STS and on transfer against the cost of a trial."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from tune_sentcl.analysis.report.figure import (
    BRUSH,
    CHOSEN,
    CONFIGURATIONS,
    Figure,
    Spec,
    fading,
    quantitative,
    tooltips,
)
from tune_sentcl.analysis.report.points import Points
from tune_sentcl.analysis.report.subject import STS_AVERAGE, TRANSFER_AVERAGE
from tune_sentcl.analysis.report.table import Hours, Table, Value
from tune_sentcl.analysis.summary import front_of

_COST = "cost"


def front(points: Points, most: int) -> Iterator[Table | Figure]:
    """The configurations of the front, and a figure for each pair of axes."""
    axes = _axes(points)
    frame = points.frame
    if len(axes) < 2 or frame.empty:
        return
    values = np.column_stack(
        [-frame[column] if column == _COST else frame[column] for column in axes]
    ).astype(float)
    best = front_of(values)
    yield _table(points, axes, best, most)
    for x, y in combinations(reversed(list(axes)), 2):
        yield _figure(points, axes, (x, y), frame.loc[best, "id"], len(axes))


def _axes(points: Points) -> dict[str, str]:
    """Columns and titles of STS, transfer and cost, as far as they were measured."""
    subject = points.subject
    quality = [name for name in (STS_AVERAGE, TRANSFER_AVERAGE) if name in subject.targets]
    axes = {points.target(name): subject.title(name) for name in quality or subject.targets[:1]}
    costs = points.frame[_COST]
    return {**axes, _COST: points.cost_title} if costs.notna().any() else axes


def _table(points: Points, axes: dict[str, str], best: Sequence[bool], most: int) -> Table:
    subject = points.subject
    rows: list[tuple[Value, ...]] = []
    # The points of the figures are rounded; a table that rounded them again could differ.
    order = subject.over_seeds[best]
    for index, row in (order.head(most) if most else order).iterrows():
        values: list[Value] = [int(str(index)) + 1]
        values += [
            Hours(float(row[subject.cost, "mean"]))
            if column == _COST
            else subject.estimate(row, subject.targets[int(column[1:])])
            for column in axes
        ]
        values += subject.stated(row["configuration", ""])
        rows.append((*values, subject.brief(row["configuration", ""])))
    titles = [subject.cost_title if column == _COST else axes[column] for column in axes]
    note = (
        f"No other configuration is better in one of {', '.join(titles)} and as good in "
        f"all, by means over seeds. Times exclude start-up.{subject.averaged(titles)}"
    )
    return Table(
        "front",
        "Pareto front",
        ("rank", *titles, *subject.labels.values(), "configuration"),
        tuple(rows),
        note=note,
        more=len(order) - len(rows),
        ids=tuple(str(row[-1]) for row in rows),
    )


def _figure(
    points: Points, axes: dict[str, str], pair: tuple[str, str], best: "pd.Series[str]", count: int
) -> Figure:
    x, y = pair
    # Nice ends would lie above a score of 100 and below a time of 0.
    scale = {"zero": False, "nice": False, "padding": 8}
    axis = {"scale": scale, "axis": {"format": ".6~g"}}
    encoding: Spec = {"x": quantitative(x, axes[x], **axis), "y": quantitative(y, axes[y], **axis)}
    for key, column in (("x", x), ("y", y)):
        floor = None if column == _COST else points.floor(points.subject.targets[int(column[1:])])
        if floor is not None:
            encoding[key]["scale"] = {**scale, "domainMin": floor}
    dense = len(points.frame) > 500
    shown = tooltips({"id": "configuration", **axes, "n": "seeds"})
    layers: list[Spec] = [
        {
            "data": {"name": CONFIGURATIONS},
            "params": [BRUSH],
            "mark": {"type": "circle", "fill": "@pale", "size": 12 if dense else 40, "clip": True},
            "encoding": {**encoding, "tooltip": shown, **fading(0.8)},
        },
        {
            "data": {"name": "front"},
            "mark": {"type": "circle", "fill": "@accent", "size": 55, "clip": True},
            "encoding": {**encoding, "tooltip": shown, **fading(1)},
        },
    ]
    if count == 2:
        step = {"type": "line", "stroke": "@accent", "interpolate": "step-after", "clip": True}
        line = {
            "data": {"name": "front"},
            "mark": step,
            "encoding": {**encoding, "order": {"field": x}},
        }
        layers.insert(1, line)
    frame = points.frame
    shared = ("id", "n", *axes)
    return Figure(
        name="front-"
        + "-".join(
            _slug(points.subject.cost if column == _COST else axes[column]) for column in (y, x)
        ),
        title=f"{axes[y][:1].upper()}{axes[y][1:]} against {axes[x]}",
        caption=f"Orange points: the front over {', '.join(axes.values())}."
        + points.subject.averaged((axes[x], axes[y])),
        spec={"params": [CHOSEN], "height": 240, "layer": layers},
        shared=shared,
        data={"front": frame.loc[frame["id"].isin(best), list(shared)]},
        height=300,
    )


def _slug(title: str) -> str:
    return title.lower().replace(":", "-").replace(" ", "-")
