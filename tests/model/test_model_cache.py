"""Frozen embeddings on disk: each sentence once, whoever asks, and never a wrong row."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import cache_children
import numpy as np
import pytest
import torch
from cache_children import IDENTITY, WIDE, embed, texts
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st
from processes import child, full_disk, go, told
from safetensors.torch import load_file, save_file

from tune_sentcl.errors import DataError, ResourceError
from tune_sentcl.model import embedding_cache
from tune_sentcl.model.cache_folder import cache_root
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.shapes import EmbeddingMatrix

SENTENCES = ["a dog", "", "the man", "a dog", "naïve 北京 🐕", "naïve", "a\0b", "a" * 5000]


class Counted:
    """An encoder that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, sentences: Sequence[str]) -> EmbeddingMatrix:
        self.asked.append(list(sentences))
        return embed(sentences)


def look_up(cache: EmbeddingCache, sentences: list[str], encode: Counted) -> EmbeddingMatrix:
    return cache.take(cache.locate(sentences, encode))


def files(root: Path) -> list[Path]:
    return sorted(root.glob("*/[!.]*"))


def hidden(root: Path) -> set[str]:
    return {path.name for path in root.glob("*/.*")}


def unwanted(sentences: Sequence[str]) -> EmbeddingMatrix:
    raise AssertionError(f"encoded again: {sentences}")


# What is asked


def test_rows_are_the_encoder_s_and_each_sentence_is_encoded_once(tmp_path: Path) -> None:
    encode = Counted()
    cache = EmbeddingCache(IDENTITY, tmp_path)
    found = look_up(cache, SENTENCES, encode)
    assert found.dtype == np.float32
    assert np.array_equal(found, embed(SENTENCES))
    assert [sorted(asked) for asked in encode.asked] == [sorted(set(SENTENCES))]
    assert (cache.encoded, cache.notes) == (7, [])
    assert cache.seconds > 0
    # Again, in another order; by another object, as in a later run.
    for again in (cache, EmbeddingCache(IDENTITY, tmp_path)):
        numbers = again.locate(SENTENCES[::-1], unwanted)
        assert np.array_equal(again.take(numbers), embed(SENTENCES[::-1]))
    assert cache.encoded == 7


def test_what_is_missing_is_told_without_encoding_it(tmp_path: Path) -> None:
    cache = EmbeddingCache(IDENTITY, tmp_path)
    assert cache.missing(["a", "b"]) == ["a", "b"] and not files(tmp_path)
    look_up(cache, ["b"], Counted())
    other = EmbeddingCache(IDENTITY, tmp_path)
    assert other.missing(["c", "b", "a"]) == ["c", "a"]
    assert other.encoded == 0


