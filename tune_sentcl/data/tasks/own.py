"""Custom evaluation tasks: graded pairs, labeled sentences, retrieval folders, and MTEB's tasks.

The files at a path determine the kind of task.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa

from tune_sentcl.config.data_names import OwnSource
from tune_sentcl.data.split_names import split_files, split_named
from tune_sentcl.data.tables import (
    SUFFIXES,
    Origin,
    blank_sentences,
    finite_scores,
    read_table,
    text_column,
)
from tune_sentcl.data.task import ClassifiedRows, StsSubset, StsTask, fingerprint_of
from tune_sentcl.data.tasks.beir import CORPUS, read_beir
from tune_sentcl.data.tasks.own_task import LabeledTask, OwnSplit, OwnTask, read_mteb, read_plugin
from tune_sentcl.errors import DataError, Fault

_SCORED_SPLITS: tuple[OwnSplit, ...] = ("dev", "test")
_PAIRS = ("sentence1", "sentence2", "score")
_LAYOUTS = (
    "Give a file or a folder of train, dev and test files with the columns sentence1, sentence2 "
    "and score, or text and label; or a folder with corpus.jsonl, queries.jsonl and qrels/."
)

_R = TypeVar("_R")
_Kind = Literal["pairs", "labeled"]
_Read = tuple[pa.Table, Origin]
"""A file's columns by their roles, and the file."""
_Tables = Mapping[str, Sequence[_Read]]
"""The files of each split. A single file is `dev`; its column `split` may assign its rows."""
_Pair = tuple[str, str, float]


def read_own(source: OwnSource, data: Literal["toy", "root"] = "root") -> tuple[OwnTask, ...]:
    """Read an custom evaluation task.

    Args:
        source: Its name and path (`~` allowed); docs/evaluation.md lists the file layouts.
        data: See `Score`.

    Returns:
        One task per split that is scored separately, dev before test.

    Raises:
        DataError: The path has no known layout, a file is damaged, or no loaded plugin has it.
        ResourceError: It is an MTEB task and `mteb` is not installed.
    """
    return read_with_training(source, data, training=False)[0]


def read_with_training(
    source: OwnSource, data: Literal["toy", "root"] = "root", *, training: bool = True
) -> tuple[tuple[OwnTask, ...], Sequence[_Pair]]:
    """Like `read_own`, with the training pairs of a task of pairs, which are not scored.

    Without `training`, a separate file of training pairs is not read.
    """
    if source.task:
        return read_mteb(source, data), ()
    if source.plugin:
        return read_plugin(source, data), ()
    path = own_path(source)
    if (path / CORPUS).is_file():
        return tuple(read_beir(path, source.name, data)), ()
    files = _files(path)
    tables = {split: [*map(_table, parts)] for split, parts in files.items() if split != "train"}
    if _kind_of(tables, path) == "pairs":
        pairs = _pairs(tables)
        tasks = tuple(_pair_tasks(source.name, pairs, tables, data))
        if training and "train" in files:
            learned = [*map(_table, files["train"])]
            if all({*_PAIRS} <= {*table.column_names} for table, _ in learned):
                pairs = _pairs({**tables, "train": learned})
        return tasks, pairs.get("train", ())
    if "train" in files:
        tables = {"train": [*map(_table, files["train"])], **tables}
        _kind_of(tables, path)
    return tuple(_labeled_tasks(source.name, tables, data)), ()


def _table(file: Path) -> _Read:
    """Read a file's columns of pairs, or else of labeled sentences, and no other columns."""
    return read_table(
        file,
        read=lambda there: (
            (*_PAIRS, "split") if {*_PAIRS} <= {*there} else ("text", "label", "split")
        ),
    )


def own_path(source: OwnSource) -> Path:
    """The file or folder of a task that is neither MTEB's nor a plugin's.

    Raises:
        DataError: The file or folder does not exist.
    """
    path = Path(source.path).expanduser()
    if not path.exists():
        rule = "there is no such file or folder"
        raise DataError(
            Fault("evaluation.own", key=source.name, value=source.path, rule=rule, move=_LAYOUTS)
        )
    return path


