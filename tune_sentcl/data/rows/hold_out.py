"""Set a tenth of the rows apart as a dev set and a tenth as a test set, or take those of the file.

No question and no answer of a held-out row is one of a training row. Rows that share one of them
therefore stay together.
"""

import csv
import json
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tune_sentcl.data.rows.corpus import Corpus, join_corpora
from tune_sentcl.data.rows.kinds import KINDS
from tune_sentcl.data.rows.row_checks import folded
from tune_sentcl.errors import DataError, Fault

_SPLITS = ("train", "dev", "test")
_TAKEN = -1
"""The part of a group that shares a text with rows that the file itself holds out."""
_SHARE = 0.1
_LEAST = 20
_MOST_QUERIES = 500
_MOST_DOCUMENTS = 5_000
"""An evaluation encodes all of them; 5,500 texts take MiniLM half a minute on two cores."""


ROWS, TASK = "train.parquet", "held-out"
"""The file of the training rows, and the folder of the evaluation task."""


def hold_out(
    corpus: Corpus, folder: Path, apart: Mapping[str, Corpus] | None = None
) -> tuple[int, int, int]:
    """Write training rows and an evaluation task made of the other rows.

    Pairs with a score become a task of graded pairs. Other pairs and triplets become a retrieval
    task: the first text of a row is a query, the second one the relevant document. All documents
    of held-out rows are searched, and those of training rows, up to 5,000. Negatives of training
    rows that are held-out texts are left out.

    Rows of dev or test in `apart` are held out in place of a tenth of the others. Rows to train on
    that share a text with them are left out.

    Args:
        corpus: Graded pairs, pairs of the same meaning or triplets.
        folder: An empty folder for the files `ROWS` and `TASK`.
        apart: The rows of a file's own `dev` and `test`.

    Returns:
        The number of rows in train, dev and test.

    Raises:
        DataError: Too many rows share texts, or there are too few rows.
    """
    given = {split: rows for split, rows in (apart or {}).items() if split in _SPLITS}
    own = np.repeat([0, *map(_number, given)], [len(corpus), *map(len, given.values())])
    if given:
        corpus = join_corpora([corpus, *given.values()])
    columns = [corpus.texts(name) for name in KINDS[corpus.kind].columns[:2]]
    parts = _dealt(_groups(columns), own, corpus)
    task = folder / TASK
    task.mkdir()
    held_texts = {folded(column[row]) for column in columns for rows in parts[1:] for row in rows}
    pq.write_table(_without(corpus, parts[0], held_texts), folder / ROWS)
    if corpus.kind == "graded_pairs":
        scores = corpus.numbers("score").tolist()
        for split, held in zip(("dev", "test"), parts[1:], strict=True):
            with (task / f"{split}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(("sentence1", "sentence2", "score"))
                writer.writerows((columns[0][r], columns[1][r], scores[r]) for r in held)
    else:
        _write_retrieval(columns[0], columns[1], parts, task)
    return len(parts[0]), len(parts[1]), len(parts[2])


def _without(corpus: Corpus, rows: npt.NDArray[np.int64], texts: Collection[str]) -> pa.Table:
    """Some rows, with blanks in the place of negatives among some texts."""
    table = corpus.table.take(pa.array(rows))
    for name in corpus.negatives():
        column = ["" if folded(t) in texts else t for t in table.column(name).to_pylist()]
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(column, pa.string()))
    return table


def _groups(columns: Sequence[Sequence[str]]) -> npt.NDArray[np.int64]:
    """The group of each row; rows that share a text, directly or not, have the same group."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(columns[0])
    numbers: dict[str, int] = {}
    edges = [
        (row, count + numbers.setdefault(folded(text), len(numbers)))
        for column in columns
        for row, text in enumerate(column)
        if text
    ]
    left, right = zip(*edges, strict=True)
    size = count + len(numbers)
    graph = coo_array((np.ones(len(edges)), (left, right)), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1][:count], np.int64)


def _number(split: str) -> int:
    return _SPLITS.index(split)


def _dealt(
    groups: npt.NDArray[np.int64], own: npt.NDArray[np.int64], corpus: Corpus
) -> list[npt.NDArray[np.int64]]:
    """The rows of train, dev and test; whole groups in random order, the same in every run.

    Args:
        groups: The group of each row.
        own: The number of the split that the file gives each row; 0 for train.
        corpus: The rows.
    """
    sizes, taken = np.bincount(groups), np.unique(groups[own > 0])
    part = np.zeros(len(sizes), np.int64)
    part[taken] = _TAKEN
    wanted = int(_SHARE * (own == 0).sum())
    left = {number: wanted for number in (1, 2) if number not in own}
    for group in np.random.default_rng(0).permutation(len(sizes)):
        for number in left:
            if not part[group] and 0 < sizes[group] <= left[number]:
                part[group] = number
                left[number] -= int(sizes[group])
    dealt = np.where(own > 0, own, part[groups])
    found = [np.flatnonzero(dealt == number) for number in range(3)]
    if min(map(len, found)) < _LEAST:
        rule = f"needs {_LEAST} rows or more in each of train, dev and test, without shared texts"
        counts = (f"{len(rows):,} of {name}" for rows, name in zip(found, _SPLITS, strict=True))
        given = ", ".join(counts)
        move = "Give an evaluation set of your own: --dev FILE or --own NAME=FOLDER."
        raise DataError(Fault(corpus.source, "", given, rule, move))
    return found


def _write_retrieval(
    queries: Sequence[str],
    answers: Sequence[str],
    parts: Sequence[npt.NDArray[np.int64]],
    task: Path,
) -> None:
    """Write a task in BEIR's layout."""
    splits = {"dev": parts[1], "test": parts[2]}
    judged: dict[str, dict[str, dict[str, None]]] = {}
    for split, rows in splits.items():
        relevant: dict[str, dict[str, None]] = {}
        for row in rows:
            relevant.setdefault(queries[row], {})[answers[row]] = None
        judged[split] = dict(list(relevant.items())[:_MOST_QUERIES])
    needed = (text for found in judged.values() for texts in found.values() for text in texts)
    documents = dict.fromkeys(needed)
    for row in chain(parts[1], parts[2], parts[0]):
        if len(documents) >= _MOST_DOCUMENTS:
            break
        documents[answers[row]] = None
    names = {text: f"d{number}" for number, text in enumerate(documents)}
    asked = dict.fromkeys(chain(*judged.values()))
    query_names = {text: f"q{number}" for number, text in enumerate(asked)}
    for file, named in (("corpus", names), ("queries", query_names)):
        lines = (json.dumps({"_id": name, "text": text}) for text, name in named.items())
        (task / f"{file}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (task / "qrels").mkdir()
    for split, found in judged.items():
        lines = (
            f"{query_names[query]}\t{names[answer]}\t1\n"
            for query, texts in found.items()
            for answer in texts
        )
        head = "query-id\tcorpus-id\tscore\n"
        (task / "qrels" / f"{split}.tsv").write_text(head + "".join(lines), "utf-8")
