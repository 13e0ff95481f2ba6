"""Columns of text in a user's own table."""

import pyarrow as pa
import pyarrow.compute as pc

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
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    legal = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if not any(is_kind(kind) for is_kind in (*legal, pa.types.is_integer, pa.types.is_boolean)):
        rule = f"the column must hold text, and holds {kind}"
        raise DataError(Fault(where, name, "", rule, "Write it as text."))
    texts = column.cast(kind).cast(pa.string())
    if not len(texts):
        raise DataError(Fault(where, "", "", "there are no rows", "Choose another file."))
    blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True)
    row = pc.index(blank, True).as_py()
    if row >= 0:
        value = repr(texts[row].as_py())
        move = "Correct the row, or leave it out."
        raise DataError(Fault(f"{where} row {row + 1}", name, value, "must not be blank", move))
    return tuple(texts.to_pylist())
