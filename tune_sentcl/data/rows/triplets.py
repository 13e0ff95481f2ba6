"""Load anchors, each with a positive and any number of negatives."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.rows.corpus import NEGATIVE, NEGATIVE_LIKE, Corpus, make_corpus
from tune_sentcl.data.rows.files import UNCHANGED, ReadOptions, missing_columns
from tune_sentcl.data.rows.labeled_pairs import (
    labelled_rows,
    require_sentences,
    text_column,
)
from tune_sentcl.data.rows.sentences import close_pairs, require_rows
from tune_sentcl.data.rows.sources import open_source, require_enough, shown_source
from tune_sentcl.data.text_files import Origin, blank_sentences
from tune_sentcl.errors import DataError, Fault

_NAMES = (("anchor", "positive", "negative"), ("sent0", "sent1", "hard_neg"))
"""The columns' names in sentence-transformers, and in SimCSE's file."""

_LIST = "negatives"
_BOTH = "no premise has a row labeled entailment and one labeled contradiction"


def load_triplets(
    source: str,
    limit: int | None,
    root: Path | None,
    min_score: float,
    read_options: ReadOptions = UNCHANGED,
) -> Corpus:
    """Load anchors with a positive and, if the source has them, negatives.

    Columns `anchor` and `positive` (or `sent0` and `sent1`) give their rows, with the negatives of
    `negative` (`hard_neg`), of `negative_1` and so on, or of the lists in `negatives`. Labeled
    pairs give a triplet for each premise with an entailed and a contradicted hypothesis, the first
    of each in file order. Other pairs give triplets without negatives: those with a `score` from
    `min_score` on, or all if there is no score.

    Raises:
        DataError: The source does not exist, holds no such rows, an anchor or a positive is
            blank, or a column such as `negative_0` is misnamed.
    """
    table, where = open_source("triplets", source, root, limit, read_options)
    names = next((n for n in _NAMES if n[0] in table.column_names), None)
    if names is not None:
        rows = _as_they_are(table, names, where)
    elif "label" in table.column_names:
        rows = nli_triplets(labelled_rows(table, None, where))
        require_rows(rows, where, _BOTH)
    else:
        rows, where = close_pairs("triplets", table, where, min_score)
        rows = rows.rename_columns(["anchor", "positive"])
    require_rows(rows, where, "there are no rows")
    require_sentences(rows, ("anchor", "positive"), where)
    rows = rows if limit is None else rows.slice(0, limit)
    rows = require_enough(rows, source, limit)
    return make_corpus("triplets", rows, shown_source(str(where)), where.dropped)


def nli_triplets(labeled: pa.Table) -> pa.Table:
    """Make a triplet of each premise with an entailed and a contradicted hypothesis.

    This follows SimCSE's supervised set (Gao et al. 2021, section 4), whose script is not
    published. If a premise has several hypotheses of a label, the first one is used.

    Args:
        labeled: Columns `premise`, `hypothesis` and `label`, from `labelled_rows`.

    Returns:
        Columns `anchor`, `positive` (entailed) and `negative_1` (contradicted), in the order in
        which the premises first occur.
    """
    encoded = pc.dictionary_encode(labeled.column("premise").combine_chunks())
    premises = np.asarray(encoded.indices.to_numpy(), dtype=np.int64)
    labels = np.asarray(labeled.column("label").to_numpy())
    true, false = (_first_rows(premises, labels == label) for label in (0, 2))
    rows = [row for row in true if row in false]
    hypotheses = labeled.column("hypothesis").combine_chunks()
    return pa.table(
        {
            "anchor": encoded.dictionary.take(pa.array(rows, pa.int64())),
            "positive": hypotheses.take(pa.array([true[row] for row in rows], pa.int64())),
            "negative_1": hypotheses.take(pa.array([false[row] for row in rows], pa.int64())),
        }
    )


def _first_rows(premises: np.ndarray, wanted: np.ndarray) -> dict[int, int]:
    """The first wanted row of each premise that has one, in the order of premise numbers."""
    rows = np.flatnonzero(wanted)
    found, first = np.unique(premises[rows], return_index=True)
    return dict(zip(found.tolist(), rows[first].tolist(), strict=True))


def _as_they_are(table: pa.Table, names: tuple[str, str, str], where: Origin) -> pa.Table:
    anchor, positive, negative = names
    if positive not in table.column_names:
        raise missing_columns("triplets", where)
    strays = [
        n for n in table.column_names if NEGATIVE_LIKE.fullmatch(n) and not NEGATIVE.fullmatch(n)
    ]
    if strays:
        rule = "the columns of negatives are negative, negative_1, negative_2 and so on"
        raise DataError(Fault(str(where), strays[0], "", rule, "Rename the column."))
    columns = {
        "anchor": text_column(table, anchor, where),
        "positive": text_column(table, positive, where),
    }
    numbered = sorted(filter(NEGATIVE.fullmatch, table.column_names), key=_number)
    single = [name for name in (negative, *numbered) if name in table.column_names]
    negatives = [text_column(table, name, where) for name in single]
    if _LIST in table.column_names:
        negatives += _columns_of_lists(table, where)
    for index, column in enumerate(negatives, 1):
        columns[f"negative_{index}"] = pc.if_else(blank_sentences(column), "", column)
    return pa.table(columns)


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])


def _columns_of_lists(table: pa.Table, where: Origin) -> list[pa.ChunkedArray]:
    """The first items of all lists, the second items and so on; null for shorter lists."""
    column = table.column(_LIST)
    if pa.types.is_null(column.type):
        return []  # no row has negatives
    if not pa.types.is_list(column.type) and not pa.types.is_large_list(column.type):
        rule = f"the column must hold lists of sentences, and holds {column.type}"
        move = "Write lists of strings, or columns negative_1, negative_2 and so on."
        raise DataError(Fault(str(where), _LIST, "", rule, move))
    lists = column.combine_chunks()
    parents = np.asarray(pc.list_parent_indices(lists).to_numpy())
    items = pa.table({_LIST: pc.list_flatten(lists)})
    texts = text_column(items, _LIST, where).combine_chunks()
    starts = np.searchsorted(parents, parents)
    indices = np.arange(len(parents)) - starts
    columns = []
    for index in range(int(indices.max(initial=-1)) + 1):
        at = np.full(len(table), -1)
        at[parents[indices == index]] = np.flatnonzero(indices == index)
        columns.append(pa.chunked_array([texts.take(pa.array(at, mask=at < 0))], pa.string()))
    return columns
