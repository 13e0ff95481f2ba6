"""Faults of training rows: duplicates, trivial pairs, and rows that are in evaluation sets.

Texts are compared without regard to case and outer blanks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.rows.kinds import KINDS
from tune_sentcl.data.task import StsTask
from tune_sentcl.data.tasks.own_task import ForeignTask, LabeledTask, OwnTask, RetrievalTask
from tune_sentcl.errors import DataError, Fault

_Mask = npt.NDArray[np.bool_]
_SEPARATOR = "\0"


@dataclass(frozen=True)
class Problem:
    """Training rows with one kind of fault.

    Attributes:
        what: Completes a sentence that begins with "rows".
        mask: Whether each row has the fault.
        example: The first text of the first row with the fault.
        is_useless: Whether training loses nothing without these rows.
    """

    what: str
    mask: _Mask = field(repr=False, compare=False)
    example: str
    is_useless: bool

    def __str__(self) -> str:
        return f"rows {self.what}: {int(self.mask.sum()):,} (the first: {self.example!r})"


@dataclass(frozen=True)
class Overlap:
    """Training rows that are also in an evaluation set.

    Attributes:
        task: The task.
        split: Its split.
        own: Whether the task is custom.
        mask: Whether each training row is in the set.
        example: The first text of the first row that is in the set.
    """

    task: str
    split: str
    own: bool
    mask: _Mask = field(repr=False, compare=False)
    example: str

    @property
    def rows(self) -> int:
        """The number of training rows."""
        return int(self.mask.sum())

    def __str__(self) -> str:
        where = f"{self.task} {self.split}"
        return f"{where} contains {self.rows:,} of the training rows (such as {self.example!r})"


def folded(text: str) -> str:
    """Fold a text's case and remove outer blanks."""
    return text.strip().casefold()


def problems(corpus: Corpus) -> list[Problem]:
    """Find training rows that teach nothing, or something wrong.

    Duplicates are rows with equal texts. A positive that equals its anchor teaches nothing. A
    negative that is a positive of the same anchor, in any row, would be pushed away from the
    anchor.
    """
    columns = {name: _folded(corpus.table.column(name)) for name in corpus.text_columns()}
    names = [name for name in KINDS[corpus.kind].columns if name in columns]
    found = []

    def add(what: str, rows: pa.ChunkedArray | _Mask, *, is_useless: bool = True) -> None:
        mask = _mask(rows)
        if mask.any():
            found.append(Problem(what, mask, _first(corpus, mask), is_useless))

    if names:
        add("that repeat an earlier row", _repeated(_joined(list(columns.values()))))
    if len(names) == 2:
        anchors, positives = (columns[name] for name in names)
        add(f"with a {names[1]} equal to the {names[0]}", _equal(anchors, positives))
        true = _joined([anchors, positives])
        for name in corpus.negatives():
            filled = pc.not_equal(columns[name], "")
            false = pc.and_(
                pc.is_in(_joined([anchors, columns[name]]), true.combine_chunks()), filled
            )
            add(f"with a {name} that is a positive of the same anchor", false, is_useless=False)
    return found


def without(corpus: Corpus, masks: Sequence[_Mask]) -> Corpus:
    """The rows that no mask selects.

    Raises:
        DataError: No row is left.
    """
    kept = ~np.logical_or.reduce([np.zeros(len(corpus), dtype=bool), *masks])
    if not kept.any():
        rule = (
            "every example repeats another one, has two equal texts or stands in an evaluation "
            "task"
        )
        raise DataError(Fault(corpus.source, rule=rule, move="Give a file with other examples."))
    return make_corpus(corpus.kind, corpus.table.filter(pa.array(kept)), corpus.source)


