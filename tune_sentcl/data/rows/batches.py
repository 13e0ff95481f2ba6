"""Which rows stand together in each batch of an epoch."""

from typing import Literal

import numpy as np
import pyarrow.compute as pc

from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.corpus import RowNumbers as Rows
from tune_sentcl.data.rows.distinct import deal_distinct
from tune_sentcl.data.rows.mixing import Mix, mixed
from tune_sentcl.errors import DataError, Fault

Order = Literal["file", "shuffled", "distinct", "groups", "shuffled_groups"]

_DRAWN = ("shuffled", "distinct", "shuffled_groups")
COUNTED = ("distinct", "shuffled_groups")
"""The orders under which each epoch may have another number of batches."""


def batches(
    corpus: Corpus,
    batch_size: int,
    order: Order,
    generator: np.random.Generator | None,
    *,
    drop_last: bool = False,
    mix: Mix = "proportional",
) -> list[Rows]:
    """Deal every row to one batch; no batch has rows of several sources.

    Args:
        corpus: The rows.
        batch_size: Rows in a batch, at most.
        order: `file` cuts plain slices, and the last may be short; `shuffled` cuts them from the
            rows in the generator's order; `distinct` deals these so that no two rows of a batch
            share a text (see `deal_distinct`), and the last few may be short. Of labeled pairs,
            `groups` gathers the rows of a premise
            where it first occurs, and closes a batch when the next group would overflow it;
            `shuffled_groups` does so with the groups in the generator's order.
        generator: Read by the shuffled orders; a fresh one for each epoch.
        drop_last: Leave out a source's short last batch, unless it is the only one; of `distinct`
            every short one, unless all are.
        mix: How the batches of several sources follow each other (see `mixed`).

    Returns:
        Row numbers of each batch, in the order of training.

    Raises:
        DataError: A premise has more rows than `batch_size`, so that its group cannot stay whole.
        ValueError: `batch_size` is below 1, or a shuffled order has no generator.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or above, not {batch_size}")
    if generator is None and order in _DRAWN:
        raise ValueError(f"{order} needs a generator")
    drawing = generator if order in _DRAWN else None
    dealt, start = [], 0
    for part in corpus.by_source():
        own = _deal(part, batch_size, order, drawing)
        own = _without_short(own, batch_size, order) if drop_last else own
        dealt.append([start + rows for rows in own])
        start += len(part)
    return dealt[0] if len(dealt) == 1 else mixed(dealt, mix, drawing)


def _without_short(dealt: list[Rows], batch_size: int, order: Order) -> list[Rows]:
    checked = len(dealt) if order == "distinct" else 1
    full = [rows for rows in dealt[-checked:] if len(rows) == batch_size]
    return [*dealt[:-checked], *full] or dealt[:1]


def _deal(
    corpus: Corpus, batch_size: int, order: Order, generator: np.random.Generator | None
) -> list[Rows]:
    if order in ("file", "shuffled", "distinct"):
        rows = np.arange(len(corpus), dtype=np.int64)
        if generator is not None:
            rows = generator.permutation(rows)
        if order == "distinct":
            return deal_distinct(corpus, rows, batch_size)
        return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    members, sizes = _premise_groups(corpus)
    _require_fit(corpus, members, sizes, batch_size)
    if generator is not None:
        members, sizes = _reorder(members, sizes, generator.permutation(len(sizes)))
    return _pack(members, sizes, batch_size)


def _premise_groups(corpus: Corpus) -> tuple[Rows, Rows]:
    """Rows gathered by premise, and the size of each group; groups by first occurrence."""
    # A dictionary encoding numbers the texts in the order in which they first occur.
    encoded = pc.dictionary_encode(corpus.table.column("premise").combine_chunks())
    codes = np.asarray(encoded.indices.to_numpy(), dtype=np.int64)
    return np.argsort(codes, kind="stable"), np.bincount(codes)


def _require_fit(corpus: Corpus, members: Rows, sizes: Rows, batch_size: int) -> None:
    largest = int(np.argmax(sizes))
    size = int(sizes[largest])
    if size > batch_size:
        row = int(members[int(sizes[:largest].sum())])
        premise = corpus.table.column("premise")[row].as_py()
        raise DataError(
            Fault(
                where=corpus.source,
                key="optimizer.batch_size",
                value=str(batch_size),
                rule=f"the {size} rows of the premise {premise!r} must fit into one batch",
                next_move=f"Set optimizer.batch_size to {size} or more, or data.order to file.",
            )
        )


def _reorder(members: Rows, sizes: Rows, groups: Rows) -> tuple[Rows, Rows]:
    starts = np.cumsum(sizes) - sizes
    new_sizes = sizes[groups]
    new_starts = np.cumsum(new_sizes) - new_sizes
    # Each row moves by the distance that its group moves.
    shift = np.repeat(starts[groups] - new_starts, new_sizes)
    return members[np.arange(len(members)) + shift], new_sizes


def _pack(members: Rows, sizes: Rows, batch_size: int) -> list[Rows]:
    ends = np.cumsum(sizes)
    packed: list[Rows] = []
    start = 0
    while start < len(members):
        last = int(np.searchsorted(ends, start + batch_size, side="right")) - 1
        packed.append(members[start : int(ends[last])])
        start = int(ends[last])
    return packed