def _files(path: Path) -> Mapping[str, Sequence[Path]]:
    """The files of each split; a single file is `dev`."""
    if not path.is_dir():
        return {"dev": [path]}
    suffixes = [suffix for suffix in SUFFIXES if suffix != ".txt"]
    # Most data sets of the hub keep their files in a folder `data`.
    for folder in (path, path / "data"):
        files = split_files(folder, suffixes)
        if {*files} & {*_SCORED_SPLITS}:
            return files
    rule = "the folder holds no dev and no test file, and no corpus.jsonl"
    raise DataError(Fault(str(path), rule=rule, move=_LAYOUTS))


def _kind_of(tables: _Tables, path: Path) -> _Kind:
    kinds = {_kind(*read) for reads in tables.values() for read in reads}
    if len(kinds) > 1:
        rule = (
            "the files must all hold pairs or all hold labeled sentences, but here both kinds "
            "occur"
        )
        raise DataError(Fault(str(path), rule=rule, move=_LAYOUTS))
    return kinds.pop()


def _where(tables: _Tables) -> str:
    return " and ".join(str(file) for reads in tables.values() for _, file in reads)


def _kind(table: pa.Table, where: Origin) -> _Kind:
    there = set(table.column_names)
    if set(_PAIRS) <= there:
        return "pairs"
    if {"label", "text"} <= there:
        return "labeled"
    rule = f"the columns fit no kind of task: {', '.join(where.columns)}"
    raise DataError(Fault(str(where), rule=rule, move=_LAYOUTS))


def _texts(table: pa.Table, name: str, where: Origin) -> tuple[str, ...]:
    """A column's texts; none may be blank, and integers count as text.

    Raises:
        DataError: The column holds another type, a blank text, or no row.
    """
    texts = text_column(table, name, where, numbers=True)
    if not len(texts):
        raise DataError(Fault(str(where), rule="there are no rows", move="Choose another file."))
    rows = np.flatnonzero(blank_sentences(texts)).tolist()
    if rows:
        value = repr(texts[rows[0]].as_py()) if len(rows) == 1 else ""
        rule = "must not be blank" + (f", but {len(rows):,} are" if len(rows) > 1 else "")
        move = "Correct or remove these rows."
        raise DataError(Fault(where.at(rows), key=name, value=value, rule=rule, move=move))
    return tuple(texts.to_pylist())


def _pairs(tables: _Tables) -> dict[str, list[_Pair]]:
    """The pairs of each split.

    Raises:
        DataError: A sentence is blank, a score is not a finite number, or a split is unknown.
    """
    return _dealt(tables, _scored)


def _scored(table: pa.Table, where: Origin) -> list[_Pair]:
    first, second = (_texts(table, column, where) for column in _PAIRS[:2])
    return list(zip(first, second, finite_scores(table, where).tolist(), strict=True))


def _pair_tasks(
    name: str,
    pairs: Mapping[str, Sequence[_Pair]],
    tables: _Tables,
    data: Literal["toy", "root"],
) -> Iterator[StsTask]:
    """Make a task of each split.

    Raises:
        DataError: No row is dev or test, or all scores of a split are equal.
    """
    where = _where(tables)
    if not {*pairs} & {*_SCORED_SPLITS}:
        rule = "there must be dev rows, test rows or both"
        raise DataError(
            Fault(where, key="split", rule=rule, move="Assign some rows to dev or test.")
        )
    for split in _SCORED_SPLITS:
        if split in pairs:
            first, second, gold = zip(*pairs[split], strict=True)
            if len(set(gold)) < 2:
                rule = "there must be two different scores, because a correlation needs them"
                given = f"{len(gold)} rows of {split}"
                raise DataError(
                    Fault(
                        where,
                        key="score",
                        value=given,
                        rule=rule,
                        move="Add rows with another score.",
                    )
                )
            rows = zip(first, second, map(float.hex, gold), strict=True)
            version = fingerprint_of([("pairs", str(len(gold))), *rows])
            subset = StsSubset(name, first, second, gold)
            yield StsTask(name, split, (subset,), data, "own", version)


_LEAST = 12
"""Least rows per class, so that with ten folds inside ten folds each fold has one."""

_Row = tuple[str, str]
"""A sentence and its label."""


