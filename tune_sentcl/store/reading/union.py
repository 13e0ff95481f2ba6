"""Several studies read as one, with the rule for trials that more than one of them has.

The preferred row of a trial is a finished one, else a pruned one, else a failed one. Among equals,
a row on the real evaluation sets precedes one on the toy sets, then the study that was named first
precedes. If several studies finished the trial, it gets the preferred study's scores, and the
others' scores where that study has none. A trial's id determines its weights, so scores of both
studies must agree. Disagreements are reported, and so are tasks (a user's own or MTEB's) that have
different versions in the studies.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import DataName, evaluation_data_of
from tune_sentcl.errors import DamagedError, Fault, StudyError
from tune_sentcl.objective import MAX_OBJECTIVES, objective_columns
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.parts import rows_of_trials
from tune_sentcl.store.reading.snapshot import Snapshot
from tune_sentcl.store.reading.study import Study
from tune_sentcl.store.rows import CONFIRM_ORIGIN, with_search_origins

TOLERANCE = 0.005
"""The largest difference (times 100) of scores that count as equal: half of the last printed
digit. The same training on another machine has other rounding errors."""

_RANKED = {"finished": 0, "pruned": 1, "failed": 2}
_SAME = (
    "configuration",
    "steps",
    "data_fingerprint",
    "checkpoint_fingerprint",
    "selection_fingerprint",
)
"""The columns that a trial's id determines; time and place are not among them."""

_OBJECTIVES = tuple(objective_columns(number) for number in range(1, MAX_OBJECTIVES + 1))
_DATA_KEYS = ("evaluation.data", "data.source")
_COMPARED = (*_SAME, *_DATA_KEYS, *(column for both in _OBJECTIVES for column in both))

# In the order of `Score.key`.
_KEY = (
    *("suite", "data", "task", "split", "protocol", "classifier_seed"),
    *("metric", "subset", "aggregation"),
)

_VERSIONED = ["suite", "task", "split", "version"]


@dataclass(frozen=True, eq=False)
class CombinedStudies:
    """The rows of several studies as one.

    Attributes:
        snapshot: Each trial once, in the order of the studies.
        disagreements: One fault per task and split that was scored in several versions, then one
            per trial whose finished rows disagree. The snapshot has the preferred row's values.
    """

    snapshot: Snapshot
    disagreements: tuple[Fault, ...]


def combine(snapshots: Sequence[Snapshot], names: Sequence[str]) -> CombinedStudies:
    """Combine the snapshots of studies, which messages call by `names`."""
    ended, best = _ended(snapshots)
    # Real evaluation sets first; the sort is stable, so the order of the studies is kept.
    studies = {
        name: sorted(on, key=lambda number: on[number] == "toy") for name, on in ended.items()
    }
    shared = {name: on[0] for name, on in studies.items() if len(on) > 1 and best[name] == 0}
    row_faults = _row_faults(snapshots, shared, names)
    score_faults, score_tables = _scores_of_shared(snapshots, shared, names)
    tables: dict[str, list[pa.Table]] = {"trials": [], "curves": [], "scores": score_tables}
    for number, snapshot in enumerate(snapshots):
        kept_trials = {name for name, found in studies.items() if found[0] == number}
        tables["trials"].append(rows_of_trials(snapshot.tables["trials"], kept_trials))
        tables["curves"].append(rows_of_trials(snapshot.tables["curves"], kept_trials))
        tables["scores"].append(
            rows_of_trials(snapshot.tables["scores"], kept_trials - shared.keys())
        )
    order = pa.array(list(studies), pa.string())
    faults = {**score_faults, **row_faults}
    joined = {folder: _joined_in_order(found, order) for folder, found in tables.items()}
    joined["trials"] = with_search_origins(joined["trials"], _origins(snapshots))
    return CombinedStudies(
        Snapshot(joined),
        (
            *_version_faults(snapshots, names),
            *(faults[name] for name in studies if name in faults),
        ),
    )


