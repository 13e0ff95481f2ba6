"""Tables whose columns are named by their roles, however the file names them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tune_sentcl.data.text_files import READ_ERRORS, Origin, file_columns, read_columns
from tune_sentcl.errors import DataError, Fault

NEGATIVE = re.compile(r"negative_[1-9]\d*")
"""The names of the columns of triplets' negatives."""
NEGATIVE_LIKE = re.compile(r"negative[\d_]+")
_TEXTS = ("text", "premise", "hypothesis", "sentence1", "sentence2", "anchor", "positive")
_OTHERS = ("label", "score", "split", "fold")  # the last two: of evaluation tasks
_ALIASES = {
    "sentence": "text",
    **{"sent0": "anchor", "sent1": "positive", "hard_neg": "negative"},  # SimCSE's file
    **{"query": "anchor", "pos": "positive", "neg": "negative"},  # FlagEmbedding's files
}


def holds_text(role: str) -> bool:
    """Whether columns of a role hold text or lists of texts."""
    return role in (*_TEXTS, "negative", "negatives") or bool(NEGATIVE_LIKE.fullmatch(role))


def role_of(name: str, columns: Mapping[str, str]) -> tuple[int, str]:
    """The role of a column by its name alone; blanks around it and capitals do not count.

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
    known = holds_text(plain) or plain in _OTHERS
    role = plain if known else _ALIASES.get(plain, "")
    rank = int(plain != name) if known else 2
    return rank, "" if role in columns else role


def roles_of(columns: Mapping[str, str], where: Origin) -> dict[str, str]:
    """The file's column for each role that it has; the best match of several is taken.

    Raises:
        DataError: The file lacks a column that has a role, or two columns match one role alike.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for name in where.columns:
        rank, role = role_of(name, columns)
        found.setdefault(role, []).append((rank, name))
    found.pop("", None)
    lacking = [columns[role] for role in columns if role not in found]
    if lacking:
        rule = f"there is no column {lacking[0]}; the columns are {', '.join(where.columns)}"
        raise DataError(Fault(str(where), "data.columns", "", rule, "Correct the name."))
    for role, matches in found.items():
        best = sorted(matches)
        if len(best) > 1 and best[0][0] == best[1][0]:
            rule = f"two columns have this role: {best[0][1]!r} and {best[1][1]!r}"
            raise DataError(Fault(str(where), role, "", rule, "Rename one of them."))
    return {role: min(matches)[1] for role, matches in found.items()}


def read_table(
    path: Path, first: int | None = None, columns: Mapping[str, str] | None = None
) -> tuple[pa.Table, Origin]:
    """Read a file of training rows; its columns are named by their roles.

    Args:
        path: The file.
        first: Enough rows of a Parquet file of plain sentences; None reads all.
        columns: The user's column for each role.

    Raises:
        DataError: See `read_columns`; or the file lacks a user's column.
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
    return by_role(table, columns, where), where


def _is_plain(path: Path, columns: Mapping[str, str]) -> bool:
    """Whether a Parquet file holds plain sentences; unreadable files are reported later."""
    try:
        return any(role_of(name, columns)[1] == "text" for name in pq.read_schema(path).names)
    except READ_ERRORS:
        return False


def by_role(table: pa.Table, columns: Mapping[str, str], where: Origin) -> pa.Table:
    """The columns that have a role, under its name; numbers of a label become class names.

    `datasets` stores these names in the schema's metadata.
    """
    roles = roles_of(columns, where)
    notes = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    found = {role: table.column(name) for role, name in roles.items()}
    feature = notes.get("info", {}).get("features", {}).get(roles.get("label"), {})
    if feature.get("names") and pa.types.is_integer(found["label"].type):
        names = pa.array(["-", *feature["names"]])
        numbers = pc.index_in(
            found["label"].cast(pa.int64()), value_set=pa.array(range(-1, len(feature["names"])))
        )
        found["label"] = pc.take(names, numbers)
    return pa.table(found)
