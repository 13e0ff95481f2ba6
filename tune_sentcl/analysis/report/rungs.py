"""What the rungs of the last search of each study have stopped, and whether they could tell."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from tune_sentcl.analysis.report.figure import Figure, Spec, nominal, quantitative
from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.analysis.report.table import Table, Value

_ENDS = {"stopped": "trials stopped there", "finished": "configurations finished"}


def rungs(subject: Subject) -> Iterator[Table | Figure]:
    """A table and a figure, where a search had rungs and has ended."""
    manifests = subject.frames.manifests.items()
    found = [(name, r) for name, m in manifests if m.search is not None for r in m.search.rungs]
    if not found:
        return
    rows: list[tuple[Value, ...]] = [_row(name, rung) for name, rung in found]
    columns = (
        "study",
        "rows seen",
        "configurations compared",
        "trials stopped",
        "of those compared, finished",
        "rank correlation",
    )
    note = (
        "Rank correlation: Spearman's between scores at the rung and final objectives, of those "
        "that went on; near 1, the rung could tell good from bad."
    )
    yield Table("rungs", "Rungs", columns, tuple(rows), note=note)
    bars = pd.DataFrame(
        [
            {"rung": f"{rung['rows']:,}", "kind": kind, "count": rung[key]}
            for _, rung in found
            for key, kind in _ENDS.items()
        ]
    )
    yield _figure(bars)


def _row(name: str, rung: Any) -> tuple[Value, ...]:
    correlation = rung.get("rank_correlation")
    numbers = [int(rung[key]) for key in ("rows", "reached", "stopped", "finished")]
    return (name, *numbers, None if correlation is None else float(correlation))


def _figure(frame: pd.DataFrame) -> Figure:
    kinds = list(_ENDS.values())
    spec: Spec = {
        "data": {"name": "rungs"},
        "height": 200,
        "mark": {"type": "bar"},
        "encoding": {
            "x": nominal("rung", "rung, rows seen", sort=None, axis={"labelAngle": 0}),
            "xOffset": {"field": "kind", "sort": kinds},
            "y": {"aggregate": "sum", **quantitative("count", "number")},
            "color": nominal(
                "kind", "", scale={"domain": kinds}, legend={"orient": "top", "title": None}
            ),
        },
    }
    return Figure(
        "rungs-stopped", "What the rungs stopped", "", spec, data={"rungs": frame}, height=270
    )
