"""Waiting for a cache's lock: the message names the holder, and the wait ends."""

import json
import logging
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from cache_children import IDENTITY, embed, texts
from hypothesis import given
from hypothesis import strategies as st
from processes import wait_until

from tune_sentcl.errors import ResourceError
from tune_sentcl.model import cache_lock
from tune_sentcl.model.cache_lock import _Watch
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.shapes import EmbeddingMatrix

SECONDS = st.integers(0, 5).map(float)
PATIENCE_S = 0.3
ME = f"process {os.getpid()} on {socket.gethostname()}"


def note(root: Path) -> dict[str, object]:
    """The holder's note; empty while there is none, or half of one."""
    try:
        (path,) = root.glob("*/.holder")
        found: dict[str, object] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found


@contextmanager
def holder(root: Path, *, renews: bool = False) -> Iterator[threading.Event]:
    """A thread that holds the lock, as another process would, until the event is set."""
    encoding, end = threading.Event(), threading.Event()
    cache = EmbeddingCache(IDENTITY, root)

    def slow(sentences: Sequence[str]) -> EmbeddingMatrix:
        encoding.set()
        rounds = 0
        while not end.wait(0.01):
            rounds += 1
            if renews:
                cache.progress(rounds, len(sentences))
        return embed(sentences)

    thread = threading.Thread(target=cache.locate, args=(texts(30), slow))
    thread.start()
    try:
        assert encoding.wait(60)
        yield end
    finally:
        end.set()
        thread.join()


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name, seconds in (("_LOOK_S", 0.02), ("_SHORT_S", 0.1), ("_RENEW_S", -1.0)):
        monkeypatch.setattr(cache_lock, name, seconds)
    caplog.set_level(logging.WARNING)


@given(st.lists(st.tuples(st.sampled_from("ab"), SECONDS), min_size=1), SECONDS)
def test_a_note_stands_still_since_it_was_last_another(
    looks: list[tuple[str, float]], start: float
) -> None:
    watch, now = _Watch(start, "encoded"), start
    seen: list[tuple[str, float]] = [("", start)]
    for text, later in looks:
        now += later
        seen.append((text, now))
        same = [
            when for index, (_, when) in enumerate(seen) if {t for t, _ in seen[index:]} == {text}
        ]
        changed = min(same)
        assert watch.still(text, now) == now - changed


def test_the_holder_says_who_it_is_and_how_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tune_sentcl.model.embedding_cache._CHUNK", 4)
    cache = EmbeddingCache(IDENTITY, tmp_path)
    found = []

    def encode(sentences: Sequence[str]) -> EmbeddingMatrix:
        found.append(note(tmp_path))
        cache.progress(2, len(sentences))
        found.append(note(tmp_path))
        return embed(sentences)

    cache.locate(texts(6), encode)
    assert [(line["done"], line["total"]) for line in found] == [(0, 6), (2, 6), (4, 6), (6, 6)]
    assert {f"process {line['pid']} on {line['host']}" for line in found} == {ME}
    assert len({line["since"] for line in found}) == 1
    assert note(tmp_path) == {}
    assert cache.notes == []


def test_a_holder_without_life_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with holder(tmp_path):
        waiting = EmbeddingCache(IDENTITY, tmp_path, patience=PATIENCE_S)
        with pytest.raises(ResourceError) as caught:
            waiting.locate(texts(40), embed)
        said = str(caught.value)
        assert f"its lock is held by {ME}" in said
        assert f"not responded for {PATIENCE_S:g} s. Stop that process" in said
        assert "TUNE_SENTCL_CACHE" in said and str(tmp_path) in said
    cache = EmbeddingCache(IDENTITY, tmp_path)  # giving up has disturbed nothing
    assert np.array_equal(cache.take(cache.locate(texts(30), embed)), embed(texts(30)))
    assert (cache.encoded, cache.notes) == (0, [])


def test_a_holder_that_goes_on_is_waited_for_however_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = EmbeddingCache(IDENTITY, tmp_path, patience=PATIENCE_S)
    with holder(tmp_path, renews=True) as end:
        waiter = threading.Thread(target=waiting.locate, args=(texts(40), embed))
        waiter.start()
        line = wait_until(lambda: caplog.messages, "the message")[0]
        start = int(str(wait_until(lambda: note(tmp_path).get("done"), "a note")))
        rounds = start + 2 * PATIENCE_S / 0.01  # the waiter would have given up by then
        wait_until(lambda: int(str(note(tmp_path).get("done", 0))) > rounds, "its going on")
        assert waiter.is_alive()
        end.set()
        waiter.join()
    assert line.startswith(f"embedding cache: waiting for {ME} (since ")
    assert line.endswith("of 30 sentences encoded)")
    assert waiting.encoded == 10  # the rest
    assert "waited" in waiting.notes[0] and f"s for {ME}" in waiting.notes[0]
    assert {path.name for path in tmp_path.glob("*/.*")} == {".lock"}
