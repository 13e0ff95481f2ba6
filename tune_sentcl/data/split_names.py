"""The names of splits: in a column, and in the names of files."""

import re
from collections.abc import Collection
from pathlib import Path

from tune_sentcl.errors import DataError, Fault

_NAMES = {
    "train": ("train", "training"),
    "dev": ("dev", "development", "validation", "valid", "val"),
    "test": ("test", "testing"),
}
_SPLITS = {name: split for split, names in _NAMES.items() for name in names}
_PART = re.compile(r"(?P<name>.+)-\d{5}-of-(?P<count>\d{5})(-[0-9a-f]+)?")
"""The name of one of the files of a split on the hub: `train-00000-of-00002`."""


def split_named(name: str) -> str | None:
    """The split that a name means, ignoring case and outer blanks; None for an unknown name."""
    return _SPLITS.get(name.strip().casefold())


def split_files(folder: Path, suffixes: Collection[str]) -> dict[str, list[Path]]:
    """The files of each split in a folder: `dev.csv`, or all parts of a split, by their names.

    Raises:
        DataError: A split has several files that are not its parts, or lacks a part.
    """
    files: dict[str, list[Path]] = {}
    kinds: dict[str, set[tuple[str, int, str]]] = {}
    for file in sorted(folder.glob("*")):
        part = _PART.fullmatch(file.stem)
        name, count = (part["name"], int(part["count"])) if part else (file.stem, 1)
        split = split_named(name)
        if split and file.suffix.casefold() in suffixes and file.is_file():
            files.setdefault(split, []).append(file)
            kinds.setdefault(split, set()).add((name, count, file.suffix))
    for split, parts in files.items():
        if {len(parts)} != {count for _, count, _ in kinds[split]} or len(kinds[split]) > 1:
            names = " and ".join(file.name for file in parts)
            rule = (
                f"must hold one file for {split}, or each part of that file once, but has {names}"
            )
            move = "Keep only one of them, or copy the parts that are missing."
            raise DataError(Fault(str(folder), rule=rule, move=move))
    return files
