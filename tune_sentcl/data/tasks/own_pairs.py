"""Graded pairs of the user's own: `sentence1`, `sentence2`, `score`; more is more alike."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.tables import Origin
from tune_sentcl.data.task import StsSubset, StsTask, fingerprint_of
from tune_sentcl.data.tasks.own_columns import texts_in
from tune_sentcl.data.tasks.own_task import OwnSplit
from tune_sentcl.errors import DataError, Fault

PAIRS = ("sentence1", "sentence2", "score")
_SPLITS: tuple[OwnSplit, ...] = ("dev", "test")


def own_pairs(
    name: str, tables: Mapping[str, tuple[pa.Table, str]], data: Literal["toy", "root"]
) -> Iterator[StsTask]:
    """Make a task of each split.

    Args:
        name: What the task is called.
        tables: By split the columns of `PAIRS`, and the file's name for the messages.
        data: As a `Score` has it.

    Raises:
        DataError: A sentence is blank, a score is no finite number, or scores do not vary.
    """
    for split in _SPLITS:
        if split in tables:
            table, where = tables[split]
            first, second = (texts_in(table, column, where) for column in PAIRS[:2])
            gold = _scores(table, where)
            rows = zip(first, second, map(float.hex, gold), strict=True)
            version = fingerprint_of([("pairs", str(len(gold))), *rows])
            subset = StsSubset(name, first, second, gold)
            yield StsTask(name, split, (subset,), data, "own", version)


def _scores(table: pa.Table, where: str) -> tuple[float, ...]:
    column = table["score"]
    try:
        numbers = column.cast(pa.float64())
    except pa.ArrowException:
        rule = f"the column must hold numbers, and holds {column.type}"
        raise DataError(Fault(where, "score", "", rule, "Write the scores as numbers.")) from None
    bad = pc.index(pc.fill_null(pc.is_finite(numbers), False), False).as_py()
    if bad >= 0:
        value = str(column[bad].as_py())
        rule = "must be a finite number"
        place = Origin(where, Path(where)).at([bad])
        raise DataError(Fault(place, "score", value, rule, "Correct the row."))
    found = tuple(numbers.to_pylist())
    if len(set(found)) < 2:
        rule = "there must be two different scores or more, for else nothing correlates"
        raise DataError(Fault(where, "score", f"{len(found)} rows", rule, "Add rows."))
    return found