def test_what_embeddings_depend_on_keeps_them_apart(tmp_path: Path) -> None:
    others: list[dict[str, str | int]] = [
        {**IDENTITY, "checkpoint": "another"},
        {**IDENTITY, "max_length": 9},
        {**IDENTITY, "pooling": "cls"},
    ]
    encode = Counted()
    for identity in (IDENTITY, *others):
        look_up(EmbeddingCache(identity, tmp_path), texts(2), encode)
    assert len(encode.asked) == 4
    assert len({path.parent for path in files(tmp_path)}) == 4
    # The order of the facts is none.
    turned = dict(reversed(IDENTITY.items()))
    EmbeddingCache(turned, tmp_path).locate(texts(2), unwanted)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.sampled_from(texts(12)), min_size=1)), max_size=8
    )
)
def test_any_lookups_by_any_objects(
    steps: list[tuple[int, list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("cache")
    caches = [EmbeddingCache(IDENTITY, root) for _ in range(3)]
    located = []
    for number, sentences in steps:
        numbers = caches[number].locate(sentences, embed)
        located.append((caches[number], numbers, sentences))
    # Numbers hold on, whatever was written and read since.
    for cache, numbers, sentences in located:
        assert np.array_equal(cache.take(numbers), embed(sentences))
    distinct = {text for _, sentences in steps for text in sentences}
    assert sum(cache.encoded for cache in caches) == len(distinct)


def test_nothing_is_written_or_locked_where_all_is_there(tmp_path: Path) -> None:
    cache = EmbeddingCache(IDENTITY, tmp_path)
    cache.locate(texts(3), embed)
    with FileLock(cache.folder / ".lock"):  # a lookup that wanted it would wait for ever
        EmbeddingCache(IDENTITY, tmp_path).locate(texts(3), unwanted)


def test_embeddings_are_mapped_and_rows_are_copies(tmp_path: Path) -> None:
    EmbeddingCache(IDENTITY, tmp_path).locate(texts(100), embed)
    cache = EmbeddingCache(IDENTITY, tmp_path)
    numbers = cache.locate(texts(100), unwanted)
    assert str(files(tmp_path)[0]) in Path("/proc/self/maps").read_text()
    rows = cache.take(numbers[[7, 3]])
    assert np.array_equal(rows, embed([texts(100)[7], texts(100)[3]]))
    rows[:] = 0
    assert np.array_equal(cache.take(numbers), embed(texts(100)))
    assert cache.take(numbers[:0]).shape == (0, 3)


def test_long_lists_become_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_cache, "_CHUNK", 4)
    encode = Counted()
    cache = EmbeddingCache(IDENTITY, tmp_path)
    assert np.array_equal(look_up(cache, texts(10), encode), embed(texts(10)))
    assert [len(asked) for asked in encode.asked] == [4, 4, 2]
    assert (len(files(tmp_path)), cache.encoded) == (3, 10)


def test_the_root_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUNE_SENTCL_CACHE", "~/mine")
    assert cache_root() == EmbeddingCache(IDENTITY).root == tmp_path / "mine"
    monkeypatch.setenv("TUNE_SENTCL_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "tune_sentcl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == tmp_path / ".cache" / "tune_sentcl"


def test_half_a_surrogate_pair_is_named(tmp_path: Path) -> None:
    cache = EmbeddingCache(IDENTITY, tmp_path)
    with pytest.raises(DataError, match=r"sentence: 'a \\ud800': .*half of a surrogate pair"):
        cache.locate(["fine", "a \ud800"], unwanted)


# Several processes


def test_processes_at_once_encode_each_sentence_once(tmp_path: Path) -> None:
    with (
        child(cache_children, "fill", tmp_path, 300) as one,
        child(cache_children, "fill", tmp_path, 300) as two,
    ):
        assert told(one) == told(two) == "ready"
        go(one)
        go(two)
        encoded = [int(told(one)), int(told(two))]
    assert sorted(encoded) == [0, 300]
    assert len(files(tmp_path)) == 1


def test_a_killed_writer_leaves_whole_files_and_no_lock(tmp_path: Path) -> None:
    done = 5
    with child(cache_children, "many_files", tmp_path, 400) as process:
        for _ in range(done):
            assert told(process) == "4"
        process.kill()
    left = files(tmp_path)
    assert done - 1 <= len(left) < 100
    for path in left:
        tensors = load_file(path)
        assert len(tensors["digests"]) == len(tensors["embeddings"]) == 4
    cache = EmbeddingCache(IDENTITY, tmp_path)

    def wide(sentences: Sequence[str]) -> EmbeddingMatrix:
        return embed(sentences, WIDE)

    asked = texts(40)
    assert np.array_equal(cache.take(cache.locate(asked, wide)), wide(asked))
    assert cache.notes == []
    assert hidden(tmp_path) == {".lock"}


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    cache = EmbeddingCache(IDENTITY, tmp_path)
    cache.folder.mkdir(parents=True)
    for name in (".tmpAb12", ".0123456789abcdef.4711"):
        (cache.folder / name).write_bytes(b"half a file")
    cache.locate(texts(2), embed)
    assert hidden(tmp_path) == {".lock"}
    assert cache.notes == []


# Files that are not what they should be


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def _garbage(path: Path) -> None:
    path.write_bytes(b"\xff" * 200)


def _other_encoder(path: Path) -> None:
    save_file(load_file(path), path, metadata={"identity": "another"})


def _no_metadata(path: Path) -> None:
    save_file(load_file(path), path)


def _resave(path: Path, **changed: torch.Tensor) -> None:
    key = EmbeddingCache(IDENTITY, path.parents[1])._cache_folder.key
    save_file({**load_file(path), **changed}, path, metadata={"identity": key})


def _fewer_embeddings(path: Path) -> None:
    _resave(path, embeddings=load_file(path)["embeddings"][1:].clone())


def _short_digests(path: Path) -> None:
    _resave(path, digests=load_file(path)["digests"][:, :8].clone())


def _no_rows(path: Path) -> None:
    _resave(path, digests=torch.zeros((0, 16), dtype=torch.uint8), embeddings=torch.zeros(0, 3))


def _no_digests(path: Path) -> None:
    key = EmbeddingCache(IDENTITY, path.parents[1])._cache_folder.key
    save_file({"embeddings": torch.zeros(5, 3)}, path, metadata={"identity": key})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (cut, "incomplete metadata|deserializing header"),
        (empty, "deserializing header"),
        (_garbage, "deserializing header"),
        (_other_encoder, "it belongs to another encoder"),
        (_no_metadata, "it belongs to another encoder"),
        (_fewer_embeddings, "it lacks one embedding for each sentence"),
        (_short_digests, "it lacks one embedding for each sentence"),
        (_no_rows, "it lacks one embedding for each sentence"),
        (_no_digests, "it lacks one embedding for each sentence"),
    ],
)
def test_an_unusable_file_is_put_aside_and_encoded_again(
    tmp_path: Path, change: object, problem: str
) -> None:
    first = EmbeddingCache(IDENTITY, tmp_path)
    first.locate(texts(5), embed)
    first.locate(["kept"], embed)
    damaged = next(path for path in files(tmp_path) if len(load_file(path)["digests"]) == 5)
    assert callable(change)
    change(damaged)
    cache = EmbeddingCache(IDENTITY, tmp_path)
    encode = Counted()
    asked = ["kept", *texts(5)]
    assert np.array_equal(look_up(cache, asked, encode), embed(asked))
    assert sorted(encode.asked[0]) == texts(5)
    (note,) = cache.notes
    assert str(damaged) in note and "its sentences are encoded again" in note
    assert problem.split("|")[0] in note or problem.split("|")[-1] in note
    healed = EmbeddingCache(IDENTITY, tmp_path)
    assert np.array_equal(healed.take(healed.locate(asked, unwanted)), embed(asked))
    assert healed.notes == []


def test_a_folder_that_goes_while_it_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = EmbeddingCache(IDENTITY, tmp_path)

    def sweeping(sentences: Sequence[str]) -> EmbeddingMatrix:
        shutil.rmtree(tmp_path)
        return embed(sentences)

    with pytest.raises(ResourceError, match=r"cannot be kept there \(.*No such file"):
        cache.locate(texts(3), sweeping)

    def tidying(sentences: Sequence[str]) -> EmbeddingMatrix:
        for path in files(tmp_path):
            path.unlink()
        return embed(sentences)

    monkeypatch.setattr(embedding_cache, "_CHUNK", 2)
    with pytest.raises(ResourceError, match="the files disappeared after they were writ"):
        EmbeddingCache(IDENTITY, tmp_path).locate(texts(4), tidying)


# Folders that cannot be used


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/self/cache"])
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    cache = EmbeddingCache(IDENTITY, tmp_path / place)
    with pytest.raises(ResourceError) as caught:
        cache.locate(texts(2), unwanted)
    (fault,) = caught.value.faults
    assert (fault.where, fault.value) == ("embedding cache", str(cache.folder))
    assert "TUNE_SENTCL_CACHE" in fault.next_move


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(ResourceError, match="File too large") as caught:
        EmbeddingCache(IDENTITY, tmp_path).locate(texts(300), embed)
    line = str(caught.value)
    assert line.startswith(f"embedding cache: {tmp_path}") and "TUNE_SENTCL_CACHE" in line
    assert files(tmp_path) == []
    assert hidden(tmp_path) <= {".lock"}


def test_a_file_that_cannot_be_opened_is_not_thrown_away(tmp_path: Path) -> None:
    # What the machine refuses now it may grant later; a folder cannot be mapped, even by root.
    cache = EmbeddingCache(IDENTITY, tmp_path)
    place = cache.folder / "0123.safetensors"
    place.mkdir(parents=True)
    with pytest.raises(ResourceError, match=r"cannot be kept there \(No such device"):
        cache.locate(texts(2), unwanted)
    assert place.is_dir()


def test_errors_of_the_encoder_are_its_own_and_give_the_lock_back(tmp_path: Path) -> None:
    cache = EmbeddingCache(IDENTITY, tmp_path)

    def failing(sentences: Sequence[str]) -> EmbeddingMatrix:
        raise OSError("the encoder's files are gone")

    with pytest.raises(OSError, match="the encoder's files"):
        cache.locate(texts(2), failing)
    assert np.array_equal(cache.take(cache.locate(texts(2), embed)), embed(texts(2)))
