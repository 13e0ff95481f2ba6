"""Assign the rows of an epoch to batches."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.rows.corpus import Corpus, RowNumbers
from tune_sentcl.errors import DataError, Fault

_NONE = 0
"""The code of the text "", which marks a missing negative and may occur often in a batch."""


def _assign_distinct(corpus: Corpus, rows: RowNumbers, batch_size: int) -> list[RowNumbers]:
    """Assign rows, in their order, to batches in which no two rows share a text.

    Two kinds of texts may repeat. "" marks a missing negative. Two rows may have the same
    negative, which is no false negative; mined negatives occur in many rows, so avoiding them
    would shorten batches.

    Each row goes to the first batch with room that follows every batch with which it must not
    share a text. All batches are full except the last few. If a text has more rows than there
    would be batches, additional short batches are made. The time is about linear in the rows.
    """
    if not len(rows):
        return []
    codes = _codes(corpus)
    # The first columns hold anchors and positives, the rest hold negatives.
    others = codes.shape[1] - len(corpus.negatives())
    # For each text: the first batch that may hold it as anchor or positive, and the first batch
    # that may hold it as negative.
    follows = [0] * (int(codes.max(initial=_NONE)) + 1)
    follows_as_negative = list(follows)
    # A union-find over batches: a batch with room points to itself, a full batch to a later one.
    open_batch = [0]
    sizes = [0]
    assigned = []
    for texts in codes[rows].tolist():
        own, negatives = texts[:others], texts[others:]
        earliest = [follows[text] for text in own]
        earliest += [follows_as_negative[text] for text in negatives]
        batch = _find(open_batch, max(earliest))
        if batch == len(sizes) - 1:
            open_batch.append(batch + 1)
            sizes.append(0)
        assigned.append(batch)
        sizes[batch] += 1
        if sizes[batch] == batch_size:
            open_batch[batch] = batch + 1
        for text in texts:
            follows[text] = max(follows[text], batch + 1)
        for text in own:
            follows_as_negative[text] = follows[text]
        follows[_NONE] = follows_as_negative[_NONE] = 0
    ends = np.cumsum(sizes[:-1])
    return np.split(rows[np.argsort(np.array(assigned, dtype=np.int64), kind="stable")], ends[:-1])


def _codes(corpus: Corpus) -> np.ndarray:
    """Number the texts: equal texts have equal numbers, "" has `_NONE`; one row per row."""
    negatives = corpus.negatives()
    names = [name for name in corpus.text_columns() if name not in negatives]
    columns = [corpus.table.column(name) for name in (*names, *negatives)]
    empty = pa.chunked_array([[""]], pa.string())
    chunks = [chunk for column in (empty, *columns) for chunk in column.chunks]
    numbers = pc.dictionary_encode(pa.chunked_array(chunks)).combine_chunks().indices.to_numpy()
    return np.asarray(numbers[1:], dtype=np.int64).reshape(len(columns), len(corpus)).T


def _find(open_batch: list[int], batch: int) -> int:
    """The first batch with room, from `batch` on; it also shortens paths of the union-find."""
    while open_batch[batch] != batch:
        open_batch[batch] = open_batch[open_batch[batch]]
        batch = open_batch[batch]
    return batch


Mix = Literal["proportional", "in_turn"]


def _mixed(
    parts: Sequence[Sequence[RowNumbers]], mix: Mix, generator: np.random.Generator | None
) -> list[RowNumbers]:
    if mix == "in_turn":
        return [batch for round_ in zip(*parts, strict=False) for batch in round_]
    counts = [len(part) for part in parts]
    owners = np.repeat(np.arange(len(parts)), counts)
    if generator is None:
        # A batch gets the position that it would have if its source filled the whole epoch, so
        # that the sources are mixed evenly.
        fractions = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
        owners = owners[np.argsort(fractions, kind="stable")]
    else:
        owners = generator.permutation(owners)
    following = [iter(part) for part in parts]
    return [next(following[owner]) for owner in owners.tolist()]


Order = Literal["file", "shuffled", "distinct", "groups", "shuffled_groups"]

_DRAWN = ("shuffled", "distinct", "shuffled_groups")
COUNTED = ("distinct", "shuffled_groups")
"""The orders whose number of batches may differ between epochs."""


def batches(
    corpus: Corpus,
    batch_size: int,
    order: Order,
    generator: np.random.Generator | None,
    *,
    drop_last: bool = False,
    mix: Mix = "proportional",
) -> list[RowNumbers]:
    """Assign every row to one batch; all rows of a batch are from one source.

    Args:
        corpus: The rows.
        batch_size: Maximum rows per batch.
        order: `file` cuts slices in file order. `shuffled` cuts slices from the rows in the
            generator's order. `distinct` assigns shuffled rows so that rows of a batch share no
            text but negatives; the last few batches may be short. For labeled pairs, `groups`
            keeps the rows of a premise together, at the position of the first, and closes a batch
            if the next group would overflow it; `shuffled_groups` does the same with groups in the
            generator's order.
        generator: Draws the shuffled orders, which need it; pass a new generator for each epoch.
        drop_last: Drop a source's short last batch, unless it is the only one. With `distinct`,
            drop its shortest batches, unless all are short. In both cases, fewer rows are left out
            than a batch has.
        mix: `proportional` takes all batches, in the generator's order or, without a generator,
            each source's batches spread evenly; `in_turn` takes one batch of each source in turn,
            until a source is used up. Each source's batches stay in order.

    Returns:
        The row numbers of each batch, in the order of training.

    Raises:
        DataError: A premise has more rows than `batch_size`, so its group does not fit.
        ValueError: `batch_size` is below 1, or a shuffled order has no generator.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or above, not {batch_size}")
    if generator is None and order in _DRAWN:
        raise ValueError(f"{order} needs a generator")
    drawing = generator if order in _DRAWN else None
    by_source, start = [], 0
    for part in corpus.by_source():
        own = _source_batches(part, batch_size, order, drawing)
        own = _without_short(own, batch_size, order) if drop_last else own
        by_source.append([start + rows for rows in own])
        start += len(part)
    return by_source[0] if len(by_source) == 1 else _mixed(by_source, mix, drawing)


