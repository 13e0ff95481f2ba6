"""Check texts and labels, and normalize labeled sentence pairs.

Rows stay in Arrow columns, because a corpus has half a million of them.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.rows.kinds import columns_read
from tune_sentcl.data.text_files import Origin, blank_sentences, is_text, value_kind
from tune_sentcl.errors import DataError, Fault

LABELS = ("entailment", "neutral", "contradiction")
"""A label's number is its index."""

_NO_LABEL = -1
_SENTENCES = ("premise", "hypothesis")
_LABEL_RULE = (
    "a label must be 0, 1 or 2 (-1: no label), or entailment, neutral or contradiction (-: none)"
)
_OTHER_FILE = "Choose another file or split."


def labelled_rows(table: pa.Table, where: Origin) -> tuple[pa.Table, Origin]:
    """Check and normalize rows; rows without a label are dropped.

    Args:
        table: Columns `premise` and `hypothesis` (text) and `label` (numbers or names); others
            are dropped.
        where: The file or data set, for messages.

    Returns:
        Columns `premise: string`, `hypothesis: string`, `label: int8`, at least one row, and the
        origin of these rows.

    Raises:
        DataError: A column is missing or of another type, a label is unknown, a sentence is null
            or blank, or no row has a label.
    """
    rows = numbered_rows(table, where)
    kept = np.flatnonzero(pc.not_equal(rows.column("label"), _NO_LABEL))
    rows, where = rows.take(pa.array(kept)), where.take(kept)
    require_sentences(rows, _SENTENCES, where)
    if rows.num_rows == 0:
        raise DataError(Fault(str(where), "", "", "no row has a label", _OTHER_FILE))
    return rows, where


def numbered_rows(table: pa.Table, where: Origin) -> pa.Table:
    """Normalize labeled rows, including those without a label (-1) or with blank sentences.

    Returns:
        Columns `premise: string`, `hypothesis: string`, `label: int8`, at least one row.

    Raises:
        DataError: A column is missing or of another type, or a label is unknown.
    """
    columns_read("labeled_pairs", table.column_names, where)
    if table.num_rows == 0:
        raise DataError(Fault(str(where), "", "", "there are no rows", _OTHER_FILE))
    columns = {name: text_column(table, name, where) for name in _SENTENCES}
    return pa.table({**columns, "label": _numbered(table.column("label"), where)})


def text_column(table: pa.Table, name: str, where: Origin) -> pa.ChunkedArray:
    """A column of sentences as strings; nulls stay.

    Raises:
        DataError: It holds another type than text.
    """
    column = table.column(name)
    kind = value_kind(column)
    if not is_text(kind) and not pa.types.is_null(kind):
        rule = f"the column must hold text, and holds {kind}"
        raise DataError(Fault(str(where), name, "", rule, "Write the sentences as strings."))
    return column.cast(pa.string())


def require_sentences(table: pa.Table, names: Sequence[str], where: Origin) -> None:
    """Refuse null and blank sentences in some columns.

    Raises:
        DataError: One fault per column, naming its first blank rows.
    """
    faults = []
    for name in names:
        rows = np.flatnonzero(blank_sentences(table.column(name))).tolist()
        if rows:
            value = repr(table.column(name)[rows[0]].as_py()) if len(rows) == 1 else ""
            rule = "a sentence must not be blank"
            rule += f", and {len(rows):,} are" if len(rows) > 1 else ""
            move = "Correct the file, or drop such rows: --set data.blanks=drop."
            faults.append(Fault(where.at(rows), name, value, rule, move))
    if faults:
        raise DataError(faults)


def _numbered(column: pa.ChunkedArray, where: Origin) -> pa.ChunkedArray:
    """Labels as int8, -1 if missing."""
    kind = value_kind(column)
    if not pa.types.is_integer(kind) and not is_text(kind):
        rule = f"{_LABEL_RULE}; this column holds {kind}"
        move = "Write the labels as numbers or names."
        raise DataError(Fault(str(where), "label", "", rule, move))
    spellings = {"-1": _NO_LABEL, "-": _NO_LABEL}
    for number, name in enumerate(LABELS):
        spellings |= {str(number): number, name: number}
    found = pc.index_in(column.cast(kind).cast(pa.string()), value_set=pa.array([*spellings]))
    row = pc.index(pc.is_valid(found), False).as_py()
    if row >= 0:
        value, move = repr(column[row].as_py()), "Correct the row, or leave it out."
        raise DataError(Fault(where.at([row]), "label", value, _LABEL_RULE, move))
    return pc.take(pa.array(spellings.values(), pa.int8()), found)
