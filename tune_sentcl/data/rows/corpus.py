"""Training rows of one kind, and the batches that methods read."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import Rows

RowNumbers = npt.NDArray[np.int64]

COLUMNS: dict[Rows, tuple[str, ...]] = {
    "labeled_pairs": ("premise", "hypothesis", "label"),
    "sentences": ("text",),
    "positive_pairs": ("sentence1", "sentence2"),
    "graded_pairs": ("sentence1", "sentence2", "score"),
    "triplets": ("anchor", "positive"),
    "nothing": (),
}
"""The columns of each kind. `label` (int8) is 0 entailment, 1 neutral, 2 contradiction; `score`
(float64) is a similarity, higher for closer sentences; the others are text. Triplets may also have
`negative_1` to `negative_n`, the same number in every row of a corpus."""

NEGATIVE = re.compile(r"negative_[1-9]\d*")
"""The names of the columns of triplets' negatives."""
NEGATIVE_LIKE = re.compile(r"negative[\d_]+")
"""Names that look like a column of negatives; those that do not match `NEGATIVE` are refused."""

_NUMBERS = ("label", "score")


@dataclass(frozen=True)
class Corpus:
    """Rows in file order.

    kind: The kind of the rows; `COLUMNS` lists the table's columns.
    table: The rows, each column in one chunk.
    source: The file or data set, for messages.
    fingerprint: 16 hexadecimal digits over the rows in order, independent of names and paths.
    parts: The number of rows of each source, in order; empty for a single source.
    names: The names of those sources.
    dropped: The number of dropped rows with a blank sentence.
    """

    kind: Rows
    table: pa.Table
    source: str
    fingerprint: str
    parts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    dropped: int = 0

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def texts(self, column: str) -> list[str]:
        """All sentences of a column, as a new list."""
        return list(self.table.column(column).to_pylist())

    def numbers(self, column: str) -> npt.NDArray[np.generic]:
        """All numbers of a column: `label` as int64, `score` as float64."""
        kind = np.int64 if column == "label" else np.float64
        return np.asarray(self.table.column(column).to_numpy(), dtype=kind)

    def text_columns(self) -> tuple[str, ...]:
        """The names of the columns of sentences."""
        return tuple(name for name in self.table.column_names if name not in _NUMBERS)

    def negatives(self) -> tuple[str, ...]:
        """The names of the columns of negatives; a row without one has ""."""
        return tuple(name for name in self.table.column_names if NEGATIVE.fullmatch(name))

    def sentences(self) -> list[str]:
        """Every distinct sentence, those of the first column first."""
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


@dataclass(frozen=True)
class Batch:
    """The rows of one step; columns are read on demand.

    Attributes:
        corpus: The corpus.
        rows: The row numbers.
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
        kind = np.int64 if column == "label" else np.float64
        taken = self.corpus.table.column(column).take(pa.array(self.rows))
        return np.array(taken.to_numpy(), dtype=kind)


def make_corpus(kind: Rows, table: pa.Table, source: str, dropped: int = 0) -> Corpus:
    """Make a corpus of rows that have been checked.

    Args:
        kind: The kind of the rows.
        table: Has at least the columns of that kind; others are dropped. The negatives of
            triplets are in order.
        source: The name for messages.
        dropped: The number of rows that were dropped.
    """
    names = list(COLUMNS[kind])
    if kind == "triplets":
        names += [name for name in table.column_names if NEGATIVE.fullmatch(name)]
    # `take` on a column of many chunks would copy the whole column each time.
    rows = table.select(names).combine_chunks()
    if rows.get_total_buffer_size() > 1.25 * rows.nbytes:
        # A slice keeps the whole table that it was cut from, in memory and in every pickle.
        rows = rows.take(pa.array(np.arange(len(rows)))).combine_chunks()
    return Corpus(kind, rows, source, _fingerprint(rows), dropped=dropped)


def join_corpora(parts: Sequence[Corpus]) -> Corpus:
    """Concatenate the rows of several sources of one kind; a single part is returned itself.

    If a part has fewer columns of negatives, the missing ones are filled with "".
    """
    if len(parts) == 1:
        return parts[0]
    names = max((part.table.column_names for part in parts), key=len)
    tables = [_with_columns(part.table, names) for part in parts]
    digest = hashlib.blake2b(" ".join(p.fingerprint for p in parts).encode(), digest_size=8)
    return Corpus(
        kind=parts[0].kind,
        table=pa.concat_tables(tables).combine_chunks(),
        source=" + ".join(part.source for part in parts),
        fingerprint=digest.hexdigest(),
        parts=tuple(map(len, parts)),
        names=tuple(part.source for part in parts),
        dropped=sum(part.dropped for part in parts),
    )


def _with_columns(table: pa.Table, names: Sequence[str]) -> pa.Table:
    for name in names[table.num_columns :]:
        table = table.append_column(name, pa.array([""] * len(table), pa.string()))
    return table


def _fingerprint(rows: pa.Table) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name in rows.column_names:
        column = rows.column(name)
        if name == "label":
            digest.update(np.asarray(column.to_numpy(), dtype="<i8").tobytes())
        elif name == "score":
            digest.update(np.asarray(column.to_numpy(), dtype="<f8").tobytes())
        else:
            # The lengths keep different lists of sentences from having the same bytes.
            lengths = pc.binary_length(column).to_numpy()
            digest.update(np.asarray(lengths, dtype="<i8").tobytes())
            for chunk in column.chunks:
                digest.update(_text_bytes(chunk))
    return digest.hexdigest()


def _text_bytes(chunk: pa.StringArray) -> memoryview:
    """The UTF-8 bytes of a chunk's sentences, concatenated, without a copy."""
    _, offset_buffer, data = chunk.buffers()
    if len(chunk) == 0 or data is None:
        return memoryview(b"")
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)
    first, last = offsets[chunk.offset], offsets[chunk.offset + len(chunk)]
    return memoryview(data)[int(first) : int(last)]
