"""Averages of weights that were exported: a table of their own, for they are no trials."""

from collections.abc import Iterator, Mapping
from typing import Any

from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.analysis.report.table import Estimate, Table, Value
from tune_sentcl.analysis.summary import STS_TASKS

_AVERAGE = {"metric": "spearman", "split": "test", "protocol": "cosine", "subset": None}
_COLUMNS = (
    *("soup", "of trials", "looked at", "chosen by", "it", "its best trial", "STS average"),
    "members",
)


def soups(subject: Subject, most: int) -> Iterator[Table]:
    """What each soup scores on what it was chosen by, beside the best of its members."""
    found = subject.frames.soups
    shown = found[:most] if most else found
    if found:
        yield Table(
            name="soups",
            title="Averages of weights",
            columns=_COLUMNS,
            rows=tuple(map(_row, shown)),
            note="Greedy soups, each chosen on a development set and measured itself, once; they "
            "are no trials, and stand in no other table. By construction a soup is never worse "
            "than its best trial on what it was chosen by.",
            more=len(found) - len(shown),
        )


def _row(soup: Mapping[str, Any]) -> tuple[Value, ...]:
    members = soup["members"]
    return (
        soup["soup_id"],
        len(members),
        len(soup["tried"]),
        soup["objective"],
        _score(soup["value"]),
        _score(_best_member(soup)),
        _score(_sts_average(soup["scores"])),
        ", ".join(str(one["trial_id"])[:12] for one in members),
    )


def _best_member(soup: Mapping[str, Any]) -> float | None:
    """What the best member scored beside the soup: a search may have measured it otherwise.

    Records that do not say so hold it as the first average that was tried, which is that member.
    """
    if "best_member" in soup:
        return soup["best_member"]  # type: ignore[no-any-return]
    return next((one.get("with_it") for one in soup["tried"] if one.get("taken")), None)


def _score(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(value)


def _sts_average(scores: list[Mapping[str, Any]]) -> float | None:
    """Over the tasks of the papers' average, subsets joined; None where one is lacking."""
    values = {
        one["task"]: one["value"]
        for one in scores
        if all(one[key] == value for key, value in _AVERAGE.items())
        and one["aggregation"] in (None, "all")
    }
    found = [values.get(task) for task in STS_TASKS]
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if len(known) == len(found) else None
