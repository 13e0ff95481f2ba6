"""The other processes of the cache's tests. Each prints a line whenever it has done a thing."""

import sys
from collections.abc import Callable, Sequence

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


def _say(done: object) -> None:
    sys.stdout.write(f"{done}\n")
    sys.stdout.flush()


def fill(count: str) -> None:
    """Look sentences up as soon as a line comes in."""
    cache = EmbeddingCache(IDENTITY)
    _say("ready")
    sys.stdin.readline()
    numbers = cache.locate(texts(int(count)), embed)
    assert np.array_equal(cache.take(numbers), embed(texts(int(count))))
    _say(cache.encoded)


def many_files(count: str) -> None:
    """Write files of four sentences each, large enough that a kill may hit in the middle."""
    embedding_cache._CHUNK = 4

    def wide(sentences: Sequence[str]) -> EmbeddingMatrix:
        _say(len(sentences))
        return embed(sentences, WIDE)

    EmbeddingCache(IDENTITY).locate(texts(int(count)), wide)


PARTS: dict[str, Callable[[str], None]] = {"fill": fill, "many_files": many_files}


if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
