"""Labelled sentence pairs (NLI) by name, file, folder or hub name."""

import difflib
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.nli_files import SUFFIXES, read_hub, read_saved, read_table
from tune_sentcl.data.nli_rows import LABELS, labelled_rows
from tune_sentcl.data.root import existing_root
from tune_sentcl.data.toy import toy_nli
from tune_sentcl.errors import DataError, Fault

__all__ = ["LABELS", "SOURCES", "NliCorpus", "load_nli"]

SOURCES: dict[str, tuple[str, ...]] = {
    "snli": ("nli/snli_train.parquet", "nli/snli_train_partial.parquet"),
    "snli-first2000": ("nli/snli_train_first2000.parquet",),
    "snli-dev": ("nli/snli_dev.parquet",),
    "mnli": ("nli/mnli_train.parquet", "nli/mnli_train_partial.parquet"),
}
"""The files under the data root that a name stands for; the first that exists is read."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class NliCorpus:
    """Labelled sentence pairs in file order.

    Attributes:
        table: Columns `premise: string`, `hypothesis: string` and `label: int8`; a label is the
            place in `LABELS`.
        source: Which file or data set it came from, for people.
        fingerprint: 16 hexadecimal digits over the rows in order; names and paths play no part.
    """

    table: pa.Table
    source: str
    fingerprint: str

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def premises(self) -> list[str]:
        """The first sentences, a new list at each call."""
        return list(self.table.column("premise").to_pylist())

    @property
    def hypotheses(self) -> list[str]:
        """The second sentences, a new list at each call."""
        return list(self.table.column("hypothesis").to_pylist())

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The labels, shape (rows,): 0 entailment, 1 neutral, 2 contradiction."""
        return np.asarray(self.table.column("label").to_numpy(), dtype=np.int64)


def load_nli(source: str, limit: int | None, root: Path | None) -> NliCorpus:
    """Load labelled pairs; rows without a label are dropped.

    Args:
        source: `toy`, a name in `SOURCES`, a .parquet, .csv, .tsv or .jsonl file, a folder saved
            by `datasets`, or a hub data set as `owner/name` (its `train` split).
        limit: Keep the first so many labelled rows; None keeps all.
        root: The data root; only the names in `SOURCES` read it.

    Raises:
        DataError: There is no such source, or its rows break a rule.
    """
    table, name = _open(source, root)
    rows = labelled_rows(table, limit, name)
    return NliCorpus(rows, _shown(name), _fingerprint(rows))


def _open(source: str, root: Path | None) -> tuple[pa.Table, str]:
    if source == "toy":
        return toy_nli(), "toy"
    if source in SOURCES:
        return _open_known(source, root)
    path = Path(source).expanduser()
    if path.is_dir():
        return read_saved(path), str(path)
    if path.exists() or path.suffix in SUFFIXES:
        return read_table(path), str(path)
    # Only `owner/name` is asked for on the hub: a mistyped name would wait for it in vain.
    if _HUB_NAME.fullmatch(source):
        return read_hub(source), source
    known = ["toy", *SOURCES]
    near = difflib.get_close_matches(source, known, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise DataError(
        Fault(
            where="data.source",
            key="",
            value=source,
            rule=f"neither a known source ({', '.join(known)}), a file, a folder nor the name of "
            "a hub data set (owner/name)",
            next_move=f"{hint}Give one of them.",
        )
    )


def _open_known(source: str, root: Path | None) -> tuple[pa.Table, str]:
    folder = existing_root(root, f"data.source = {source}")
    for name in SOURCES[source]:
        if (folder / name).exists():
            return read_table(folder / name), name
    raise DataError(
        Fault(
            where=str(folder),
            key="data.source",
            value=source,
            rule=f"the data root must hold {' or '.join(SOURCES[source])}",
            next_move="Copy the file there, or give another root: `--data DIR` or "
            "TUNE_SENTCL_DATA.",
        )
    )


def _shown(name: str) -> str:
    """A name that reads the same on every machine: of an absolute path, the last part."""
    return Path(name).name if Path(name).is_absolute() else name


def _fingerprint(rows: pa.Table) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name in ("premise", "hypothesis"):
        column = rows.column(name)
        # Lengths first, so that no two lists of sentences run together into the same bytes.
        lengths = pc.binary_length(column).to_numpy()
        digest.update(np.asarray(lengths, dtype="<i8").tobytes())
        for chunk in column.chunks:
            digest.update(_text_bytes(chunk))
    digest.update(np.asarray(rows.column("label").to_numpy(), dtype="<i8").tobytes())
    return digest.hexdigest()


def _text_bytes(chunk: pa.StringArray) -> memoryview:
    """The UTF-8 bytes of a chunk's sentences, one after the other, without a copy."""
    _, offset_buffer, data = chunk.buffers()
    if len(chunk) == 0 or data is None:
        return memoryview(b"")
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)
    first, last = offsets[chunk.offset], offsets[chunk.offset + len(chunk)]
    return memoryview(data)[int(first) : int(last)]
