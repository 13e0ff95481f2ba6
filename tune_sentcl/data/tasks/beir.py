"""Retrieval in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/dev.tsv`, `qrels/test.tsv`.

Source: beir-cellar/beir, beir/datasets/data_loader.py; a document's text is title, space, text.
"""

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
            Lines of `qrels` hold query, document and an integer grade, separated by tabs; the
            first line may be a header.
        name: The task's name.
        data: See `Score`.

    Raises:
        DataError: A file is missing or damaged, or judgments name an unknown query or document, or
            the same query and document twice.
    """
    qrels = {split: folder / "qrels" / f"{split}.tsv" for split in _SPLITS}
    there = {split: path for split, path in qrels.items() if path.is_file()}
    if not there:
        rule = "must hold dev.tsv, test.tsv or both"
        move = "Put the judgments there: query, document and grade, separated by tabs."
        raise DataError(Fault(str(folder / "qrels"), "", "", rule, move))
    corpus = _texts(folder / CORPUS, titled=True)
    queries = _texts(folder / "queries.jsonl", titled=False)
    ids = tuple(sorted(corpus, reverse=True))
    documents = tuple(corpus[one] for one in ids)
    tasks = []
    for split, path in there.items():
        judged = _judgments(path, queries, corpus)
        texts, relevance = tuple(queries[one] for one in judged), tuple(judged.values())
        version = fingerprint_of(_content(ids, documents, texts, judged))
        tasks.append(RetrievalTask(name, split, ids, documents, texts, relevance, data, version))
    return tasks


def _content(
    ids: tuple[str, ...], documents: tuple[str, ...], queries: tuple[str, ...], judged: Judgments
) -> Iterator[tuple[str, ...]]:
    yield ("retrieval", str(len(ids)))
    yield from zip(ids, documents, strict=True)
    for query, grades in zip(queries, judged.values(), strict=True):
        yield (query, *(f"{one} {grade}" for one, grade in sorted(grades.items())))


def _texts(path: Path, *, titled: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(read_lines(path, "utf-8"), 1):
        where = f"{path} line {number}"
        row = _object(line, where)
        key, text = row.get("_id"), row.get("text")
        title = row.get("title") if titled else None
        if not isinstance(key, str) or not isinstance(text, str) or not key:
            rule = "must be a JSON object with the texts `_id` and `text`"
            raise DataError(Fault(where, "", _shown(line), rule, _CORRECT))
        whole = f"{title or ''} {text}".strip()
        if not _is_unicode(key + whole):
            rule = "holds half of a surrogate pair (an escape from \\ud800 to \\udfff by itself)"
            raise DataError(Fault(where, "", _shown(line), rule, _CORRECT))
        if not whole:
            raise DataError(Fault(where, "text", "", "must not be blank", _CORRECT))
        if key in found:
            raise DataError(Fault(where, "_id", key, "occurs twice", "Leave one out."))
        found[key] = whole
    return found


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
    for number, line in enumerate(read_lines(path, "utf-8"), 1):
        fields = line.split("\t")
        if number == 1 and len(fields) == 3 and _is_header(fields, queries):
            continue
        where = f"{path} line {number}"
        if len(fields) != 3 or not _is_grade(fields[2]):
            rule = "must be query, document and a whole number, separated by tabs"
            raise DataError(Fault(where, "", _shown(line), rule, _CORRECT))
        query, document, grade = fields
        if query not in queries:
            rule = f"is not a query of {path.parents[1] / 'queries.jsonl'}"
            raise DataError(Fault(where, "", query, rule, "Add the query, or drop the line."))
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


def _is_header(fields: list[str], queries: dict[str, str]) -> bool:
    """Whether a first line is BEIR's header, rather than a judgment with a malformed grade."""
    try:
        float(fields[2])
    except ValueError:
        return fields[0] not in queries
    return False


def _is_grade(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _shown(line: str) -> str:
    return repr(line if len(line) < 60 else f"{line[:57]}...")
