"""Open a table of training rows: a file, a folder saved by `datasets`, or a hub data set."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tune_sentcl.data.rows.corpus import MEANT
from tune_sentcl.data.tables import SUFFIXES, read_columns
from tune_sentcl.errors import DataError, Fault, first_line

__all__ = ["PLAIN", "SUFFIXES", "read_hub", "read_saved", "read_table"]

PLAIN = ("text", "sentence")
"""What a column of plain sentences is called; the first that is there is read."""

_TEXTS = ("premise", "hypothesis", "sentence1", "sentence2", *PLAIN)
_TRIPLETS = ("anchor", "positive", "negative", "sent0", "sent1", "hard_neg")


def _holds_text(name: str) -> bool:
    return name in _TEXTS or name in _TRIPLETS or MEANT.fullmatch(name) is not None


def _is_read(name: str) -> bool:
    """Whether some method reads a column; others of a file are left out."""
    return _holds_text(name) or name in ("negatives", "label", "score")


def read_table(path: Path, first: int | None = None) -> pa.Table:
    """Read a file of training rows; see `read_columns`.

    Args:
        path: The file.
        first: Of a Parquet file of plain sentences so many rows are enough; None reads all.

    Raises:
        DataError: The file is missing, of another kind, or broken.
    """
    if first is not None and not (path.suffix == ".parquet" and _is_plain(path)):
        first = None
    return read_columns(path, _is_read, _holds_text, "data.source", first)


def _is_plain(path: Path) -> bool:
    """Whether a Parquet file holds plain sentences; one that cannot be read is told of later."""
    try:
        return not set(PLAIN).isdisjoint(pq.read_schema(path).names)
    except (pa.ArrowException, OSError):
        return False


def read_saved(folder: Path) -> pa.Table:
    """Read a folder written by `save_to_disk`: a data set, or one with a `train` split.

    Raises:
        DataError: The folder holds neither.
    """
    import datasets  # slow to import, and most runs need it not

    try:
        saved = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, pa.ArrowException) as error:
        rule = f"the folder was not saved by `datasets` ({first_line(error)})"
        move = "Name a folder written by `save_to_disk`, or a file inside this one."
        raise DataError(Fault(str(folder), "", "", rule, move)) from None
    if isinstance(saved, datasets.DatasetDict):
        if "train" not in saved:
            splits = ", ".join(saved)
            rule = f"there is no split `train`; the splits are {splits}"
            move = "Name the folder of one split."
            raise DataError(Fault(str(folder), "", "", rule, move))
        saved = saved["train"]
    return _arrow(saved)


def read_hub(name: str) -> pa.Table:
    """Read the split `train` of a data set from the hub, or from its local cache.

    Args:
        name: `owner/name`.

    Raises:
        DataError: The hub cannot be reached, or has no such data set.
    """
    import datasets  # slow to import, and most runs need it not
    from datasets.exceptions import DatasetsError

    try:
        return _arrow(datasets.load_dataset(name, split="train"))
    except (OSError, ValueError, DatasetsError) as error:
        rule = f"no such file or folder, nor a data set of the hub in reach ({first_line(error)})"
        move = "Check the name and the network, or give a file."
        raise DataError(Fault("data.source", "", name, rule, move)) from None


def _arrow(dataset: object) -> pa.Table:
    """A data set's rows with the names of its classes, after any `select` or `shuffle`."""
    import datasets

    if not isinstance(dataset, datasets.Dataset):
        raise TypeError(f"not a data set: {type(dataset).__name__}")
    wanted = [name for name in dataset.column_names if _is_read(name)]
    chosen = dataset.select_columns(wanted)
    return (
        chosen.with_format("arrow")[:]
        .select(wanted)
        .replace_schema_metadata(chosen.features.arrow_schema.metadata)
    )