def _labeled_tasks(
    name: str, tables: _Tables, data: Literal["toy", "root"]
) -> Iterator[LabeledTask]:
    """Make one task from training rows with dev or test rows, else one by folds per split.

    Args:
        name: The task's name.
        tables: See `_Tables`.
        data: See `Score`.

    Raises:
        DataError: A text or label is blank, a split's name is unknown, or there are too few rows.
    """
    where = _where(tables)
    parts = _dealt(tables, _rows)
    train = parts.get("train")
    if train is None:
        for split in _SCORED_SPLITS:
            if split in parts:
                yield _by_folds(name, split, parts[split], data, where)
        return
    classes = _classes(train, where)
    learned, *apart = (
        None if split not in parts else _classified(parts[split], classes, where)
        for split in ("train", *_SCORED_SPLITS)
    )
    if learned is None or apart == [None, None]:
        rule = "there must be dev rows, test rows or both, besides the training rows"
        raise DataError(
            Fault(where, key="split", rule=rule, move="Assign some rows to dev or test.")
        )
    if apart[0] is None:
        # Cross-validation on the training rows selects the regularization, so each class needs
        # enough rows.
        _check_counts(train, where)
    version = fingerprint_of(_content(parts))
    last: OwnSplit = "test" if apart[1] is not None else "dev"
    yield LabeledTask(name, last, learned, apart[0], apart[1], data, version)


def _by_folds(
    name: str, split: OwnSplit, rows: Sequence[_Row], data: Literal["toy", "root"], where: str
) -> LabeledTask:
    classes = _classes(rows, where)
    _check_counts(rows, where)
    version = fingerprint_of(_content({split: rows}))
    return LabeledTask(name, split, _classified(rows, classes, where), data=data, version=version)


def _rows(table: pa.Table, where: Origin) -> list[_Row]:
    return list(zip(*(_texts(table, name, where) for name in ("text", "label")), strict=True))


def _dealt(
    tables: _Tables, rows_of: Callable[[pa.Table, Origin], list[_R]]
) -> dict[str, list[_R]]:
    """The rows by split; a single file's column `split` assigns its rows, if it has one."""
    reads = [read for parts in tables.values() for read in parts]
    table, where = reads[0]
    if len(reads) > 1 or "split" not in table.column_names:
        return {
            split: [row for read in parts for row in rows_of(*read)]
            for split, parts in tables.items()
        }
    dealt: dict[str, list[_R]] = {}
    names = _texts(table, "split", where)
    for number, (name, row) in enumerate(zip(names, rows_of(table, where), strict=True)):
        split = split_named(name)
        if split is None:
            at, rule = where.at([number]), "must be train, dev or test"
            raise DataError(
                Fault(at, key="split", value=repr(name), rule=rule, move="Correct the value.")
            )
        dealt.setdefault(split, []).append(row)
    return dealt


def _classes(rows: Sequence[_Row], where: str) -> dict[str, int]:
    names = sorted({label for _, label in rows})
    if len(names) < 2:
        rule = "there must be two classes or more"
        move = "Add rows of another class."
        raise DataError(Fault(where, key="label", value=", ".join(names), rule=rule, move=move))
    return {name: number for number, name in enumerate(names)}


def _classified(rows: Sequence[_Row], classes: Mapping[str, int], where: str) -> ClassifiedRows:
    unknown = next((label for _, label in rows if label not in classes), None)
    if unknown is not None:
        rule = "is a class that no training row has"
        move = "Add training rows of this class, or remove its rows."
        raise DataError(Fault(where, key="label", value=repr(unknown), rule=rule, move=move))
    return ClassifiedRows(
        tuple(text for text, _ in rows), None, tuple(classes[label] for _, label in rows)
    )


def _check_counts(rows: Sequence[_Row], where: str) -> None:
    label, count = min(Counter(label for _, label in rows).items(), key=lambda item: item[1])
    if count < _LEAST:
        rule = (
            f"each class must have {_LEAST} rows or more, because the rows outside each of ten "
            "folds are divided into ten folds again"
        )
        move = "Add rows, or a column `split` that assigns each row to train, dev or test."
        raise DataError(
            Fault(where, key="label", value=f"{label!r} in {count} rows", rule=rule, move=move)
        )


def _content(parts: Mapping[str, Sequence[_Row]]) -> Iterator[tuple[str, ...]]:
    for split, rows in sorted(parts.items()):
        yield ("labeled", split, str(len(rows)))
        yield from rows
