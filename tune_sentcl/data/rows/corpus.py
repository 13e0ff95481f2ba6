"""Training rows of one kind, and the batches that methods read."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import Rows
from tune_sentcl.data.rows.kinds import KINDS, NUMBERS
from tune_sentcl.data.tables import NEGATIVE

RowNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Corpus:
    """Rows in file order.

    Attributes:
        kind: The kind of the rows; `KINDS` lists the table's columns. Each of several positives of
            an anchor is a row. Rows with the same number in the column `row` are alternatives; an
            epoch draws one of them.
        table: The rows, each column in one chunk.
        source: The file or data set, for messages.
        fingerprint: 16 hexadecimal digits over the rows in order, independent of names and paths.
        parts: The number of rows of each source, in order; empty for a single source.
        names: The names of the sources in `parts`.
        dropped: The number of rows that were dropped, before the last row, because a sentence is
            blank.
        notes: Remarks for the user on how the rows were read.
        splits: The splits that the file's column `split` also contains.
    """

    kind: Rows
    table: pa.Table
    source: str
    fingerprint: str
    parts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    dropped: int = 0
    notes: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def texts(self, column: str) -> list[str]:
        """All sentences of a column, as a new list."""
        return list(self.table.column(column).to_pylist())

    def numbers(self, column: str) -> npt.NDArray[np.generic]:
        """All numbers of a column: `label` and `row` as int64, `score` as float64."""
        return np.array(self.table.column(column).to_numpy(), dtype=NUMBERS[column])

    def text_columns(self) -> tuple[str, ...]:
        """The names of the columns of sentences."""
        return tuple(name for name in self.table.column_names if name not in NUMBERS)

    def negatives(self) -> tuple[str, ...]:
        """The names of the columns of negatives; a missing negative is ""."""
        return tuple(name for name in self.table.column_names if NEGATIVE.fullmatch(name))

    @property
    def shown_kind(self) -> str:
        """The kind of the rows in words; triplets without negatives are called pairs."""
        if self.kind == "triplets" and not self.negatives():
            return "pairs"
        return self.kind.replace("_", " ")

    def sentences(self) -> list[str]:
        """Every distinct sentence; the sentences of the first column come first."""
        texts = (self.texts(name) for name in self.text_columns())
        return list(dict.fromkeys(text for column in texts for text in column))

    def by_source(self) -> list["Corpus"]:
        """One corpus per source."""
        if not self.parts:
            return [self]
        starts = np.cumsum(self.parts) - self.parts
        tables = (self.table.slice(*where) for where in zip(starts, self.parts, strict=True))
        return [
            Corpus(self.kind, table, name, self.fingerprint)
            for table, name in zip(tables, self.names, strict=True)
        ]

    def epoch_sizes(self) -> tuple[int, ...]:
        """The number of rows of each source in an epoch, before batches leave out rows."""
        return tuple(len(part._alternatives()) for part in self.by_source())

    def epoch_rows(self, generator: np.random.Generator) -> tuple["Corpus", RowNumbers]:
        """Draw one row from each group of alternatives.

        Returns:
            The corpus of an epoch, and the number of each of its rows in this corpus.
        """
        starts = self._alternatives()
        if len(starts) == len(self):
            return self, starts
        sizes = np.diff(starts, append=len(self))
        rows = starts + generator.integers(sizes)
        parts = np.diff(np.searchsorted(rows, np.cumsum(self.parts)), prepend=0)
        table = self.table.take(pa.array(rows)).drop_columns("row").combine_chunks()
        return replace(self, table=table, parts=tuple(parts.tolist())), rows

    def _alternatives(self) -> RowNumbers:
        """The number of the first row of each group of alternatives."""
        if "row" not in self.table.column_names:
            return np.arange(len(self), dtype=np.int64)
        return np.flatnonzero(np.diff(self.numbers("row"), prepend=-1))


@dataclass(frozen=True)
class Batch:
    """The rows of one step; their columns are read on demand.

    Attributes:
        corpus: The corpus.
        rows: The row numbers of the batch.
    """

    corpus: Corpus
    rows: RowNumbers

    def __len__(self) -> int:
        return len(self.rows)

    def texts(self, column: str) -> list[str]:
        """The batch's sentences of a column."""
        return list(self.corpus.table.column(column).take(pa.array(self.rows)).to_pylist())

    def numbers(self, column: str) -> npt.NDArray[np.generic]:
        """The batch's numbers of a column: `label` as int64, `score` as float64."""
        taken = self.corpus.table.column(column).take(pa.array(self.rows))
        return np.array(taken.to_numpy(), dtype=NUMBERS[column])


