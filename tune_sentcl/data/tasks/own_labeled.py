"""Labeled sentences of the user's own: `text` and `label`, and perhaps a `split` or a `fold`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa

from tune_sentcl.data.tables import Origin
from tune_sentcl.data.task import ClassifiedRows, fingerprint_of
from tune_sentcl.data.tasks.own_columns import texts_in
from tune_sentcl.data.tasks.own_task import LabeledTask, OwnSplit
from tune_sentcl.errors import DataError, Fault

SENTENCES = ("text", "sentence")
"""What the column of sentences is called; the first that is there is read."""
LABELED = (*SENTENCES, "label", "split", "fold")

_LEAST = 12
"""Rows of a class, so that each of ten folds within ten folds has one."""
_FEW_FOLDS = 3
"""A fold is scored, another one chooses, and the rest is learned from."""
_SPLITS: tuple[OwnSplit, ...] = ("dev", "test")

_Row = tuple[str, str, str]
"""Sentence, label and fold; where folds are not dealt the last is empty."""


def own_labeled(
    name: str, tables: Mapping[str, tuple[pa.Table, str]], data: Literal["toy", "root"]
) -> Iterator[LabeledTask]:
    """Make tasks: one of rows to learn from and what is set apart, else one a split by its folds.

    Args:
        name: What the task is called.
        tables: By split the columns of `LABELED`, and the file's name for the messages. A column
            `split` deals the rows of a single file.
        data: As a `Score` has it.

    Raises:
        DataError: A text or a label is blank, a split has another name, or rows are too few.
    """
    where = " and ".join(file for _, file in tables.values())
    parts = {split: _rows(table, file) for split, (table, file) in tables.items()}
    alone = next(iter(tables.values())) if len(tables) == 1 else None
    if alone and "split" in alone[0].column_names:
        parts = _dealt(alone[0], parts.popitem()[1], where)
    train = parts.get("train")
    if train is None:
        for split in _SPLITS:
            if split in parts:
                yield _by_folds(name, split, parts[split], data, where)
        return
    classes = _classes(train, where)
    learned, *apart = (
        None if split not in parts else _classified(parts[split], classes, where)
        for split in ("train", *_SPLITS)
    )
    if learned is None or apart == [None, None]:
        rule = "beside the rows to learn from there must be dev rows, test rows or both"
        raise DataError(Fault(where, "split", "", rule, "Set some apart."))
    if apart[0] is None:
        _check_counts(train, where)  # its folds choose
    version = fingerprint_of(_content(parts))
    last: OwnSplit = "test" if apart[1] is not None else "dev"
    yield LabeledTask(name, last, learned, apart[0], apart[1], None, data, version)


def _by_folds(
    name: str, split: OwnSplit, rows: Sequence[_Row], data: Literal["toy", "root"], where: str
) -> LabeledTask:
    classes = _classes(rows, where)
    dealt = [fold for *_, fold in rows]
    folds = None
    if any(dealt):
        numbers = {fold: number for number, fold in enumerate(sorted(set(dealt)))}
        folds = tuple(numbers[fold] for fold in dealt)
        _check_folds(rows, where)
    else:
        _check_counts(rows, where)
    version = fingerprint_of(_content({split: rows}))
    learned = _classified(rows, classes, where)
    return LabeledTask(name, split, learned, None, None, folds, data, version)


def _rows(table: pa.Table, where: str) -> list[_Row]:
    sentence = next(name for name in SENTENCES if name in table.column_names)
    columns = [texts_in(table, name, where) for name in (sentence, "label")]
    folded = "fold" in table.column_names
    folds = texts_in(table, "fold", where) if folded else ("",) * len(table)
    return list(zip(*columns, folds, strict=True))


def _dealt(table: pa.Table, rows: Sequence[_Row], where: str) -> dict[str, list[_Row]]:
    parts: dict[str, list[_Row]] = {}
    for number, (split, row) in enumerate(zip(texts_in(table, "split", where), rows, strict=True)):
        if split not in ("train", *_SPLITS):
            at, rule = Origin(where, Path(where)).at([number]), "must be train, dev or test"
            raise DataError(Fault(at, "split", repr(split), rule, "Rename it."))
        parts.setdefault(split, []).append(row)
    return parts


def _classes(rows: Sequence[_Row], where: str) -> dict[str, int]:
    names = sorted({label for _, label, _ in rows})
    if len(names) < 2:
        rule = "there must be two classes or more"
        raise DataError(Fault(where, "label", ", ".join(names), rule, "Add rows of another one."))
    return {name: number for number, name in enumerate(names)}


def _classified(rows: Sequence[_Row], classes: Mapping[str, int], where: str) -> ClassifiedRows:
    unknown = next((label for _, label, _ in rows if label not in classes), None)
    if unknown is not None:
        rule = "is a class that no row to learn from has"
        raise DataError(Fault(where, "label", repr(unknown), rule, "Add such rows, or drop it."))
    return ClassifiedRows(
        tuple(text for text, *_ in rows), None, tuple(classes[label] for _, label, _ in rows)
    )


def _check_counts(rows: Sequence[_Row], where: str) -> None:
    label, count = min(Counter(label for _, label, _ in rows).items(), key=lambda item: item[1])
    if count < _LEAST:
        rule = f"each class must have {_LEAST} rows or more, for ten folds within ten folds"
        move = "Add rows, or set splits or folds apart in a column of that name."
        raise DataError(Fault(where, "label", f"{label!r} in {count} rows", rule, move))


def _check_folds(rows: Sequence[_Row], where: str) -> None:
    of_class: dict[str, set[str]] = {}
    for _, label, fold in rows:
        of_class.setdefault(label, set()).add(fold)
    label, folds = min(of_class.items(), key=lambda item: len(item[1]))
    if len(folds) < _FEW_FOLDS:
        rule = f"each class must have rows in {_FEW_FOLDS} folds or more"
        given = f"{label!r} in {len(folds)}"
        raise DataError(Fault(where, "fold", given, rule, "Deal the rows otherwise."))


def _content(parts: Mapping[str, Sequence[_Row]]) -> Iterator[tuple[str, ...]]:
    for split, rows in sorted(parts.items()):
        yield ("labeled", split, str(len(rows)))
        yield from rows
