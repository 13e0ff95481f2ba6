"""Read tables of texts from files: columns named by their roles, and the line of each row."""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from tune_sentcl.config.data_names import is_ignored
from tune_sentcl.data.text_files import csv_rows, json_rows, read_lines
from tune_sentcl.errors import DataError, Fault, first_line

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".txt")


READ_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)
"""Errors of Arrow for a file that it cannot read; UnicodeDecodeError for damaged column names."""


@dataclass(frozen=True)
class Origin:
    """The file or data set of a table, for messages.

    Attributes:
        name: The file or data set.
        columns: All its columns, including those that were not read.
        numbers: The line or row in the file of each table row, from 1; None: both have the same
            rows.
        word: Whether `numbers` are lines or rows.
        dropped: The lines or rows of the file that were dropped because a text is blank.
        notes: Remarks for the user on how the file was read.
        splits: The splits that the file's column `split` contains.
    """

    name: str
    columns: tuple[str, ...] = ()
    numbers: npt.NDArray[np.int64] | None = None
    word: Literal["line", "row"] = "row"
    dropped: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def take(self, rows: npt.NDArray[np.int64]) -> "Origin":
        """The origin of some rows of the table."""
        return replace(self, numbers=rows + 1 if self.numbers is None else self.numbers[rows])

    def at(self, rows: Sequence[int]) -> str:
        """Rows of the table, for a message: line numbers, else numbers of rows in the file."""
        shown = ", ".join(
            str(row + 1 if self.numbers is None else self.numbers[row]) for row in rows[:5]
        )
        more = f" and {len(rows) - 5:,} more" if len(rows) > 5 else ""
        return f"{self} {self.word}{'s' if len(rows) > 1 else ''} {shown}{more}"


NEGATIVE = re.compile(r"negative_[1-9]\d*")
"""The names of columns that hold triplets' negatives."""
NEGATIVE_LIKE = re.compile(r"negative[\d_]+")
_TEXTS = ("text", "premise", "hypothesis", "sentence1", "sentence2", "anchor", "positive")
_OTHERS = ("label", "score", "split")
_ALIASES = {
    "sentence": "text",
    **{"sent0": "anchor", "sent1": "positive"},  # the header of SimCSE's training file
    **{"query": "anchor", "pos": "positive"},  # the keys of FlagEmbedding's training files
}
_NEGATIVE_ALIAS = re.compile(r"(?:hard[ _-]?)?neg(?:ative)?(s?)(?:[ _-]?(\d+))?")
"""Matches `hard_neg`, `neg`, `hard_negatives`, `negative1`, `neg_2` and similar names."""
UNREAD = "unread: "
"""Precedes the name of a column without a role, in place of the role."""


def holds_text(role: str) -> bool:
    """Whether columns of a role hold text or lists of texts."""
    return role in (*_TEXTS, "negative", "negatives") or bool(NEGATIVE_LIKE.fullmatch(role))


def role_of(name: str, columns: Mapping[str, str]) -> tuple[int, str]:
    """The role of a column by its name, ignoring case and outer blanks.

    Args:
        name: The column's name in the file.
        columns: The user's column for each role; other columns have the roles of their names.

    Returns:
        A rank, lower for a better match, and the role; an empty role if no method reads it.
    """
    plain = name.strip().casefold()
    chosen = [(c != name, role) for role, c in columns.items() if c.strip().casefold() == plain]
    if chosen:
        return min(chosen)
    known = plain in ("negative", "negatives", *_TEXTS, *_OTHERS) or NEGATIVE.fullmatch(plain)
    role = plain if known else _ALIASES.get(plain) or _negative(plain)
    rank = int(plain != name) if known else 2
    return rank, "" if role in columns else role


def _negative(plain: str) -> str:
    """The role of a column with another name for negatives; empty for other columns."""
    if found := _NEGATIVE_ALIAS.fullmatch(plain):
        return f"negative_{found[2]}" if found[2] else f"negative{found[1]}"
    return plain if NEGATIVE_LIKE.fullmatch(plain) else ""