def make_corpus(kind: Rows, table: pa.Table, source: str, dropped: int = 0) -> Corpus:
    """Make a corpus from checked rows.

    Args:
        kind: The kind of the rows.
        table: A table with the columns of that kind; other columns are dropped. The columns of
            triplets' negatives are in order.
        source: The name for messages.
        dropped: The number of rows that were dropped before.
    """
    names = list(KINDS[kind].columns)
    if kind == "triplets":
        names += [name for name in table.column_names if NEGATIVE.fullmatch(name)]
    # On a column of many chunks, pyarrow's `take` copies the whole column at each call.
    rows = table.select(names).combine_chunks()
    if rows.get_total_buffer_size() > 1.25 * rows.nbytes:
        # A slice would keep all rows of its original table, in memory and in every pickle.
        rows = rows.take(pa.array(np.arange(len(rows)))).combine_chunks()
    if "row" in table.column_names:
        distinct, numbers = np.unique(table.column("row").to_numpy(), return_inverse=True)
        if len(distinct) < len(rows):
            rows = rows.append_column("row", pa.array(numbers))
    return Corpus(kind, rows, source, _fingerprint(rows), dropped=dropped)


def join_corpora(parts: Sequence[Corpus]) -> Corpus:
    """Concatenate the rows of several sources of one kind; a single part is returned unchanged.

    If a part has fewer columns of negatives, the missing columns are filled with "".
    """
    if len(parts) == 1:
        return parts[0]
    names = max((part.text_columns() for part in parts), key=len)
    names += tuple(name for name in parts[0].table.column_names if name in ("label", "score"))
    tables = [
        part.table.select([n for n in names if n in part.table.column_names]) for part in parts
    ]
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    columns = {n: table.column(n) for n in names}
    columns |= {n: pc.fill_null(columns[n], "") for n in names if NEGATIVE.fullmatch(n)}
    sizes = [np.diff(part._alternatives(), append=len(part)) for part in parts]
    numbers = np.repeat(np.arange(sum(map(len, sizes))), np.concatenate(sizes))
    if any("row" in part.table.column_names for part in parts):
        columns["row"] = pa.chunked_array([numbers])
    digest = hashlib.blake2b(" ".join(p.fingerprint for p in parts).encode(), digest_size=8)
    return Corpus(
        kind=parts[0].kind,
        table=pa.table(columns),
        source=" + ".join(part.source for part in parts),
        fingerprint=digest.hexdigest(),
        parts=tuple(map(len, parts)),
        names=tuple(part.source for part in parts),
        dropped=sum(part.dropped for part in parts),
        notes=tuple(f"{part.source}: {note}" for part in parts for note in part.notes),
    )


def _fingerprint(rows: pa.Table) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name in rows.column_names:
        column = rows.column(name)
        if name in NUMBERS:
            digest.update(np.asarray(column.to_numpy(), dtype=NUMBERS[name]).tobytes())
        else:
            # Lengths come first: without them, two different lists of sentences could give the
            # same bytes.
            digest.update(pc.binary_length(column).to_numpy().astype("<i8").tobytes())
            digest.update("".join(column.to_pylist()).encode())
    return digest.hexdigest()
