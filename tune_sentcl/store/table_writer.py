"""Writing the parts of one table."""

from collections.abc import Callable, Collection

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tune_sentcl.store.driver_files import DriverFiles
from tune_sentcl.store.parts import (
    encoded_part,
    joined,
    next_part,
    part_names,
    read_part,
    rows_of_trials,
    rows_without_trials,
    widened,
)
from tune_sentcl.store.rows import schema_of

MAX_TRIALS = 256
"""The trials with which a part is full."""

MAX_BYTES = 100_000
"""The bytes with which a part is full."""


class TableWriter:
    """Replaces the rows of one trial at a time."""

    def __init__(self, files: DriverFiles, folder: str, ended: Collection[str]) -> None:
        """Find each trial's part, and delete the rows of trials that have none in `trials`.

        A driver that died between two tables has left those. The first part gets the columns of
        this release, because `pd.read_parquet` shows the columns of the first part alone.
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
        """Replace a trial's rows, in the part that has them, else in the last one."""
        part = self._part_of.get(trial_id)
        if part is None and not len(rows):
            return
        if part is None and self._is_full:
            self._names.append(next_part(self._folder, self._names))
            self._rows, self._is_full = schema_of(self._folder).empty_table(), False
        name = part or self._names[-1]
        before = self._part(name)
        others = rows_without_trials(before, [trial_id]) if part else before
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
        """The rows of the last part or the ids of another, its bytes, whether it is whole.

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
