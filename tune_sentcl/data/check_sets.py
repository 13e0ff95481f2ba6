"""What a whole data root holds: each set's files, and how their rows are counted."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tune_sentcl.data.rows.files import read_table
from tune_sentcl.data.rows.labeled_pairs import labelled_rows
from tune_sentcl.data.tables import Origin
from tune_sentcl.data.task import StsSubset
from tune_sentcl.data.tasks.sts import STS_FILES, STS_SUBSETS
from tune_sentcl.data.tasks.sts_files import read_two_files
from tune_sentcl.data.tasks.transfer import TASKS, TransferFile
from tune_sentcl.data.text import read_lines
from tune_sentcl.errors import DataError, Fault


@dataclass(frozen=True)
class Part:
    """One file of a set.

    Attributes:
        path: Below the data root.
        rows: How many it must have.
        count: Counts them; raises DataError where the file is damaged.
        optional: Whether the set is whole without it.
        truncated: How many rows macOS `sed` leaves of it; None where it leaves all.
    """

    path: str
    rows: int
    count: Callable[[Path], int]
    optional: bool = False
    truncated: int | None = None


def _synsets(path: Path) -> int:
    # The license at the head of each list is indented by two spaces.
    return sum(not line.startswith("  ") for line in read_lines(path, "utf-8"))


def _labelled(path: Path) -> int:
    return int(labelled_rows(read_table(path), None, Origin(str(path), path)).num_rows)


def _parquet_rows(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        rule = f"the file cannot be read as Parquet ({type(error).__name__})"
        raise DataError(Fault(str(path), "", "", rule, "Copy the file again.")) from None


def _sts_rows(path: Path, expected: int) -> int:
    subset = path.name.removeprefix("STS.input.").removesuffix(".txt")
    return len(read_two_files(path.parent, subset, expected))


def _yearly(name: str) -> tuple[Part, ...]:
    folder = f"downstream/STS/{name}-en-test"
    return tuple(
        Part(f"{folder}/STS.input.{subset}.txt", rows, partial(_sts_rows, expected=rows))
        for subset, rows in STS_SUBSETS[name].items()
    )


def _splits(name: str) -> tuple[Part, ...]:
    """The parts of STS-B or SICK; only `relatedness` reads their training split."""
    return tuple(
        Part(f"downstream/{file}", rows, _pairs_of(read, rows), optional=split == "train")
        for (task, split), (file, rows, read) in STS_FILES.items()
        if task == name
    )


def _pairs_of(read: Callable[[Path, int], StsSubset], expected: int) -> Callable[[Path], int]:
    return lambda path: len(read(path, expected))


def _transfer(name: str) -> tuple[Part, ...]:
    return tuple(
        Part(f"downstream/{file.path}", file.rows, _rows_of(file), truncated=file.truncated)
        for files in TASKS[name].values()
        for file in files
    )


def _rows_of(file: TransferFile) -> Callable[[Path], int]:
    return lambda path: len(file.read(path))


def _nli(name: str, rows: int, optional: bool = False) -> Part:
    return Part(f"nli/{name}.parquet", rows, _labelled, optional)


def _wordnet(kind: str, rows: int) -> Part:
    return Part(f"wordnet/nltk_data/corpora/wordnet/data.{kind}", rows, _synsets)


SETS: dict[str, tuple[Part, ...]] = {
    **{name: _yearly(name) for name in STS_SUBSETS},
    "STS-B": _splits("STS-B"),
    "SICK": _splits("SICK-R"),
    **{name: _transfer(name) for name in TASKS if name != "SICK-E"},  # SICK's files are above
    "SNLI": (
        _nli("snli_train", 549367, optional=True),
        _nli("snli_train_partial", 92613, optional=True),
    ),
    "SNLI, first 2000": (_nli("snli_train_first2000", 2000),),
    "SNLI dev": (_nli("snli_dev", 9842),),
    "SNLI test": (_nli("snli_test", 9824),),
    "MultiNLI": (
        _nli("mnli_train", 392702, optional=True),
        _nli("mnli_train_partial", 19219, optional=True),
    ),
    "MultiNLI dev": (_nli("mnli_dev_partial", 9561),),
    "Counterfactual NLI": (
        _nli("cad_nli_train", 8330),
        _nli("cad_nli_dev", 1000),
        _nli("cad_nli_test", 2000),
    ),
    "Wikipedia": (Part("wiki/enwiki_2015_sentences_1m.parquet", 1000000, _parquet_rows),),
    "WordNet": (
        _wordnet("noun", 82115),
        _wordnet("verb", 13767),
        _wordnet("adj", 18156),
        _wordnet("adv", 3621),
    ),
}
"""The files of every set. Where all are optional, any one of them will do."""
