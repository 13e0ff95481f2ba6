"""Embeddings of a frozen encoder on disk, each sentence encoded once a machine.

One folder an encoder (its weights, pooling and longest input, and what computes: the kind of
device, its precision, and the libraries' versions); in it, safetensors files of
sentence digests and their embeddings. Files are only ever added, whole, under a lock, and read by
memory map, so that all workers of a machine share one copy in memory. What is damaged, or belongs
to another encoder, is put aside and encoded again.
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
Digests = NDArray[
    Any
]  # of `_DIGEST` bytes each; beartype knows numpy.bytes_ without a length only

_FORMAT = 1
_DIGEST = 16
_WORK = Work("embedding cache", "embeddings", "encoded")
_CHUNK = 65_536  # sentences a file: what is lost at most when a long pass is killed

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Part:
    """One file: its sentences' digests, the order that sorts them, and an embedding for each."""

    digests: Digests
    order: NDArray[np.int64]
    embeddings: Tensor


@dataclass
class EmbeddingCache:
    """The embeddings of one frozen encoder.

    Attributes:
        identity: What the embeddings depend on, such as the checkpoint's fingerprint and pooling.
        root: The folder of all caches.
        patience: Seconds that another worker's pass may show no life while this one waits for it.
        encoded: Sentences that `rows` has had to encode so far.
        seconds: Time that this took, the wait for another worker's pass included.
        notes: What was found wrong and mended, and who was waited for, for people.
    """

    identity: dict[str, str | int]
    root: Path = field(default_factory=cache_root)
    patience: float = PATIENCE_S
    encoded: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        identity = {"format": _FORMAT, **self.identity}
        self._place = CacheFolder(_WORK, identity, self.root, self.patience, self.notes)
        self.folder = self._place.path
        self._parts: dict[str, _Part] = {}
        self._renew: Renew | None = None
        self._before = self._wanted = 0

    def locate(self, sentences: Sequence[str], encode: Encode) -> NDArray[np.int64]:
        """Find sentences; those that are not there are encoded first, by whoever comes first.

        Args:
            sentences: At least one; repeats are welcome.
            encode: The encoder; called only where something is missing.

        Returns:
            For each sentence the number that `take` knows it by, in this object.

        Raises:
            DataError: A sentence is no Unicode text.
            ResourceError: The folder cannot be read, what is missing cannot be kept there, or the
                worker who is at it shows no life.
        """
        digests = _digests(sentences)
        self._read()
        numbers = self._find(digests)
        if (numbers < 0).any():
            self._fill(sentences, digests, encode)
            numbers = self._find(digests)
            if (numbers < 0).any():
                raise self._place.fault("the files were gone as soon as they had been written")
        return numbers

    def missing(self, sentences: Sequence[str]) -> list[str]:
        """Those of some sentences that nobody has encoded yet; encodes none.

        Raises:
            DataError: A sentence is no Unicode text.
            ResourceError: The folder cannot be read.
        """
        self._read()
        found = self._find(_digests(sentences))
        return [sentences[row] for row in np.flatnonzero(found < 0).tolist()]

    def take(self, numbers: NDArray[np.int64]) -> EmbeddingMatrix:
        """Read embeddings from the memory map.

        Args:
            numbers: From `locate`.

        Returns:
            A row each, a copy.
        """
        parts = list(self._parts.values())
        matrix = np.empty((len(numbers), parts[0].embeddings.shape[1]), dtype=np.float32)
        start = 0
        for part in parts:
            own = np.flatnonzero((numbers >= start) & (numbers < start + len(part.digests)))
            matrix[own] = part.embeddings[torch.from_numpy(numbers[own] - start)].numpy()
            start += len(part.digests)
        return matrix

    def progress(self, done: int, total: int) -> None:
        """Show those who wait that `encode` goes on; it should call this with each batch."""
        if self._renew is not None:
            self._renew(self._before + done, self._wanted)

    def _fill(self, sentences: Sequence[str], digests: Digests, encode: Encode) -> None:
        start = time.perf_counter()
        with self._place.locked() as self._renew:
            self._read()  # another worker may have been here while this one waited
            missing = np.flatnonzero(self._find(digests) < 0)
            # In the order of their digests, which makes a file's digests quick to sort.
            distinct = missing[np.unique(digests[missing], return_index=True)[1]]
            for first in range(0, len(distinct), _CHUNK):
                chosen = distinct[first : first + _CHUNK]
                self._before, self._wanted = first, len(distinct)
                self.progress(0, len(chosen))
                matrix = encode([sentences[row] for row in chosen])
                with self._place.explained():
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
        self._place.write(name, tensors)

    def _read(self) -> None:
        """Map every file that has come since the last time; mend what is damaged."""
        for path in sorted(self.folder.glob("[!.]*.safetensors")):
            if path.name in self._parts:
                continue
            part = self._place.usable(path, self._open)
            if part is not None:
                self._parts[path.name] = part

    def _open(self, path: Path) -> _Part:
        tensors = self._place.read(path, "encoder")
        if {"digests", "embeddings"} - tensors.keys():
            raise ValueError("it has not one embedding a sentence")
        names = np.ascontiguousarray(tensors["digests"].numpy())
        embeddings = tensors["embeddings"]
        if embeddings.ndim != 2 or names.shape != (len(embeddings), _DIGEST) or not len(names):
            raise ValueError("it has not one embedding a sentence")
        digests = names.view(f"S{_DIGEST}").ravel()
        return _Part(digests, np.argsort(digests, kind="stable"), embeddings)

    def _find(self, digests: Digests) -> NDArray[np.int64]:
        """The number of each digest, counted over the files in the order they were read; or -1."""
        numbers = np.full(len(digests), -1, dtype=np.int64)
        start = 0
        for part in self._parts.values():
            place = np.searchsorted(part.digests, digests, sorter=part.order)
            rows = part.order[place.clip(max=len(part.order) - 1)]
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
        rule = "a sentence must be Unicode text, and this one holds half of a surrogate pair"
        shown = ascii(sentence)[:80]
        raise DataError(Fault("sentence", "", shown, rule, "Correct its file.")) from None
