"""Read a table of training rows: a file, a folder saved by `datasets`, or a hub data set."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tune_sentcl.data.rows.kinds import NEGATIVE, holds_text, role_of, roles_of
from tune_sentcl.data.text_files import READ_ERRORS, Origin, file_columns, read_columns
from tune_sentcl.errors import DataError, Fault, first_line


def read_table(
    path: Path, first: int | None = None, columns: Mapping[str, str] | None = None
) -> tuple[pa.Table, Origin]:
    """Read a file of training rows; see `read_columns`.

    Args:
        path: The file.
        first: Enough rows of a Parquet file of plain sentences; None reads all.
        columns: The user's column for each role.

    Returns:
        Its columns, named by their roles, and its origin.

    Raises:
        DataError: The file is missing, of another kind, or broken, or lacks a user's column.
    """
    columns = columns or {}
    if path.suffix != ".parquet" or not _is_plain(path, columns):
        first = None
    table = read_columns(
        path,
        lambda name: bool(role_of(name, columns)[1]),
        lambda name: holds_text(role_of(name, columns)[1]),
        "data.source",
        first,
    )
    where = Origin(str(path), path, file_columns(path, table))
    return _by_role(table, columns, where), where


def _is_plain(path: Path, columns: Mapping[str, str]) -> bool:
    """Whether a Parquet file holds plain sentences; unreadable files are reported later."""
    try:
        return any(role_of(name, columns)[1] == "text" for name in pq.read_schema(path).names)
    except READ_ERRORS:
        return False


def read_dataset(name: str, columns: Mapping[str, str]) -> tuple[pa.Table, Origin]:
    """Read a folder written by `save_to_disk`, or a hub data set `owner/name` or its local cache.

    Args:
        name: The folder, which holds a data set or its split `train`; or the hub data set, of
            which the split `train` is read.
        columns: The user's column for each role.

    Raises:
        DataError: There is no such data set, or it has no such split.
    """
    import datasets  # slow to import
    from datasets.exceptions import DatasetsError

    saved = Path(name).is_dir()
    try:
        found = (
            datasets.load_from_disk(name) if saved else datasets.load_dataset(name, split="train")
        )
        if isinstance(found, datasets.DatasetDict) and "train" in found:
            found = found["train"]
    except (OSError, ValueError, pa.ArrowException, DatasetsError) as error:
        reason = first_line(error)
        if saved:
            rule = f"the folder was not saved by `datasets` ({reason})"
            move = "Name a folder written by `save_to_disk`, or a file inside this one."
            raise DataError(Fault(name, "", "", rule, move)) from None
        rule = f"no such file or folder, and no hub data set was found ({reason})"
        move = "Check the name and the network, or give a file."
        raise DataError(Fault("data.source", "", name, rule, move)) from None
    if not isinstance(found, datasets.Dataset):
        rule = f"there is no split `train`; the splits are {', '.join(found)}"
        raise DataError(Fault(name, "", "", rule, "Name the folder of one split."))
    wanted = [n for n in found.column_names if role_of(n, columns)[1]]
    chosen = found.select_columns(wanted)  # after any `select` or `shuffle`
    table = chosen.with_format("arrow")[:].select(wanted)
    where = Origin(name, columns=tuple(found.column_names))
    metadata = chosen.features.arrow_schema.metadata
    return _by_role(table.replace_schema_metadata(metadata), columns, where), where


def _by_role(table: pa.Table, columns: Mapping[str, str], where: Origin) -> pa.Table:
    """The columns that have a role, under its name; numbers of a label become class names.

    `datasets` stores these names in the schema's metadata.
    """
    roles = roles_of(columns, where)
    notes = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    found = {role: table.column(name) for role, name in roles.items()}
    feature = notes.get("info", {}).get("features", {}).get(roles.get("label"), {})
    if feature.get("names") and pa.types.is_integer(found["label"].type):
        names = pa.array(["-", *feature["names"]])
        found["label"] = names.take(pc.add(found["label"].cast(pa.int64()), 1).combine_chunks())
        found["label"] = pa.chunked_array([found["label"]])
    return pa.table(found)


def with_lists_spread(table: pa.Table, where: Origin) -> tuple[pa.Table, Origin]:
    """Make a row of each positive in a list, and columns of all negatives.

    Returns:
        The rows and their origin. If positives are in lists, the column `row` (int64) has the
        number of the list. An empty list of positives is one null.

    Raises:
        DataError: `negatives` holds no lists.
    """
    if "positive" in table.column_names and _is_list(table.column("positive").type):
        items = [found or [None] for found in table.column("positive").to_pylist()]
        rows = np.repeat(np.arange(len(items)), [len(found) for found in items])
        kind = table.column("positive").type.value_type
        positives = pa.array([item for found in items for item in found], kind)
        table = table.drop_columns("positive").take(pa.array(rows))
        table = table.append_column("positive", positives).append_column("row", pa.array(rows))
        where = where.take(rows)
    numbered = sorted(filter(NEGATIVE.fullmatch, table.column_names), key=lambda n: (len(n), n))
    negatives: list[pa.ChunkedArray | pa.Array] = []
    for name in ("negative", *numbered, "negatives"):
        column = table.column(name) if name in table.column_names else pa.nulls(0)
        if _is_list(column.type):
            lists = [found or [] for found in column.to_pylist()]
            for place in range(max(map(len, lists), default=0)):
                texts = [found[place] if place < len(found) else None for found in lists]
                negatives.append(pa.array(texts, column.type.value_type))
        elif name != "negatives" and len(column):
            negatives.append(column)
        elif column.null_count < len(column):
            rule = f"the column must hold lists of sentences, and holds {column.type}"
            move = "Write lists of strings, or columns negative_1, negative_2 and so on."
            raise DataError(Fault(str(where), name, "", rule, move))
    names = [name for name in table.column_names if name not in ("negative", "negatives")]
    table = table.select([name for name in names if name not in numbered])
    for place, column in enumerate(negatives, 1):
        table = table.append_column(f"negative_{place}", column)
    return table, where


def _is_list(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view)
    return any(is_kind(kind) for is_kind in kinds)