Read = Callable[[Collection[str]], Collection[str]]
"""Chooses the roles to read, among the roles that a file has."""


def roles_of(
    names: Sequence[str],
    columns: Mapping[str, str],
    read: Read,
    where: str,
    *,
    others: bool = False,
) -> dict[str, str]:
    """By role, the column to read; if several columns match, the best match.

    With `others`, a column without a role has the role `UNREAD` plus its name, unless the user
    gave it the role `ignored`.

    Raises:
        DataError: The file lacks a column that has a role, or two columns match one role equally.
    """
    matching: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        rank, role = role_of(name, columns)
        matching.setdefault(role, []).append((rank, name))
    matching.pop("", None)
    lacking = [columns[role] for role in columns if role not in matching]
    if lacking:
        rule = f"there is no column {lacking[0]}; the columns are {', '.join(names)}"
        raise DataError(
            Fault(where, key="data.columns", rule=rule, move="Correct the name in data.columns.")
        )
    ignored = [name for r, m in matching.items() if is_ignored(r) for _, name in m]
    matching = {role: m for role, m in matching.items() if not is_ignored(role)}
    wanted = read(matching)
    matching = {role: matches for role, matches in matching.items() if role in wanted}
    for role, matches in matching.items():
        best = sorted(matches)
        # If only one of two columns of negatives were read, the method would lack the others
        # without a message.
        if len(best) > 1 and (best[0][0] == best[1][0] or role.startswith("negative")):
            rule = f"two columns have this role: {best[0][1]!r} and {best[1][1]!r}"
            raise DataError(Fault(where, key=role, rule=rule, move="Rename one of them."))
    roles = {role: min(matches)[1] for role, matches in matching.items()}
    used = {*roles.values(), *ignored}
    unread = dict.fromkeys(name for name in names if others and name not in used)
    return {**roles, **{f"{UNREAD}{name}": name for name in unread}}


def read_table(
    path: Path,
    first: int | None = None,
    columns: Mapping[str, str] | None = None,
    read: Read = tuple,
    *,
    others: bool = False,
) -> tuple[pa.Table, Origin]:
    """Read a file by its suffix; name its columns by their roles, without checking their content.

    CSV and TSV have a header, may quote cells with `"`, and hold only text. The separator is that
    of the suffix; or else, of comma, semicolon, tab and bar, the one that Excel's first line names
    (`sep=;`) or that splits the header.

    Args:
        path: A file with a suffix of `SUFFIXES`; a .txt file has a sentence per line, which
            becomes the column `text`.
        first: Read only so many first rows of a Parquet file with a column `text`; None: all.
        columns: The user's column for each role.
        read: Which roles to read; all by default.
        others: Whether to read the columns without a role too; see `roles_of`.

    Raises:
        DataError: The file is missing, of another kind, or damaged (the error names the line), or
            it lacks a column that the user named.
    """

    def roles(names: Sequence[str]) -> dict[str, str]:
        return roles_of(names, columns or {}, read, str(path), others=others)

    if path.suffix not in SUFFIXES:
        rule = f"the file's name must end in {', '.join(SUFFIXES)}"
        raise DataError(Fault(str(path), rule=rule, move="Convert the file, or correct its name."))
    if not path.is_file():
        rule = "this is a folder, not a file" if path.is_dir() else "the file does not exist"
        move = "Check the name in data.source; a relative path begins at the working directory."
        raise DataError(Fault(str(path), rule=rule, move=move))
    if path.suffix == ".parquet":
        table, every = _parquet(path, roles, first)
        there = {role: n for role, n in roles(every).items() if n in table.column_names}
        rows = by_role(table, there)
        for role in roles(every).keys() - there.keys():
            rows = rows.append_column(role, pa.nulls(len(rows)))
        return rows, Origin(str(path), tuple(every))
    if path.suffix == ".txt":
        texts = pa.table({"text": pa.array(read_lines(path, "utf-8"), pa.string())})
        return by_role(texts, roles(["text"])), Origin(str(path), ("text",), word="line")
    table, lines, names = (_json if path.suffix == ".jsonl" else _csv)(path, roles)
    return table, Origin(str(path), tuple(names), np.array(lines, np.int64), "line")


