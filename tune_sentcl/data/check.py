"""Check which sets of a data root are complete, missing or damaged."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from tune_sentcl.config.data_names import own_source
from tune_sentcl.data.root import LAYOUT, existing_root
from tune_sentcl.data.rows.kinds import labelled_rows
from tune_sentcl.data.rows.sources import WHOLE
from tune_sentcl.data.tables import read_table
from tune_sentcl.data.task import StsTask
from tune_sentcl.data.tasks.own import read_with_training
from tune_sentcl.data.tasks.sts_data import STS_FILES, STS_SUBSETS, read_two_files
from tune_sentcl.data.tasks.transfer_data import TASKS, TransferFile, read_whole
from tune_sentcl.data.text_files import read_lines
from tune_sentcl.errors import DataError, Fault


@dataclass(frozen=True)
class Part:
    """One file of a set.

    Attributes:
        path: Relative to the data root.
        rows: The expected number of rows.
        count: Counts the rows below a data root; raises DataError for a damaged file.
        optional: Whether the set is complete without it.
    """

    path: str
    rows: int
    count: Callable[[Path], int]
    optional: bool = False


def _part(path: str, rows: int, read: Callable[[Path], Sized], *, optional: bool = False) -> Part:
    return Part(path, rows, lambda root: len(read(root / path)), optional)


def _synsets(path: Path) -> list[str]:
    # The license at the head of each list is indented by two spaces.
    return [line for line in read_lines(path, "utf-8") if not line.startswith("  ")]


def _first_table(path: Path) -> pa.Table:
    return read_table(path)[0]


def _labelled(path: Path) -> pa.Table:
    return labelled_rows(*read_table(path))[0]


def _yearly(name: str) -> tuple[Part, ...]:
    folder = f"downstream/STS/{name}-en-test"

    def part(subset: str, rows: int) -> Part:
        path = f"{folder}/STS.input.{subset}.txt"
        return _part(path, rows, lambda file: read_two_files(file.parent, subset, rows))

    return tuple(part(subset, rows) for subset, rows in STS_SUBSETS[name].items())


def _splits(name: str) -> tuple[Part, ...]:
    """The parts of STS-B or SICK; only the protocol `relatedness` reads their training split."""
    return tuple(
        _one_file(file, rows, read, optional=split == "train")
        for (task, split), (file, rows, read) in STS_FILES.items()
        if task == name
    )


def _one_file(file: str, rows: int, read: Callable[[Path, int], Sized], *, optional: bool) -> Part:
    return _part(f"downstream/{file}", rows, lambda path: read(path, rows), optional=optional)


def _transfer(name: str) -> tuple[Part, ...]:
    def part(file: TransferFile) -> Part:
        path = f"downstream/{file.path}"
        return Part(path, file.rows, lambda root: len(read_whole(root / "downstream", file)))

    return tuple(part(file) for files in TASKS[name].values() for file in files)


def _nli(name: str, rows: int) -> tuple[Part, ...]:
    return (_part(f"nli/{name}.parquet", rows, _labelled),)


def _wordnet(kind: str, rows: int) -> Part:
    return _part(f"wordnet/nltk_data/corpora/wordnet/data.{kind}", rows, _synsets)


_WIKI = ("wiki/wiki1m_for_simcse.txt", "wiki/enwiki_2015_sentences_1m.parquet")

SETS: dict[str, tuple[Part, ...]] = {
    **{name: _yearly(name) for name in STS_SUBSETS},
    "STS-B": _splits("STS-B"),
    "SICK": _splits("SICK-R"),
    **{name: _transfer(name) for name in TASKS if name != "SICK-E"},  # SICK's files are above
    "SNLI": _nli("snli_train", WHOLE["snli"]),
    "SNLI, partial": _nli("snli_train_partial", 92613),
    "SNLI, first 2000": _nli("snli_train_first2000", 2000),
    "SNLI dev": _nli("snli_dev", 9842),
    "MultiNLI": _nli("mnli_train", WHOLE["mnli"]),
    "MultiNLI, partial": _nli("mnli_train_partial", 19219),
    "SimCSE's NLI": (_part("nli/nli_for_simcse.csv", WHOLE["nli-simcse"], _first_table),),
    "Wikipedia": tuple(_part(p, WHOLE["wiki"], _first_table, optional=True) for p in _WIKI),
    "WordNet": (
        _wordnet("noun", 82115),
        _wordnet("verb", 13767),
        _wordnet("adj", 18156),
        _wordnet("adv", 3621),
    ),
}
"""The files of every set. If all files of a set are optional, any one of them is enough."""


@dataclass(frozen=True)
class CheckedSet:
    """The result for one set.

    Attributes:
        name: The set, for example `MR`.
        files: The files that were looked for, relative to the data root; optional files only if
            they exist.
        rows: The rows of all files; None if a file could not be counted.
        expected: The expected rows of each file, as text.
        status: `missing` if no file exists, `wrong` if some files are missing or damaged.
        problem: The problem with the file's name; else empty.
        repair: How to fix it; empty if there is no problem.
    """

    name: str
    files: tuple[str, ...]
    rows: int | None
    expected: str
    status: Literal["ok", "missing", "wrong"]
    problem: str
    repair: str


def check_root(root: Path) -> list[CheckedSet]:
    """Count the rows of every set that a data root may contain; missing sets are listed too.

    Raises:
        DataError: The folder does not exist or contains none of the sets.
    """
    folder = existing_root(root, "the check")
    checked = [_check(folder, name, parts) for name, parts in SETS.items()]
    if all(entry.status == "missing" for entry in checked):
        move = f"Give a folder with {LAYOUT}."
        if (folder / "STS").is_dir():
            move = f"This looks like `downstream` itself: give {folder.resolve().parent}."
        raise DataError(Fault(str(folder), "", "", "the folder holds none of the sets", move))
    return checked


def check_own(entry: str) -> CheckedSet:
    """Count the rows and the repeated pairs of an own task, an entry of `evaluation.own`.

    Remarks for a reader of its scores are the `problem` of a set whose status is `ok`.
    """
    source = own_source(entry)
    try:
        tasks, training = read_with_training(source)
    except DataError as error:
        return unreadable(source.name, source.path, error)
    remarks = [remark for task in tasks for remark in task.remarks()]
    remarks += _repeated([task for task in tasks if isinstance(task, StsTask)], training)
    sizes = "; ".join(f"{task.split} {task.size}" for task in tasks)
    problem, rows = "; ".join(_distinct(remarks)), sum(task.num_rows for task in tasks)
    return CheckedSet(source.name, (source.path,), rows, sizes, "ok", problem, "")


def unreadable(name: str, path: str, error: DataError) -> CheckedSet:
    """The result for a set that cannot be read."""
    problem = "; ".join(map(_problem, error.faults))
    repair = " ".join(_distinct(fault.next_move for fault in error.faults))
    return CheckedSet(name, (path,), None, "", "wrong", problem, repair)


def _repeated(tasks: Iterable[StsTask], training: Iterable[tuple[str, str, float]]) -> list[str]:
    """How many pairs occur twice in a split, or in two splits, in either order."""
    splits: dict[frozenset[str], list[str]] = {}
    pairs = [("train", left, right) for left, right, _ in training]
    for task in tasks:
        for subset in task.subsets:
            both = zip(subset.sentences1, subset.sentences2, strict=True)
            pairs += [(task.split, left, right) for left, right in both]
    for split, left, right in pairs:
        splits.setdefault(frozenset((left.strip(), right.strip())), []).append(split)
    counts: Counter[str] = Counter()
    for where in splits.values():
        counts.update(f"twice in {split}" for split, n in Counter(where).items() if n > 1)
        if len(set(where)) > 1:
            counts.update([f"in {' and '.join(dict.fromkeys(where))}"])
    return [f"{n:,} pairs occur {where}, in either order" for where, n in sorted(counts.items())]


def _check(root: Path, name: str, parts: Sequence[Part]) -> CheckedSet:
    present = [part for part in parts if (root / part.path).exists()]
    required = [part for part in parts if not part.optional]
    if not present:
        has_part = any((root / part.path).exists() for part in SETS.get(f"{name}, partial", ()))
        return CheckedSet(
            name,
            tuple(part.path for part in required or parts),
            None,
            (" + " if required else " or ").join(f"{part.rows:,}" for part in required or parts),
            "missing",
            f"{'only a part' if has_part else 'no file'} of the set is there",
            f"Copy the set there if it is needed{', or set data.limit' * has_part}.",
        )
    looked = [part for part in parts if part in present or part in required]
    faults: list[Fault] = []
    rows = 0
    for part in looked:
        try:
            rows += _count(root, part)
        except DataError as error:
            faults.extend(error.faults)
    return CheckedSet(
        name,
        tuple(part.path for part in looked),
        None if faults else rows,
        " + ".join(f"{part.rows:,}" for part in looked),
        "wrong" if faults else "ok",
        "; ".join(map(_problem, faults)),
        " ".join(_distinct(fault.next_move for fault in faults)),
    )


def _count(root: Path, part: Part) -> int:
    rows = part.count(root)
    if rows != part.rows:
        rule = f"the file must have {part.rows} rows"
        move = "Copy the file again from where the set is published."
        raise DataError(Fault(str(root / part.path), "", f"{rows} rows", rule, move))
    return rows


def _problem(fault: Fault) -> str:
    return str(Fault(fault.where, fault.key, fault.value, fault.rule, "")).removesuffix(".")


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
