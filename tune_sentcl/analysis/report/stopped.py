"""Tables and figures of trials that did not finish: pruned at a rung, or failed."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from tune_sentcl.analysis.report.figure import Figure, bars, quantitative
from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.analysis.report.table import Table, Value
from tune_sentcl.errors import first_names

_ENDS = {"stopped": "trials stopped there", "finished": "configurations finished"}


def rungs(subject: Subject) -> Iterator[Table | Figure]:
    """A table and a figure of the rungs, for searches that had rungs and have ended."""
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
        "Rank correlation: Spearman's between scores at the rung and final objectives, over "
        "trials that went on. Near 1, the rung ranks as the final objective does."
    )
    yield Table("rungs", "Rungs", columns, tuple(rows), note=note)
    frame = pd.DataFrame(
        [
            {"place": f"{rung['rows']:,} rows", "kind": kind, "count": rung[key]}
            for _, rung in found
            for key, kind in _ENDS.items()
        ]
    )
    x = quantitative("count", "number", aggregate="sum")
    yield bars("rungs-stopped", "Trials stopped at each rung", "", frame, x)


def _row(name: str, rung: Any) -> tuple[Value, ...]:
    correlation = rung.get("rank_correlation")
    numbers = [int(rung[key]) for key in ("rows", "reached", "stopped", "finished")]
    return (name, *numbers, None if correlation is None else float(correlation))


_NAMED = 5


def failures(subject: Subject, most: int) -> Iterator[Table]:
    """Failed trials and scores by reason, and the damaged files that were skipped."""
    trials = subject.trials
    failed = trials[trials["status"] == "failed"]
    if len(failed):
        seeds = " seed " + failed["seed"].astype(str)
        named = failed.assign(which=failed["configuration"].map(subject.brief) + seeds)
        rows, more = _grouped(named, ["error_type", "error_text"], most)
        columns: tuple[str, ...] = ("error", "reason", "trials", "which")
        yield Table("failed-trials", "Failed trials", columns, rows, more=more)
    scores = subject.frames.scores
    unmeasured = scores[scores["value"].isna()]
    if len(unmeasured):
        named = unmeasured.assign(which=unmeasured["trial_id"].str.slice(0, 12))
        rows, more = _grouped(named, ["task", "protocol", "reason"], most)
        columns = ("task", "protocol", "reason", "trials", "which")
        yield Table("failed-scores", "Scores that could not be measured", columns, rows, more=more)
    if subject.frames.faults:
        faults = tuple(
            (fault.where, fault.rule, fault.next_move) for fault in subject.frames.faults
        )
        yield Table(
            "left-out",
            "Left out of this report",
            ("file", "what is wrong", "what to do"),
            faults,
            note="The numbers in this report come from all other files.",
        )


def _grouped(
    frame: pd.DataFrame, keys: list[str], most: int
) -> tuple[tuple[tuple[Value, ...], ...], int]:
    shown = frame.assign(**{key: frame[key].fillna("").map(_first_line) for key in keys})
    groups = shown.groupby(keys, sort=False)["which"].unique()
    order = groups.map(len).sort_values(ascending=False, kind="stable").index
    rows = []
    for key in order[: most or None]:
        names = groups[key]
        rows.append((*key, len(names), first_names(list(names), _NAMED)))
    return tuple(rows), max(0, len(order) - len(rows))


def _first_line(text: str) -> str:
    return (str(text).strip().splitlines() or [""])[0]
