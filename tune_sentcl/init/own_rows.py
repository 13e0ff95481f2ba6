"""The user's training rows: read and describe a file, and hold out some of its rows.

A held-out row shares neither its query nor its answer with a training row. Therefore rows that
share a text stay together.
"""

import csv
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic_core import PydanticCustomError

from tune_sentcl.config import DataConfig, Rows, columns_of
from tune_sentcl.config.data_names import joined_columns, own_source
from tune_sentcl.data.check import CheckedSet, unreadable
from tune_sentcl.data.rows.corpus import Corpus, join_corpora
from tune_sentcl.data.rows.judged import judges, names_no_nli
from tune_sentcl.data.rows.kinds import KINDS
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.data.rows.row_checks import folded, overlaps, problems
from tune_sentcl.data.rows.sources import rows_of
from tune_sentcl.data.tables import (
    Origin,
    Read,
    holds_text,
    numbers,
    read_table,
    role_of,
    text_column,
)
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.errors import DataError, Fault
from tune_sentcl.plugins import EXTENSIONS

_KINDS: tuple[Rows, ...] = ("graded_pairs", "labeled_pairs", "triplets", "sentences")
"""A file's rows are of the first of these kinds that its columns allow."""

_RARE = 0.05
_SHOWN = 60
"""A script is rare below this share of texts; shown texts have at most this many characters."""

_SCRIPTS = (
    *("Latin", "Cyrillic", "Greek", "Armenian", "Georgian", "Hebrew", "Arabic", "Syriac"),
    *("Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada"),
    *("Malayalam", "Sinhala", "Thai", "Lao", "Tibetan", "Myanmar", "Khmer", "Ethiopic"),
    *("Mongolian", "Cherokee", "Thaana", "Tifinagh", "Nko", "Yi", "Han", "Hiragana", "Katakana"),
    *("Hangul", "Bopomofo", "Canadian_Aboriginal", "Javanese", "Balinese", "Sundanese"),
)
"""Unicode's names for the scripts of living languages, as RE2 spells them."""

_SPLITS = ("train", "dev", "test")
_TAKEN = -1
"""Marks a group that shares a text with rows that the file itself holds out."""
_HELD_SHARE = 0.1
_LEAST = 20
"""The share of rows held out for dev, and for test; the least number of rows in each split."""
_MOST_QUERIES = 500
_MOST_DOCUMENTS = 5_000
"""An evaluation encodes all these texts; 5,500 texts take MiniLM half a minute on two cores."""

ROWS, TASK = "train.parquet", "held-out"
"""The file of the training rows, and the folder of the evaluation task."""


def load_file(rows: Path, columns: str = "") -> tuple[Corpus, str, dict[str, Corpus]]:
    """Read the rows of a file that have no blank text.

    If the file has a column `split`, its dev and test rows are returned apart from the training
    rows.

    Args:
        rows: A CSV, TSV, JSONL, Parquet or text file, or the name of a plugin's source.
        columns: Roles of its columns, as `data.columns`. Empty: the columns' names decide; if they
            decide nothing, two columns of text are anchor and positive.

    Returns:
        The rows, the roles of the columns, and the rows of `dev` and `test`, if the file has these
        splits.

    Raises:
        DataError: The file cannot be read, or its columns have no known roles.
        PluginError: A plugin's source raises an error, or yields something else than dicts.
    """
    kind, columns = _kind_of(rows, columns)
    config = DataConfig(source=str(rows), columns=columns, blanks="drop")
    corpus = load_rows(kind, config, None)
    apart = {split: load_rows(kind, config, None, split) for split in corpus.splits}
    return corpus, columns, apart


def _kind_of(rows: Path, columns: str) -> tuple[Rows, str]:
    """The kind of a file's rows, and the roles of its columns."""
    try:
        columns = str(joined_columns(columns))
    except PydanticCustomError as error:
        rule = error.message().replace("Input should", "must")
        raise DataError(
            Fault(
                "--columns",
                value=columns,
                rule=rule,
                move="Write ROLE=COLUMN, as in text1=question.",
            )
        ) from None
    table, where = _read(rows, columns_of(columns))
    kind = _kind_among({*table.column_names})
    if kind == "labeled_pairs" and names_no_nli(table.column("label")):
        kind = "triplets"
    if kind is None:
        guessed = {**_guessed(rows, where.columns, columns_of(columns)), **columns_of(columns)}
        kind = _kind_among({*table.column_names, *guessed})
        columns = str(joined_columns(guessed))
    if kind is not None:
        return kind, columns
    rule = (
        f"the columns are {', '.join(where.columns)}, and two or three of them must have known "
        "roles"
    )
    move = "Name the roles: --columns 'anchor=QUESTION,positive=ANSWER' (docs/data.md lists them)."
    raise DataError(Fault(str(rows), rule=rule, move=move))


