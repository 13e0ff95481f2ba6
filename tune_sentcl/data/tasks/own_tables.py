"""A user's own tables to score on: graded pairs and labeled sentences."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.task import ClassifiedRows, StsSubset, StsTask, fingerprint_of
from tune_sentcl.data.tasks.own_task import LabeledTask, OwnSplit
from tune_sentcl.data.text_files import Origin, blank_sentences, is_text, value_kind
from tune_sentcl.errors import DataError, Fault


def texts_in(table: pa.Table, name: str, where: str) -> tuple[str, ...]:
    """A column's texts, none of them blank.

    Args:
        table: Has the column; whole numbers count as text.
        name: The column.
        where: The file, for the messages.

    Raises:
        DataError: It holds something else, a blank text, or no row.
    """
    column = table[name]
    kind = value_kind(column)
    if not (is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        rule = f"the column must hold text, and holds {kind}"
        raise DataError(Fault(where, name, "", rule, "Write it as text."))
    texts = column.cast(kind).cast(pa.string())
    if not len(texts):
        raise DataError(Fault(where, "", "", "there are no rows", "Choose another file."))
    rows = np.flatnonzero(blank_sentences(texts)).tolist()
    if rows:
        value = repr(texts[rows[0]].as_py()) if len(rows) == 1 else ""
        rule = "must not be blank" + (f", and {len(rows):,} are" if len(rows) > 1 else "")
        move = "Correct the rows, or leave them out."
        raise DataError(Fault(Origin(where, Path(where)).at(rows), name, value, rule, move))
    return tuple(texts.to_pylist())


PAIRS = ("sentence1", "sentence2", "score")
_SPLITS: tuple[OwnSplit, ...] = ("dev", "test")


def own_pairs(
    name: str, tables: Mapping[str, tuple[pa.Table, str]], data: Literal["toy", "root"]
) -> Iterator[StsTask]:
    """Make a task of each split.

    Args:
        name: What the task is called.
        tables: By split the columns of `PAIRS`, and the file's name for the messages.
        data: As a `Score` has it.

    Raises:
        DataError: A sentence is blank, a score is no finite number, or scores do not vary.
    """
    for split in _SPLITS:
        if split in tables:
            table, where = tables[split]
            first, second = (texts_in(table, column, where) for column in PAIRS[:2])
            gold = _scores(table, where)
            rows = zip(first, second, map(float.hex, gold), strict=True)
            version = fingerprint_of([("pairs", str(len(gold))), *rows])
            subset = StsSubset(name, first, second, gold)
            yield StsTask(name, split, (subset,), data, "own", version)


def _scores(table: pa.Table, where: str) -> tuple[float, ...]:
    column = table["score"]
    try:
        numbers = column.cast(pa.float64())
    except pa.ArrowException:
        rule = f"the column must hold numbers, and holds {column.type}"
        raise DataError(Fault(where, "score", "", rule, "Write the scores as numbers.")) from None
    bad = pc.index(pc.fill_null(pc.is_finite(numbers), False), False).as_py()
    if bad >= 0:
        value = str(column[bad].as_py())
        rule = "must be a finite number"
        place = Origin(where, Path(where)).at([bad])
        raise DataError(Fault(place, "score", value, rule, "Correct the row."))
    found = tuple(numbers.to_pylist())
    if len(set(found)) < 2:
        rule = "there must be two different scores or more, for else nothing correlates"
        raise DataError(Fault(where, "score", f"{len(found)} rows", rule, "Add rows."))
    return found


SENTENCES = ("text", "sentence")
"""What the column of sentences is called; the first that is there is read."""
LABELED = (*SENTENCES, "label", "split", "fold")

_LEAST = 12
"""Rows of a class, so that each of ten folds within ten folds has one."""
_FEW_FOLDS = 3
"""A fold is scored, another one chooses, and the rest is learned from."""
_LABELED_SPLITS: tuple[OwnSplit, ...] = ("dev", "test")

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
        for split in _LABELED_SPLITS:
            if split in parts:
                yield _by_folds(name, split, parts[split], data, where)
        return
    classes = _classes(train, where)
    learned, *apart = (
        None if split not in parts else _classified(parts[split], classes, where)
        for split in ("train", *_LABELED_SPLITS)
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
        if split not in ("train", *_LABELED_SPLITS):
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
