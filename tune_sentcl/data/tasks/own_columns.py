"""Columns of text in a user's own table."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from tune_sentcl.data.tables import Origin, blank_sentences, is_text, value_kind
from tune_sentcl.errors import DataError, Fault


def texts_in(table: pa.Table, name: str, where: str) -> tuple[str, ...]:
    """A column's texts, none of them blank.

    Args:
        table: Has the column; whole numbers count as text.
        name: The column.
        where: The file, for the messages.

    Raises:
        DataError: It holds something else, a blank text, or no row.
    """
    column = table[name]
    kind = value_kind(column)
    if not (is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        rule = f"the column must hold text, and holds {kind}"
        raise DataError(Fault(where, name, "", rule, "Write it as text."))
    texts = column.cast(kind).cast(pa.string())
    if not len(texts):
        raise DataError(Fault(where, "", "", "there are no rows", "Choose another file."))
    rows = np.flatnonzero(blank_sentences(texts)).tolist()
    if rows:
        value = repr(texts[rows[0]].as_py()) if len(rows) == 1 else ""
        rule = "must not be blank" + (f", and {len(rows):,} are" if len(rows) > 1 else "")
        move = "Correct the rows, or leave them out."
        raise DataError(Fault(Origin(where, Path(where)).at(rows), name, value, rule, move))
    return tuple(texts.to_pylist())
