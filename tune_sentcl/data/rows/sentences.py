"""Sentences, pairs that mean the same, and pairs with a similarity, from any source that has them.

What a source lacks it may still hold in another form: the sentences of pairs, the pairs labeled
entailment, the pairs with a high score. An empty sentence is a row, as in SimCSE's training.
"""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.rows.files import PLAIN
from tune_sentcl.data.rows.labeled_pairs import labelled_rows, text_column
from tune_sentcl.data.rows.sources import open_source, require_enough, shown_source
from tune_sentcl.data.toy.sets import toy_graded, toy_nli
from tune_sentcl.errors import DataError, Fault

NLI_ENTAILED = 314_315
"""Entailed rows of the whole SNLI and MultiNLI train sets: 183,416 and 130,899."""

_WHOLE_NLI = "nli/snli_train.parquet + nli/mnli_train.parquet"
_NOTHING = "there is neither a column text nor a pair of sentences"
_ANOTHER = "Choose another source."
_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("anchor", "positive"),
    ("sent0", "sent1"),
)


def load_sentences(source: str, limit: int | None, root: Path | None) -> Corpus:
    """Load plain sentences.

    Args:
        source: As for `open_source`. A column `text` or `sentence` gives its rows as they are; a
            source of pairs gives both sides' sentences, each once, those of the first side first.
        limit: Keep the first so many; None keeps all.
        root: The data root.

    Raises:
        DataError: There is no such source, or it holds no sentences.
    """
    table, name = open_source(source, root, toy_nli, limit)
    column = next((c for c in PLAIN if c in table.column_names), None)
    if column is not None:
        texts = _text(table, column, name)
    else:
        sides = pa.chunked_array(
            [
                chunk
                for side in _sides(table, name, _NOTHING)
                for chunk in _text(table, side, name).chunks
            ],
            pa.string(),
        )
        texts = pc.unique(sides)
    rows = pa.table({"text": texts})
    rows = require_enough(_cut(rows, limit, name), source, limit)
    return make_corpus("sentences", rows, shown_source(name))


def load_positive_pairs(
    source: str, limit: int | None, root: Path | None, min_score: float
) -> Corpus:
    """Load pairs that mean the same (CLSR, section 4.1).

    Args:
        source: As for `open_source`. Labeled pairs give those labeled entailment; pairs with a
            `score` those of `min_score` and above; pairs with neither all of them.
        limit: Keep the first so many; None keeps all.
        root: The data root.
        min_score: The lowest score of a pair that means the same.

    Raises:
        DataError: There is no such source, or it holds no such pair.
    """
    table, name = open_source(source, root, toy_nli, limit)
    if "label" in table.column_names:
        labeled = labelled_rows(table, None, name)
        kept = labeled.filter(pc.equal(labeled.column("label"), 0))
        rows = pa.table([kept["premise"], kept["hypothesis"]], names=["sentence1", "sentence2"])
        require_rows(rows, name, "no row is labeled entailment")
        if name == _WHOLE_NLI and limit is None and len(rows) != NLI_ENTAILED:
            rule = f"SNLI and MultiNLI train together have {NLI_ENTAILED:,} entailed rows"
            move = "Copy the files again."
            raise DataError(Fault(str(root), "nli/", f"{len(rows):,} rows", rule, move))
    else:
        rows = close_pairs(table, name, min_score)
    rows = require_enough(_cut(rows, limit, name), source, limit)
    return make_corpus("positive_pairs", rows, shown_source(name))


def load_graded_pairs(source: str, limit: int | None, root: Path | None) -> Corpus:
    """Load pairs with a similarity.

    Args:
        source: As for `open_source`; it has a column `score`.
        limit: Keep the first so many; None keeps all.
        root: The data root.

    Raises:
        DataError: There is no such source, or its pairs have no score.
    """
    table, name = open_source(source, root, toy_graded, limit)
    if "score" not in table.column_names:
        found = ", ".join(table.column_names) or "none"
        rule = f"pairs with a similarity need a column score; the columns are {found}"
        raise DataError(Fault(name, "score", "", rule, "Take sts-b, or add the column."))
    rows = _pairs(table, name).append_column("score", pa.array(_scores(table, name)))
    return make_corpus("graded_pairs", _cut(rows, limit, name), shown_source(name))


def close_pairs(table: pa.Table, where: str, min_score: float) -> pa.Table:
    """The pairs of a table whose `score` says that they mean the same; all where it has none.

    Args:
        table: Pairs of sentences, without labels.
        where: The file or data set, for the messages.
        min_score: The lowest score of a pair that means the same.

    Returns:
        Columns `sentence1: string` and `sentence2: string`.

    Raises:
        DataError: There are no pairs, or none of such a score.
    """
    rows = _pairs(table, where)
    if "score" not in table.column_names:
        return rows
    rows = rows.filter(pa.array(_scores(table, where) >= min_score))
    require_rows(rows, where, f"no pair has a score of data.min_score = {min_score:g} or above")
    return rows


def _sides(table: pa.Table, where: str, missing: str) -> tuple[str, str]:
    for sides in _PAIRS:
        if all(side in table.column_names for side in sides):
            return sides
    found = ", ".join(table.column_names) or "others"
    rule = f"{missing}; the columns are {found}"
    move = "Name the pair's columns sentence1 and sentence2, or premise and hypothesis."
    raise DataError(Fault(where, "", "", rule, move))


def _pairs(table: pa.Table, where: str) -> pa.Table:
    left, right = _sides(table, where, "there are no pairs of sentences")
    return pa.table(
        {"sentence1": _text(table, left, where), "sentence2": _text(table, right, where)}
    )


def _text(table: pa.Table, name: str, where: str) -> pa.ChunkedArray:
    return pc.fill_null(text_column(table, name, where), "")


def _scores(table: pa.Table, where: str) -> npt.NDArray[np.float64]:
    column = table.column("score")
    try:
        scores = np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    except pa.ArrowException:
        # One word among the numbers makes a column of text.
        scores = np.array([_number(value) for value in column.to_pylist()])
    bad = np.flatnonzero(~np.isfinite(scores))
    if bad.size:
        row = int(bad[0])
        rule = "a score must be a finite number"
        value = str(column[row].as_py())
        raise DataError(Fault(f"{where} row {row + 1}", "score", value, rule, "Correct it."))
    return scores


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan


def _cut(rows: pa.Table, limit: int | None, where: str) -> pa.Table:
    require_rows(rows, where, "there are no rows")
    return rows if limit is None else rows.slice(0, limit)


def require_rows(rows: pa.Table, where: str, rule: str) -> None:
    """See that something is left.

    Raises:
        DataError: Nothing is.
    """
    if rows.num_rows == 0:
        raise DataError(Fault(where, "", "", rule, _ANOTHER))