def _read(rows: Path, columns: Mapping[str, str], read: Read = tuple) -> tuple[pa.Table, Origin]:
    own = EXTENSIONS.get(("source", str(rows)))
    return rows_of(own, columns, read) if own else read_table(rows, None, columns, read)


def _kind_among(roles: Collection[str]) -> Rows | None:
    """The first kind of rows that can be made from columns with these roles."""
    there = {*roles}
    fits = (kind for kind in _KINDS if any(there >= {*needed} for needed in KINDS[kind].sources))
    return next(fits, None)


def _guessed(rows: Path, names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Guess the roles of two columns of text, and of a third of numbers whose name says score.

    Raises:
        DataError: The header of a CSV or TSV file looks like a row.
    """
    # `sent1` has a role only beside `sent0`, as in SimCSE's file; no column here is named `sent0`.
    known = {n: role_of(n, columns)[1] for n in names if n.strip().casefold() != "sent1"}
    free = [name for name in names if not known.get(name) and "," not in name]
    values = {name: _values(rows, name) for name in free}
    texts = [
        name
        for name, filled in values.items()
        if sum(map(len, filled)) > 8 * len(filled)
        and not any(map(_is_number, filled))
        and not judges(name)
    ]
    if rows.suffix in (".csv", ".tsv"):
        _require_header(rows, names, texts)
    score = [n for n in free if n.casefold() in ("score", "similarity", "rating")]
    score = [n for n in score if all(map(_is_number, values[n])) and len({*values[n]}) > 2]
    there = {*known.values()}
    roles = ("sentence1", "sentence2") if score or "score" in there else ("anchor", "positive")
    lacking = [role for role in roles if role not in there] + ["score"] * bool(score)
    found = [*texts, *score]
    return dict(zip(lacking, found, strict=True)) if len(lacking) == len(found) else {}


def _require_header(rows: Path, names: Sequence[str], texts: Sequence[str]) -> None:
    """Refuse a header that looks like a row; `texts` are the names of columns of text.

    Raises:
        DataError: The names of two columns are sentences, or the name of a column is a number.
    """
    sentences = [n for n in texts if len(n.split()) > 3 or n.rstrip().endswith((".", "?", "!"))]
    # pandas gives a column without a name its number from 0, which is no sign of a missing header.
    strange = [n for n in texts if _is_number(n) and n != str(names.index(n))]
    if strange or len(sentences) > 1:
        rule = "the first line must name the columns, but it looks like a row"
        move = "Write a line such as question,answer above it, or name the columns: --columns."
        raise DataError(
            Fault(f"{rows} line 1", value=[*strange, *sentences][0], rule=rule, move=move)
        )


def _values(rows: Path, name: str) -> list[str]:
    """The first values of a column that are not empty; none if it does not hold text."""
    try:
        table, _ = _read(rows, {"text": name}, lambda _: ("text",))
    except DataError:
        # The column holds no texts, or two columns have this name.
        return []
    column = table.column("text")
    if not pa.types.is_string(column.type):
        return []
    return [value for value in column.slice(0, 200).to_pylist() if value and value.strip()]


def _is_number(text: str) -> bool:
    return bool(np.isfinite(numbers([text]))[0])


def check_rows(rows: Path, columns: str, own: Iterable[str]) -> CheckedSet:
    """Count training rows, faulty rows, and rows that are also in custom tasks.

    Args:
        rows: The file of the rows, or the name of a plugin's source.
        columns: Roles of its columns, as `data.columns`.
        own: Entries of `evaluation.own`.
    """
    try:
        corpus, *_ = load_file(rows, columns)
        tasks = [task for entry in own for task in read_own(own_source(entry))]
        overlapping = overlaps(corpus, tasks)
    except DataError as error:
        return unreadable(str(rows), str(rows), error)
    blank = [f"rows with a blank text: {corpus.dropped:,}"] * bool(corpus.dropped)
    problem = "; ".join([*corpus.notes, *blank, *map(str, [*problems(corpus), *overlapping])])
    status: Literal["ok", "wrong"] = "wrong" if overlapping else "ok"
    repair = "Remove these rows from the examples or from the task." if overlapping else ""
    found = corpus.shown_kind
    return CheckedSet(str(rows), (str(rows),), len(corpus), found, status, problem, repair)


def scripts(table: pa.Table, where: Origin) -> Iterator[str]:
    """Say in how many texts each script occurs, and in which rows a rare script occurs.

    The function reads every text; a million texts take about a second.

    Args:
        table: Rows from `open_source`.
        where: Their origin.
    """
    columns = [text_column(table, n, where) for n in table.column_names if holds_text(n)]
    texts = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    total = pc.sum(pc.not_equal(texts, "")).as_py()
    found = {}
    for script in _scripts_among(texts):
        mask = pc.match_substring_regex(texts, rf"\p{{{script}}}")
        found[script] = np.flatnonzero(pc.fill_null(mask, False))
    order = sorted((s for s in found if len(found[s])), key=lambda script: -len(found[script]))
    common = [script for script in order if len(found[script]) >= _RARE * total]
    shares = [f"{script} in {len(found[script]) / total:.0%} of the texts" for script in common]
    yield f"scripts: {', '.join(shares) or 'none'}"
    for script in order[len(common) :]:
        places = found[script]
        text = texts[int(places[0])].as_py()
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        rows = np.unique(places % len(table)).tolist()
        count = f"{len(places):,} text{'s'[: len(places) - 1]}"
        yield f"{script} in {count}: {where.at(rows)} (one of them: {shown!r})"


def _scripts_among(texts: pa.ChunkedArray) -> list[str]:
    """The scripts of the letters in texts, found without a search of all texts for each script."""
    is_seen = np.zeros(0x110000, dtype=bool)
    is_seen[:0x80] = True
    others = texts.filter(pc.invert(pc.string_is_ascii(texts)))
    for chunk in others.chunks:
        is_seen[np.frombuffer("".join(chunk.to_pylist()).encode("utf-32-le"), "<u4")] = True
    letters = pa.array(["".join(map(chr, np.flatnonzero(is_seen)))])
    return [s for s in _SCRIPTS if pc.match_substring_regex(letters, rf"\p{{{s}}}")[0].as_py()]


def hold_out(
    corpus: Corpus, folder: Path, apart: Mapping[str, Corpus] | None = None
) -> tuple[int, int, int]:
    """Hold out rows as an evaluation task, and write the task and the other rows.

    Pairs with a score become a task of graded pairs. Other pairs and triplets become a retrieval
    task: the first text of a row is a query, the second one the relevant document. The task
    searches the documents of all held-out rows, and those of training rows up to 5,000 in all. A
    negative of a training row is removed if it is a held-out text.

    If `apart` has dev or test rows, these are held out in place of a tenth of the others. Training
    rows that share a text with them are left out.

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
    own = np.repeat([0, *map(_SPLITS.index, given)], [len(corpus), *map(len, given.values())])
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
    """Some rows of a corpus; negatives that are among `texts` become empty."""
    table = corpus.table.take(pa.array(rows))
    for name in corpus.negatives():
        column = ["" if folded(t) in texts else t for t in table.column(name).to_pylist()]
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(column, pa.string()))
    return table


