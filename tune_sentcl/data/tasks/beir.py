"""Retrieval in BEIR's layout: `corpus.jsonl`, `queries.jsonl`, `qrels/dev.tsv`, `qrels/test.tsv`.

A document's text is its title, a space, and its text.

Source: beir-cellar/beir, beir/datasets/data_loader.py.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from tune_sentcl.data.split_names import split_files
from tune_sentcl.data.task import fingerprint_of
from tune_sentcl.data.tasks.own_task import OwnSplit, RetrievalTask
from tune_sentcl.data.text_files import json_rows, read_lines
from tune_sentcl.errors import DataError, Fault

CORPUS = "corpus.jsonl"
_QUERIES = "queries.jsonl"
_SPLITS: tuple[OwnSplit, ...] = ("dev", "test")
_KEYS = {"_id", "title", "metadata"}
_CORRECT = "Correct the line."
_WHOLE = re.compile(r"([-+]?\d+)(?:[.,]0*)?", re.ASCII)
"""Matches a whole grade, which pandas writes as `1.0` and Excel may write as `1,0`."""
_SURROGATE = re.compile("[\ud800-\udfff]")

Judgments = dict[str, dict[str, int]]
"""For each query, the judged documents and their grades."""


def read_beir(folder: Path, name: str, data: Literal["toy", "root"]) -> list[RetrievalTask]:
    """Read a folder; make one task per split that has judgments.

    Args:
        folder: Lines of the two .jsonl files have `_id` and `text`; documents may have a `title`.
            Lines of `qrels` hold query, document and a whole grade (`1.0` is 1), or TREC's query,
            iteration, document and grade, separated by tabs or blanks; the first line may be a
            header. `validation.tsv` is read as `dev.tsv`.
        name: The task's name.
        data: See `Score`.

    Raises:
        DataError: A file is missing or damaged, or judgments name an unknown document, an unknown
            or blank query, or the same query and document twice.
    """
    qrels = split_files(folder / "qrels", (".tsv",))
    if not {*qrels} & {*_SPLITS}:
        rule = "must hold dev.tsv, test.tsv or both"
        move = "Write lines of query, document and grade into them, separated by tabs."
        raise DataError(Fault(str(folder / "qrels"), rule=rule, move=move))
    corpus, untitled = _texts(folder / CORPUS, titled=True)
    queries, _ = _texts(folder / _QUERIES, titled=False)
    ids = tuple(sorted(sorted(corpus, reverse=True), key=lambda name: not corpus[name]))
    documents = tuple(text for name in ids if (text := corpus[name]))
    if not documents:
        raise DataError(
            Fault(str(folder / CORPUS), key="text", rule="must not be blank", move=_CORRECT)
        )
    tasks = []
    for split in _SPLITS:
        if split not in qrels:
            continue
        judged = _judgments(qrels[split], queries, corpus)
        texts, relevance = tuple(queries[name] for name in judged), tuple(judged.values())
        own = tuple(name if name in corpus else None for name in judged)
        version = fingerprint_of(_content(corpus, queries, judged))
        tasks.append(
            RetrievalTask(
                *(name, split, ids, documents, texts, relevance, own, data, version),
                untitled=untitled,
            )
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
            *(f"{document} {grade}" for document, grade in sorted(grades.items())),
            *own,
        )


def _texts(path: Path, *, titled: bool) -> tuple[dict[str, str], dict[str, str]]:
    """By id, all texts, and the texts without title of documents that have a title."""
    texts: dict[str, str] = {}
    untitled: dict[str, str] = {}
    for line, row in json_rows(path):
        where = f"{path} line {line}"
        key, text, title = row.get("_id"), row.get("text"), row.get("title") if titled else ""
        if "text" not in row and not (title and row.keys() <= _KEYS):
            rule = f"the line has no key `text`; its keys are {', '.join(row) or 'none'}"
            raise DataError(Fault(where, rule=rule, move="Rename the key that holds the text."))
        parts: list[Any] = [title or "", "" if titled and text is None else text]
        if isinstance(key, int):
            # A JSONL file that `datasets` wrote may hold numeric ids as numbers.
            key = str(key)
        if not key or not all(isinstance(part, str) for part in (key, *parts)):
            rule = "must be a JSON object with texts under `_id` and `text`"
            raise DataError(Fault(where, value=_shown(str(row)), rule=rule, move=_CORRECT))
        whole = " ".join(parts).strip()
        if _SURROGATE.search(key + whole):
            rule = (
                "the line holds half of a surrogate pair (an escape from \\ud800 to \\udfff by "
                "itself)"
            )
            raise DataError(Fault(where, rule=rule, move=_CORRECT))
        if key in texts:
            raise DataError(
                Fault(
                    where,
                    key="_id",
                    value=key,
                    rule="occurs twice",
                    move="Remove one of the two lines.",
                )
            )
        texts[key] = whole
        if title and parts[1]:
            untitled[key] = parts[1]
    return texts, untitled


def _judgments(
    paths: Sequence[Path], queries: dict[str, str], corpus: dict[str, str]
) -> Judgments:
    judgments: Judgments = {}
    folder = paths[0].parents[1]
    for where, query, document, grade in chain.from_iterable(_graded(p, queries) for p in paths):
        if not queries.get(query):
            rule = f"is {'blank' if query in queries else 'not a query'} in {folder / _QUERIES}"
            raise DataError(
                Fault(where, value=query, rule=rule, move="Add the query, or remove the line.")
            )
        if document not in corpus:
            rule = f"is not a document of {folder / CORPUS}"
            raise DataError(
                Fault(
                    where, value=document, rule=rule, move="Add the document, or remove the line."
                )
            )
        grades = judgments.setdefault(query, {})
        if document in grades:
            rule = "this query and this document occur together in an earlier line too"
            raise DataError(
                Fault(
                    where,
                    key=document,
                    value=query,
                    rule=rule,
                    move="Remove one of the two lines.",
                )
            )
        grades[document] = grade
    if not judgments:
        raise DataError(
            Fault(str(paths[0]), rule="the file holds no judgments", move="Add judgments.")
        )
    return judgments


def _graded(path: Path, queries: dict[str, str]) -> Iterator[tuple[str, str, str, int]]:
    """Yield the place, query, document and grade of each line after the header, if any."""
    begun = False
    for number, line in enumerate(read_lines(path, "utf-8"), 1):
        fields = next(csv.reader([line], delimiter="\t")) if "\t" in line else line.split()
        whole = len(fields) in (3, 4)
        grade = _WHOLE.fullmatch(fields[-1]) if whole else None
        if grade:
            begun = True
            yield f"{path} line {number}", fields[0], fields[-2], int(grade[1])
        elif line.strip() and (begun or not whole or fields[0] in queries):
            rule = "must be query, document and a whole number, separated by tabs"
            raise DataError(
                Fault(f"{path} line {number}", value=_shown(line), rule=rule, move=_CORRECT)
            )


def _shown(line: str) -> str:
    return repr(line if len(line) < 60 else f"{line[:57]}...")
