"""A process that fills the cache of embeddings until it is killed, and what its encoder says."""

import sys
from collections.abc import Sequence

import numpy as np

from tune_sentcl.model import embedding_cache
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.shapes import EmbeddingMatrix

IDENTITY: dict[str, str | int] = {"checkpoint": "made up", "max_length": 8}
WIDE = 3 * 2**14


def embed(sentences: Sequence[str], width: int = 3) -> EmbeddingMatrix:
    """An encoder of three numbers, so that every right row is known."""
    rows = [(len(text), sum(map(ord, text)), text.count("n")) for text in sentences]
    return np.tile(np.array(rows, dtype=np.float32), (1, width // 3))


def texts(count: int) -> list[str]:
    return [f"sentence number {row}" for row in range(count)]


def _wide(sentences: Sequence[str]) -> EmbeddingMatrix:
    sys.stdout.write(f"{len(sentences)}\n")
    sys.stdout.flush()
    return embed(sentences, WIDE)


if __name__ == "__main__":
    embedding_cache._CHUNK = 4  # files of four sentences, so large that a kill may cut one
    EmbeddingCache(IDENTITY).locate(texts(400), _wide)
