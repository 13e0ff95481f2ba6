"""Arrow tables as pandas frames, and frames as plain Python rows."""

from typing import Any

import pandas as pd
import pyarrow as pa

# Nullable types: numpy would turn integers and flags beside nulls into floats.
_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


def frame_of(table: pa.Table) -> pd.DataFrame:
    """Convert an Arrow table to a frame."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_NULLABLE.get)
    return frame


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Each row as a dict by column name, with None for missing values."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def lines_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """`rows_of` without the missing values."""
    rows = rows_of(frame)
    return [{key: value for key, value in row.items() if value is not None} for row in rows]
