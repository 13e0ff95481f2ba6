"""What evaluation knows of a model, and a table of the sentences that it has encoded."""

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tune_sentcl.errors import NonFiniteError
from tune_sentcl.shapes import EmbeddingMatrix

Encode = Callable[..., EmbeddingMatrix]
"""Sentences, a list of them, to one float32 row each, in their order. Called with `query=True` for
the queries of retrieval, and for nothing else: what is scored on other tasks may lack the keyword.
"""


FEW_ZEROS = 0.001
"""The share of sentences that may have the zero vector: more than that is a collapse."""


class SentenceTable:
    """The embeddings of every distinct sentence of some tasks, from one call of `encode`.

    Tasks share sentences (STS-B is drawn from STS12 to STS17), and one call lets the encoder put
    those of like length together.

    Attributes:
        encode: The model, for tasks that bring texts of their own.
        queries: A table of those that ask, which an encoder may embed otherwise than texts; only
            where there are some.
    """

    queries: "SentenceTable"

    def __init__(
        self, encode: Encode, sentences: Iterable[str], queries: Iterable[str] = ()
    ) -> None:
        """Encode.

        Args:
            encode: The model.
            sentences: Repeats are welcome.
            queries: Likewise.

        Raises:
            ValueError: `encode` gave something other than one float32 row a sentence.
        """
        distinct = list(dict.fromkeys(sentences))
        self.encode = encode
        self._rows = {sentence: row for row, sentence in enumerate(distinct)}
        self._matrix = _checked(encode(distinct), len(distinct))
        asked = list(dict.fromkeys(queries))
        if asked:
            self.queries = SentenceTable(partial(encode, query=True), asked)

    def cut(self, width: int) -> "SentenceTable":
        """The same sentences by so many first numbers of their embeddings."""
        found = copy.copy(self)
        found._matrix = np.ascontiguousarray(self._matrix[:, :width])
        if hasattr(self, "queries"):
            found.queries = self.queries.cut(width)
        return found

    def __len__(self) -> int:
        """How many distinct sentences there are."""
        return len(self._rows)

    def zeros(self, sentences: Iterable[str]) -> int:
        """How many distinct ones of some sentences have the zero vector."""
        rows = [self._rows[sentence] for sentence in set(sentences)]
        return int((~self._matrix[rows].any(axis=1)).sum())

    def rows(self, sentences: Sequence[str], task: str) -> EmbeddingMatrix:
        """Look sentences up.

        Args:
            sentences: From those given at the start.
            task: What they are for, for the message.

        Returns:
            One row a sentence, in their order.

        Raises:
            KeyError: A sentence was not encoded.
            NonFiniteError: An embedding holds NaN or infinity; names the first such sentence.
        """
        matrix = self._matrix[[self._rows[sentence] for sentence in sentences]]
        bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if bad.size:
            raise NonFiniteError(
                f"{task}: the embedding of {sentences[bad[0]]!r} is not finite, nor those of "
                f"{bad.size - 1} other sentences"
            )
        return matrix


def _checked(matrix: NDArray[np.generic], count: int) -> EmbeddingMatrix:
    if matrix.ndim != 2 or len(matrix) != count:
        raise ValueError(
            f"encode gave an array of shape {matrix.shape} for {count} sentences, "
            f"but must give one row a sentence"
        )
    if matrix.dtype != np.float32:
        raise ValueError(f"encode gave {matrix.dtype}, but must give float32")
    return matrix
