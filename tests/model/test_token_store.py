"""A corpus as tokens on disk: equal to the tokenizer's, and made once a machine."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import full_disk
from test_model_cache import cut, files, left

from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.task import Prompt
from tune_sentcl.model import token_store
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.token_store import CorpusTokens, stored, tokenized
from tune_sentcl.model.tokenizing import tokenizer_identity

IDENTITY = {"of": "a tokenizer that is made up"}


def corpus_of(count: int) -> Corpus:
    """Pairs whose sides repeat themselves and each other."""
    left = [f"{'Ss'[row % 2]}entence number {row // 3}" for row in range(count)]
    right = [f"sentence number {row % 7} of {count}" for row in range(count)]
    columns = {"sentence1": pa.array(left), "sentence2": pa.array(right)}
    return make_corpus("positive_pairs", pa.table(columns), "made up")


def tokenize(sentences: Sequence[str], *, prompt: Prompt = "text") -> list[list[int]]:
    """A tokenizer of bytes, for which large and small letters are the same."""
    return [[1, *text.lower().encode(), 2] for text in sentences]


def lists_of(tokens: CorpusTokens, corpus: Corpus) -> list[list[list[int]]]:
    """Each column's inputs, row by row."""
    inputs = tokens.inputs.lists()
    return [[inputs[n] for n in tokens.columns[name]] for name in corpus.text_columns()]


def right(tokens: CorpusTokens, corpus: Corpus) -> bool:
    """Whether they are what the tokenizer says."""
    expected = [tokenize(corpus.texts(name)) for name in corpus.text_columns()]
    return lists_of(tokens, corpus) == expected


class Counted:
    """A tokenizer that remembers how many sentences it was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, sentences: Sequence[str], *, prompt: Prompt = "text") -> list[list[int]]:
        self.asked += len(sentences)
        return tokenize(sentences)


CORPUS = corpus_of(50)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path))
    return tmp_path


def unwanted(sentences: Sequence[str], *, prompt: Prompt) -> list[list[int]]:
    raise AssertionError(f"tokenized again: {sentences}")


# What is asked


@given(st.integers(1, 30), st.integers(1, 9))
def test_each_row_has_its_sentence_s_tokens_and_equal_inputs_lie_there_once(
    count: int, chunk: int
) -> None:
    corpus, counted = corpus_of(count), Counted()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_store, "_CHUNK", chunk)
        tokens = tokenized(corpus, counted)
    assert right(tokens, corpus)
    assert counted.asked == len(corpus.sentences())
    # Inputs are numbered in the order of the sentences.
    every = [tuple(ids) for name in corpus.text_columns() for ids in tokenize(corpus.texts(name))]
    assert [tuple(ids) for ids in tokens.inputs.lists()] == list(dict.fromkeys(every))


def test_every_negative_of_triplets_has_its_tokens() -> None:
    columns = {"anchor": ["a man", "a dog"], "positive": ["a person", "a cat"]}
    table = pa.table({**columns, "negative_1": ["nobody", ""], "negative_2": ["", ""]})
    corpus = make_corpus("triplets", table, "made up")
    tokens = stored(IDENTITY, corpus, tokenize)
    assert tuple(tokens.columns) == corpus.text_columns()
    assert right(tokens, corpus)


def test_what_is_there_is_mapped_and_not_made_again(root: Path) -> None:
    counted = Counted()
    made = stored(IDENTITY, CORPUS, counted)
    assert right(made, CORPUS) and counted.asked == len(CORPUS.sentences())
    again = stored(IDENTITY, CORPUS, unwanted)
    assert right(again, CORPUS) and left(root) == []
    (path,) = files(root)
    assert str(path) in Path("/proc/self/maps").read_text()


def test_a_tokenizer_s_identity_is_what_it_does() -> None:
    _, tokenizer = build_toy()
    before = tokenizer_identity(tokenizer)
    assert before is not None and before == tokenizer_identity(build_toy()[1])
    encoder = Encoder(*build_toy(), "mean", 64, train_length=5)
    encoder.tokenize(["cut to five tokens, which the tokenizer remembers"])
    assert tokenizer_identity(encoder.tokenizer) == before
    changed = build_toy()[1]
    changed.truncation_side = "left"
    cased = build_toy()[1]
    cased.backend_tokenizer.normalizer = None
    _, other = build_toy(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    assert len({before, *map(tokenizer_identity, (changed, cased, other))}) == 4
    assert tokenizer_identity(object()) is None


# Several processes, which threads stand for: the lock is the same


def test_those_who_come_at_once_tokenize_a_corpus_once(root: Path) -> None:
    both = Barrier(2)

    def fill(counted: Counted) -> int:
        both.wait()
        assert right(stored(IDENTITY, CORPUS, counted), CORPUS)
        return counted.asked

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(fill, [Counted(), Counted()])) == [0, len(CORPUS.sentences())]
    assert len(files(root)) == 1


def test_a_damaged_file_is_removed_and_made_again(root: Path) -> None:
    stored(IDENTITY, CORPUS, tokenize)
    (path,) = files(root)
    cut(path)
    assert right(stored(IDENTITY, CORPUS, tokenize), CORPUS)
    assert right(stored(IDENTITY, CORPUS, unwanted), CORPUS)


def test_an_error_of_the_tokenizer_is_raised_as_it_is(root: Path) -> None:
    with pytest.raises(AssertionError, match="tokenized again"):
        stored(IDENTITY, CORPUS, unwanted)
    assert files(root) == left(root) == []


@pytest.mark.parametrize("place", ["file", "/proc/self/cache", "full"])
def test_where_nothing_can_be_kept_it_stays_in_memory(
    root: Path,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (root / "file").write_text("")
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(root / place))
    with full_disk() if place == "full" else nullcontext():
        assert right(stored(IDENTITY, CORPUS, tokenize), CORPUS)
    assert "tokens stay in memory: cache: " in caplog.text
    assert files(root) == left(root) == []
