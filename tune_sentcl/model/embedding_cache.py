"""Embeddings of a frozen encoder on disk, each sentence encoded once per machine.

A file holds the sorted digests of its sentences and their embeddings; it appears whole or not at
all. All workers share one memory map. One process at a time writes the files of an encoder; others
wait for its lock, which the operating system releases when the process ends.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from tune_sentcl.errors import Fault, ResourceError, first_line
from tune_sentcl.shapes import EmbeddingMatrix

Encode = Callable[[Sequence[str]], EmbeddingMatrix]
# Arrays of bytes; the annotation is Any, because beartype rejects numpy.bytes_ with a length.
Digests = NDArray[Any]

_CHUNK = 65_536  # sentences per file; a killed process loses at most this many
_log = logging.getLogger(__name__)


def cache_root() -> Path:
    """The folder of all files: TUNE_SENTCL_CACHE, else a folder in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("TUNE_SENTCL_CACHE") or f"{home}/tune_sentcl").expanduser()


class EmbeddingCache:
    """The embeddings of one frozen encoder.

    Its methods raise ResourceError if the folder cannot be read or written, and UnicodeEncodeError
    if a sentence holds half of a surrogate pair.

    Attributes:
        encoded: The number of sentences that `locate` has encoded so far.
        seconds: The seconds that `locate` took to encode them, including waits for other
            processes.
    """

    def __init__(self, identity: Mapping[str, str | int]) -> None:
        """Name the files by `identity`, which holds everything that the embeddings depend on."""
        key = json.dumps(dict(identity), sort_keys=True)
        self._stem = f"embeddings-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        self._root = cache_root()
        self._parts: dict[Path, tuple[Digests, EmbeddingMatrix]] = {}
        self.encoded, self.seconds = 0, 0.0

    def locate(self, sentences: Sequence[str], encode: Encode) -> NDArray[np.int64]:
        """Find sentences in the cache; encode those that it lacks.

        Args:
            sentences: At least one; they may repeat.
            encode: The encoder; called only with missing sentences.

        Returns:
            The number of each sentence for `take`, valid for this object.
        """
        digests = _digests(sentences)
        numbers = self._find(digests)
        if (numbers < 0).any():
            start = time.perf_counter()
            with self._locked():
                # Another process may have written some of them while this one waited for the lock.
                missing = np.flatnonzero(self._find(digests) < 0)
                # The digests of a file are sorted, because `_find` searches them by bisection.
                distinct = missing[np.unique(digests[missing], return_index=True)[1]]
                for first in range(0, len(distinct), _CHUNK):
                    chosen = distinct[first : first + _CHUNK]
                    matrix = encode([sentences[row] for row in chosen])
                    self._write(digests[chosen], matrix)
                    self.encoded += len(chosen)
            numbers = self._find(digests)
            self.seconds += time.perf_counter() - start
        return numbers

    def missing(self, sentences: Sequence[str]) -> list[str]:
        """The given sentences that the cache lacks; encodes nothing."""
        numbers = self._find(_digests(sentences))
        return [sentences[row] for row in np.flatnonzero(numbers < 0).tolist()]

    def take(self, numbers: NDArray[np.int64]) -> EmbeddingMatrix:
        """Copy the embeddings of these numbers of `locate` from the memory map, a row each."""
        parts = [embeddings for _, embeddings in self._parts.values()]
        matrix = np.empty((len(numbers), parts[0].shape[1]), dtype=np.float32)
        start = 0
        for part in parts:
            own = np.flatnonzero((numbers >= start) & (numbers < start + len(part)))
            matrix[own] = part[numbers[own] - start]
            start += len(part)
        return matrix

    def _find(self, digests: Digests) -> NDArray[np.int64]:
        """The number of each digest, counted over the files as they were read; -1 if missing."""
        self._read_others()
        numbers = np.full(len(digests), -1, dtype=np.int64)
        start = 0
        for known, _ in self._parts.values():
            rows = np.searchsorted(known, digests).clip(max=len(known) - 1)
            equal = known[rows] == digests
            numbers[equal] = start + rows[equal]
            start += len(known)
        return numbers

    def _read_others(self) -> None:
        """Map the files that other processes wrote; delete damaged files."""
        for path in sorted({*self._root.glob(f"{self._stem}.*.arrow")}.difference(self._parts)):
            with self._explained():
                try:
                    self._parts[path] = _mapped(path)
                except (pa.ArrowException, OSError) as error:
                    if getattr(error, "errno", None):
                        # An error with an errno comes from the system; the file may be undamaged.
                        raise
                    _log.warning(
                        "%s is damaged (%s) and is computed again", path, first_line(error)
                    )
                    path.unlink(missing_ok=True)

    def _write(self, digests: Digests, matrix: EmbeddingMatrix) -> None:
        path = self._root / f"{self._stem}.{uuid4().hex}.arrow"
        scratch = path.with_name(f".{path.name}")
        arrays = (digests.view(np.uint8), matrix.ravel())
        rows = [pa.LargeListArray.from_arrays([0, len(array)], array) for array in arrays]
        table = pa.table(rows, names=["digests", "embeddings"])
        try:
            with self._explained():
                with scratch.open("wb") as file:
                    with pa.ipc.new_file(file, table.schema) as writer:
                        writer.write_table(table)
                    os.fsync(file.fileno())
                part = _mapped(scratch)
                scratch.rename(path)
        finally:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
        self._parts[path] = part

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the encoder's files; remove unfinished files of killed processes."""
        lock = FileLock(self._root / f"{self._stem}.lock")
        with self._explained():
            self._root.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                _log.warning("waiting for another process that computes %s", self._stem)
                lock.acquire()
            for left in self._root.glob(f".{self._stem}.*"):
                left.unlink(missing_ok=True)
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, NotImplementedError) as error:
            # Some file systems do not support locks.
            rule = f"must be a folder that can be read and written ({first_line(error)})"
            move = "Set TUNE_SENTCL_CACHE to a folder with free disk space."
            raise ResourceError(
                Fault("cache", value=str(self._root), rule=rule, move=move)
            ) from None


def _mapped(path: Path) -> tuple[Digests, EmbeddingMatrix]:
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    table.validate()
    digests, embeddings = (table[name].chunk(0).values.to_numpy() for name in table.column_names)
    digests = digests.view("S16")
    return digests, embeddings.reshape(len(digests), -1)


def _digests(sentences: Sequence[str]) -> Digests:
    digests = (hashlib.blake2b(s.encode(), digest_size=16).digest() for s in sentences)
    return np.frombuffer(b"".join(digests), dtype="S16")
