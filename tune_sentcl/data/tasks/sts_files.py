"""Parsers of the STS files in SentEval's layout; each checks its rows and how many there are."""

import re
from pathlib import Path

from tune_sentcl.data.task import StsSubset
from tune_sentcl.data.text import read_lines
from tune_sentcl.errors import DataError, Fault

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_STS_RANGE = (0.0, 5.0)
_SICK_RANGE = (1.0, 5.0)
_COPY_AGAIN = "Copy the file again from SentEval's data."

_Pair = tuple[str, str, float]


def read_two_files(folder: Path, subset: str, expected: int) -> StsSubset:
    """Read `STS.input.<subset>.txt` and `STS.gs.<subset>.txt`; rows with a blank gold are dropped.

    Args:
        folder: For example `STS12-en-test`.
        subset: The name between the dots.
        expected: Pairs with a gold score.

    Raises:
        DataError: One fault for each missing or unreadable file, or for the first bad row.
    """
    inputs, scores = folder / f"STS.input.{subset}.txt", folder / f"STS.gs.{subset}.txt"
    columns: list[list[str]] = []
    faults: list[Fault] = []
    for path in (inputs, scores):
        try:
            columns.append(read_lines(path, "utf-8"))
        except DataError as error:
            faults.extend(error.faults)
    if faults:
        raise DataError(faults)
    texts, golds = columns
    if len(texts) != len(golds):
        rule = f"the gold file {scores.name} must have as many lines, and has {len(golds)}"
        raise DataError(Fault(str(inputs), "", f"{len(texts)} lines", rule, _COPY_AGAIN))
    pairs: list[_Pair] = []
    for line, (text, gold) in enumerate(zip(texts, golds, strict=True), start=1):
        if gold.strip():
            left, right = _fields(inputs, line, text, 2)
            score = _gold(scores, line, gold, _STS_RANGE)
            pairs.append((*_filled(inputs, line, left, right), score))
    return _subset(subset, pairs, expected, inputs)


def read_benchmark(path: Path, expected: int) -> StsSubset:
    """Read a file of STS-B: seven tab columns, no header and no quoting; gold and text come last.

    Args:
        path: For example `sts-dev.csv`.
        expected: Its rows.

    Raises:
        DataError: The file is missing or unreadable, or a row is bad.
    """
    pairs: list[_Pair] = []
    for line, text in enumerate(read_lines(path, "utf-8"), start=1):
        *_, gold, left, right = _fields(path, line, text, 7)
        score = _gold(path, line, gold, _STS_RANGE)
        pairs.append((*_filled(path, line, left, right), score))
    return _subset("STS-B", pairs, expected, path)


def read_sick(path: Path, expected: int) -> StsSubset:
    """Read a file of SICK: tab columns under a header; the gold is `relatedness_score`.

    Args:
        path: For example `SICK_trial.txt`.
        expected: Its rows, without the header.

    Raises:
        DataError: The file is missing or unreadable, lacks a column, or a row is bad.
    """
    header, *rows = read_lines(path, "utf-8")
    names = header.split("\t")
    wanted = ("sentence_A", "sentence_B", "relatedness_score")
    missing = [name for name in wanted if name not in names]
    if missing:
        value = ", ".join(names)
        rule = f"the header must name the column {missing[0]}"
        raise DataError(Fault(f"{path} line 1", "", value, rule, _COPY_AGAIN))
    first, second, third = (names.index(name) for name in wanted)
    pairs: list[_Pair] = []
    for line, text in enumerate(rows, start=2):
        fields = _fields(path, line, text, len(names))
        score = _gold(path, line, fields[third], _SICK_RANGE)
        pairs.append((*_filled(path, line, fields[first], fields[second]), score))
    return _subset("SICK-R", pairs, expected, path)


def _fields(path: Path, line: int, text: str, count: int) -> list[str]:
    fields = text.split("\t")
    if len(fields) != count:
        rule = f"a row must have {count} columns with a tab between them"
        raise DataError(Fault(f"{path} line {line}", "", f"{len(fields)}", rule, _COPY_AGAIN))
    return fields


def _gold(path: Path, line: int, text: str, bounds: tuple[float, float]) -> float:
    low, high = bounds
    number = text.strip()
    # `float` alone would also take "nan" and "1_0".
    if _NUMBER.fullmatch(number) and low <= float(number) <= high:
        return float(number)
    rule = f"a gold score must be a number from {low:g} to {high:g}"
    raise DataError(Fault(f"{path} line {line}", "gold", repr(text), rule, _COPY_AGAIN))


def _filled(path: Path, line: int, left: str, right: str) -> tuple[str, str]:
    if left.strip() and right.strip():
        return left, right
    rule = "a scored row must have two sentences, and one is blank"
    raise DataError(Fault(f"{path} line {line}", "", "", rule, _COPY_AGAIN))


def _subset(name: str, pairs: list[_Pair], expected: int, path: Path) -> StsSubset:
    if len(pairs) != expected:
        rule = f"the file must hold {expected} rows with a gold score"
        raise DataError(Fault(str(path), "", f"{len(pairs)} found", rule, _COPY_AGAIN))
    left, right, gold = zip(*pairs, strict=True)
    return StsSubset(name, left, right, gold)
