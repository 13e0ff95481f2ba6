"""The files that a driver writes, each replaced whole, and never after a later driver has begun.

On a disk, a driver writes into a folder of its own, whose name begins with a dot, and renames the
files from there. The next driver makes its own folder, moves the older ones away and deletes them,
so a later rename finds no file. A driver that makes its folder after the next driver did finds
that folder. Its own folder also keeps half-written files out of the tables, where
`pd.read_parquet` would read them.

On an object store, each put is conditional: on the version that the driver read or wrote last, or
on the object's absence. If a lease expired before it was released, the next driver first writes
its own version of every part, and its own next part of each table (`take_over`), so a later put of
the old driver finds another version.
"""

import errno
import secrets
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.disk import atomic_file, sync_folder
from tune_sentcl.store.files import StudyFiles, Version
from tune_sentcl.store.objects import TakenError, storage_errors
from tune_sentcl.store.parts import (
    encoded_part,
    joined,
    marked_part,
    next_part,
    part_names,
    read_part,
    rows_of_trials,
    widened,
)
from tune_sentcl.store.rows import schema_of

SCRATCH = ".driver-"
"""The prefix of the name of a driver's own folder."""

MAX_TRIALS = 256
"""A part is full with this many trials."""

MAX_BYTES = 100_000
"""A part is full with this many bytes."""

_TRIES = 20


