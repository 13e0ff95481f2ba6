"""The seven STS tasks: SentEval's files under a data root, or toy pairs.

Row counts are part of the reader: a damaged file must not become another task with another score.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from tune_sentcl.data.root import existing_root
from tune_sentcl.data.task import StsSplit, StsSubset, StsTask, sts_fingerprint
from tune_sentcl.data.tasks.sts_files import read_benchmark, read_sick, read_two_files
from tune_sentcl.data.toy.sets import toy_sts
from tune_sentcl.errors import DataError, Fault

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
    # SMT, the fourth set of 2013, has a license that keeps it out of SentEval and of every table.
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
"""The tasks of one file a split: where it lies below `downstream`, its rows, and its reader."""


def load_sts(data: Literal["toy", "root"], root: Path | None) -> tuple[StsTask, ...]:
    """Give the tasks of a run: the toy's, or the real ones.

    Args:
        data: Which.
        root: The data root; only `"root"` reads it.

    Raises:
        DataError: The data root is missing, or files under it are missing or damaged.
    """
    if data == "toy":
        return toy_sts()
    return read_sts(existing_root(root, "the STS evaluation"))


def read_sts(root: Path) -> tuple[StsTask, ...]:
    """Read every task under `root/downstream`.

    Args:
        root: A data root in SentEval's layout.

    Returns:
        STS12 to STS16 (test), then STS-B and SICK-R (dev and test).

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
    """Read one task on one split.

    Args:
        root: A data root in SentEval's layout.
        name: STS12 to STS16 (which have a test split only), STS-B or SICK-R.
        split: Which part.

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
