"""Reading a table: the columns that are asked for, and of every trial the rows that count."""

from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tune_sentcl.errors import DamagedError, Fault, StudyError
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.parts import only, opened, selected, without
from tune_sentcl.store.schema import TABLES
from tune_sentcl.store.segments import Counting, Listing, file_of, own_stem

_READERS = 8  # on an object store the way there takes longest
_TRIES = 20


@dataclass(frozen=True)
class Query:
    """What of a table is wanted.

    Attributes:
        columns: Their names; None for all, those that a newer release has added last.
        where: A `pyarrow.compute.Expression` over columns of the schema; None for all rows.
        trial_ids: Leave out all other trials; None for none.
        attempts: The attempt that each trial's row names, where it names one; only that one's own
            file counts in `scores` and `curves`.
        skipped: Takes what is wrong with each damaged file, by its name, and the rest is read;
            None: the first damaged file ends the reading.
    """

    columns: Sequence[str] | None = None
    where: Any = None
    trial_ids: Collection[str] | None = None
    attempts: Mapping[str, str] = field(default_factory=dict)
    skipped: MutableMapping[str, Fault] | None = None


class _ChangedError(Exception):
    """Segments came or went while they were read."""


def read_table(files: StudyFiles, folder: str, query: Query | None = None) -> pa.Table:
    """Read a table, or a part of it; each trial's rows come from the one file that counts.

    Columns that an older file lacks are null. Where a damaged file is skipped, a trial that
    another file holds too has that one's rows.

    Args:
        files: The study.
        folder: `trials`, `scores`, `curves` or `pairs`.
        query: What is wanted; None for all.

    Raises:
        DamagedError: A file is damaged, and none may be skipped.
        StudyError: The disk refused.
    """
    for _ in range(_TRIES):
        try:
            return _read_once(files, folder, query or Query())
        except (FileNotFoundError, _ChangedError):  # the driver brought files together
            continue
    rule, move = "changes faster than it can be read", "Read it again later."
    raise StudyError(Fault(files.shown(folder), "", "", rule, move))


def _read_once(files: StudyFiles, folder: str, query: Query) -> pa.Table:
    listing = Listing.of(files, folder)
    wanted = query.trial_ids
    own = {
        trial_id: label
        for trial_id, label in own_labels(folder, listing, query.attempts).items()
        if wanted is None or trial_id in wanted
    }
    stems = {own_stem(*named): named[0] for named in own.items()}
    found = _found(files, folder, query, listing.shared, stems)
    damaged = {
        stem for stem in (*listing.shared, *stems) if file_of(folder, stem) in _skipped(query)
    }
    # Own files go by hundreds, one after the other, once their successor is whole: nothing is
    # amiss where that one was listed.
    lost = {name for stem, name in stems.items() if stem not in found and stem not in damaged}
    after = Listing.of(files, folder)
    # A listing that ran beside a deletion may lack both the old file and the new one.
    if after.shared != listing.shared or not lost.isdisjoint(after.own):
        raise _ChangedError
    own = {stems[stem]: own[stems[stem]] for stem in stems if stem in found}
    holds = {stem: found[stem][0] for stem in listing.shared if stem in found}
    counting = Counting.of(own, holds, ranked=folder == "trials")
    tables = [
        found[stem][1] for stem, name in stems.items() if stem in found and name in counting.own
    ]
    for stem, left_out in counting.hidden.items():
        if left_out is not None:
            tables.insert(0, without(found[stem][1], left_out))
    joined = _joined(folder, query, tables)
    if wanted is not None:
        joined = only(joined, wanted)
    return joined if query.columns is None else joined.select(list(query.columns))


def _found(
    files: StudyFiles, folder: str, query: Query, shared: Iterable[str], own: Iterable[str]
) -> dict[str, tuple[frozenset[str], pa.Table]]:
    """What each file holds and its rows; without damaged ones and own ones that have gone."""
    found = {}

    def read(stem: str) -> None:
        try:
            with opened(files, folder, stem) as part:
                groups = list(part.tables(query.columns, query.where))
                # Joining costs more than reading, and one trial's own file is one row group.
                rows = groups[0] if len(groups) == 1 else _joined(folder, query, groups)
                found[stem] = (part.held, rows)
            if query.skipped is not None:
                query.skipped.pop(file_of(folder, stem), None)
        except DamagedError as error:
            if query.skipped is None:
                raise
            query.skipped[file_of(folder, stem)] = error.faults[0]

    def read_own(stem: str) -> None:
        with suppress(FileNotFoundError):
            read(stem)

    # On a disk the threads would but wait for each other.
    with nullcontext() if files.folder else ThreadPoolExecutor(_READERS) as pool:
        each = pool.map if pool else map
        for _ in (*each(read, shared), *each(read_own, own)):
            pass
    return found


def _skipped(query: Query) -> Collection[str]:
    return query.skipped or ()


def own_labels(folder: str, listing: Listing, attempts: Mapping[str, str]) -> dict[str, str]:
    """The label of each trial's own file that counts in a table, unless a higher file does.

    Args:
        folder: The table.
        listing: Its files.
        attempts: What each trial's row names, where it names one.
    """
    if folder == "trials":
        return {trial_id: labels[-1] for trial_id, labels in listing.own.items()}
    return {
        trial_id: attempts.get(trial_id, "")
        for trial_id, labels in listing.own.items()
        if attempts.get(trial_id, "") in labels
    }


def _joined(folder: str, query: Query, tables: Iterable[pa.Table]) -> pa.Table:
    empty = selected(TABLES[folder], query.columns).empty_table()
    joined = pa.concat_tables([empty, *tables], promote_options="default")
    return joined.replace_schema_metadata(empty.schema.metadata).combine_chunks()