_Roles = Callable[[Sequence[str]], Mapping[str, str]]
_Lined = tuple[pa.Table, Sequence[int], Sequence[str]]
"""The columns to read, by role; the line of each row; the names of all columns."""


def _csv(path: Path, roles: _Roles) -> _Lined:
    header, *rows = csv_rows(path)
    names, columns = header[1], {}
    for role, name in roles(names).items():
        place = names.index(name)
        texts = pa.array([row[place] for _, row in rows], pa.string())
        columns[role] = texts if holds_text(role) else pc.if_else(pc.equal(texts, ""), None, texts)
    return pa.table(columns), [line for line, _ in rows], names


def _json(path: Path, roles: _Roles) -> _Lined:
    rows = list(json_rows(path))
    names, columns = list(dict.fromkeys(name for _, row in rows for name in row)), {}
    for role, name in roles(names).items():
        values = [row.get(name) for _, row in rows]
        try:
            columns[role] = _json_column(values, text=holds_text(role))
        except (pa.ArrowException, ValueError):
            if role.startswith(UNREAD):
                columns[role] = pa.nulls(len(values))
                continue
            for (line, _), value in zip(rows, values, strict=True):
                try:
                    _json_column([value], text=True)
                except (pa.ArrowException, ValueError) as error:
                    rule = f"must be text or a list of texts ({first_line(error)})"
                    where, move = f"{path} line {line}", "Write the sentences as strings."
                    raise DataError(
                        Fault(where, key=name, value=json.dumps(value), rule=rule, move=move)
                    ) from None
            raise
    return pa.table(columns), [line for line, _ in rows], names


def _json_column(values: Sequence[Any], *, text: bool) -> pa.Array:
    """A column of one type; if a row has a list of texts, every text becomes a list."""
    if text and any(isinstance(value, list) for value in values):
        lists = [[value] if isinstance(value, str) else value for value in values]
        return pa.array(lists, pa.list_(pa.string()))
    try:
        return pa.array(values, pa.string() if text else None)
    except (pa.ArrowException, OverflowError):
        # The values have several types, for which Arrow has no common type.
        if text:
            raise
        return pa.array([None if v is None else str(v) for v in values], pa.string())


def _parquet(path: Path, roles: _Roles, first: int | None) -> tuple[pa.Table, list[str]]:
    """The columns to read, and the names of all columns."""
    try:
        file = pyarrow.dataset.dataset(path)
        types = dict(zip(file.schema.names, file.schema.types, strict=True))
        chosen = {
            role: name
            for role, name in roles(file.schema.names).items()
            if not role.startswith(UNREAD) or is_plain(name, types[name])
        }
        present = list(chosen.values())
        if first is None or "text" not in chosen:
            table = file.to_table(present)
        else:
            # `head` does not read the rest of a large file.
            table = file.head(first, columns=present)
        # pyarrow has no `take` for string views, so such columns are read as strings.
        plain = [
            f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f
            for f in table.schema
        ]
        table = table.cast(pa.schema(plain, table.schema.metadata))
        table.validate(full=True)  # pyarrow's Parquet reader does not check that texts are UTF-8
    except READ_ERRORS as error:
        rule = f"the file cannot be read as parquet ({first_line(error)})"
        raise DataError(
            Fault(str(path), rule=rule, move="Write or copy the file again.")
        ) from None
    return table, file.schema.names


def by_role(table: pa.Table, roles: Mapping[str, str]) -> pa.Table:
    """Name columns by role, and replace numbers of classes by the classes' names.

    `datasets` stores the classes' names in the schema's metadata; other metadata is ignored.
    """
    columns = {role: table.column(name) for role, name in roles.items()}
    for role, name in roles.items():
        names = _class_names(table, name)
        if len(names) > 1 and pa.types.is_integer(columns[role].type):
            numbers = pa.array([*range(len(names) - 1), -1])
            places = pc.index_in(columns[role].cast(pa.int64()), value_set=numbers)
            columns[role] = pc.take(names, places)
    return pa.table(columns)


