"""Waiting for a cache's lock: for whom it is, and that it ends."""

import json
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

import cache_children
import numpy as np
import pytest
from cache_children import IDENTITY, PATIENCE_S, ROUND_S, embed, texts
from hypothesis import given
from hypothesis import strategies as st
from processes import child, go, told, wait_until

from tune_sentcl.model import cache_lock
from tune_sentcl.model.cache_lock import _Watch
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.shapes import EmbeddingMatrix

SECONDS = st.integers(0, 5).map(float)
HERE = socket.gethostname()


def note(root: Path) -> dict[str, object]:
    """The holder's note; empty while there is none, or half of one."""
    try:
        (path,) = root.glob("*/.holder")
        found: dict[str, object] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found


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
    monkeypatch.setattr(cache_lock, "_RENEW_S", -1.0)
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
    assert {(line["pid"], line["host"]) for line in found} == {(os.getpid(), HERE)}
    assert len({line["since"] for line in found}) == 1
    assert note(tmp_path) == {}
    assert cache.notes == []


def test_a_wait_says_for_whom(tmp_path: Path) -> None:
    with child(cache_children, "hold", tmp_path, 30) as holder:
        assert told(holder) == "encoding"
        with child(cache_children, "wait", tmp_path, 40) as waiter:
            line = told(waiter)
            assert line.startswith(
                f"embedding cache: waiting for process {holder.pid} on {HERE} (since "
            )
            assert line.endswith("0 of 30 sentences encoded)")
            go(holder)
            assert told(holder) == "30"
            assert f"s for process {holder.pid} on {HERE}" in told(waiter)
    assert {path.name for path in tmp_path.glob("*/.*")} == {".lock"}


@pytest.mark.parametrize("stopped", [False, True])
def test_a_holder_without_life_is_not_waited_for_without_end(
    tmp_path: Path, stopped: bool
) -> None:
    with child(cache_children, "hold", tmp_path, 30) as holder:
        assert told(holder) == "encoding"
        if stopped:
            holder.send_signal(signal.SIGSTOP)
        with child(cache_children, "give_up", tmp_path, 40) as waiter:
            assert "waiting for" in told(waiter)
            line = told(waiter)
        assert f"its lock is held by process {holder.pid} on {HERE}" in line
        assert f"no life for {PATIENCE_S:g} s. Stop that process" in line
        assert "TUNE_SENTCL_CACHE" in line and str(tmp_path) in line
        holder.send_signal(signal.SIGCONT)
        go(holder)
        assert told(holder) == "30"  # whoever gave up has disturbed nothing
    cache = EmbeddingCache(IDENTITY, tmp_path)
    assert np.array_equal(cache.take(cache.locate(texts(30), embed)), embed(texts(30)))
    assert (cache.encoded, cache.notes) == (0, [])


def test_a_holder_that_goes_on_is_waited_for_however_long(tmp_path: Path) -> None:
    with child(cache_children, "go_on", tmp_path, 30) as holder:
        assert told(holder) == "encoding"
        with child(cache_children, "give_up", tmp_path, 40) as waiter:
            assert "waiting for" in told(waiter)
            rounds = 2 * PATIENCE_S / ROUND_S  # the waiter would have given up by then
            end = int(str(wait_until(lambda: note(tmp_path).get("done"), "a note"))) + rounds
            wait_until(lambda: int(str(note(tmp_path).get("done", 0))) > end, "its going on")
            go(holder)
            assert told(holder) == "30"
            assert f"s for process {holder.pid} on {HERE}" in told(waiter)
