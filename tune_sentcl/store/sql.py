"""SQL over a study's tables, by DuckDB, with a way to nothing else."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.errors import ConfigError, Fault, ResourceError
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.snapshot import Snapshot

# No files, no network, no extensions, no variables of ours; and none of this can be undone.
_CONFIGURATION: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "temp_directory": "",  # what does not fit into memory is an error, not a file
}
_READING = {"SELECT", "EXPLAIN", "MULTI"}  # MULTI is PIVOT


def query(snapshot: Snapshot, sql: str) -> pa.Table:
    """The answer to one SELECT over the tables `trials`, `scores` and `curves`.

    DESCRIBE, SHOW TABLES, SUMMARIZE, PIVOT and EXPLAIN are SELECTs too. Times are UTC. Columns
    of one name are told apart by `_1`, `_2` and so on; DuckDB's decimals are integers or floats.

    Args:
        snapshot: The study's tables.
        sql: In DuckDB's dialect.

    Raises:
        ConfigError: It is no SELECT, or DuckDB refuses it.
        ResourceError: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError:
        rule, move = "is not installed", 'Run: pip install "tune-sentcl[query]".'
        raise ResourceError(Fault("duckdb", "", "", rule, move)) from None
    with duckdb.connect(":memory:", config=_CONFIGURATION) as connection:
        for name, table in snapshot.tables.items():
            connection.register(name, table)
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET lock_configuration = true")
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type.name not in _READING:
                rule = "must be one SELECT, for a study is only read"
                raise ConfigError(Fault("SQL", "", mask_text(sql.strip()) or "''", rule, _MOVE))
            answer = connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            rule = f"DuckDB refuses it ({_said(error)})"
            raise ConfigError(Fault("SQL", "", mask_text(sql), rule, _MOVE)) from None
    return _plain(answer)


_MOVE = "Its tables are trials, scores and curves; DESCRIBE trials lists columns."


def _said(error: Exception) -> str:
    """In one line, without the place in the text, which is shown beside it."""
    said = str(error).partition("\n\nLINE ")[0]
    return mask_text(" ".join(said.split()))


def _plain(answer: pa.Table) -> pa.Table:
    columns = [_number(column) for column in answer.columns]
    return pa.table(columns, names=_distinct(answer.column_names))


def _number(column: pa.ChunkedArray) -> Any:
    """A sum of integers is a decimal of 38 digits to Arrow, which no JSON has."""
    if not pa.types.is_decimal(column.type):
        return column
    if column.type.scale == 0:
        try:
            return pc.cast(column, pa.int64())
        except pa.ArrowInvalid:  # it is as long as that
            pass
    return pc.cast(column, pa.float64())


def _distinct(names: list[str]) -> list[str]:
    found: list[str] = []
    counts: Counter[str] = Counter()
    for name in names:
        new = name
        while new in found:
            counts[name] += 1
            new = f"{name}_{counts[name]}"
        found.append(new)
    return found
