"""Arrow tables as pandas frames, and frames as plain Python rows."""

from typing import Any

import pandas as pd
import pyarrow as pa

# Whole numbers and flags stay what they are beside nulls; numpy would make them floats.
_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


def frame_of(table: pa.Table) -> pd.DataFrame:
    """An Arrow table as a frame."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_NULLABLE.get)
    return frame


def plain(column: "pd.Series[Any]") -> list[Any]:
    """A column's values, None for what is missing."""
    return column.astype(object).where(column.notna(), None).tolist()


def lines_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows by the names of the columns, what is missing left out."""
    columns = {str(name): plain(frame[name]) for name in frame}
    return [
        {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        for values in zip(*columns.values(), strict=True)
    ]
