"""Load sentences, pairs of the same meaning, and graded pairs, from any source that has them.

Sentences can be taken from pairs; pairs of the same meaning from pairs labeled entailment or with
a high score. An empty sentence is a valid row, as in SimCSE's training.
"""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import Rows
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.rows.files import UNCHANGED, ReadOptions, columns_read
from tune_sentcl.data.rows.labeled_pairs import labelled_rows, text_column
from tune_sentcl.data.rows.sources import open_source, require_enough, shown_source
from tune_sentcl.data.text_files import Origin
from tune_sentcl.errors import DataError, Fault

NLI_ENTAILED = 314_315
"""Entailment rows of the whole SNLI and MultiNLI train sets: 183,416 and 130,899."""

_WHOLE_NLI = "nli/snli_train.parquet + nli/mnli_train.parquet"
_ANOTHER = "Choose another source."


def load_sentences(
    source: str, limit: int | None, root: Path | None, read_options: ReadOptions = UNCHANGED
) -> Corpus:
    """Load plain sentences.

    A column `text` or `sentence` gives its rows unchanged. A source of pairs gives the distinct
    sentences of both columns, those of the first column first.

    Raises:
        DataError: The source does not exist, or holds no sentences.
    """
    table, where = open_source("sentences", source, root, limit, read_options)
    columns = [_text(table, name, where) for name in columns_read("sentences", table, where)]
    texts = columns[0]
    if len(columns) > 1:
        chunks = [chunk for column in columns for chunk in column.chunks]
        texts = pc.unique(pa.chunked_array(chunks, pa.string()))
    rows = pa.table({"text": texts})
    rows = require_enough(_cut(rows, limit, where), source, limit)
    return make_corpus("sentences", rows, shown_source(str(where)), where.dropped)


def load_positive_pairs(
    source: str,
    limit: int | None,
    root: Path | None,
    min_score: float,
    read_options: ReadOptions = UNCHANGED,
) -> Corpus:
    """Load pairs of the same meaning (CLSR, section 4.1).

    Labeled pairs give those labeled entailment. Pairs with a `score` give those from `min_score`
    on. Other pairs are all taken.

    Raises:
        DataError: The source does not exist, or holds no such pair.
    """
    table, where = open_source("positive_pairs", source, root, limit, read_options)
    if "label" in table.column_names:
        labeled = labelled_rows(table, None, where)
        kept = labeled.filter(pc.equal(labeled.column("label"), 0))
        rows = pa.table([kept["premise"], kept["hypothesis"]], names=["sentence1", "sentence2"])
        require_rows(rows, where, "no row is labeled entailment")
        if str(where) == _WHOLE_NLI and limit is None and len(rows) != NLI_ENTAILED:
            rule = f"SNLI and MultiNLI train together have {NLI_ENTAILED:,} entailed rows"
            move = "Copy the files again."
            raise DataError(Fault(str(root), "nli/", f"{len(rows):,} rows", rule, move))
    else:
        rows, where = close_pairs("positive_pairs", table, where, min_score)
    rows = require_enough(_cut(rows, limit, where), source, limit)
    return make_corpus("positive_pairs", rows, shown_source(str(where)), where.dropped)


def load_graded_pairs(
    source: str, limit: int | None, root: Path | None, read_options: ReadOptions = UNCHANGED
) -> Corpus:
    """Load pairs with a similarity, from a source with a column `score`.

    Raises:
        DataError: The source does not exist, or its pairs have no score.
    """
    table, where = open_source("graded_pairs", source, root, limit, read_options)
    rows = _pairs("graded_pairs", table, where)
    rows = _cut(rows.append_column("score", pa.array(_scores(table, where))), limit, where)
    return make_corpus("graded_pairs", rows, shown_source(str(where)), where.dropped)


def close_pairs(
    kind: Rows, table: pa.Table, where: Origin, min_score: float
) -> tuple[pa.Table, Origin]:
    """The pairs of a table with a `score` from `min_score` on; all pairs if there is no score.

    Args:
        kind: The kind of rows to make.
        table: Pairs of sentences, without labels.
        where: The file or data set, for messages.
        min_score: The lowest score of pairs of the same meaning.

    Returns:
        Columns `sentence1: string` and `sentence2: string`, and the origin of these rows.

    Raises:
        DataError: There are no pairs, or none with such a score.
    """
    rows = _pairs(kind, table, where)
    if "score" not in table.column_names:
        return rows, where
    kept = np.flatnonzero(_scores(table, where) >= min_score)
    rows = rows.take(pa.array(kept))
    require_rows(rows, where, f"no pair has a score of data.min_score = {min_score:g} or above")
    return rows, replace(where, rows=kept if where.rows is None else where.rows[kept])


def _pairs(kind: Rows, table: pa.Table, where: Origin) -> pa.Table:
    left, right = columns_read(kind, table, where)[:2]
    return pa.table(
        {"sentence1": _text(table, left, where), "sentence2": _text(table, right, where)}
    )


def _text(table: pa.Table, name: str, where: Origin) -> pa.ChunkedArray:
    return pc.fill_null(text_column(table, name, where), "")


def _scores(table: pa.Table, where: Origin) -> npt.NDArray[np.float64]:
    column = table.column("score")
    try:
        scores = np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    except pa.ArrowException:
        # A single word among the numbers makes the column text.
        scores = np.array([_number(value) for value in column.to_pylist()])
    bad = np.flatnonzero(~np.isfinite(scores))
    if bad.size:
        row = int(bad[0])
        rule = "a score must be a finite number"
        value = str(column[row].as_py())
        raise DataError(Fault(where.at([row]), "score", value, rule, "Correct it."))
    return scores


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan


def _cut(rows: pa.Table, limit: int | None, where: Origin) -> pa.Table:
    require_rows(rows, where, "there are no rows")
    return rows if limit is None else rows.slice(0, limit)


def require_rows(rows: pa.Table, where: Origin, rule: str) -> None:
    """Refuse an empty table.

    Raises:
        DataError: There is no row.
    """
    if rows.num_rows == 0:
        raise DataError(Fault(str(where), "", "", rule, _ANOTHER))
