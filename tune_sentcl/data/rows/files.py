"""Read a table of training rows: a file, a folder saved by `datasets`, or a hub data set."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from tune_sentcl.config import Rows
from tune_sentcl.data.rows.corpus import NEGATIVE_LIKE
from tune_sentcl.data.text_files import READ_ERRORS, SUFFIXES, Origin, read_columns
from tune_sentcl.errors import DataError, Fault, first_line

__all__ = ["PLAIN", "SUFFIXES", "read_hub", "read_saved", "read_table"]

PLAIN = ("text", "sentence")
"""Possible names of a column of plain sentences; the first that exists is read."""

_LABELED = ("premise", "hypothesis", "label")
_TRIPLET = (("anchor", "positive"), ("sent0", "sent1"))
_PAIRS = (("sentence1", "sentence2"), ("premise", "hypothesis"), *_TRIPLET)
_READ: dict[Rows, tuple[tuple[str, ...], ...]] = {
    "labeled_pairs": (_LABELED,),
    "sentences": (("text",), ("sentence",), *_PAIRS),
    "positive_pairs": (_LABELED, *_PAIRS),
    "graded_pairs": tuple((*pair, "score") for pair in _PAIRS),
    "triplets": (*_TRIPLET, _LABELED, *_PAIRS[:2]),
}
"""The columns that rows of a kind are made of; the first complete set is read."""

_TEXTS = ("premise", "hypothesis", "sentence1", "sentence2", *PLAIN)
_TRIPLETS = ("anchor", "positive", "negative", "sent0", "sent1", "hard_neg")


def _holds_text(name: str) -> bool:
    return name in _TEXTS or name in _TRIPLETS or NEGATIVE_LIKE.fullmatch(name) is not None


def _is_read(name: str) -> bool:
    """Whether some method reads a column; a file's other columns are dropped."""
    return _holds_text(name) or name in ("negatives", "label", "score")


@dataclass(frozen=True)
class ReadOptions:
    """How a user's table is read.

    Attributes:
        columns: The user's column for each role; other columns keep their names.
        blanks: Whether rows with a blank sentence are refused or dropped.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    blanks: Literal["refuse", "drop"] = "refuse"

    def role(self, name: str) -> str:
        """The role of a column; empty if another column has the role of its name."""
        roles = {column: role for role, column in self.columns.items()}
        return roles.get(name, "" if name in self.columns else name)

    def renamed(self, table: pa.Table, where: Origin) -> pa.Table:
        """Rename the columns to their roles.

        Raises:
            DataError: The table lacks a column that has a role.
        """
        lacking = [name for name in self.columns.values() if name not in where.columns]
        if lacking:
            rule = f"there is no column {lacking[0]}; the columns are {', '.join(where.columns)}"
            raise DataError(Fault(str(where), "data.columns", "", rule, "Correct the name."))
        kept = [index for index, name in enumerate(table.column_names) if self.role(name)]
        chosen = table.select(kept)
        # `datasets` stores the names of a label's classes under the column's name.
        metadata = dict(table.schema.metadata or {})
        notes = json.loads(metadata.get(b"huggingface", b"{}"))
        features = notes.get("info", {}).get("features", {})
        if features:
            notes["info"]["features"] = {self.role(n): kind for n, kind in features.items()}
            metadata[b"huggingface"] = json.dumps(notes).encode()
        names = [self.role(name) for name in chosen.column_names]
        return chosen.rename_columns(names).replace_schema_metadata(metadata)


UNCHANGED = ReadOptions()


def columns_read(kind: Rows, table: pa.Table, where: Origin) -> tuple[str, ...]:
    """The columns of a table that rows of a kind are made of.

    Raises:
        DataError: The table has no complete set of columns.
    """
    there = set(table.column_names)
    found = next((names for names in _READ[kind] if there.issuperset(names)), None)
    if found is None:
        raise missing_columns(kind, where)
    return found


def missing_columns(kind: Rows, where: Origin) -> DataError:
    """An error that lists a table's columns, the needed ones, and how to name them."""
    needed = [
        f"{', '.join(names[:-1])} and {names[-1]}".removeprefix(" and ") for names in _READ[kind]
    ]
    rule = (
        f"the columns are {', '.join(where.columns) or 'none'}; {kind.replace('_', ' ')} need "
        f"{'; or '.join(needed)}"
    )
    fewest = min(_READ[kind], key=len)
    roles = ", ".join(f'{name} = "YOUR COLUMN"' for name in fewest)
    return DataError(
        Fault(str(where), "", "", rule, f"Name the columns: data.columns = {{ {roles} }}.")
    )


def read_table(
    path: Path, first: int | None = None, read_options: ReadOptions = UNCHANGED
) -> pa.Table:
    """Read a file of training rows; see `read_columns`. Columns are not yet renamed.

    `first` is used only for Parquet files of plain sentences.

    Raises:
        DataError: The file is missing, of another kind, or broken.
    """
    role = read_options.role
    if read_options != UNCHANGED:
        first = None
    if first is not None and not (path.suffix == ".parquet" and _is_plain(path)):
        first = None
    return read_columns(
        path,
        lambda name: _is_read(role(name)),
        lambda name: _holds_text(role(name)),
        "data.source",
        first,
    )


def _is_plain(path: Path) -> bool:
    """Whether a Parquet file holds plain sentences; unreadable files are reported later."""
    try:
        return not set(PLAIN).isdisjoint(pq.read_schema(path).names)
    except READ_ERRORS:
        return False


def read_saved(folder: Path, read_options: ReadOptions) -> tuple[pa.Table, Origin]:
    """Read a folder written by `save_to_disk`: a data set, or its split `train`.

    Raises:
        DataError: The folder holds neither.
    """
    import datasets  # slow to import

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
    return _arrow(saved, str(folder), read_options)


def read_hub(name: str, read_options: ReadOptions) -> tuple[pa.Table, Origin]:
    """Read the split `train` of a hub data set `owner/name`, or its local cache.

    Raises:
        DataError: The hub cannot be reached, or has no such data set.
    """
    import datasets  # slow to import
    from datasets.exceptions import DatasetsError

    try:
        return _arrow(datasets.load_dataset(name, split="train"), name, read_options)
    except (OSError, ValueError, DatasetsError) as error:
        rule = f"no such file or folder, and no hub data set was found ({first_line(error)})"
        move = "Check the name and the network, or give a file."
        raise DataError(Fault("data.source", "", name, rule, move)) from None


def _arrow(dataset: object, name: str, read_options: ReadOptions) -> tuple[pa.Table, Origin]:
    """A data set's rows with its class names, after any `select` or `shuffle`."""
    import datasets

    if not isinstance(dataset, datasets.Dataset):
        raise TypeError(f"not a data set: {type(dataset).__name__}")
    wanted = [column for column in dataset.column_names if _is_read(read_options.role(column))]
    chosen = dataset.select_columns(wanted)
    table = (
        chosen.with_format("arrow")[:]
        .select(wanted)
        .replace_schema_metadata(chosen.features.arrow_schema.metadata)
    )
    return table, Origin(name, columns=tuple(dataset.column_names))
