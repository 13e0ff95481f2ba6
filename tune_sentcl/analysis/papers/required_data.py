"""The data and the encoders of the papers, as a study's rows name them."""

import functools
from pathlib import PurePosixPath

from tune_sentcl.config import Rows, source_names
from tune_sentcl.data.rows.sentences import NLI_ENTAILED
from tune_sentcl.data.rows.sources import JOINED, SOURCES, WHOLE
from tune_sentcl.data.tasks.sts_data import STS_FILES, STS_SUBSETS
from tune_sentcl.data.tasks.transfer_data import TASKS

_HUB_DATA = {"snli": ("stanfordnlp/snli",)}
"""Hub data sets that hold the same rows."""

_HUB_ENCODERS = {
    "bert-base-uncased": ("google-bert/bert-base-uncased",),
    "bert-large-uncased": ("google-bert/bert-large-uncased",),
    "roberta-base": ("FacebookAI/roberta-base",),
}
"""The same repositories, as the hub has named them since."""

_FOLDER = ("/", "~", "./", "../")
_PARTS = ("_partial", "first2000", "-partial")


@functools.cache
def task_rows(task: str, split: str, protocol: str) -> int:
    """How many rows a paper's score of a task is of, as a score's `n` counts them.

    Raises:
        KeyError: There is no such task or split.
    """
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
    """Whether a checkpoint's name means the encoder that a paper started from.

    A folder counts by its last part, and so does a file of word vectors; a hub name counts whole,
    for anyone may call a repository so.

    Args:
        name: As a trial's config has it.
        paper: The name in the paper's space.
    """
    if name == paper or name in _HUB_ENCODERS.get(paper, ()):
        return True
    return is_folder(name) and PurePosixPath(name).name == PurePosixPath(paper).name


def is_folder(name: str) -> bool:
    """Whether a checkpoint's name is surely a place on a disk, and not one on the hub."""
    return name.startswith(_FOLDER) or name.endswith(".txt")


def is_part(read: str) -> bool:
    """Whether the files that rows were read from are parts of sets, by their names."""
    return any(mark in read for mark in _PARTS)


def lacking_rows(
    source: str, kind: Rows, limit: int | None, read: str | None, asked: str
) -> str | None:
    """What keeps training rows from being the whole of a paper's set.

    Args:
        source: The paper's set, as `data.source` names it.
        kind: What the method reads of it.
        limit: The trial's `data.limit`.
        read: Its column `data_source`; None where its row has none.
        asked: Its `data.source`.

    Returns:
        For people; None where nothing does.
    """
    names = (_file(source), *_HUB_DATA.get(source, ()))
    if len(source_names(asked)) > 1:
        return (
            f"training rows: {asked}, each batch of one of them; the paper's are all of {names[0]}"
        )
    # Under the name of a whole set a part is refused; of wiki there are two sets.
    found = read or (names[0] if asked == source and source != "wiki" else asked)
    whole = _rows_of(source, kind)
    if found in names and (limit is None or (whole is not None and limit >= whole)):
        return None
    part = ", a partial set" if is_part(found) else ""
    first = "" if limit is None else f"the first {limit:,} rows of "
    return f"training rows: {first}{found}{part}; the paper's are all of {names[0]}"


def _file(source: str) -> str:
    if source == "sts-b":
        return "STSBenchmark/sts-train.csv"
    return " + ".join(SOURCES[part][0] for part in JOINED.get(source, (source,)))


def _rows_of(source: str, kind: Rows) -> int | None:
    """How many rows of a kind a whole set has; None where that is not known."""
    if source == "nli":
        return {"positive_pairs": NLI_ENTAILED}.get(kind)
    if source == "sts-b":
        return STS_FILES["STS-B", "train"][1]
    return WHOLE[source] if kind in ("labeled_pairs", "sentences") else None
