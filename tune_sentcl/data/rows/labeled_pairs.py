"""Check labeled sentence pairs: three columns, three labels, no blank sentence.

Rows stay in Arrow columns, because a corpus has half a million of them.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.rows.files import columns_read
from tune_sentcl.data.text_files import Origin, blank_sentences, is_text, value_kind
from tune_sentcl.errors import DataError, Fault

LABELS = ("entailment", "neutral", "contradiction")
"""A label's number is its index."""

_NO_LABEL = -1
_SENTENCES = ("premise", "hypothesis")
_LABEL_RULE = (
    "a label must be 0, 1 or 2 (-1: no label), or entailment, neutral or contradiction (-: none)"
)
_FIX_ROW = "Correct the row, or leave it out."
_FIX_BLANKS = "Correct the file, or drop such rows: --set data.blanks=drop."
_OTHER_FILE = "Choose another file or split."


def labelled_rows(table: pa.Table, limit: int | None, where: Origin) -> pa.Table:
    """Check and normalize rows; rows without a label are dropped.

    Args:
        table: Columns `premise` and `hypothesis` (text) and `label` (numbers or names); others
            are dropped. Class names stored by `datasets` define the meaning of numbers.
        limit: Keep the first `limit` labeled rows; None keeps all. Every row is checked.
        where: The file or data set, for messages.

    Returns:
        Columns `premise: string`, `hypothesis: string`, `label: int8`, at least one row.

    Raises:
        DataError: A column is missing or of another type, a label is unknown, a sentence is null
            or blank, or no row has a label.
    """
    rows = numbered_rows(table, where)
    kept = pc.not_equal(rows.column("label"), _NO_LABEL)
    require_sentences(rows, _SENTENCES, where, kept)
    rows = rows.filter(kept)
    if rows.num_rows == 0:
        raise DataError(Fault(str(where), "", "", "no row has a label", _OTHER_FILE))
    return rows if limit is None else rows.slice(0, limit)


def numbered_rows(table: pa.Table, where: Origin) -> pa.Table:
    """Normalize labeled rows, including those without a label (-1) or with blank sentences.

    Returns:
        Columns `premise: string`, `hypothesis: string`, `label: int8`, at least one row.

    Raises:
        DataError: A column is missing or of another type, or a label is unknown.
    """
    columns_read("labeled_pairs", table, where)
    if table.num_rows == 0:
        raise DataError(Fault(str(where), "", "", "there are no rows", _OTHER_FILE))
    labels = _numbered(table, where)
    return pa.table(
        {**{name: text_column(table, name, where) for name in _SENTENCES}, "label": labels}
    )


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


def require_sentences(
    table: pa.Table, names: Sequence[str], where: Origin, kept: pa.ChunkedArray | None = None
) -> None:
    """Refuse null and blank sentences in some columns; `kept` marks the rows to check.

    Raises:
        DataError: One fault per column, naming its first blank rows.
    """
    faults = []
    for name in names:
        blank = blank_sentences(table.column(name))
        rows = np.flatnonzero(blank if kept is None else pc.and_(blank, kept)).tolist()
        if rows:
            value = repr(table.column(name)[rows[0]].as_py()) if len(rows) == 1 else ""
            rule = "a sentence must not be blank"
            rule += f", and {len(rows):,} are" if len(rows) > 1 else ""
            faults.append(Fault(where.at(rows), name, value, rule, _FIX_BLANKS))
    if faults:
        raise DataError(faults)


def _numbered(table: pa.Table, where: Origin) -> pa.ChunkedArray:
    """Labels as int8, -1 if missing."""
    column = table.column("label")
    kind = value_kind(column)
    if pa.types.is_integer(kind):
        names = _class_names(table.schema.metadata or {}, where)
        numbers = column.cast(kind)
        in_range = pc.and_(pc.greater_equal(numbers, _NO_LABEL), pc.less(numbers, len(LABELS)))
        _require_all(in_range, column, where)
        order = [_NO_LABEL, *(LABELS.index(name) for name in names)]
        return _mapped(pc.add(numbers.cast(pa.int8()), 1), order)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        label_names = pa.array(["-", *LABELS])
        position = pc.index_in(column.cast(pa.string()), value_set=label_names)
        _require_all(pc.is_valid(position), column, where)
        return _mapped(position, [_NO_LABEL, *range(len(LABELS))])
    rule = f"{_LABEL_RULE}; this column holds {kind}"
    raise DataError(Fault(str(where), "label", "", rule, "Write the labels as numbers or names."))


def _mapped(position: pa.ChunkedArray, numbers: list[int]) -> pa.ChunkedArray:
    return pc.take(pa.array(numbers, pa.int8()), position)


def _require_all(good: pa.ChunkedArray, column: pa.ChunkedArray, where: Origin) -> None:
    row = pc.index(pc.fill_null(good, False), False).as_py()
    if row >= 0:
        value = repr(column[row].as_py())
        raise DataError(Fault(where.at([row]), "label", value, _LABEL_RULE, _FIX_ROW))


def _class_names(metadata: Mapping[bytes, bytes], where: Origin) -> tuple[str, ...]:
    """The class names that `datasets` stored for the label's numbers; else `LABELS`."""
    features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    names = features.get("label", {}).get("names")
    if names is None:
        return LABELS
    if sorted(names) != sorted(LABELS):
        rule = f"the label's names must be {', '.join(LABELS)}"
        move = "Rename the classes, or choose a set with these three."
        raise DataError(Fault(str(where), "label", ", ".join(map(str, names)), rule, move))
    return tuple(names)
