"""Open a table of training rows: a file, a folder saved by `datasets`, or a hub data set."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from tune_sentcl.data.rows.corpus import NEGATIVE
from tune_sentcl.data.text import read_lines
from tune_sentcl.errors import DataError, Fault, first_line

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".txt")

PLAIN = ("text", "sentence")
"""What a column of plain sentences is called; the first that is there is read."""

_TEXTS = ("premise", "hypothesis", "sentence1", "sentence2", *PLAIN)
_TRIPLETS = ("anchor", "positive", "negative", "sent0", "sent1", "hard_neg")


def _holds_text(name: str) -> bool:
    return name in _TEXTS or name in _TRIPLETS or NEGATIVE.fullmatch(name) is not None


def _is_read(name: str) -> bool:
    """Whether some method reads a column; others of a file are left out."""
    return _holds_text(name) or name in ("negatives", "label", "score")


def read_table(path: Path, first: int | None = None) -> pa.Table:
    """Read a file by its suffix; CSV and TSV have a header and may quote with `"`.

    Args:
        path: A .parquet, .csv, .tsv or .jsonl file, or a .txt file of one sentence a line, which
            becomes the column `text`.
        first: Of a Parquet file of plain sentences so many rows are enough; None reads all.

    Returns:
        Its columns, not yet checked.

    Raises:
        DataError: The file is missing, of another kind, or broken.
    """
    if path.suffix not in SUFFIXES:
        rule = f"the file's name must end in {', '.join(SUFFIXES)}"
        raise DataError(Fault(str(path), "", "", rule, "Convert it, or correct its name."))
    if not path.is_file():
        rule = "this is a folder, not a file" if path.is_dir() else "the file does not exist"
        raise DataError(Fault(str(path), "", "", rule, "Check the name in data.source."))
    try:
        table = _parse(path, first)
        # Parquet and JSON readers take bytes on trust; this is where broken UTF-8 shows.
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        rule = f"the file cannot be read as {path.suffix[1:]} ({first_line(error)})"
        raise DataError(Fault(str(path), "", "", rule, "Write or copy the file again.")) from None
    return table


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


def _parse(path: Path, first: int | None) -> pa.Table:
    if path.suffix == ".parquet":
        return _parse_parquet(path, first)
    if path.suffix == ".txt":
        return pa.table({"text": pa.array(read_lines(path, "utf-8"), pa.string())})
    if path.suffix == ".jsonl":
        # Without a type, a column of dates would be read as times; a typed column that the file
        # has not would be made up.
        there = pyarrow.json.read_json(path).column_names
        schema = pa.schema([(name, pa.string()) for name in there if _holds_text(name)])
        return pyarrow.json.read_json(
            path, parse_options=pyarrow.json.ParseOptions(explicit_schema=schema)
        )
    delimiter = "\t" if path.suffix == ".tsv" else ","
    parsing = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with pyarrow.csv.open_csv(path, parse_options=parsing) as file:
        texts = {name: pa.string() for name in file.schema.names if _holds_text(name)}
    converting = pyarrow.csv.ConvertOptions(column_types=texts)
    return pyarrow.csv.read_csv(path, parse_options=parsing, convert_options=converting)


def _parse_parquet(path: Path, first: int | None) -> pa.Table:
    names = pq.read_schema(path).names
    known = [name for name in names if _is_read(name)]
    if first is None or not set(PLAIN) & set(known):
        return pq.read_table(path, columns=known)
    with pq.ParquetFile(path) as file:
        # Pages are read as they are needed: the rest of a large file is never opened.
        batch = next(file.iter_batches(first, columns=known), None)
        return file.read(columns=known) if batch is None else pa.Table.from_batches([batch])


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