def _ended(
    snapshots: Sequence[Snapshot],
) -> tuple[dict[str, dict[int, DataName]], dict[str, int]]:
    """For each trial, the studies with its best status and their evaluation data; that status."""
    best: dict[str, int] = {}
    studies: dict[str, dict[int, DataName]] = {}
    for number, snapshot in enumerate(snapshots):
        rows = snapshot.tables["trials"].select(["trial_id", "status", *_DATA_KEYS])
        for name, status, *meant in zip(*(c.to_pylist() for c in rows.columns), strict=True):
            rank = _RANKED[status]
            if rank > best.get(name, len(_RANKED)):
                continue
            if rank < best.get(name, len(_RANKED)):
                best[name], studies[name] = rank, {}
            studies[name][number] = evaluation_data_of(dict(zip(_DATA_KEYS, meant, strict=True)))
    return studies, best


def _origins(snapshots: Sequence[Snapshot]) -> dict[str, str]:
    """The first origin other than `confirm` of each trial that has one."""
    found: dict[str, str] = {}
    for snapshot in snapshots:
        columns = snapshot.tables["trials"].select(["trial_id", "origin"]).columns
        for name, origin in zip(*(column.to_pylist() for column in columns), strict=True):
            if origin != CONFIRM_ORIGIN:
                found.setdefault(name, origin)
    return found


def _version_faults(snapshots: Sequence[Snapshot], names: Sequence[str]) -> Iterator[Fault]:
    """One fault for each task and split that was scored in several versions."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for name, snapshot in zip(names, snapshots, strict=True):
        scores = snapshot.tables["scores"]
        scored = scores.filter(pc.field("version").is_valid() & pc.field("value").is_valid())
        versions = scored.group_by(_VERSIONED, use_threads=False).aggregate([])
        columns = (versions[key].to_pylist() for key in _VERSIONED)
        for suite, task, parse_stem, version in zip(*columns, strict=True):
            found.setdefault((suite, task, parse_stem), {}).setdefault(version, name)
    for (suite, task, parse_stem), first in found.items():
        if len(first) > 1:
            value = " and ".join(f"{version} in {name}" for version, name in first.items())
            rule = "all studies must have scored the same version of the task"
            move = "Leave one of the studies out, or repeat its search on the other version."
            yield Fault(f"task {task}", f"version of {parse_stem}, {suite}", value, rule, move)


def _row_faults(
    snapshots: Sequence[Snapshot], shared: Collection[str], names: Sequence[str]
) -> dict[str, Fault]:
    """The first disagreement in the rows of each trial that several studies finished."""
    faults: dict[str, Fault] = {}
    first: dict[tuple[str, DataName | None], tuple[int, dict[str, Any]]] = {}
    for number, snapshot in enumerate(snapshots if shared else ()):
        rows = rows_of_trials(snapshot.tables["trials"], shared).select(
            ["trial_id", "status", *_COMPARED]
        )
        for row in rows.to_pylist():
            name = row["trial_id"]
            if row["status"] != "finished":
                continue
            # Objectives must agree only if they were measured on the same evaluation data.
            for data in (None, evaluation_data_of(row)):
                study, before = first.setdefault((name, data), (number, row))
                columns = _SAME if data is None else _values_of_same(before, row)
                column = next((c for c in columns if _differ(before[c], row[c])), None)
                if column is not None:
                    both = (before[column], names[study]), (row[column], names[number])
                    faults.setdefault(name, _fault(name, column, *both))
    return faults


def _values_of_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The value columns of objectives with the same name in both rows."""
    return [value for name, value in _OBJECTIVES if one[name] == other[name]]


def _scores_of_shared(
    snapshots: Sequence[Snapshot], shared: Mapping[str, int], names: Sequence[str]
) -> tuple[dict[str, Fault], list[pa.Table]]:
    """The disagreements in the scores of shared trials, and the rows to keep.

    If two studies have a score, that of the preferred study is kept, which `shared` names.
    """
    faults: dict[str, Fault] = {}
    kept: dict[tuple[Any, ...], tuple[int, int, float | None]] = {}
    tables = [rows_of_trials(s.tables["scores"], shared) for s in snapshots] if shared else []
    for number, table in enumerate(tables):
        columns = (table[name].to_pylist() for name in ("trial_id", *_KEY, "value"))
        for row, (*key, value) in enumerate(zip(*columns, strict=True)):
            found = kept.get(tuple(key))
            if found is not None and _differ(found[2], value):
                both = (found[2], names[found[0]]), (value, names[number])
                faults.setdefault(key[0], _fault(key[0], _score_name(key[1:]), *both))
            if found is None or (
                not _is_missing(value) and (_is_missing(found[2]) or number == shared[key[0]])
            ):
                kept[tuple(key)] = (number, row, value)
    rows: list[list[int]] = [[] for _ in tables]
    for number, row, _ in kept.values():
        rows[number].append(row)
    score_tables = [pa.array(sorted(found), pa.int64()) for found in rows]
    return faults, [table.take(found) for table, found in zip(tables, score_tables, strict=True)]


