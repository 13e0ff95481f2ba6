"""Frozen embeddings on disk: each sentence once, whoever asks, and never a wrong row."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import cache_children
import numpy as np
import pytest
from cache_children import IDENTITY, WIDE, embed, texts
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st
from processes import beside, child, full_disk, told, wait_until

from tune_sentcl.errors import ResourceError
from tune_sentcl.model.embedding_cache import EmbeddingCache, cache_root
from tune_sentcl.shapes import EmbeddingMatrix


class Counted:
    """An encoder that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, sentences: Sequence[str]) -> EmbeddingMatrix:
        self.asked.append(list(sentences))
        return embed(sentences)


def look_up(cache: EmbeddingCache, sentences: list[str], encode: Any) -> EmbeddingMatrix:
    return cache.take(cache.locate(sentences, encode))


def files(root: Path) -> list[Path]:
    return sorted(root.glob("[!.]*.arrow"))


def left(root: Path) -> list[Path]:
    """What killed or failed writers have left."""
    return sorted(root.glob(".*"))


def unwanted(sentences: Sequence[str]) -> EmbeddingMatrix:
    raise AssertionError(f"encoded again: {sentences}")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path))
    return tmp_path


# What is asked


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.sampled_from(texts(12)), min_size=1)), max_size=8
    )
)
def test_any_lookups_by_any_objects(
    steps: list[tuple[int, list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNE_SENTCL_CACHE", str(tmp_path_factory.mktemp("cache")))
        caches = [EmbeddingCache(IDENTITY) for _ in range(3)]
    located = []
    for number, sentences in steps:
        numbers = caches[number].locate(sentences, embed)
        located.append((caches[number], numbers, sentences))
    # Numbers hold on, whatever was written and read since.
    for cache, numbers, sentences in located:
        assert np.array_equal(cache.take(numbers), embed(sentences))
    distinct = {text for _, sentences in steps for text in sentences}
    assert sum(cache.encoded for cache in caches) == len(distinct)


def test_embeddings_are_mapped_without_the_lock_and_rows_are_copies(root: Path) -> None:
    EmbeddingCache(IDENTITY).locate(texts(100), embed)
    cache = EmbeddingCache(IDENTITY)
    (lock,) = root.glob("*.lock")
    with FileLock(lock):  # a lookup that wanted it would wait for ever
        numbers = cache.locate(texts(100), unwanted)
    assert str(files(root)[0]) in Path("/proc/self/maps").read_text()
    rows = cache.take(numbers[[7, 3]])
    assert np.array_equal(rows, embed([texts(100)[7], texts(100)[3]]))
    rows[:] = 0
    assert np.array_equal(cache.take(numbers), embed(texts(100)))
    assert cache.take(numbers[:0]).shape == (0, 3)


def test_the_root_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUNE_SENTCL_CACHE", "~/mine")
    assert cache_root() == tmp_path / "mine"
    monkeypatch.setenv("TUNE_SENTCL_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "tune_sentcl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == tmp_path / ".cache" / "tune_sentcl"


# Several processes


def test_those_who_come_at_once_encode_each_sentence_once_and_say_that_they_wait(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, under_way = Counted(), Counted(), Event()

    def slow(sentences: Sequence[str]) -> EmbeddingMatrix:
        under_way.set()
        wait_until(lambda: "waiting for another process that computes" in caplog.text, "the other")
        return first(sentences)

    def encode_slowly() -> None:
        look_up(EmbeddingCache(IDENTITY), texts(300), slow)

    with beside(encode_slowly):
        under_way.wait()
        assert np.array_equal(
            look_up(EmbeddingCache(IDENTITY), texts(300), second), embed(texts(300))
        )
    assert len(first.asked) == len(files(root)) == 1 and second.asked == []


def test_a_killed_writer_leaves_whole_files_and_no_lock(root: Path) -> None:
    with child(cache_children) as process:
        for _ in range(5):
            assert told(process) == "4"
        process.kill()
    assert 4 <= len(files(root)) < 100
    for path in files(root):
        path.with_name(f".{path.name}").write_bytes(b"half a file")
    asked = texts(40)
    cache, wide = EmbeddingCache(IDENTITY), Counted()
    rows = cache.take(cache.locate(asked, lambda some: (wide(some), embed(some, WIDE))[1]))
    assert np.array_equal(rows, embed(asked, WIDE))
    assert 0 < len(wide.asked[0]) < 40
    assert left(root) == []


# Files that are not what they should be


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize("change", [cut, lambda path: path.write_bytes(b"\xff" * 200)])
def test_a_damaged_file_is_removed_and_encoded_again(
    root: Path, change: Callable[[Path], Any], caplog: pytest.LogCaptureFixture
) -> None:
    EmbeddingCache(IDENTITY).locate(texts(5), embed)
    (damaged,) = files(root)
    EmbeddingCache(IDENTITY).locate(["kept"], embed)
    change(damaged)
    encode, asked = Counted(), ["kept", *texts(5)]
    assert np.array_equal(look_up(EmbeddingCache(IDENTITY), asked, encode), embed(asked))
    assert sorted(encode.asked[0]) == texts(5)
    assert f"{damaged} is damaged" in caplog.text and len(files(root)) == 2
    healed = EmbeddingCache(IDENTITY)
    assert np.array_equal(healed.take(healed.locate(asked, unwanted)), embed(asked))


# Folders that cannot be used


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "below"
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(folder))
    with pytest.raises(ResourceError, match=f"cache: {folder}: .*TUNE_SENTCL_CACHE"):
        EmbeddingCache(IDENTITY).locate(texts(2), unwanted)


def test_a_full_disk_is_named_and_leaves_nothing(root: Path) -> None:
    with full_disk(), pytest.raises(ResourceError, match="File too large"):
        EmbeddingCache(IDENTITY).locate(texts(300), embed)
    assert files(root) == left(root) == []
