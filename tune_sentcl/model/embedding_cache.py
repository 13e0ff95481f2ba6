"""Embeddings of a frozen encoder on disk, each sentence encoded once a machine.

A file has the sorted digests of its sentences, and their embeddings. All workers share one map.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tune_sentcl.model.cache_files import Arrays, CacheFiles
from tune_sentcl.shapes import EmbeddingMatrix

Encode = Callable[[Sequence[str]], EmbeddingMatrix]
Digests = NDArray[Any]  # bytes; beartype knows numpy.bytes_ without a length alone

_CHUNK = 65_536  # sentences a file: the most that a killed pass loses


class EmbeddingCache:
    """The embeddings of one frozen encoder.

    A method raises ResourceError if the folder cannot be read or written, and UnicodeEncodeError
    if a sentence holds half of a surrogate pair.

    Attributes:
        encoded: Sentences that `locate` has encoded so far.
        seconds: The time of that, including waits for other processes.
    """

    def __init__(self, identity: Mapping[str, str | int]) -> None:
        """Open nothing yet; `identity` is everything that the embeddings depend on."""
        self._files = CacheFiles("embeddings", identity)
        self._parts: dict[Path, tuple[Digests, EmbeddingMatrix]] = {}
        self.encoded, self.seconds = 0, 0.0

    def locate(self, sentences: Sequence[str], encode: Encode) -> NDArray[np.int64]:
        """Find sentences; the first process that misses some encodes them.

        Args:
            sentences: At least one; they may repeat.
            encode: The encoder; called with missing sentences alone.

        Returns:
            The number of each sentence for `take`, valid in this object.
        """
        digests = _digests(sentences)
        numbers = self._find(digests)
        if (numbers < 0).any():
            start = time.perf_counter()
            with self._files.locked():
                missing = np.flatnonzero(self._find(digests) < 0)  # others may have written
                # In the order of their digests, so that a search finds them in a file.
                distinct = missing[np.unique(digests[missing], return_index=True)[1]]
                for first in range(0, len(distinct), _CHUNK):
                    chosen = distinct[first : first + _CHUNK]
                    matrix = encode([sentences[row] for row in chosen])
                    names = digests[chosen].view(np.uint8)
                    arrays = {"digests": names, "embeddings": matrix.ravel()}
                    self._add(*self._files.write(arrays))
                    self.encoded += len(chosen)
            numbers = self._find(digests)
            self.seconds += time.perf_counter() - start
        return numbers

    def missing(self, sentences: Sequence[str]) -> list[str]:
        """The sentences among the given ones that the cache lacks; encodes none of them."""
        found = self._find(_digests(sentences))
        return [sentences[row] for row in np.flatnonzero(found < 0).tolist()]

    def take(self, numbers: NDArray[np.int64]) -> EmbeddingMatrix:
        """Copy the embeddings of some numbers of `locate` from the memory map, one row each."""
        parts = [embeddings for _, embeddings in self._parts.values()]
        matrix = np.empty((len(numbers), parts[0].shape[1]), dtype=np.float32)
        start = 0
        for part in parts:
            own = np.flatnonzero((numbers >= start) & (numbers < start + len(part)))
            matrix[own] = part[numbers[own] - start]
            start += len(part)
        return matrix

    def _find(self, digests: Digests) -> NDArray[np.int64]:
        """The number of each digest, counted over the files in the order of reading; else -1."""
        for path, arrays in self._files.read(self._parts):
            self._add(path, arrays)
        numbers = np.full(len(digests), -1, dtype=np.int64)
        start = 0
        for known, _ in self._parts.values():
            rows = np.searchsorted(known, digests).clip(max=len(known) - 1)
            found = known[rows] == digests
            numbers[found] = start + rows[found]
            start += len(known)
        return numbers

    def _add(self, path: Path, arrays: Arrays) -> None:
        digests = arrays["digests"].view("S16")
        self._parts[path] = digests, arrays["embeddings"].reshape(len(digests), -1)


def _digests(sentences: Sequence[str]) -> Digests:
    found = (hashlib.blake2b(s.encode(), digest_size=16).digest() for s in sentences)
    return np.frombuffer(b"".join(found), dtype="S16")