def overlaps(corpus: Corpus, tasks: Iterable[OwnTask]) -> list[Overlap]:
    """Find the training rows that are also in evaluation tasks.

    A row is in a task of pairs if its first two texts are a pair of the task, in either order. The
    pairs of a retrieval task are a query and a relevant document, with and without its title. A
    row of one sentence is in a task of pairs if a pair contains the sentence. A row is in a task
    of labeled sentences if one of its texts is a sentence that the task scores. Tasks of MTEB and
    of plugins, which are not loaded here, are left out.
    """
    columns = [_folded(corpus.table.column(name)) for name in corpus.text_columns()]
    pairs = columns if len(columns) == 1 else [_unordered(*columns[:2])]
    found = []
    for task in tasks if columns else ():
        for split, keys, among in _items(task, columns, pairs):
            mask = np.zeros(len(corpus), dtype=bool)
            for rows in keys:
                mask |= _mask(pc.is_in(rows, value_set=among.combine_chunks()))
            if mask.any():
                own = not isinstance(task, StsTask) or task.suite == "own"
                first = _first(corpus, mask)
                found.append(Overlap(task.name, split, own, mask, first))
    return found


def refuse_overlaps(corpus: Corpus, found: Iterable[Overlap]) -> None:
    """Refuse training rows that are also in custom tasks.

    Raises:
        DataError: There are such rows.
    """
    move = "Remove them from the examples or from the task, or allow them by --allow-overlap."
    faults = [
        Fault(
            corpus.source,
            rule=f"training examples must not stand in a task that scores the trial: {one}",
            move=move,
        )
        for one in found
        if one.own
    ]
    if faults:
        raise DataError(faults)


def _items(
    task: OwnTask, columns: Sequence[pa.ChunkedArray], pairs: Sequence[pa.ChunkedArray]
) -> Iterator[tuple[str, Sequence[pa.ChunkedArray], pa.ChunkedArray]]:
    """For each split of a task, what to compare of the training rows, and the items to score."""
    match task:
        case StsTask() | RetrievalTask():
            sides = [_folded(_array(side)) for side in zip(*_pairs(task), strict=True)]
            if not sides:
                # No query has a relevant document, so there are no pairs to compare.
                return
            if len(columns) == 1:
                yield task.split, pairs, pa.chunked_array([*sides[0].chunks, *sides[1].chunks])
            else:
                yield task.split, pairs, _unordered(*sides)
        case LabeledTask():
            apart = {"dev": task.dev, "test": task.test}
            parts = {split: part for split, part in apart.items() if part is not None}
            for split, part in (parts or {task.split: task.rows}).items():
                yield split, columns, _folded(_array(part.first))
        case ForeignTask():
            # The texts of an MTEB or plugin task are not loaded, so they cannot be compared.
            pass
        case unknown:
            assert_never(unknown)


def _pairs(task: StsTask | RetrievalTask) -> Iterator[tuple[str, str]]:
    if isinstance(task, StsTask):
        for subset in task.subsets:
            yield from zip(subset.sentences1, subset.sentences2, strict=True)
        return
    # `documents` may be shorter than `document_ids`: the last ids have no text.
    texts = dict(zip(task.document_ids, task.documents, strict=False))
    for query, grades in zip(task.queries, task.relevance, strict=True):
        relevant = [name for name, grade in grades.items() if grade > 0]
        for known in (texts, task.untitled):
            yield from ((query, known[name]) for name in relevant if name in known)


def _array(texts: Iterable[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(list(texts), pa.string())])


def _folded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return _array(folded(text or "") for text in column.to_pylist())


def _joined(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*columns, _SEPARATOR)


def _unordered(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    ordered = pc.less_equal(left, right)
    return _joined([pc.if_else(ordered, left, right), pc.if_else(ordered, right, left)])


def _repeated(keys: pa.ChunkedArray) -> _Mask:
    """The second and later rows of each key."""
    numbers = pc.dictionary_encode(keys.combine_chunks()).indices.to_numpy()
    first = np.unique(numbers, return_index=True)[1]
    mask = np.ones(len(numbers), dtype=bool)
    mask[first] = False
    return mask


def _equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_(pc.equal(left, right), pc.not_equal(left, ""))


def _mask(found: pa.ChunkedArray | _Mask) -> _Mask:
    return np.asarray(found, dtype=bool)


def _first(corpus: Corpus, mask: _Mask) -> str:
    column = corpus.table.column(corpus.text_columns()[0])
    return str(column[int(np.flatnonzero(mask)[0])].as_py())
