"""Reading a table: the columns that are asked for, and of every trial the rows that count."""

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.parts import only, opened, selected, without
from tune_sentcl.store.schema import TABLES
from tune_sentcl.store.segments import Listing, hidden

_READERS = 8  # on an object store the way there takes longest
_TRIES = 20


@dataclass(frozen=True)
class Query:
    """What of a table is wanted.

    Attributes:
        columns: Their names; None for all, those that a newer release has added last.
        where: A `pyarrow.compute.Expression` over columns of the schema; None for all rows.
        trial_ids: Leave out all other trials; None for none.
    """

    columns: Sequence[str] | None = None
    where: Any = None
    trial_ids: Collection[str] | None = None


class _ChangedError(Exception):
    """Segments came or went while they were read."""


def read_table(files: StudyFiles, folder: str, query: Query | None = None) -> pa.Table:
    """Read a table, or a part of it; each trial's rows come from the one file that counts.

    Columns that an older file lacks are null.

    Args:
        files: The study.
        folder: `trials`, `scores` or `curves`.
        query: What is wanted; None for all.

    Raises:
        StudyError: A file is damaged, or the disk refused.
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
    own = [stem for stem in listing.own if wanted is None or stem in wanted]
    stems = [*listing.shared, *own]

    def read(stem: str) -> tuple[frozenset[str], pa.Table]:
        with opened(files, folder, stem) as part:
            return part.held, _joined(folder, query, part.tables(query.columns, query.where))

    # On a disk the threads would but wait for each other.
    with nullcontext() if files.local else ThreadPoolExecutor(_READERS) as pool:
        found = dict(zip(stems, (pool.map if pool else map)(read, stems), strict=True))
    # A listing that ran beside a deletion may lack both the old file and the new one.
    if Listing.of(files, folder).shared != listing.shared:
        raise _ChangedError
    covered = hidden(listing.own, {stem: found[stem][0] for stem in listing.shared})
    tables = [without(found[stem][1], covered.get(stem, ())) for stem in stems]
    joined = _joined(folder, query, tables)
    if wanted is not None:
        joined = only(joined, wanted)
    return joined if query.columns is None else joined.select(list(query.columns))


def _joined(folder: str, query: Query, tables: Iterable[pa.Table]) -> pa.Table:
    empty = selected(TABLES[folder], query.columns).empty_table()
    joined = pa.concat_tables([empty, *tables], promote_options="default")
    return joined.replace_schema_metadata(empty.schema.metadata).combine_chunks()
