"""Read a file of training rows, and find out their kind and columns."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic_core import PydanticCustomError

from tune_sentcl.config import DataConfig, Rows, columns_of
from tune_sentcl.config.data_names import joined_columns
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.judged import judges, names_no_nli
from tune_sentcl.data.rows.kinds import KINDS
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.data.rows.sources import rows_of
from tune_sentcl.data.tables import Origin, Read, numbers, read_table, role_of
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
    kind = _kind_among({*table.column_names})
    if kind == "labeled_pairs" and names_no_nli(table.column("label")):
        kind = "triplets"
    if kind is None:
        guessed = {**_guessed(rows, where.columns, columns_of(columns)), **columns_of(columns)}
        kind = _kind_among({*table.column_names, *guessed})
        columns = str(joined_columns(guessed))
    if kind is not None:
        return kind, columns
    rule = f"the columns are {', '.join(where.columns)}, and two or three of them must be known"
    move = "Name them: --columns 'anchor=QUESTION,positive=ANSWER' (docs/data.md has the roles)."
    raise DataError(Fault(str(rows), "", "", rule, move))


def _read(rows: Path, columns: Mapping[str, str], read: Read = tuple) -> tuple[pa.Table, Origin]:
    own = EXTENSIONS.get(("source", str(rows)))
    return rows_of(own, columns, read) if own else read_table(rows, None, columns, read)


def _kind_among(roles: Collection[str]) -> Rows | None:
    """The first kind whose columns are all among some roles."""
    there = {*roles}
    fits = (kind for kind in _KINDS if any(there >= {*needed} for needed in KINDS[kind].sources))
    return next(fits, None)


def _guessed(rows: Path, names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Roles of two columns of text, and of a third one of numbers if its name says score.

    Raises:
        DataError: The header of a CSV or TSV file looks like a row.
    """
    # SimCSE's positive is `sent1`; then `sent0` would be there, and nothing were guessed.
    known = {n: role_of(n, columns)[1] for n in names if n.strip().casefold() != "sent1"}
    free = [name for name in names if not known.get(name) and "," not in name]
    values = {name: _values(rows, name) for name in free}
    texts = [
        name
        for name, filled in values.items()
        if sum(map(len, filled)) > 8 * len(filled)
        and not any(map(_is_number, filled))
        and not judges(name)
    ]
    if rows.suffix in (".csv", ".tsv"):
        _require_header(rows, names, texts)
    score = [n for n in free if n.casefold() in ("score", "similarity", "rating")]
    score = [n for n in score if all(map(_is_number, values[n])) and len({*values[n]}) > 2]
    there = {*known.values()}
    roles = ("sentence1", "sentence2") if score or "score" in there else ("anchor", "positive")
    lacking = [role for role in roles if role not in there] + ["score"] * bool(score)
    found = [*texts, *score]
    return dict(zip(lacking, found, strict=True)) if len(lacking) == len(found) else {}


def _require_header(rows: Path, names: Sequence[str], texts: Sequence[str]) -> None:
    """Refuse a header that looks like a row; `texts` are the names of columns of text.

    Raises:
        DataError: Two columns of text are called by sentences, or one by a number.
    """
    sentences = [n for n in texts if len(n.split()) > 3 or n.rstrip().endswith((".", "?", "!"))]
    # pandas numbers columns without names from 0.
    strange = [n for n in texts if _is_number(n) and n != str(names.index(n))]
    if strange or len(sentences) > 1:
        rule = "the first line must name the columns, and it looks like a row"
        move = "Write a line such as question,answer above it, or name the columns: --columns."
        raise DataError(Fault(f"{rows} line 1", "", [*strange, *sentences][0], rule, move))


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
