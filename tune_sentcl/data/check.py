"""Say which sets of a data root are whole, missing or damaged."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tune_sentcl.config.own import own_source
from tune_sentcl.data.check_sets import SETS, Part
from tune_sentcl.data.root import LAYOUT, existing_root
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import counted, row_count
from tune_sentcl.errors import DataError, Fault


@dataclass(frozen=True)
class CheckedSet:
    """What was found of one set.

    Attributes:
        name: The set, for example `MR`.
        files: Those that were looked for, below the data root; optional ones where they exist.
        rows: Rows of all files together, or None where they could not all be counted.
        expected: The rows of each file, for people.
        status: `missing` if no file is there, `wrong` if some are missing or damaged.
        problem: What is wrong, with the file's name; else empty.
        repair: What to do about it; else empty.
    """

    name: str
    files: tuple[str, ...]
    rows: int | None
    expected: str
    status: Literal["ok", "missing", "wrong"]
    problem: str
    repair: str


def check_root(root: Path) -> list[CheckedSet]:
    """Count the rows of every set that may lie under a data root.

    Args:
        root: A folder with `downstream/` as SentEval has it, `nli/`, `wiki/` and `wordnet/`.

    Returns:
        One entry for each set, the missing ones too.

    Raises:
        DataError: There is no such folder, or it holds none of the sets.
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
    """Count the rows of one of the user's own tasks.

    Args:
        entry: As in `evaluation.own`.
    """
    source = own_source(entry)
    try:
        tasks = read_own(source)
    except DataError as error:
        problem = "; ".join(map(_problem, error.faults))
        repair = " ".join(_distinct(fault.next_move for fault in error.faults))
        return CheckedSet(source.name, (source.path,), None, "", "wrong", problem, repair)
    found = "; ".join(f"{task.split} {counted(task)}" for task in tasks)
    return CheckedSet(source.name, (source.path,), sum(map(row_count, tasks)), found, "ok", "", "")


def _check(root: Path, name: str, parts: Sequence[Part]) -> CheckedSet:
    present = [part for part in parts if (root / part.path).exists()]
    required = [part for part in parts if not part.optional]
    if not present:
        looked = required or list(parts)
        between = " + " if required else " or "
        return CheckedSet(
            name=name,
            files=tuple(part.path for part in looked),
            rows=None,
            expected=_expected(looked, between),
            status="missing",
            problem="no file of the set is there",
            repair="Copy the set there if it is needed.",
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
