"""Check which sets of a data root are complete, missing or damaged."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq

from tune_sentcl.config.data_names import own_source
from tune_sentcl.data.root import LAYOUT, existing_root
from tune_sentcl.data.rows.kinds import labelled_rows
from tune_sentcl.data.rows.sources import WHOLE
from tune_sentcl.data.tables import read_table
from tune_sentcl.data.task import StsTask
from tune_sentcl.data.tasks.own import read_own, training_pairs
from tune_sentcl.data.tasks.own_task import counted, remarks_on, row_count
from tune_sentcl.data.tasks.sts_data import STS_FILES, STS_SUBSETS, read_two_files
from tune_sentcl.data.tasks.transfer_data import TASKS
from tune_sentcl.data.text_files import READ_ERRORS, read_lines
from tune_sentcl.errors import DataError, Fault


@dataclass(frozen=True)
class Part:
    """One file of a set.

    Attributes:
        path: Relative to the data root.
        rows: The expected number of rows.
        count: Counts the rows; raises DataError for a damaged file.
        optional: Whether the set is complete without it.
        truncated: The number of rows that macOS `sed` leaves; None if it leaves all.
    """

    path: str
    rows: int
    count: Callable[[Path], int]
    optional: bool = False
    truncated: int | None = None


def _synsets(path: Path) -> int:
    # The license at the head of each list is indented by two spaces.
    return sum(not line.startswith("  ") for line in read_lines(path, "utf-8"))


def _table_rows(path: Path) -> int:
    return len(read_table(path)[0])


def _labelled(path: Path) -> int:
    return int(labelled_rows(*read_table(path))[0].num_rows)


def _parquet_rows(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except READ_ERRORS as error:
        rule = f"the file cannot be read as Parquet ({type(error).__name__})"
        raise DataError(Fault(str(path), "", "", rule, "Copy the file again.")) from None


def _sts_rows(path: Path, expected: int) -> int:
    subset = path.name.removeprefix("STS.input.").removesuffix(".txt")
    return len(read_two_files(path.parent, subset, expected))


def _yearly(name: str) -> tuple[Part, ...]:
    folder = f"downstream/STS/{name}-en-test"
    return tuple(
        Part(f"{folder}/STS.input.{subset}.txt", rows, partial(_sts_rows, expected=rows))
        for subset, rows in STS_SUBSETS[name].items()
    )


def _splits(name: str) -> tuple[Part, ...]:
    """The parts of STS-B or SICK; only the protocol `relatedness` reads their training split."""
    return tuple(
        Part(f"downstream/{file}", rows, _length_of(read, rows), optional=split == "train")
        for (task, split), (file, rows, read) in STS_FILES.items()
        if task == name
    )


def _transfer(name: str) -> tuple[Part, ...]:
    return tuple(
        Part(f"downstream/{file.path}", file.rows, _length_of(file.read), truncated=file.truncated)
        for files in TASKS[name].values()
        for file in files
    )


def _length_of(read: Callable[..., Sized], *arguments: int | str) -> Callable[[Path], int]:
    return lambda path: len(read(path, *arguments))


def _nli(name: str, rows: int) -> Part:
    return Part(f"nli/{name}.parquet", rows, _labelled)


def _wordnet(kind: str, rows: int) -> Part:
    return Part(f"wordnet/nltk_data/corpora/wordnet/data.{kind}", rows, _synsets)


SETS: dict[str, tuple[Part, ...]] = {
    **{name: _yearly(name) for name in STS_SUBSETS},
    "STS-B": _splits("STS-B"),
    "SICK": _splits("SICK-R"),
    **{name: _transfer(name) for name in TASKS if name != "SICK-E"},  # SICK's files are above
    "SNLI": (_nli("snli_train", WHOLE["snli"]),),
    "SNLI, partial": (_nli("snli_train_partial", 92613),),
    "SNLI, first 2000": (_nli("snli_train_first2000", 2000),),
    "SNLI dev": (_nli("snli_dev", 9842),),
    "MultiNLI": (_nli("mnli_train", WHOLE["mnli"]),),
    "MultiNLI, partial": (_nli("mnli_train_partial", 19219),),
    "SimCSE's NLI": (Part("nli/nli_for_simcse.csv", WHOLE["nli-simcse"], _table_rows),),
    "Wikipedia": (
        Part(
            "wiki/wiki1m_for_simcse.txt",
            WHOLE["wiki"],
            _length_of(read_lines, "utf-8"),
            optional=True,
        ),
        Part("wiki/enwiki_2015_sentences_1m.parquet", WHOLE["wiki"], _parquet_rows, optional=True),
    ),
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
        files: The files that were looked for, relative to the data root; optional ones only if
            they exist.
        rows: Rows of all files together; None if they could not all be counted.
        expected: The expected rows of each file, as text.
        status: `missing` if no file exists, `wrong` if some are missing or damaged.
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
    if all(found.status == "missing" for found in checked):
        move = f"Give a folder with {LAYOUT}."
        if (folder / "STS").is_dir():
            move = f"This looks like `downstream` itself: give {folder.resolve().parent}."
        raise DataError(Fault(str(folder), "", "", "the folder holds none of the sets", move))
    return checked


def check_own(entry: str) -> CheckedSet:
    """Count the rows of an own task, given as an entry of `evaluation.own`, and pairs it repeats.

    What the scores' reader should know is its `problem`, and its status is `ok`.
    """
    source = own_source(entry)
    try:
        tasks = read_own(source)
        graded = [task for task in tasks if isinstance(task, StsTask)]
        remarks = [remark for task in tasks for remark in remarks_on(task)]
        remarks += _repeated(graded, training_pairs(source)) if graded else []
    except DataError as error:
        problem = "; ".join(map(_problem, error.faults))
        repair = " ".join(_distinct(fault.next_move for fault in error.faults))
        return CheckedSet(source.name, (source.path,), None, "", "wrong", problem, repair)
    found = "; ".join(f"{task.split} {counted(task)}" for task in tasks)
    told, rows = "; ".join(_distinct(remarks)), sum(map(row_count, tasks))
    return CheckedSet(source.name, (source.path,), rows, found, "ok", told, "")


def _repeated(tasks: Iterable[StsTask], training: Iterable[tuple[str, str, float]]) -> list[str]:
    """How many pairs occur twice in a split, or in two splits, in either order."""
    splits: dict[frozenset[str], list[str]] = {}
    for one, other, _ in training:
        splits.setdefault(frozenset((one.strip(), other.strip())), []).append("train")
    for task in tasks:
        for subset in task.subsets:
            for one, other in zip(subset.sentences1, subset.sentences2, strict=True):
                splits.setdefault(frozenset((one.strip(), other.strip())), []).append(task.split)
    found: Counter[str] = Counter()
    for where in splits.values():
        found.update(f"twice in {split}" for split, n in Counter(where).items() if n > 1)
        if len(set(where)) > 1:
            found.update([f"in {' and '.join(dict.fromkeys(where))}"])
    return [f"{n:,} pairs occur {where}, in either order" for where, n in sorted(found.items())]


def _check(root: Path, name: str, parts: Sequence[Part]) -> CheckedSet:
    present = [part for part in parts if (root / part.path).exists()]
    required = [part for part in parts if not part.optional]
    if not present:
        looked = required or list(parts)
        between = " + " if required else " or "
        has_part = any((root / one.path).exists() for one in SETS.get(f"{name}, partial", ()))
        return CheckedSet(
            name=name,
            files=tuple(part.path for part in looked),
            rows=None,
            expected=_expected(looked, between),
            status="missing",
            problem="only a part of the set is there"
            if has_part
            else "no file of the set is there",
            repair="Copy the set there if it is needed"
            + (", or take a part of it by data.limit." if has_part else "."),
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
        name=name,
        files=tuple(part.path for part in looked),
        rows=None if faults else rows,
        expected=_expected(looked, " + "),
        status="wrong" if faults else "ok",
        problem="; ".join(_problem(fault) for fault in faults),
        repair=" ".join(_distinct(fault.next_move for fault in faults)),
    )


def _count(root: Path, part: Part) -> int:
    path = root / part.path
    rows = part.count(path)
    if rows == part.rows:
        return rows
    rule = f"the file must have {part.rows} rows"
    move = "Copy the file again from where the set is published."
    if rows == part.truncated:
        rule += ", and was cut off by the macOS sed truncation (that sed stops at the first"
        rule += " byte that is not ASCII)"
        move = "Rebuild with GNU sed/LC_ALL=C or take SimCSE's archive of after 2021-09-03."
    raise DataError(Fault(str(path), "", f"{rows} rows", rule, move))


def _problem(fault: Fault) -> str:
    return str(Fault(fault.where, fault.key, fault.value, fault.rule, "")).removesuffix(".")


def _expected(parts: Iterable[Part], between: str) -> str:
    return between.join(f"{part.rows:,}" for part in parts)


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
