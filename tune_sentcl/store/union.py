"""Read several studies as one.

If several studies have a trial, the rows are from the first study in which it finished, or, if it
finished in none, from the first that has it. A trial's id determines its weights, so all studies
that finished it must agree.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import evaluation_data_of
from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.objective import MAX_OBJECTIVES, objective_columns, objective_named
from tune_sentcl.store.parts import rows_of_trials
from tune_sentcl.store.study import Snapshot

TOLERANCE = 0.005
"""The largest difference (times 100) between scores that count as equal.

It is half of the last printed digit, because other machines have other rounding errors.
"""

_OBJECTIVES = tuple(objective_columns(number) for number in range(1, MAX_OBJECTIVES + 1))
_FINGERPRINTS = ("data_fingerprint", "checkpoint_fingerprint", "selection_fingerprint")
_VERSIONED = ["suite", "task", "split", "version"]


def union(snapshots: dict[str, Snapshot]) -> Snapshot:
    """Concatenate the snapshots of studies, given by name, with each trial once.

    Raises:
        StudyError: Two studies differ in a fact of a trial that both finished, in the kind of
            evaluation data, or in the version of a task.
    """
    _check(snapshots)
    ended = [
        (row["trial_id"], row["status"], name)
        for name, snapshot in reversed(snapshots.items())
        for row in snapshot.trials(["trial_id", "status"]).to_pylist()
    ]
    source = {trial_id: name for trial_id, _, name in ended}
    source |= {trial_id: name for trial_id, status, name in ended if status == "finished"}
    tables: dict[str, list[pa.Table]] = {}
    for name, snapshot in snapshots.items():
        own = {trial_id for trial_id, study in source.items() if study == name}
        for folder, table in snapshot.labelled(name).tables.items():
            tables.setdefault(folder, []).append(rows_of_trials(table, own))
    joined = {f: pa.concat_tables(t, promote_options="default") for f, t in tables.items()}
    return Snapshot({folder: table.combine_chunks() for folder, table in joined.items()})


def _check(snapshots: Mapping[str, Snapshot]) -> None:
    facts: dict[tuple[str, str], tuple[Any, str]] = {}
    for name, snapshot in snapshots.items():
        for where, key, value in _facts(snapshot):
            first, other = facts.setdefault((where, key), (value, name))
            if _differ(first, value):
                shown = f"{first} in {other} and {value} in {name}"
                rule = "studies that are read together must agree"
                move = "Leave one study out, or repeat its search with the settings of the other."
                raise StudyError(Fault(where, key=key, value=shown, rule=rule, move=move))


def _facts(snapshot: Snapshot) -> Iterator[tuple[str, str, Any]]:
    """Yield the facts on which studies must agree: the subject, its column and the value."""
    named = (column for both in _OBJECTIVES for column in both)
    columns = ["trial_id", "status", "evaluation.data", "data.source", *_FINGERPRINTS, *named]
    for row in snapshot.trials(columns).to_pylist():
        yield "all trials", "evaluation.data", evaluation_data_of(row)
        if row["status"] == "finished":
            trial = f"trial {row['trial_id']}"
            yield from ((trial, column, row[column]) for column in _FINGERPRINTS)
            for name, value in _OBJECTIVES:
                # Measured times always differ, so a difference in costs is no contradiction.
                if row[name] and not objective_named(row[name]).is_cost:
                    yield trial, row[name], row[value]
    scores = snapshot.scores(where=pc.field("version").is_valid() & pc.field("value").is_valid())
    for row in scores.group_by(_VERSIONED, use_threads=False).aggregate([]).to_pylist():
        yield f"task {row['task']}", f"version of {row['split']}, {row['suite']}", row["version"]


def _differ(one: Any, other: Any) -> bool:
    """Whether two values disagree; a missing value agrees with everything."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) > TOLERANCE  # False if one of them is NaN
    return one is not None and other is not None and one != other
