"""The other processes of the cache's tests. Each prints a line whenever it has done a thing."""

import logging
import resource
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tune_sentcl.errors import ResourceError
from tune_sentcl.model import cache_lock, embedding_cache
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.shapes import EmbeddingMatrix

IDENTITY: dict[str, str | int] = {"checkpoint": "made up", "max_length": 8}


WIDE = 3 * 2**14
PATIENCE_S = 3.0
ROUND_S = 0.01


def embed(sentences: Sequence[str], width: int = 3) -> EmbeddingMatrix:
    """An encoder of three numbers, so that every right row is known."""
    rows = [(len(text), sum(map(ord, text)), text.count("n")) for text in sentences]
    return np.tile(np.array(rows, dtype=np.float32), (1, width // 3))


def texts(count: int) -> list[str]:
    return [f"sentence number {row}" for row in range(count)]


def _say(done: object) -> None:
    sys.stdout.write(f"{done}\n")
    sys.stdout.flush()


def fill(root: str, count: str) -> None:
    """Look sentences up as soon as a line comes in."""
    cache = EmbeddingCache(IDENTITY, Path(root))
    _say("ready")
    sys.stdin.readline()
    numbers = cache.locate(texts(int(count)), embed)
    assert np.array_equal(cache.take(numbers), embed(texts(int(count))))
    _say(cache.encoded)


def hold(root: str, count: str) -> None:
    """Stand still in the middle of encoding, until a line comes in."""

    def slow(sentences: Sequence[str]) -> EmbeddingMatrix:
        _say("encoding")
        sys.stdin.readline()
        return embed(sentences)

    cache = EmbeddingCache(IDENTITY, Path(root))
    cache.locate(texts(int(count)), slow)
    _say(cache.encoded)


def many_files(root: str, count: str) -> None:
    """Write files of four sentences each, large enough that a kill may hit in the middle."""
    embedding_cache._CHUNK = 4

    def wide(sentences: Sequence[str]) -> EmbeddingMatrix:
        _say(len(sentences))
        return embed(sentences, WIDE)

    EmbeddingCache(IDENTITY, Path(root)).locate(texts(int(count)), wide)


def no_room(root: str, count: str) -> None:
    """As on a full disk: no file may grow beyond some bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        EmbeddingCache(IDENTITY, Path(root)).locate(texts(int(count)), embed)
    except Exception as error:  # noqa: BLE001  the test reads which
        _say(f"{type(error).__name__}: {error}")


def go_on(root: str, count: str) -> None:
    """Show life all the time in the middle of encoding, until a line comes in."""
    cache_lock._RENEW_S = 0.0
    told = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        told.set()

    def slow(sentences: Sequence[str]) -> EmbeddingMatrix:
        _say("encoding")
        threading.Thread(target=listen).start()
        rounds = 0
        while not told.wait(ROUND_S):
            rounds += 1
            cache.progress(rounds, len(sentences))
        return embed(sentences)

    cache = EmbeddingCache(IDENTITY, Path(root))
    cache.locate(texts(int(count)), slow)
    _say(cache.encoded)


def _wait(root: str, count: str, patience: float) -> None:
    cache_lock._LOOK_S, cache_lock._SHORT_S = 0.02, 0.0
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    cache = EmbeddingCache(IDENTITY, Path(root), patience=patience)
    try:
        cache.locate(texts(int(count)), embed)
    except ResourceError as error:
        _say(error)
    else:
        _say(cache.notes)


def wait(root: str, count: str) -> None:
    """Wait for the lock, and say for whom."""
    _wait(root, count, cache_lock.PATIENCE_S)


def give_up(root: str, count: str) -> None:
    """Wait for the lock, and not for long."""
    _wait(root, count, PATIENCE_S)


PARTS: dict[str, Callable[[str, str], None]] = {
    "fill": fill,
    "hold": hold,
    "many_files": many_files,
    "no_room": no_room,
    "go_on": go_on,
    "wait": wait,
    "give_up": give_up,
}


if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