def _class_names(table: pa.Table, name: str) -> pa.Array:
    """The names of a column's classes, then "-" for no class; empty without such names."""
    try:
        notes = json.loads((table.schema.metadata or {})[b"huggingface"])
        return pa.array(notes["info"]["features"][name]["names"] + ["-"], pa.string())
    except (ValueError, KeyError, TypeError, RecursionError, pa.ArrowException):
        return pa.array([], pa.string())


def is_plain(name: str, kind: pa.DataType) -> bool:
    """Whether to read a column without a role: embeddings and structures are left out."""
    if not pa.types.is_nested(kind) or "score" in name.casefold():
        return True
    value = getattr(kind, "value_type", None)
    return value is not None and (pa.types.is_integer(value) or pa.types.is_boolean(value))


def value_kind(column: pa.ChunkedArray) -> pa.DataType:
    """The type of a column's values; for a dictionary-encoded column, that of its dictionary."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def blank_sentences(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which sentences are null, empty or only white space."""
    return pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), True)


def finite_scores(table: pa.Table, where: Origin) -> npt.NDArray[np.float64]:
    """The numbers of the column `score`; texts with outer blanks or a sign count as numbers.

    Raises:
        DataError: A score is not a finite number; the error names its line.
    """
    column = table.column("score")
    try:
        scores = np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    except pa.ArrowException:
        scores = numbers(column.to_pylist())
    bad = np.flatnonzero(~np.isfinite(scores))
    if bad.size:
        row = int(bad[0])
        value = str(column[row].as_py())
        rule = "a score must be a finite number"
        rule += " (a decimal comma is read if no score has a point)" if "," in value else ""
        raise DataError(
            Fault(
                where.at([row]),
                key="score",
                value=value,
                rule=rule,
                move="Correct the score, or remove the row.",
            )
        )
    return scores


_THOUSANDS = re.compile(r"\s*[1-9]\d{0,2}(,\d{3})+\s*")
"""Matches a number such as 1,000, whose comma may separate thousands."""


def numbers(values: Iterable[object]) -> npt.NDArray[np.float64]:
    """The number that each value means, NaN for no number.

    Without a decimal point in any value, a comma is the decimal sign, unless it separates
    thousands.
    """
    texts = [str(value) for value in values]
    commas = [text for text in texts if "," in text]
    if not any("." in text for text in texts) and not all(map(_THOUSANDS.fullmatch, commas)):
        texts = [text.replace(",", ".") for text in texts]
    return np.array([number(text) for text in texts], np.float64)


def number(text: str) -> float:
    """The number that a text means; NaN for no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def text_column(
    table: pa.Table, name: str, where: Origin, *, numbers: bool = False
) -> pa.ChunkedArray:
    """A column of sentences as strings; nulls stay.

    Args:
        table: The table.
        name: The column.
        where: The file or data set, for errors.
        numbers: Whether whole numbers and truth values count as text.

    Raises:
        DataError: The column does not hold text.
    """
    column = table.column(name)
    kind = value_kind(column)
    is_number = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    if not (is_text(kind) or pa.types.is_null(kind) or (numbers and is_number)):
        rule = f"the column must hold text, but holds {kind}"
        raise DataError(
            Fault(str(where), key=name, rule=rule, move="Write the sentences as strings.")
        )
    texts = column.cast(kind).cast(pa.string())
    first = texts.slice(0, 1000)
    first = first.filter(pc.invert(blank_sentences(first)))
    if len(first) and pc.all(pc.match_substring_regex(first, _LIST)).as_py():
        rule = "the column holds lists that are written as text"
        move = "Write the lists to a JSONL or Parquet file, or write one text per column."
        raise DataError(Fault(str(where), key=name, rule=rule, move=move))
    return texts


_LIST = r"""^\s*\[(\s*['"].*['"]\s*)?\]\s*$"""
"""Matches a list of texts as pandas writes it into a CSV file."""