class DriverFiles:
    """Writes the files of a study for the driver that holds its lock.

    Attributes:
        files: The study's files, for reading.
    """

    def __init__(self, files: StudyFiles, lease: int) -> None:
        """On a disk, bar all earlier drivers; on an object store, `take_over` bars them.

        Args:
            files: The study's files.
            lease: The number of the driver's lease.

        Raises:
            StudyError: Another driver has taken over, or the storage cannot be written.
        """
        self.files = files
        self._token = secrets.token_hex(4)
        self._versions: dict[str, Version] = {}
        self._scratch: Path | None = None
        if files.folder is not None:
            with storage_errors(files.where):
                self._scratch = files.folder / f"{SCRATCH}{lease:06d}-{self._token}"
                self._scratch.mkdir()
                sync_folder(files.folder)
                for other in files.folder.glob(f"{SCRATCH}*"):
                    if other.name[: len(SCRATCH) + 6] > self._scratch.name[: len(SCRATCH) + 6]:
                        self.close()
                        raise self._succeeded()
                    if other != self._scratch:
                        _remove(other)

    def take_over(self, tables: Collection[str]) -> None:
        """On an object store, bar an earlier driver that did not release its lease."""
        if self.files.folder is None:
            for folder in tables:
                names = part_names(self.files, folder)
                rows = self.files.each(self._make_own, names)
                # An empty part ends a folder: no driver adds a part after it.
                while not rows or rows[-1]:
                    names.append(next_part(folder, names))
                    made = self._create(names[-1], encoded_part(schema_of(folder).empty_table()))
                    rows.append(0 if made else self._make_own(names[-1]))

    def read(self, name: str) -> bytes | None:
        """Read a file before it is replaced; None if it is missing."""
        with suppress(FileNotFoundError):
            data, self._versions[name] = self.files.read(name)
            return data
        return None

    def write(self, name: str, data: bytes, *, any_version: bool = False) -> None:
        """Create a file, or replace one that this driver has read or written.

        Args:
            name: The file.
            data: Its content.
            any_version: Whether any version of an object may be replaced, because all drivers
                write equal content, or because no search reads it.

        Raises:
            StudyError: Another driver has taken over, or the storage cannot be written.
        """
        with storage_errors(self.files.display_path(name)):
            try:
                if any_version and self._scratch is None:
                    self.files.write_bytes(name, data)
                elif self._scratch is None:
                    self._put(name, data)
                else:
                    scratch = self._scratch / name.replace("/", ".")
                    with atomic_file(Path(self.files.where) / name, scratch) as file:
                        file.write(data)
            except (TakenError, FileNotFoundError) as error:
                if self._scratch is not None and self._scratch.is_dir():
                    raise
                raise self._succeeded() from error

    def close(self) -> None:
        """Delete the driver's own folder."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _succeeded(self) -> StudyError:
        rule = "another driver has taken over"
        move = "Let the other driver continue; the rows that this driver committed are kept."
        return StudyError(Fault(self.files.where, rule=rule, move=move))

    def _put(self, name: str, data: bytes) -> None:
        self._versions[name] = self.files.replace(name, data, self._versions.get(name))

    def _create(self, name: str, data: bytes) -> bool:
        try:
            self._put(name, data)
        except TakenError:
            return False
        return True

    def _make_own(self, name: str) -> int:
        """Rewrite a part with the same rows but other bytes; return the number of its rows."""
        with storage_errors(self.files.display_path(name)):
            for _ in range(_TRIES):
                data, rows = marked_part(self.read(name) or b"", self._token)
                if self._create(name, data):
                    return rows
            raise OSError(
                errno.EAGAIN, f"another driver changed the file {_TRIES} times meanwhile"
            )


def _remove(old: Path) -> None:
    """Move another driver's folder away, then delete it.

    The deletion also bars a machine whose network disk client still has a handle of the folder.
    """
    gone = old.with_name(f"{SCRATCH}000000-gone-{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):
        old.rename(gone)
        sync_folder(gone.parent)
    if not gone.is_dir():
        # A test file of `on_ray.preflight`, which was killed before it deleted the file.
        gone.unlink(missing_ok=True)
    while gone.is_dir():
        # A writer of the old driver may add a file during the deletion, so the deletion is
        # repeated.
        shutil.rmtree(gone, ignore_errors=True)


class TableWriter:
    """Writes a table; it replaces the rows of one trial at a time."""

    def __init__(self, files: DriverFiles, folder: str, ended: Collection[str]) -> None:
        """Find each trial's part, and delete rows whose trial has no row in `trials`.

        A driver that died between writing two tables has left such rows. The first part gets the
        columns of this release, because `pd.read_parquet` shows only the columns of the first
        part.
        """
        self._files, self._folder = files, folder
        self._names = part_names(files.files, folder)
        self._part_of: dict[str, str] = {}
        self._rows = schema_of(folder).empty_table()
        self._is_full = True
        for part, (rows, size, is_whole) in zip(
            self._names, files.files.each(self._survey, self._names), strict=True
        ):
            trials = set(pc.unique(rows["trial_id"]).to_pylist())
            is_first, is_last = part == self._names[0], part == self._names[-1]
            if is_last:
                self._rows = rows
                self._is_full = self._is_full_with(size)
            if not trials.issubset(ended) or ((is_first or is_last) and not is_whole):
                self._write(part, rows_of_trials(self._part(part), ended))
            self._part_of.update(dict.fromkeys(trials.intersection(ended), part))

    def rows(self, trial_id: str) -> pa.Table:
        """The rows of a trial."""
        part = self._part_of.get(trial_id)
        table = schema_of(self._folder).empty_table() if part is None else self._part(part)
        return rows_of_trials(table, [trial_id])

    def replace(self, trial_id: str, rows: pa.Table) -> None:
        """Replace a trial's rows in the part that has them; new rows go to the last part."""
        part = self._part_of.get(trial_id)
        if part is None and not len(rows):
            return
        if part is None and self._is_full:
            self._names.append(next_part(self._folder, self._names))
            self._rows, self._is_full = schema_of(self._folder).empty_table(), False
        name = part or self._names[-1]
        before = self._part(name)
        others = before.filter(pc.not_equal(before["trial_id"], trial_id)) if part else before
        self._write(name, joined([others, rows], widened(before.schema, rows.schema)))
        self._part_of[trial_id] = name

    def rewrite(self, change: Callable[[pa.Table], pa.Table]) -> None:
        """Change columns of all rows, part by part; unchanged parts are not written.

        Raises:
            ValueError: `change` changed the trials.
        """
        for part in self._names:
            before = self._part(part)
            after = change(before)
            if not after["trial_id"].equals(before["trial_id"]):
                raise ValueError("a change must keep the rows and their trial_id")
            if not after.equals(before):
                self._write(part, after)

    def _write(self, part: str, rows: pa.Table) -> None:
        data = encoded_part(rows)
        self._files.write(part, data)
        if part == self._names[-1]:
            self._rows = rows
            self._is_full = self._is_full_with(len(data))

    def _is_full_with(self, size: int) -> bool:
        trials = pc.count_distinct(self._rows["trial_id"]).as_py()
        return size >= MAX_BYTES or trials >= MAX_TRIALS

    def _survey(self, part: str) -> tuple[pa.Table, int, bool]:
        """The last part's rows (of another only the ids), its bytes, and whether it is whole.

        A part is whole if it has all columns of this release.
        """
        data = self._files.read(part)
        table = read_part(self._files.files, part, data, None if part == self._names[-1] else [])
        columns = pq.read_schema(pa.BufferReader(data)).names
        return table, len(data or b""), set(schema_of(self._folder).names) <= set(columns)

    def _part(self, part: str) -> pa.Table:
        if part == self._names[-1]:
            return self._rows
        return read_part(self._files.files, part, self._files.read(part))
