"""Why trials failed, what could not be measured, and what could not be read."""

from collections.abc import Iterator

import pandas as pd

from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.analysis.report.table import Table, Value

_NAMED = 5


def failures(subject: Subject, most: int) -> Iterator[Table]:
    """Failed trials and failed scores by their reasons, and what was left out of the reading."""
    trials = subject.trials
    failed = trials[trials["status"] == "failed"]
    if len(failed):
        rows, more = _grouped(failed, ["error_type", "error_text"], most)
        columns: tuple[str, ...] = ("error", "reason", "trials", "which")
        yield Table("failed-trials", "Failed trials", columns, rows, more=more)
    scores = subject.frames.scores
    unmeasured = scores[scores["value"].isna()]
    if len(unmeasured):
        rows, more = _grouped(unmeasured, ["task", "protocol", "reason"], most)
        columns = ("task", "protocol", "reason", "trials", "which")
        yield Table("failed-scores", "Scores that could not be taken", columns, rows, more=more)
    if subject.frames.faults:
        faults = tuple(
            (fault.where, fault.rule, fault.next_move) for fault in subject.frames.faults
        )
        yield Table(
            "left-out",
            "Left out of this report",
            ("file", "what is wrong", "what to do"),
            faults,
            note="The numbers of this report are those of all other files.",
        )


def _grouped(
    frame: pd.DataFrame, keys: list[str], most: int
) -> tuple[tuple[tuple[Value, ...], ...], int]:
    shown = frame.assign(**{key: frame[key].fillna("").map(_first_line) for key in keys})
    groups = shown.groupby(keys, sort=False)["trial_id"].unique()
    order = groups.map(len).sort_values(ascending=False, kind="stable").index
    rows = []
    for key in order[: most or None]:
        names = groups[key]
        listed = ", ".join(name[:12] for name in names[:_NAMED])
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        rows.append((*key, len(names), listed + more))
    return tuple(rows), max(0, len(order) - len(rows))


def _first_line(text: str) -> str:
    return (str(text).strip().splitlines() or [""])[0]
