"""Reading the effective rows of a table (see `store.segments`)."""

from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tune_sentcl.errors import DamagedError, Fault, StudyError
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.parts import open_part, rows_of_trials, rows_without_trials, select_fields
from tune_sentcl.store.schema import TABLES
from tune_sentcl.store.segments import EffectiveFiles, Listing, file_of, trial_stem

_READERS = 8  # threads on an object store, where latency dominates
_TRIES = 20


@dataclass(frozen=True)
class Query:
    """The part of a table to read.

    Attributes:
        columns: Columns to read; None for all, with a newer release's columns last.
        where: A `pyarrow.compute.Expression` over columns of the schema; None for all rows.
        trial_ids: The trials to read; None for all.
        attempts: By trial, the label that its row names, if any. In `scores` and `curves` only
            the trial file with this label is effective.
        skipped: Collects the fault of each damaged file by its name, and the other files are
            read. None: the first damaged file raises.
    """

    columns: Sequence[str] | None = None
    where: Any = None
    trial_ids: Collection[str] | None = None
    attempts: Mapping[str, str] = field(default_factory=dict)
    skipped: MutableMapping[str, Fault] | None = None


class _ChangedError(Exception):
    """The shared files changed while they were read."""


def read_table(files: StudyFiles, folder: str, query: Query | None = None) -> pa.Table:
    """Read the effective rows of a table.

    Columns that are missing in an older file are null. If a damaged file is skipped, its trials
    get their rows from the next lower file that has them.

    Args:
        files: The study.
        folder: `trials`, `scores` or `curves`.
        query: The part to read; None for all.

    Raises:
        DamagedError: A file is damaged, and `query.skipped` is None.
        StudyError: The table cannot be read.
    """
    for _ in range(_TRIES):
        try:
            return _read_once(files, folder, query or Query())
        except (FileNotFoundError, _ChangedError):  # the driver compacted files meanwhile
            continue
    rule = f"must stay unchanged during one of {_TRIES} reads"
    move = "Repeat the command later."
    raise StudyError(Fault(files.display_path(folder), "", "", rule, move))


def _read_once(files: StudyFiles, folder: str, query: Query) -> pa.Table:
    listing = Listing.of(files, folder)
    wanted = query.trial_ids
    labels = {
        trial_id: label
        for trial_id, label in effective_labels(folder, listing, query.attempts).items()
        if wanted is None or trial_id in wanted
    }
    stems = {trial_stem(*named): named[0] for named in labels.items()}
    found = _read_files(files, folder, query, listing.shared, stems)
    skipped = query.skipped or ()
    damaged = {stem for stem in (*listing.shared, *stems) if file_of(folder, stem) in skipped}
    # The driver deletes trial files one by one after it has written their segment. A missing
    # trial file is no problem if the listing has that segment.
    missing = {name for stem, name in stems.items() if stem not in found and stem not in damaged}
    after = Listing.of(files, folder)
    # A listing that runs during a deletion may contain neither the old file nor the new one.
    if after.shared != listing.shared or not missing.isdisjoint(after.labels):
        raise _ChangedError
    labels = {stems[stem]: labels[stems[stem]] for stem in stems if stem in found}
    holds = {stem: found[stem][0] for stem in listing.shared if stem in found}
    effective = EffectiveFiles.of(labels, holds, ranked=folder == "trials")
    tables = [
        found[stem][1]
        for stem, name in stems.items()
        if stem in found and name in effective.labels
    ]
    for stem, left_out in effective.hidden_trials.items():
        if left_out is not None:
            tables.insert(0, rows_without_trials(found[stem][1], left_out))
    joined = _join(folder, query, tables)
    if wanted is not None:
        joined = rows_of_trials(joined, wanted)
    return joined if query.columns is None else joined.select(list(query.columns))


def _read_files(
    files: StudyFiles, folder: str, query: Query, shared: Iterable[str], trial_stems: Iterable[str]
) -> dict[str, tuple[frozenset[str], pa.Table]]:
    """Each file's listed trials and rows, without damaged files and deleted trial files."""
    found = {}

    def read(stem: str) -> None:
        try:
            with open_part(files, folder, stem) as part:
                groups = list(part.tables(query.columns, query.where))
                # Trial files have one row group; concatenation would cost more than reading.
                rows = groups[0] if len(groups) == 1 else _join(folder, query, groups)
                found[stem] = (part.listed_trials, rows)
            if query.skipped is not None:
                query.skipped.pop(file_of(folder, stem), None)
        except DamagedError as error:
            if query.skipped is None:
                raise
            query.skipped[file_of(folder, stem)] = error.faults[0]

    def read_trial_file(stem: str) -> None:
        with suppress(FileNotFoundError):
            read(stem)

    # On a disk, threads only wait for each other.
    with nullcontext() if files.folder else ThreadPoolExecutor(_READERS) as pool:
        each = pool.map if pool else map
        for _ in (*each(read, shared), *each(read_trial_file, trial_stems)):
            pass
    return found


def effective_labels(folder: str, listing: Listing, attempts: Mapping[str, str]) -> dict[str, str]:
    """The label of each trial file that is effective unless a shared file ranks higher.

    Args:
        folder: The table.
        listing: Its files.
        attempts: By trial, the label that its row names, if any.
    """
    if folder == "trials":
        return {trial_id: labels[-1] for trial_id, labels in listing.labels.items()}
    return {
        trial_id: attempts.get(trial_id, "")
        for trial_id, labels in listing.labels.items()
        if attempts.get(trial_id, "") in labels
    }


def _join(folder: str, query: Query, tables: Iterable[pa.Table]) -> pa.Table:
    empty = select_fields(TABLES[folder], query.columns).empty_table()
    joined = pa.concat_tables([empty, *tables], promote_options="default")
    return joined.replace_schema_metadata(empty.schema.metadata).combine_chunks()
