"""The parts that the readers of SentEval's files share."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from tune_sentcl.errors import DataError, Fault

COPY_AGAIN = "Copy the file again from SentEval's data."

_Found = TypeVar("_Found")


def all_read(readers: Iterable[Callable[[], _Found]]) -> list[_Found]:
    """The results of several readers.

    Raises:
        DataError: The faults of all readers.
    """
    found: list[_Found] = []
    faults: list[Fault] = []
    for read in readers:
        try:
            found.append(read())
        except DataError as error:
            faults.extend(error.faults)
    if faults:
        raise DataError(faults)
    return found


def columns_of(path: Path, header: str, *wanted: str) -> tuple[int, list[int]]:
    """The number of columns of a file, and the positions of some, by its first line.

    Raises:
        DataError: A column is missing.
    """
    names = header.split("\t")
    missing = [name for name in wanted if name not in names]
    if missing:
        rule = f"the header must name the column {missing[0]}"
        raise DataError(Fault(f"{path} line 1", "", ", ".join(names), rule, COPY_AGAIN))
    return len(names), [names.index(name) for name in wanted]
