"""`mined/NAME.parquet`: the mined negatives of a study, which a resumed search reads again.

Another machine rounds cosines differently, and mining a large file again takes long.
"""

import pyarrow as pa
import pyarrow.parquet as pq

from tune_sentcl.errors import DamagedError, Fault
from tune_sentcl.store.files import StudyFiles

MINED = "mined"
"""The folder's name."""


def mined_file(name: str) -> str:
    """The name of a file in the study."""
    return f"{MINED}/{name}.parquet"


def read_mined(files: StudyFiles, name: str, num_rows: int) -> pa.Table | None:
    """The mined negatives with this name; None if the study does not have them.

    Raises:
        DamagedError: The file is not a table of `num_rows` rows.
    """
    data = files.read_bytes(mined_file(name))
    if data is None:
        return None
    try:
        table = pq.read_table(pa.BufferReader(data))
    except (OSError, pa.ArrowException) as error:
        rule = f"must be a complete Parquet file ({error})"
    else:
        rule = f"must have {num_rows} rows, but has {len(table)}"
        if len(table) == num_rows:
            return table
    where = files.display_path(mined_file(name))
    raise DamagedError(
        Fault(where, rule=rule, move="Delete the file; the search then mines the negatives again.")
    )
