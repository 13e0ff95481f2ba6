"""The seven STS tasks: SentEval's files under a data root, or toy pairs.

The readers check row counts, because a damaged file would change a score without an error.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from tune_sentcl.data.root import existing_root, published_counts
from tune_sentcl.data.task import StsSplit, StsSubset, StsTask
from tune_sentcl.data.text_files import read_lines
from tune_sentcl.data.toy import toy_sts
from tune_sentcl.errors import DataError, Fault

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_STS_RANGE = (0.0, 5.0)
_SICK_RANGE = (1.0, 5.0)

_Scored = tuple[int, Sequence[str]]
"""A line's number, and the texts of its gold score and two sentences."""

COPY_AGAIN = "Copy the file again from SentEval's data."

_Found = TypeVar("_Found")


def all_read(readers: Iterable[Callable[[], _Found]]) -> list[_Found]:
    """Call several readers; return all results.

    Raises:
        DataError: The faults of all readers.
    """
    results: list[_Found] = []
    faults: list[Fault] = []
    for read in readers:
        try:
            results.append(read())
        except DataError as error:
            faults.extend(error.faults)
    if faults:
        raise DataError(faults)
    return results


def columns_of(path: Path, header: str, *wanted: str) -> tuple[int, list[int]]:
    """The number of a file's columns, and the positions of the wanted ones, by its first line.

    Raises:
        DataError: A wanted column is missing.
    """
    names = header.split("\t")
    missing = [name for name in wanted if name not in names]
    if missing:
        rule = f"the header must name the column {missing[0]}"
        raise DataError(
            Fault(f"{path} line 1", value=", ".join(names), rule=rule, move=COPY_AGAIN)
        )
    return len(names), [names.index(name) for name in wanted]


def read_two_files(folder: Path, subset: str, expected: int) -> StsSubset:
    """Read `STS.input.<subset>.txt` and `STS.gs.<subset>.txt`; rows with a blank gold are dropped.

    Args:
        folder: For example `STS12-en-test`.
        subset: The part of the file names between the dots.
        expected: The number of pairs with a gold score.

    Raises:
        DataError: One fault per missing or unreadable file, or for the first bad row.
    """
    inputs, scores = folder / f"STS.input.{subset}.txt", folder / f"STS.gs.{subset}.txt"
    texts, golds = all_read(partial(read_lines, path, "utf-8") for path in (inputs, scores))
    if len(texts) != len(golds):
        rule = (
            f"the gold file {scores.name} must have the same number of lines, but has {len(golds)}"
        )
        raise DataError(
            Fault(str(inputs), value=f"{len(texts)} lines", rule=rule, move=COPY_AGAIN)
        )
    both = enumerate(zip(texts, golds, strict=True), start=1)
    rows = ((n, [gold, *_fields(inputs, n, text, 2)]) for n, (text, gold) in both if gold.strip())
    return _subset(subset, inputs, expected, _pairs(inputs, scores, rows, _STS_RANGE))


def read_benchmark(path: Path, expected: int) -> StsSubset:
    """Read a file of STS-B: seven columns, separated by tabs, without header and quotes.

    The last three columns are the gold score and the two sentences.

    Raises:
        DataError: The file is missing or unreadable, a row is bad, or the count differs.
    """
    lines = enumerate(read_lines(path, "utf-8"), start=1)
    rows = ((n, _fields(path, n, text, 7)[-3:]) for n, text in lines)
    return _subset("STS-B", path, expected, _pairs(path, path, rows, _STS_RANGE))


def read_sick(path: Path, expected: int) -> StsSubset:
    """Read a file of SICK: columns separated by tabs, with a header.

    Raises:
        DataError: The file is missing or unreadable, lacks a column, a row is bad, or the count of
            rows without the header differs.
    """
    header, *texts = read_lines(path, "utf-8")
    width, columns = columns_of(path, header, "relatedness_score", "sentence_A", "sentence_B")
    fields = ((n, _fields(path, n, text, width)) for n, text in enumerate(texts, start=2))
    rows = ((n, [row[column] for column in columns]) for n, row in fields)
    return _subset("SICK-R", path, expected, _pairs(path, path, rows, _SICK_RANGE))


