"""The law of labelled sentence pairs: three columns, three labels, no blank sentence.

Everything stays in Arrow columns, for a corpus has half a million rows.
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
"""A label's number is its place here."""

_NO_LABEL = -1
_SENTENCES = ("premise", "hypothesis")
_LABEL_RULE = (
    "a label must be 0, 1 or 2 (-1: no label), or entailment, neutral or contradiction (-: none)"
)
_FIX_ROW = "Correct the row, or leave it out."
_FIX_BLANKS = "Correct the file, or leave such rows out: --set data.blanks=drop."
_OTHER_FILE = "Choose another file or split."


def labelled_rows(table: pa.Table, limit: int | None, where: Origin) -> pa.Table:
    """Check rows and bring them into one form; rows without a label are dropped.

    Args:
        table: Columns `premise` and `hypothesis` (text) and `label` (numbers or names); others are
            left out. Where `datasets` wrote names for the label's numbers, those are obeyed.
        limit: Keep the first so many labelled rows; None keeps all. Every row is checked.
        where: The file or data set, for the messages.

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
    """Bring labelled rows into one form, those without a label (-1) and blank sentences included.

    Args:
        table: As for `labelled_rows`.
        where: The file or data set, for the messages.

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
        DataError: It holds something else than text.
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
    """See that no sentence of some columns is null or blank.

    Args:
        table: The sentences.
        names: The columns.
        where: The file or data set, for the messages.
        kept: Which rows count; None: all.

    Raises:
        DataError: One is; the first rows of each column are named.
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
    """Labels as int8, -1 where there is none."""
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
        known = pa.array(["-", *LABELS])
        position = pc.index_in(column.cast(pa.string()), value_set=known)
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
    """The names that `datasets` wrote for the label's numbers, in their order; else ours."""
    features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    names = features.get("label", {}).get("names")
    if names is None:
        return LABELS
    if sorted(names) != sorted(LABELS):
        rule = f"the label's names must be {', '.join(LABELS)}"
        move = "Rename the classes, or choose a set with these three."
        raise DataError(Fault(str(where), "label", ", ".join(map(str, names)), rule, move))
    return tuple(names)
