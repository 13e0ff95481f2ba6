"""The seven STS tasks: SentEval's files under a data root, or toy pairs.

The readers check row counts, because a damaged file would give another score.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from tune_sentcl.data.root import existing_root
from tune_sentcl.data.task import StsSplit, StsSubset, StsTask, sts_fingerprint
from tune_sentcl.data.text_files import read_lines
from tune_sentcl.data.toy import toy_sts
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
        subset: The part of the file names between the dots.
        expected: The number of pairs with a gold score.

    Raises:
        DataError: One fault per missing or unreadable file, or for the first bad row.
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
    """Read a file of STS-B: seven tab columns, no header, no quoting; gold and text come last.

    Raises:
        DataError: The file is missing or unreadable, a row is bad, or the count differs.
    """
    pairs: list[_Pair] = []
    for line, text in enumerate(read_lines(path, "utf-8"), start=1):
        *_, gold, left, right = _fields(path, line, text, 7)
        score = _gold(path, line, gold, _STS_RANGE)
        pairs.append((*_filled(path, line, left, right), score))
    return _subset("STS-B", pairs, expected, path)


def read_sick(path: Path, expected: int) -> StsSubset:
    """Read a file of SICK: tab columns under a header; the gold is `relatedness_score`.

    Raises:
        DataError: The file is missing or unreadable, lacks a column, a row is bad, or the count of
            rows without the header differs.
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
    # `float` alone would also accept "nan" and "1_0".
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


__all__ = [
    "STS_FILES",
    "STS_SUBSETS",
    "StsSplit",
    "StsSubset",
    "StsTask",
    "load_sts",
    "read_sts",
    "read_task",
    "sts_fingerprint",
]

STS_SUBSETS: dict[str, dict[str, int]] = {
    "STS12": {
        "MSRpar": 750,
        "MSRvid": 750,
        "SMTeuroparl": 459,
        "surprise.OnWN": 750,
        "surprise.SMTnews": 399,
    },
    # SMT, the fourth set of 2013, is licensed; neither SentEval nor any paper's table has it.
    "STS13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "STS14": {
        "deft-forum": 450,
        "deft-news": 300,
        "headlines": 750,
        "images": 750,
        "OnWN": 750,
        "tweet-news": 750,
    },
    "STS15": {
        "answers-forums": 375,
        "answers-students": 750,
        "belief": 375,
        "headlines": 750,
        "images": 750,
    },
    "STS16": {
        "answer-answer": 254,
        "headlines": 249,
        "plagiarism": 230,
        "postediting": 244,
        "question-question": 209,
    },
}
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
    """The tasks of a trial: the toy's, or those under the data root.

    Raises:
        DataError: The data root is missing, or files under it are missing or damaged.
    """
    if data == "toy":
        return tuple(toy_sts(name, split) for name, split in _evaluated())
    return read_sts(existing_root(root, "the STS evaluation"))


def read_sts(root: Path) -> tuple[StsTask, ...]:
    """Read every task: STS12 to STS16 (test), then STS-B and SICK-R (dev and test).

    Raises:
        DataError: One fault for each missing or damaged file, all at once.
    """
    folder = existing_root(root, "the STS evaluation")
    tasks: list[StsTask] = []
    faults: list[Fault] = []
    for name, split in _evaluated():
        try:
            tasks.append(read_task(folder, name, split))
        except DataError as error:
            faults.extend(error.faults)
    if faults:
        raise DataError(faults)
    return tuple(tasks)


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
    subsets: list[StsSubset] = []
    faults: list[Fault] = []
    for subset, expected in STS_SUBSETS[name].items():
        try:
            subsets.append(read_two_files(folder / f"STS/{name}-en-test", subset, expected))
        except DataError as error:
            faults.extend(error.faults)
    if faults:
        raise DataError(faults)
    return StsTask(name, split, tuple(subsets))


def _evaluated() -> Iterator[tuple[str, StsSplit]]:
    for name in STS_SUBSETS:
        yield name, "test"
    for name in ("STS-B", "SICK-R"):
        yield name, "dev"
        yield name, "test"