def _without_short(own: list[RowNumbers], batch_size: int, order: Order) -> list[RowNumbers]:
    checked = range(len(own))[0 if order == "distinct" else -1 :]
    short = [place for place in checked if len(own[place]) < batch_size]
    if len(short) == len(own):
        return own
    short.sort(key=lambda place: len(own[place]))
    sizes = np.cumsum([len(own[place]) for place in short])
    dropped = set(short[: int(np.searchsorted(sizes, batch_size))])
    return [rows for place, rows in enumerate(own) if place not in dropped]


def _source_batches(
    corpus: Corpus, batch_size: int, order: Order, generator: np.random.Generator | None
) -> list[RowNumbers]:
    if order in ("groups", "shuffled_groups"):
        return _group_batches(corpus, batch_size, generator)
    rows = np.arange(len(corpus), dtype=np.int64)
    if generator is not None:
        rows = generator.permutation(rows)
    if order == "distinct":
        return _assign_distinct(corpus, rows, batch_size)
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]


def _group_batches(
    corpus: Corpus, batch_size: int, generator: np.random.Generator | None
) -> list[RowNumbers]:
    # The codes of a dictionary encoding follow the order in which the texts first occur.
    encoded = pc.dictionary_encode(corpus.table.column("premise").combine_chunks())
    codes = np.asarray(encoded.indices.to_numpy(), dtype=np.int64)
    groups = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    largest = max(groups, key=len)
    if len(largest) > batch_size:
        premise = corpus.table.column("premise")[int(largest[0])].as_py()
        rule = f"the {len(largest)} examples of the premise {premise!r} must fit into one batch"
        move = f"Set optimizer.batch_size to {len(largest)} or more, or data.order to file."
        value = str(batch_size)
        raise DataError(
            Fault(corpus.source, key="optimizer.batch_size", value=value, rule=rule, move=move)
        )
    numbers = range(len(groups)) if generator is None else generator.permutation(len(groups))
    packed: list[list[RowNumbers]] = []
    room = 0
    for group in (groups[number] for number in numbers):
        if len(group) > room:
            packed.append([])
            room = batch_size
        packed[-1].append(group)
        room -= len(group)
    return [np.concatenate(batch) for batch in packed]
