"""Check which data sets under a data root are complete, missing or damaged."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

import pyarrow as pa

from tune_sentcl.config.data_names import own_source
from tune_sentcl.data.root import LAYOUT, existing_root, published_counts
from tune_sentcl.data.rows.kinds import labelled_rows
from tune_sentcl.data.tables import read_table
from tune_sentcl.data.task import StsTask
from tune_sentcl.data.tasks.own import read_with_training
from tune_sentcl.data.tasks.sts_data import STS_FILES, STS_SUBSETS, read_two_files
from tune_sentcl.data.tasks.transfer_data import TASKS, TransferFile, read_whole
from tune_sentcl.data.text_files import read_lines
from tune_sentcl.errors import DataError, Fault


@dataclass(frozen=True)
class Part:
    """One file of a data set.

    Attributes:
        path: Relative to the data root.
        rows: The expected number of rows.
        read: Reads the rows of this file, given the data root; raises DataError for a damaged
            file.
        optional: Whether the set is complete without this file.
    """

    path: str
    rows: int
    read: Callable[[Path], Sized]
    optional: bool = False


def _sts_parts() -> Iterator[tuple[str, Part]]:
    for name, subsets in STS_SUBSETS.items():
        for subset, rows in subsets.items():
            folder = f"downstream/STS/{name}-en-test"
            read: Callable[[Path], Sized] = partial(_two_files, folder, subset, rows)
            yield name, Part(f"{folder}/STS.input.{subset}.txt", rows, read)
    for (task, split), (file, rows, reader) in STS_FILES.items():
        # Only the protocol `relatedness` reads the training split of an STS task.
        read = partial(_sts_file, reader, file, rows)
        yield task.removesuffix("-R"), Part(f"downstream/{file}", rows, read, split == "train")


def _transfer_parts() -> Iterator[tuple[str, Part]]:
    for task, splits in TASKS.items():
        for file in chain.from_iterable(splits.values()):
            # SICK-E reads the files of SICK-R, which are already listed.
            if task != "SICK-E":
                yield task, Part(f"downstream/{file.path}", file.rows, partial(_transfer, file))


def _listed_parts() -> Iterator[tuple[str, Part]]:
    for kind, read in _READERS.items():
        for name, files in published_counts()[kind].items():
            for path, rows in files.items():
                yield name, Part(path, rows, partial(_below, path, read), kind == "one")


def _two_files(folder: str, subset: str, rows: int, root: Path) -> Sized:
    return read_two_files(root / folder, subset, rows)


def _sts_file(reader: Callable[[Path, int], Sized], file: str, rows: int, root: Path) -> Sized:
    return reader(root / "downstream" / file, rows)


def _transfer(file: TransferFile, root: Path) -> Sized:
    return read_whole(root / "downstream", file)


def _below(path: str, read: Callable[[Path], Sized], root: Path) -> Sized:
    return read(root / path)


def _synsets(path: Path) -> list[str]:
    # Each list begins with a license, whose lines are indented by two spaces.
    return [line for line in read_lines(path, "utf-8") if not line.startswith("  ")]


def _table(path: Path) -> pa.Table:
    return read_table(path)[0]


def _labelled(path: Path) -> pa.Table:
    return labelled_rows(*read_table(path))[0]


_READERS: dict[str, Callable[[Path], Sized]] = {
    "labelled": _labelled,
    "table": _table,
    "one": _table,
    "synsets": _synsets,
}
"""The reader of each file of `sets.toml`, by the heading above the file."""

SETS: dict[str, list[Part]] = {}
"""The files of every set. A set whose files are all optional needs only one of them."""
for _name, _part in chain(_sts_parts(), _transfer_parts(), _listed_parts()):
    SETS.setdefault(_name, []).append(_part)


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
        problem: The file's name and its problem; empty if there is no problem.
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
    """Count the rows of every set that a data root may contain, and list missing sets.

    Raises:
        DataError: The folder does not exist or contains none of the sets.
    """
    folder = existing_root(root, "the check")
    checked = [_check(folder, name, parts) for name, parts in SETS.items()]
    if all(entry.status == "missing" for entry in checked):
        move = f"Give a folder with {LAYOUT}."
        if (folder / "STS").is_dir():
            move = f"This folder looks like `downstream` itself: give {folder.resolve().parent}."
        raise DataError(Fault(str(folder), rule="the folder holds none of the sets", move=move))
    return checked


def check_own(entry: str) -> CheckedSet:
    """Count the rows and the repeated pairs of a custom task, an entry of `evaluation.own`.

    If the set is sound, `status` is `ok` and `problem` holds remarks on its scores.
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
    repair = " ".join(_distinct(fault.move for fault in error.faults))
    return CheckedSet(name, (path,), None, "", "wrong", problem, repair)


def _repeated(tasks: Iterable[StsTask], training: Iterable[tuple[str, str, float]]) -> list[str]:
    """Texts that say how many pairs occur twice, within a split or in two, in either order."""
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
    return [
        f"{n:,} pairs occur {where} (a pair with its two sentences swapped counts as the same)"
        for where, n in sorted(counts.items())
    ]


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
            f"{'only a part' if has_part else 'no file'} of the set is in the data root",
            f"Copy the set there if you need it{', or set data.limit' * has_part}.",
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
        " ".join(_distinct(fault.move for fault in faults)),
    )


def _count(root: Path, part: Part) -> int:
    rows = len(part.read(root))
    if rows != part.rows:
        rule = f"the file must have {part.rows} rows"
        move = "Copy the file again from where the set is published."
        raise DataError(Fault(str(root / part.path), value=f"{rows} rows", rule=rule, move=move))
    return rows


def _problem(fault: Fault) -> str:
    return str(
        Fault(fault.where, key=fault.key, value=fault.value, rule=fault.rule, move="")
    ).removesuffix(".")


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