def _is_missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _differ(one: Any, other: Any) -> bool:
    """Whether two values disagree; a missing value agrees with everything."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) > TOLERANCE  # False for NaN
    return one is not None and other is not None and one != other


def _score_name(key: Sequence[Any]) -> str:
    suite, data, task, parse_stem, protocol, seed, metric, subset, aggregation = key
    parts = [f"{task}:{metric}:{parse_stem}:{protocol}", suite, data, subset, aggregation]
    shown = [str(part) for part in parts if part is not None]
    return ", ".join(shown if seed is None else [*shown, f"classifier seed {seed}"])


def _fault(trial_id: str, column: str, one: tuple[Any, str], other: tuple[Any, str]) -> Fault:
    value = " and ".join(f"{value} in {name}" for value, name in (one, other))
    rule = "two finished rows of one trial must agree"
    move = "Leave one of the studies out, or train the trial again in one of them."
    return Fault(f"trial {trial_id}", column, value, rule, move)


def _joined_in_order(tables: Sequence[pa.Table], trial_ids: pa.Array) -> pa.Table:
    """Concatenate tables and sort them by trial; the rows of a trial keep their order."""
    joined = pa.concat_tables(tables, promote_options="default").combine_chunks()
    ranks = pc.index_in(joined["trial_id"], value_set=trial_ids)
    return joined.take(pc.sort_indices(ranks))  # a stable sort


Damaged = Literal["raise", "skip"]
"""Whether a damaged file raises an error or is skipped."""


@dataclass(frozen=True, eq=False)
class StudyContents:
    """The content of one or several studies.

    Attributes:
        snapshot: The tables; for several studies with the column `STUDY`.
        searched: The objectives of each study's last search, as on the command line.
        faults: The skipped files, and the disagreements of several studies.
        manifests: Each study's manifest, by the path or URL that the caller gave.
    """

    snapshot: Snapshot
    searched: tuple[tuple[str, ...], ...]
    faults: tuple[Fault, ...]
    manifests: Mapping[str, Manifest]


def read(path: str | Path | Sequence[str | Path], damaged: Damaged = "raise") -> StudyContents:
    """See `tune_sentcl.analysis.read_study`."""
    if isinstance(path, str | Path):
        return _read_one(path, damaged)
    found: dict[str, StudyContents] = {}
    faults: list[Fault] = []
    for one in path:
        try:
            found[str(one)] = _read_one(one, damaged)
        except DamagedError as error:  # its `study.json`
            if damaged == "raise":
                raise
            faults += error.faults
    if not found:
        if faults:
            raise DamagedError(faults)
        raise ValueError("there must be a study to read")
    named = [contents.snapshot.labelled(name) for name, contents in found.items()]
    union = combine(named, list(found))
    if union.disagreements and damaged == "raise":
        raise StudyError(union.disagreements)
    every = found.values()
    return StudyContents(
        union.snapshot,
        tuple(searched for contents in every for searched in contents.searched),
        (
            *faults,
            *(fault for contents in every for fault in contents.faults),
            *union.disagreements,
        ),
        {name: manifest for contents in every for name, manifest in contents.manifests.items()},
    )


def _read_one(path: str | Path, damaged: Damaged) -> StudyContents:
    skipped: dict[str, Fault] | None = {} if damaged == "skip" else None
    study = Study.read(path, skipped=skipped)
    search = study.manifest.search
    snapshot = Snapshot.of(study)
    return StudyContents(
        snapshot,
        (search.objectives if search else (),),
        tuple((skipped or {}).values()),
        {str(path): study.manifest},
    )
