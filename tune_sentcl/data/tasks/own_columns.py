"""Columns of text in a user's own table."""

import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.tables import blank_sentences, is_text, value_kind
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
    row = pc.index(blank_sentences(texts), True).as_py()
    if row >= 0:
        value = repr(texts[row].as_py())
        move = "Correct the row, or leave it out."
        raise DataError(Fault(f"{where} row {row + 1}", name, value, "must not be blank", move))
    return tuple(texts.to_pylist())
