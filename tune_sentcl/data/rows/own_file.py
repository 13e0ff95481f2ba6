"""Read a file of training rows, and find out their kind and columns."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic_core import PydanticCustomError

from tune_sentcl.config import DataConfig, Rows, columns_of
from tune_sentcl.config.data_names import joined_columns
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.kinds import KINDS
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.data.rows.sources import rows_of
from tune_sentcl.data.tables import Origin, Read, numbers, read_table
from tune_sentcl.errors import DataError, Fault
from tune_sentcl.plugins import EXTENSIONS

_KINDS: tuple[Rows, ...] = ("graded_pairs", "labeled_pairs", "triplets", "sentences")
"""A file is read as the first kind that its columns allow."""


def load_file(rows: Path, columns: str = "") -> tuple[Corpus, str, dict[str, Corpus]]:
    """Read rows, without those that have a blank text.

    Rows of a file with a column `split` are those to train on; the others are given apart.

    Args:
        rows: A CSV, TSV, JSONL, Parquet or text file, or the name of a plugin's source.
        columns: Roles of its columns, as `data.columns`. Empty: by their names; if these say
            nothing, two columns of text are anchor and positive.

    Returns:
        The rows, the roles of the columns, and the rows of `dev` and `test`, if the file has such.

    Raises:
        DataError: The file cannot be read, or its columns are not known.
        PluginError: A plugin's source raises an error, or yields something else than dicts.
    """
    kind, columns = _kind_of(rows, columns)
    config = DataConfig(source=str(rows), columns=columns, blanks="drop")
    corpus = load_rows(kind, config, None)
    apart = {split: load_rows(kind, config, None, split) for split in corpus.splits}
    return corpus, columns, apart


def _kind_of(rows: Path, columns: str) -> tuple[Rows, str]:
    """The kind of a file's rows, and the roles of its columns."""
    try:
        columns = str(joined_columns(columns))
    except PydanticCustomError as error:
        rule = error.message().replace("Input should", "must")
        raise DataError(Fault("--columns", "", columns, rule, "Correct it.")) from None
    table, where = _read(rows, columns_of(columns))
    guessed = columns
    kind = _kind_among({*table.column_names})
    if kind is None and not columns:
        _require_header(rows, where.columns)
        guessed = _guessed(rows, where.columns)
        kind = _kind_among({*columns_of(guessed)})
    if kind is not None:
        return kind, guessed
    rule = f"the columns are {', '.join(where.columns)}, and two or three of them must be known"
    move = "Name them: --columns 'anchor=QUESTION,positive=ANSWER' (docs/data.md has the roles)."
    raise DataError(Fault(str(rows), "", "", rule, move))


def _read(rows: Path, columns: Mapping[str, str], read: Read = tuple) -> tuple[pa.Table, Origin]:
    own = EXTENSIONS.get(("source", str(rows)))
    return rows_of(own, columns, read) if own else read_table(rows, None, columns, read)


def _require_header(rows: Path, names: Sequence[str]) -> None:
    """Refuse a table whose first line is a row: a number, or sentences in place of names."""
    sentences = [n for n in names if len(n.split()) > 3 or n.rstrip().endswith((".", "?", "!"))]
    numbers = [name for name in names if _is_number(name)]
    if rows.suffix in (".csv", ".tsv") and (numbers or len(sentences) > 1):
        rule = "the first line must name the columns, and it looks like a row"
        move = "Write a line such as question,answer above it, or name the columns: --columns."
        raise DataError(Fault(f"{rows} line 1", "", (numbers or sentences)[0], rule, move))


def _kind_among(roles: Collection[str]) -> Rows | None:
    """The first kind whose columns are all among some roles."""
    there = {*roles}
    fits = (kind for kind in _KINDS if any(there >= {*needed} for needed in KINDS[kind].sources))
    return next(fits, None)


def _guessed(rows: Path, names: Sequence[str]) -> str:
    """Roles of two columns of text, and of a third one of numbers if its name says score."""
    texts, score = [], ""
    for name in names:
        values = _values(rows, name)
        numbers = sum(_is_number(value) for value in values)
        grades = name.casefold() in ("score", "similarity", "rating")
        if grades and numbers == len(values) and len({*values}) > 2:
            score = name
        elif not numbers and sum(map(len, values)) > 8 * len(values):
            texts.append(name)
    if len(texts) != 2 or any("," in name for name in (*texts, score)):
        return ""
    roles = ("sentence1", "sentence2") if score else ("anchor", "positive")
    pairs = dict(zip(roles, texts, strict=True)) | ({"score": score} if score else {})
    return ",".join(f"{role}={name}" for role, name in sorted(pairs.items()))


def _values(rows: Path, name: str) -> list[str]:
    """The first filled values of a column; empty if it holds no text."""
    try:
        table, _ = _read(rows, {"text": name}, lambda _: ("text",))
    except DataError:  # another type, or a name that occurs twice
        return []
    column = table.column("text")
    if not pa.types.is_string(column.type):
        return []
    return [value for value in column.slice(0, 200).to_pylist() if value and value.strip()]


def _is_number(text: str) -> bool:
    return bool(np.isfinite(numbers([text]))[0])