def _fields(path: Path, line: int, text: str, count: int) -> list[str]:
    fields = text.split("\t")
    if len(fields) != count:
        rule = f"a row must have {count} columns with a tab between them"
        raise DataError(
            Fault(f"{path} line {line}", value=f"{len(fields)}", rule=rule, move=COPY_AGAIN)
        )
    return fields


def _pairs(
    path: Path, scores: Path, rows: Iterable[_Scored], bounds: tuple[float, float]
) -> Iterator[tuple[str, str, float]]:
    """Check rows from one or two files; `bounds` are the least and largest gold score."""
    low, high = bounds
    for line, (gold, left, right) in rows:
        number = gold.strip()
        # The pattern comes first, because `float` also accepts "nan" and "1_0".
        if not (_NUMBER.fullmatch(number) and low <= float(number) <= high):
            rule = f"a gold score must be a number from {low:g} to {high:g}"
            raise DataError(
                Fault(
                    f"{scores} line {line}",
                    key="gold",
                    value=repr(gold),
                    rule=rule,
                    move=COPY_AGAIN,
                )
            )
        if not (left.strip() and right.strip()):
            rule = "a scored row must have two sentences, but one of them is blank"
            raise DataError(Fault(f"{path} line {line}", rule=rule, move=COPY_AGAIN))
        yield left, right, float(number)


def _subset(
    name: str, path: Path, expected: int, pairs: Iterable[tuple[str, str, float]]
) -> StsSubset:
    rows = list(pairs)
    if len(rows) != expected:
        rule = f"the file must hold {expected} rows with a gold score"
        raise DataError(Fault(str(path), value=f"{len(rows)} found", rule=rule, move=COPY_AGAIN))
    return StsSubset(name, *zip(*rows, strict=True))


STS_SUBSETS: dict[str, dict[str, int]] = published_counts()["STS"]
"""Pairs with a gold score in each subset, in the order in which SentEval reads them."""

_Reader = Callable[[Path, int], StsSubset]

STS_FILES: dict[tuple[str, StsSplit], tuple[str, int, _Reader]] = {
    ("STS-B", "train"): ("STS/STSBenchmark/sts-train.csv", 5749, read_benchmark),
    ("STS-B", "dev"): ("STS/STSBenchmark/sts-dev.csv", 1500, read_benchmark),
    ("STS-B", "test"): ("STS/STSBenchmark/sts-test.csv", 1379, read_benchmark),
    ("SICK-R", "train"): ("SICK/SICK_train.txt", 4500, read_sick),
    ("SICK-R", "dev"): ("SICK/SICK_trial.txt", 500, read_sick),
    ("SICK-R", "test"): ("SICK/SICK_test_annotated.txt", 4927, read_sick),
}
"""The files of tasks with one file per split: path below `downstream`, rows, and reader."""


def load_sts(data: Literal["toy", "root"], root: Path | None) -> tuple[StsTask, ...]:
    """Every task: STS12 to STS16 (test), then STS-B and SICK-R (dev and test).

    Args:
        data: The toy tasks, or the tasks under the data root.
        root: The data root.

    Raises:
        DataError: The data root is missing; one fault for each missing or damaged file under it.
    """
    if data == "toy":
        return tuple(toy_sts(name, split) for name, split in _evaluated())
    folder = existing_root(root, "the STS evaluation")
    return tuple(all_read(partial(read_task, folder, *which) for which in _evaluated()))


def read_task(root: Path, name: str, split: StsSplit) -> StsTask:
    """Read one task on one split; STS12 to STS16 have only `test`.

    Raises:
        DataError: One fault for each missing or damaged file.
        KeyError: There is no such task or split.
    """
    folder = root / "downstream"
    single = STS_FILES.get((name, split))
    if single is not None:
        file, expected, read = single
        return StsTask(name, split, (read(folder / file, expected),))
    if split != "test":
        raise KeyError((name, split))
    place = folder / f"STS/{name}-en-test"
    subsets = (partial(read_two_files, place, *subset) for subset in STS_SUBSETS[name].items())
    return StsTask(name, split, tuple(all_read(subsets)))


def _evaluated() -> Iterator[tuple[str, StsSplit]]:
    for name in STS_SUBSETS:
        yield name, "test"
    for name in ("STS-B", "SICK-R"):
        yield name, "dev"
        yield name, "test"