def _groups(columns: Sequence[Sequence[str]]) -> npt.NDArray[np.int64]:
    """A number for each row, equal for rows that share a text, directly or through others."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(columns[0])
    places: dict[str, int] = {}
    edges = [
        (row, count + places.setdefault(folded(text), len(places)))
        for column in columns
        for row, text in enumerate(column)
        if text
    ]
    left, right = zip(*edges, strict=True)
    size = count + len(places)
    graph = coo_array((np.ones(len(edges)), (left, right)), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1][:count], np.int64)


def _dealt(
    groups: npt.NDArray[np.int64], own: npt.NDArray[np.int64], corpus: Corpus
) -> list[npt.NDArray[np.int64]]:
    """The rows of train, dev and test; a fixed seed draws the order in which groups are assigned.

    Args:
        groups: The group of each row.
        own: The number of the split that the file gives each row; 0 for train.
        corpus: The rows.
    """
    sizes, taken = np.bincount(groups), np.unique(groups[own > 0])
    part = np.zeros(len(sizes), np.int64)
    part[taken] = _TAKEN
    wanted = int(_HELD_SHARE * (own == 0).sum())
    left = {number: wanted for number in (1, 2) if number not in own}
    for group in np.random.default_rng(0).permutation(len(sizes)):
        for number in left:
            if not part[group] and 0 < sizes[group] <= left[number]:
                part[group] = number
                left[number] -= int(sizes[group])
    dealt = np.where(own > 0, own, part[groups])
    found = [np.flatnonzero(dealt == number) for number in range(3)]
    if min(map(len, found)) < _LEAST:
        rule = f"train, dev and test need {_LEAST} rows or more each, without shared texts"
        counts = (f"{len(rows):,} of {name}" for rows, name in zip(found, _SPLITS, strict=True))
        given = ", ".join(counts)
        move = "Give your own evaluation set: --dev FILE or --own NAME=FOLDER."
        raise DataError(Fault(corpus.source, value=given, rule=rule, move=move))
    return found


def _write_retrieval(
    queries: Sequence[str],
    answers: Sequence[str],
    parts: Sequence[npt.NDArray[np.int64]],
    task: Path,
) -> None:
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
