"""Arrow tables as pandas frames."""

import pandas as pd
import pyarrow as pa

# Whole numbers and flags stay what they are beside nulls; numpy would make them floats.
_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


def frame_of(table: pa.Table) -> pd.DataFrame:
    """An Arrow table as a frame."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_NULLABLE.get)
    return frame
