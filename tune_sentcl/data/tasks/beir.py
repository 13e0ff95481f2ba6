"""Retrieval in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/dev.tsv`, `qrels/test.tsv`.

Source: beir-cellar/beir, beir/datasets/data_loader.py; a document's text is title, space, text.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from tune_sentcl.data.task import fingerprint_of
from tune_sentcl.data.tasks.own_task import OwnSplit, RetrievalTask
from tune_sentcl.data.text_files import read_lines
from tune_sentcl.errors import DataError, Fault

CORPUS = "corpus.jsonl"
_SPLITS: tuple[OwnSplit, ...] = ("dev", "test")
_CORRECT = "Correct the line."

Judgments = dict[str, dict[str, int]]
"""For each query, the judged documents and their grades."""


def read_beir(folder: Path, name: str, data: Literal["toy", "root"]) -> list[RetrievalTask]:
    """Read a folder: one task per split with judgments.

    Args:
        folder: Lines of the two .jsonl files have `_id` and `text`; documents may have a `title`.
            Lines of `qrels` hold query, document and a whole grade, or TREC's query, iteration,
            document and grade, separated by tabs or blanks; the first line may be a header.
        name: The task's name.
        data: See `Score`.

    Raises:
        DataError: A file is missing or damaged, or judgments name an unknown document, an unknown
            or blank query, or the same query and document twice.
    """
    qrels = {split: folder / "qrels" / f"{split}.tsv" for split in _SPLITS}
    there = {split: path for split, path in qrels.items() if path.is_file()}
    if not there:
        rule = "must hold dev.tsv, test.tsv or both"
        move = "Put the judgments there: query, document and grade, separated by tabs."
        raise DataError(Fault(str(folder / "qrels"), "", "", rule, move))
    corpus = _texts(folder / CORPUS, titled=True)
    queries = _texts(folder / "queries.jsonl", titled=False)
    ids = tuple(sorted(sorted(corpus, reverse=True), key=lambda one: not corpus[one]))
    documents = tuple(text for one in ids if (text := corpus[one]))
    if not documents:
        raise DataError(Fault(str(folder / CORPUS), "text", "", "must not be blank", _CORRECT))
    tasks = []
    for split, path in there.items():
        judged = _judgments(path, queries, corpus)
        texts, relevance = tuple(queries[one] for one in judged), tuple(judged.values())
        own = tuple(one if one in corpus else None for one in judged)
        version = fingerprint_of(_content(corpus, queries, judged))
        tasks.append(
            RetrievalTask(name, split, ids, documents, texts, relevance, own, data, version)
        )
    return tasks


def _content(
    corpus: dict[str, str], queries: dict[str, str], judged: Judgments
) -> Iterator[tuple[str, ...]]:
    yield ("retrieval", str(len(corpus)))
    yield from sorted(corpus.items(), reverse=True)
    for query, grades in judged.items():
        own = ("own", query) if query in corpus else ()
        yield (
            queries[query],
            *(f"{one} {grade}" for one, grade in sorted(grades.items())),
            *own,
        )


def _texts(path: Path, *, titled: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(read_lines(path, "utf-8"), 1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        row = _object(line, where)
        key, text = _text(row.get("_id")), row.get("text")
        text = "" if titled and text is None else _text(text)
        title = _text(row.get("title") or "") if titled else ""
        if not key or text is None or title is None:
            rule = "must be a JSON object with the texts `_id` and `text`"
            raise DataError(Fault(where, "", _shown(line), rule, _CORRECT))
        whole = f"{title} {text}".strip()
        if not _is_unicode(key + whole):
            rule = "holds half of a surrogate pair (an escape from \\ud800 to \\udfff by itself)"
            raise DataError(Fault(where, "", _shown(line), rule, _CORRECT))
        if key in found:
            raise DataError(Fault(where, "_id", key, "occurs twice", "Leave one out."))
        found[key] = whole
    return found


def _text(value: object) -> str | None:
    """A JSON value as text; None unless it is text or a whole number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas writes whole numbers so if one of their column is missing
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return value if isinstance(value, str) else None


def _is_unicode(text: str) -> bool:
    """Whether a JSON text can be encoded; JSON can escape half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise DataError(Fault(where, "", _shown(line), "must be a JSON object", _CORRECT))
    return row


def _judgments(path: Path, queries: dict[str, str], corpus: dict[str, str]) -> Judgments:
    found: Judgments = {}
    queries_file = path.parents[1] / "queries.jsonl"
    for number, line in enumerate(read_lines(path, "utf-8"), 1):
        fields = next(csv.reader([line], delimiter="\t")) if "\t" in line else line.split()
        whole = len(fields) in (3, 4)
        grade = _number(fields[-1]) if whole else None
        header = not found and whole and grade is None and fields[0] not in queries
        if header or not line.strip():
            continue
        where = f"{path} line {number}"
        if grade is None or not grade.is_integer():
            rule = "must be query, document and a whole number, separated by tabs"
            raise DataError(Fault(where, "", _shown(line), rule, _CORRECT))
        query, document = _id(fields[0], queries), _id(fields[-2], corpus)
        if not queries.get(query):
            rule = f"is {'blank' if query in queries else 'not a query'} in {queries_file}"
            raise DataError(Fault(where, "", query, rule, "Write the query, or drop the line."))
        if document not in corpus:
            rule = f"is not a document of {path.parents[1] / CORPUS}"
            raise DataError(
                Fault(where, "", document, rule, "Add the document, or drop the line.")
            )
        grades = found.setdefault(query, {})
        if document in grades:
            rule = "this query and document occur twice"
            raise DataError(Fault(where, "", _shown(line), rule, "Leave one out."))
        grades[document] = int(grade)
    if not found:
        raise DataError(Fault(str(path), "", "", "holds no judgments", "Add some."))
    return found


def _id(field: str, known: dict[str, str]) -> str:
    """An id as its file has it: pandas writes 10 as 10.0 if a row of the column is missing."""
    number = _number(field)
    whole = "" if number is None or not number.is_integer() else str(int(number))
    return whole if field not in known and whole in known else field


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _shown(line: str) -> str:
    return repr(line if len(line) < 60 else f"{line[:57]}...")
