"""Batches in which no text stands in two rows."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.rows.corpus import Corpus, RowNumbers

_NONE = 0
"""Stands for "", of which a batch may have many: it says that a row has no such negative."""


def deal_distinct(corpus: Corpus, rows: RowNumbers, batch_size: int) -> list[RowNumbers]:
    """Deal rows to batches so that no two rows of a batch share a text, in whichever columns.

    Each row goes to the first batch that has room and follows every batch with one of its texts.
    So the batches are full but for the last few, and where a text has more rows than there would
    be batches, there are as many more, which are short. Takes about linear time.

    Args:
        corpus: Whose texts count; "" does not.
        rows: Which rows, in the order in which they are dealt.
        batch_size: Rows in a batch, at most.

    Returns:
        Row numbers of each batch; each row is in one.
    """
    if not len(rows):
        return []
    codes = _codes(corpus)
    follows = [0] * (int(codes.max(initial=_NONE)) + 1)  # the first batch that a text may go to
    with_room = [0]  # of each batch itself while it has room, else one behind it that may have
    sizes = [0]
    dealt = []
    for texts in codes[rows].tolist():
        batch = _find(with_room, max(follows[text] for text in texts))
        if batch == len(sizes) - 1:
            with_room.append(batch + 1)
            sizes.append(0)
        dealt.append(batch)
        sizes[batch] += 1
        if sizes[batch] == batch_size:
            with_room[batch] = batch + 1
        for text in texts:
            follows[text] = batch + 1
        follows[_NONE] = 0
    ends = np.cumsum(sizes[:-1])
    return np.split(rows[np.argsort(np.array(dealt, dtype=np.int64), kind="stable")], ends[:-1])


def _codes(corpus: Corpus) -> np.ndarray:
    """A number for each text of each row: equal texts have one number, the empty one `_NONE`."""
    columns = [corpus.table.column(name) for name in corpus.text_columns()]
    empty = pa.chunked_array([[""]], pa.string())
    chunks = [chunk for column in (empty, *columns) for chunk in column.chunks]
    numbers = pc.dictionary_encode(pa.chunked_array(chunks)).combine_chunks().indices.to_numpy()
    return np.asarray(numbers[1:], dtype=np.int64).reshape(len(columns), len(corpus)).T


def _find(with_room: list[int], batch: int) -> int:
    """The first batch with room from one on; the way there is shortened for who comes next."""
    while with_room[batch] != batch:
        with_room[batch] = with_room[with_room[batch]]
        batch = with_room[batch]
    return batch
