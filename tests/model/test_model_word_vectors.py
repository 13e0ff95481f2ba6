"""Averages of word vectors against a loop, and files that are none."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.frozen import average_vectors
from tune_sentcl.shapes import EmbeddingMatrix

VECTORS = {
    "the": (1.0, -2.0),
    "dog": (0.5, 4.0),
    "Dog": (8.0, 8.0),
    ",": (-1.0, 0.25),
    "'s": (3.0, 3.0),
    "s": (0.0, 7.0),
    "'": (5.0, 0.0),
    "café": (1e-3, 2e5),
    "2": (6.0, 6.5),
}
MEAN = [sum(vector[axis] for vector in VECTORS.values()) / len(VECTORS) for axis in (0, 1)]


def write_vectors(path: Path, header: str = "", end: str = "\n") -> str:
    lines = [f"{word} {' '.join(map(str, vector))}{end}" for word, vector in VECTORS.items()]
    path.write_bytes((header + "".join(lines)).encode())
    return str(path)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_vectors(tmp_path_factory.mktemp("words") / "vectors.txt")


def averaged(*words: str) -> list[float]:
    """The same as a loop."""
    sums = [0.0, 0.0]
    for word in words:
        for axis in (0, 1):
            sums[axis] += VECTORS[word][axis]
    return [value / len(words) for value in sums]


def check(found: EmbeddingMatrix, *expected: list[float]) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@given(rows=st.lists(st.lists(st.sampled_from([*VECTORS]), min_size=1), min_size=1, max_size=5))
def test_averages_equal_the_loop(vectors: str, rows: list[list[str]]) -> None:
    found = average_vectors(vectors, [" ".join(words) for words in rows])
    check(found, *(averaged(*words) for words in rows))


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("the dog dog", ["the", "dog", "dog"]),
        ("  the\t dog \n", ["the", "dog"]),
        ("the unknown dog", ["the", "dog"]),
        ("Dog dOG The", ["Dog", "dog", "the"]),  # as it is written, else in lower case
        ("the dog's", ["the", "dog", "'", "s"]),
        ("dog 's", ["dog", "'s"]),  # whole words are looked up whole
        ("The,dog,Cat", ["the", ",", "dog", ","]),
        ("CAFÉ...", ["café"]),
        ("2-dog", ["2", "dog"]),
    ],
)
def test_how_words_are_looked_up(vectors: str, sentence: str, words: list[str]) -> None:
    check(average_vectors(vectors, [sentence]), averaged(*words))


@pytest.mark.parametrize(
    ("header", "end"), [("9 2\n", "\n"), ("", "\r\n"), ("9 2\r\n", " \r\n"), ("", " \n")]
)
def test_other_spellings_of_the_file(tmp_path: Path, header: str, end: str) -> None:
    path = write_vectors(tmp_path / "vectors.txt", header, end)
    check(
        average_vectors(path, ["the 's", "2 9", "x", ""]),
        averaged("the", "'s"),
        [6, 6.5],
        MEAN,
        MEAN,
    )


def test_words_with_spaces_and_odd_bytes_are_skipped_over(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"a 1 2\n. . 3 4\nat name@domain.com 5 6\n\xff\xfe 7 8\n1 2 3 9 9\nb 0 0\n")
    found = average_vectors(str(path), ["a b", "nothing", "name@domain.com"])
    mean = [(1 + 3 + 5 + 7 + 9) / 6, (2 + 4 + 6 + 8 + 9) / 6]
    check(found, [0.5, 1.0], mean, mean)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "a 1 2\nb 1\n",
            r"line 2: encoder\.checkpoint = b: must hold a word and 2 finite numbers",
        ),
        ("a 1 2\nb nan 2\n", "line 2: encoder.checkpoint = b: must"),
        ("a 1 2\n\nb 1 2\n", "line 2: encoder.checkpoint: must hold"),
        ("These are words.\nAnd more.\n", "line 1: .* must hold a word and 2 finite numbers"),
        ("word\n", r"line 1: encoder\.checkpoint = word: must hold a word and its finite numbers"),
        ("", r"encoder\.checkpoint: the file holds no word vectors\. Name a GloVe text file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    with pytest.raises(CheckpointError, match=rf"vectors\.txt:? ?{message}"):
        average_vectors(str(path), ["a"])


def test_the_fingerprint_is_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = resolve_checkpoint(write_vectors(tmp_path / "a.txt"))
    assert (first.kind, first.pooling, first.max_length) == ("words", "mean", None)
    assert len(first.fingerprint) == 16
    assert resolve_checkpoint(write_vectors(tmp_path / "b.txt")).fingerprint == first.fingerprint
    other = resolve_checkpoint(write_vectors(tmp_path / "c.txt", header="9 2\n"))
    assert other.fingerprint != first.fingerprint
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_checkpoint("~/a.txt").path == first.path
    with pytest.raises(CheckpointError, match="there is no such file of word vectors"):
        resolve_checkpoint(str(tmp_path / "none.txt"))
