"""The interface of a model to evaluate, and a table of its embeddings."""

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tune_sentcl.errors import NonFiniteError
from tune_sentcl.shapes import EmbeddingMatrix

Encode = Callable[..., EmbeddingMatrix]
"""Maps a list of sentences to one float32 row each. Only retrieval and MTEB's tasks call it with
`prompt="query"` and `prompt="document"`, so a model for other tasks needs no such keyword.
"""


FEW_ZEROS = 0.001
"""The largest share of sentences that may have the zero vector; more means a collapsed model."""


class SentenceTable:
    """The embeddings of all distinct sentences of some tasks, by one call of `encode` per prompt.

    Tasks share sentences (STS-B is drawn from STS12 to STS17). One call lets the encoder batch
    sentences of similar length.

    Attributes:
        encode: The model, for tasks that call it directly (MTEB).
        queries: The table of the queries, which an encoder may embed differently from texts;
            missing if there are no queries.
        documents: The table of the documents; missing if there are no documents.
    """

    queries: "SentenceTable"
    documents: "SentenceTable"

    def __init__(
        self,
        encode: Encode,
        sentences: Iterable[str],
        queries: Iterable[str] = (),
        documents: Iterable[str] = (),
    ) -> None:
        """Encode all sentences, queries and documents, which may repeat.

        Raises:
            ValueError: `encode` did not return one float32 row per sentence.
        """
        distinct = list(dict.fromkeys(sentences))
        self.encode = encode
        self._rows = {sentence: row for row, sentence in enumerate(distinct)}
        self._matrix = np.empty((0, 0), np.float32)
        if distinct:
            self._matrix = _checked(encode(distinct), len(distinct))
        if asked := list(queries):
            self.queries = SentenceTable(partial(encode, prompt="query"), asked)
        if texts := list(documents):
            self.documents = SentenceTable(partial(encode, prompt="document"), texts)

    def cut(self, width: int) -> "SentenceTable":
        """The table of the embeddings cut to their first `width` numbers."""
        table = copy.copy(self)
        table._matrix = np.ascontiguousarray(self._matrix[:, :width])
        if hasattr(self, "queries"):
            table.queries = self.queries.cut(width)
            table.documents = self.documents.cut(width)
        return table

    def __len__(self) -> int:
        return len(self._rows)

    def zeros(self, sentences: Iterable[str]) -> int:
        """How many of these sentences, without repeats, have the zero vector."""
        rows = [self._rows[sentence] for sentence in set(sentences)]
        return int((~self._matrix[rows].any(axis=1)).sum())

    def rows(self, sentences: Sequence[str], task: str) -> EmbeddingMatrix:
        """Look up the embeddings of sentences, one row each; `task` is named in errors.

        Raises:
            KeyError: A sentence was not encoded.
            NonFiniteError: An embedding holds NaN or infinity; the error names the first sentence.
        """
        matrix = self._matrix[[self._rows[sentence] for sentence in sentences]]
        bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if bad.size:
            raise NonFiniteError(
                f"{task}: {bad.size} of {len(matrix)} embeddings are not finite; the first is "
                f"that of {sentences[bad[0]]!r}"
            )
        return matrix


def _checked(matrix: NDArray[np.generic], count: int) -> EmbeddingMatrix:
    if matrix.ndim != 2 or len(matrix) != count:
        raise ValueError(
            f"encode gave an array of shape {matrix.shape} for {count} sentences, "
            f"but must give one row per sentence"
        )
    if matrix.dtype != np.float32:
        raise ValueError(f"encode gave {matrix.dtype}, but must give float32")
    return matrix
