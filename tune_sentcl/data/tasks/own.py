"""Yardsticks of the user's own: what lies at a path decides what kind of task it is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa

from tune_sentcl.config.data_names import OwnSource
from tune_sentcl.data.tasks.beir import CORPUS, read_beir
from tune_sentcl.data.tasks.mteb_data import read_mteb
from tune_sentcl.data.tasks.own_tables import LABELED, PAIRS, SENTENCES, own_labeled, own_pairs
from tune_sentcl.data.tasks.own_task import OwnTask
from tune_sentcl.data.text_files import SUFFIXES, file_columns, read_columns
from tune_sentcl.errors import DataError, Fault

_SPLITS = ("train", "dev", "test")
_LAYOUTS = (
    "Give a file or a folder of train, dev and test files with the columns sentence1, sentence2 "
    "and score, or text and label; or a folder with corpus.jsonl, queries.jsonl and qrels/."
)

_Kind = Literal["pairs", "labeled"]
_Read = tuple[pa.Table, str]
"""A file's columns, and its name for the messages."""


def read_own(source: OwnSource, data: Literal["toy", "root"] = "root") -> tuple[OwnTask, ...]:
    """Read one of the user's own yardsticks.

    Args:
        source: Its name and its path, `~` allowed; see docs/evaluation.md for what may lie there.
        data: As a `Score` has it.

    Returns:
        A task a split that is measured by itself, dev before test.

    Raises:
        DataError: Nothing lies there that is known, or it is damaged.
        ResourceError: It is a task of MTEB, which is not installed.
    """
    if source.task:
        return read_mteb(source, data)
    path = Path(source.path).expanduser()
    if (path / CORPUS).is_file():
        return tuple(read_beir(path, source.name, data))
    files = _files(path, source)
    where = f"evaluation.own = {source.name}"
    tables = {split: _read(files[split], where) for split in files if split != "train"}
    if _kind_of(tables, path) == "pairs":
        return tuple(own_pairs(source.name, tables, data))
    if "train" in files:
        tables = {"train": _read(files["train"], where), **tables}
        _kind_of(tables, path)
    return tuple(own_labeled(source.name, tables, data))


def _read(file: Path, where: str) -> _Read:
    columns = {*PAIRS, *LABELED}
    texts = columns - {"score"}
    if file.suffix == ".jsonl":
        texts -= {"label", "split", "fold"}  # JSON says itself what is a number
    return read_columns(file, columns.__contains__, texts.__contains__, where, None), str(file)


def _files(path: Path, source: OwnSource) -> Mapping[str, Path]:
    """The file of each split; a single one is `dev`."""
    if not path.is_dir():
        if not path.exists():
            rule = "there is no such file or folder"
            raise DataError(Fault("evaluation.own", source.name, source.path, rule, _LAYOUTS))
        return {"dev": path}
    found: dict[str, Path] = {}
    for split in _SPLITS:
        there = [path / f"{split}{suffix}" for suffix in SUFFIXES if suffix != ".txt"]
        files: Sequence[Path] = [file for file in there if file.is_file()]
        if len(files) > 1:
            names = " and ".join(file.name for file in files)
            rule = f"must hold one file of {split}, and has {names}"
            raise DataError(Fault(str(path), "", "", rule, "Leave one of them."))
        if files:
            found[split] = files[0]
    if not set(found) & {"dev", "test"}:
        rule = "the folder holds no dev and no test file, and no corpus.jsonl"
        raise DataError(Fault(str(path), "", "", rule, _LAYOUTS))
    return found


def _kind_of(tables: Mapping[str, _Read], path: Path) -> _Kind:
    kinds = {_kind(table, file) for table, file in tables.values()}
    if len(kinds) > 1:
        rule = "its files must be of one kind, and some are pairs, some labeled sentences"
        raise DataError(Fault(str(path), "", "", rule, _LAYOUTS))
    return kinds.pop()


def _kind(table: pa.Table, file: str) -> _Kind:
    there = set(table.column_names)
    if set(PAIRS) <= there:
        return "pairs"
    if "label" in there and there & set(SENTENCES):
        return "labeled"
    rule = f"the columns are {', '.join(file_columns(Path(file), table))}"
    raise DataError(Fault(file, "", "", rule, _LAYOUTS))
