"""Embeddings of a frozen encoder on disk, each sentence encoded once a machine.

Each encoder has a folder of safetensors files with sentence digests and embeddings. The encoder's
weights, pooling and longest input identify it, with the kind of device, the precision and the
libraries' versions. Files are only added, complete, under a lock. They are memory-mapped, so that
all workers of a machine share one copy in memory. A file that is damaged or belongs to another
encoder is removed, and its sentences are encoded again.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tune_sentcl.errors import DataError, Fault
from tune_sentcl.model.cache_folder import CacheFolder, cache_root
from tune_sentcl.model.cache_lock import PATIENCE_S, Renew, Work
from tune_sentcl.shapes import EmbeddingMatrix

Encode = Callable[[Sequence[str]], EmbeddingMatrix]
Digests = NDArray[Any]
"""`_DIGEST` bytes each; Any, because beartype knows numpy.bytes_ without a length alone."""

_FORMAT = 1
_DIGEST = 16
_WORK = Work("embedding cache", "embeddings", "encoded")
_CHUNK = 65_536  # sentences a file: the most that a killed pass loses

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Part:
    """One file: its sentences' digests, the order that sorts them, and their embeddings."""

    digests: Digests
    order: NDArray[np.int64]
    embeddings: Tensor


@dataclass
class EmbeddingCache:
    """The embeddings of one frozen encoder.

    Attributes:
        identity: Everything that the embeddings depend on, such as the checkpoint's fingerprint.
        root: The folder of all caches.
        patience: Seconds without progress of another process before this one stops waiting for it.
        encoded: Sentences that `locate` has encoded so far.
        seconds: The time of that, including waits for other processes.
        notes: Lines for people, about repaired files and long waits.
    """

    identity: dict[str, str | int]
    root: Path = field(default_factory=cache_root)
    patience: float = PATIENCE_S
    encoded: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        identity = {"format": _FORMAT, **self.identity}
        self._cache_folder = CacheFolder(_WORK, identity, self.root, self.patience, self.notes)
        self.folder = self._cache_folder.path
        self._parts: dict[str, _Part] = {}
        self._renew: Renew | None = None
        self._before = self._wanted = 0

    def locate(self, sentences: Sequence[str], encode: Encode) -> NDArray[np.int64]:
        """Find sentences; the first process that misses some encodes them.

        Args:
            sentences: At least one; they may repeat.
            encode: The encoder; called with missing sentences alone.

        Returns:
            The number of each sentence for `take`, valid in this object.

        Raises:
            DataError: A sentence is not Unicode text.
            ResourceError: The folder cannot be read or written, or another process holds its lock
                without progress.
        """
        digests = _digests(sentences)
        self._read()
        numbers = self._find(digests)
        if (numbers < 0).any():
            self._fill(sentences, digests, encode)
            numbers = self._find(digests)
            if (numbers < 0).any():
                raise self._cache_folder.fault("the files disappeared after they were written")
        return numbers

    def missing(self, sentences: Sequence[str]) -> list[str]:
        """The sentences among the given ones that the cache lacks; encodes none of them.

        Raises:
            DataError: A sentence is not Unicode text.
            ResourceError: The folder cannot be read.
        """
        self._read()
        found = self._find(_digests(sentences))
        return [sentences[row] for row in np.flatnonzero(found < 0).tolist()]

    def take(self, numbers: NDArray[np.int64]) -> EmbeddingMatrix:
        """Copy the embeddings of some numbers of `locate` from the memory map, one row each."""
        parts = list(self._parts.values())
        matrix = np.empty((len(numbers), parts[0].embeddings.shape[1]), dtype=np.float32)
        start = 0
        for part in parts:
            own = np.flatnonzero((numbers >= start) & (numbers < start + len(part.digests)))
            matrix[own] = part.embeddings[torch.from_numpy(numbers[own] - start)].numpy()
            start += len(part.digests)
        return matrix

    def progress(self, done: int, total: int) -> None:
        """Show waiting processes that `encode` makes progress; to be called with each batch."""
        if self._renew is not None:
            self._renew(self._before + done, self._wanted)

    def _fill(self, sentences: Sequence[str], digests: Digests, encode: Encode) -> None:
        start = time.perf_counter()
        with self._cache_folder.locked() as self._renew:
            self._read()  # another process may have written while this one waited
            missing = np.flatnonzero(self._find(digests) < 0)
            # In the order of their digests, so that a file's digests are quick to sort.
            distinct = missing[np.unique(digests[missing], return_index=True)[1]]
            for first in range(0, len(distinct), _CHUNK):
                chosen = distinct[first : first + _CHUNK]
                self._before, self._wanted = first, len(distinct)
                self.progress(0, len(chosen))
                matrix = encode([sentences[row] for row in chosen])
                with self._cache_folder.explained():
                    self._write(digests[chosen], matrix)
                self.encoded += len(chosen)
            self._read()
        self.seconds += time.perf_counter() - start
        if len(missing):
            _log.info("encoded %d sentences in %.1f s", self.encoded, self.seconds)

    def _write(self, digests: Digests, matrix: EmbeddingMatrix) -> None:
        names = digests.view(np.uint8).reshape(-1, _DIGEST)
        name = hashlib.sha256(names.tobytes()).hexdigest()[:16]
        tensors = {"digests": torch.from_numpy(names), "embeddings": torch.from_numpy(matrix)}
        self._cache_folder.write(name, tensors)

    def _read(self) -> None:
        """Map every new file; remove damaged ones."""
        for path in sorted(self.folder.glob("[!.]*.safetensors")):
            if path.name in self._parts:
                continue
            part = self._cache_folder.usable(path, self._open)
            if part is not None:
                self._parts[path.name] = part

    def _open(self, path: Path) -> _Part:
        tensors = self._cache_folder.read(path, "encoder")
        if {"digests", "embeddings"} - tensors.keys():
            raise ValueError("it lacks one embedding for each sentence")
        names = np.ascontiguousarray(tensors["digests"].numpy())
        embeddings = tensors["embeddings"]
        if embeddings.ndim != 2 or names.shape != (len(embeddings), _DIGEST) or not len(names):
            raise ValueError("it lacks one embedding for each sentence")
        digests = names.view(f"S{_DIGEST}").ravel()
        return _Part(digests, np.argsort(digests, kind="stable"), embeddings)

    def _find(self, digests: Digests) -> NDArray[np.int64]:
        """The number of each digest, counted over the files in the order of reading; else -1."""
        numbers = np.full(len(digests), -1, dtype=np.int64)
        start = 0
        for part in self._parts.values():
            found_at = np.searchsorted(part.digests, digests, sorter=part.order)
            rows = part.order[found_at.clip(max=len(part.order) - 1)]
            found = part.digests[rows] == digests
            numbers[found] = start + rows[found]
            start += len(part.digests)
        return numbers


def _digests(sentences: Sequence[str]) -> Digests:
    found = (hashlib.blake2b(_bytes(s), digest_size=_DIGEST).digest() for s in sentences)
    return np.frombuffer(b"".join(found), dtype=f"S{_DIGEST}")


def _bytes(sentence: str) -> bytes:
    try:
        return sentence.encode()
    except UnicodeEncodeError:
        rule = "a sentence must be Unicode text, but this one holds half of a surrogate pair"
        shown = ascii(sentence)[:80]
        raise DataError(Fault("sentence", "", shown, rule, "Correct its file.")) from None
