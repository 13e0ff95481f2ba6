"""The papers' data sets and encoders, compared with the names in a study's rows."""

import functools
from pathlib import PurePosixPath

from tune_sentcl.config import Rows, source_names
from tune_sentcl.data.rows.sources import JOINED, NLI_ENTAILED, SOURCES, WHOLE
from tune_sentcl.data.tasks.sts_data import STS_FILES, STS_SUBSETS
from tune_sentcl.data.tasks.transfer_data import TASKS

_HUB_DATA = {"snli": ("stanfordnlp/snli",)}
"""Hub data sets with the same rows."""

_HUB_ENCODERS = {
    "bert-base-uncased": ("google-bert/bert-base-uncased",),
    "bert-large-uncased": ("google-bert/bert-large-uncased",),
    "roberta-base": ("FacebookAI/roberta-base",),
}
"""Newer hub names of the same repositories."""

_FOLDER = ("/", "~", "./", "../")
_PARTS = ("_partial", "first2000", "-partial")


@functools.cache
def task_rows(task: str, split: str, protocol: str) -> int:
    """The number of rows that a paper's score of a task counts, comparable with a score's `n`."""
    if task in STS_SUBSETS:
        return sum(STS_SUBSETS[task].values())
    if task not in TASKS:
        sizes: dict[tuple[str, str], int] = {key: file[1] for key, file in STS_FILES.items()}
        return sizes[task, split]
    files = list(TASKS[task].values())[-1]  # the split that is scored comes last
    if protocol == "scl-paper-compat":
        return sum(file.rows if file.truncated is None else file.truncated for file in files)
    return sum(file.rows for file in files)


def is_encoder(name: str, paper: str) -> bool:
    """Whether a trial's checkpoint name denotes the encoder that a paper started from.

    A folder or a file of word vectors is compared by its last path component. A hub name is
    compared whole, because any user can give a repository the same last component.
    """
    if name == paper or name in _HUB_ENCODERS.get(paper, ()):
        return True
    return is_folder(name) and PurePosixPath(name).name == PurePosixPath(paper).name


def is_folder(name: str) -> bool:
    """Whether a checkpoint's name is certainly a path and not a hub name."""
    return name.startswith(_FOLDER) or name.endswith(".txt")


def lacking_rows(
    source: str, kind: Rows, limit: int | None, read: str | None, asked: str
) -> str | None:
    """Why training rows are not the whole set of a paper; None if they are.

    Args:
        source: The paper's set, as in `data.source`.
        kind: The kind of rows that the method reads.
        limit: The trial's `data.limit`.
        read: The trial's column `data_source`; None if missing.
        asked: The trial's `data.source`.
    """
    names = (_file(source), *_HUB_DATA.get(source, ()))
    if len(source_names(asked)) > 1:
        return f"training rows: {asked}, one source per batch; the paper's are all of {names[0]}"
    # A partial file is refused under the name of a whole set; but there are two wiki sets.
    files = read or (names[0] if asked == source and source != "wiki" else asked)
    whole = _rows_of(source, kind)
    if files in names and (limit is None or (whole is not None and limit >= whole)):
        return None
    part = ", a partial set" if any(mark in files for mark in _PARTS) else ""
    first = "" if limit is None else f"the first {limit:,} rows of "
    return f"training rows: {first}{files}{part}; the paper's are all of {names[0]}"


def _file(source: str) -> str:
    if source == "sts-b":
        return "STSBenchmark/sts-train.csv"
    return " + ".join(SOURCES[part][0] for part in JOINED.get(source, (source,)))


def _rows_of(source: str, kind: Rows) -> int | None:
    """The number of rows of a kind in a whole set; None if unknown."""
    if source == "nli":
        return {"positive_pairs": NLI_ENTAILED}.get(kind)
    if source == "sts-b":
        return STS_FILES["STS-B", "train"][1]
    return WHOLE[source] if kind in ("labeled_pairs", "sentences") else None
