"""A corpus as tokens on disk: equal to the tokenizer's, and made once a machine."""

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_samples import toy_rows
from processes import full_disk
from test_model_cache import cut, empty, files, hidden

from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.model import token_store
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.token_store import (
    CorpusTokens,
    TokenStore,
    _identity,
    corpus_tokens,
    tokenized,
)

RUN_COLUMNS: dict[str, str | int] = {"tokenizer": "made up", "length": 8, "special": True}


def corpus_of(count: int) -> Corpus:
    """Pairs whose sides repeat themselves and each other."""
    left = [f"sentence number {row // 3}" for row in range(count)]
    right = [f"sentence number {row % 7} of {count}" for row in range(count)]
    columns = {"sentence1": pa.array(left), "sentence2": pa.array(right)}
    return make_corpus("positive_pairs", pa.table(columns), "made up")


def tokenize(sentences: Sequence[str], *, query: bool = False) -> list[list[int]]:
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

    def __call__(self, sentences: Sequence[str], *, query: bool = False) -> list[list[int]]:
        self.asked += len(sentences)
        return tokenize(sentences)


def long(sentences: Sequence[str], *, query: bool) -> list[list[int]]:
    """A tokenizer of many tokens: 80 kB a sentence."""
    return [[row] + [7] * 20_000 for row, _ in enumerate(sentences)]


def anonymous() -> int:
    """Bytes of this process's memory that no file stands behind, and that nobody shares."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("Anonymous:"))
    return 1024 * int(found)


CORPUS = corpus_of(50)


def unwanted(sentences: Sequence[str], *, query: bool) -> list[list[int]]:
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
    # The number of an input is that of the first sentence with its tokens.
    expected = [
        tuple(ids) for name in corpus.text_columns() for ids in tokenize(corpus.texts(name))
    ]
    numbers = np.concatenate([tokens.columns[name] for name in corpus.text_columns()])
    assert numbers.tolist() == [expected.index(ids) for ids in expected]
    distinct = set(expected)
    assert len(tokens.inputs.ids) == sum(map(len, distinct))


def test_every_negative_of_triplets_has_its_tokens(tmp_path: Path) -> None:
    columns = {"anchor": ["a man", "a dog"], "positive": ["a person", "a cat"]}
    table = pa.table({**columns, "negative_1": ["nobody", ""], "negative_2": ["", ""]})
    corpus = make_corpus("triplets", table, "made up")
    for tokens in (
        tokenized(corpus, tokenize),
        TokenStore(corpus, RUN_COLUMNS, tmp_path).open(tokenize),
    ):
        assert tuple(tokens.columns) == corpus.text_columns()
        assert right(tokens, corpus)


def test_sentences_of_equal_tokens_are_one_input() -> None:
    corpus = toy_rows(4)
    texts = corpus.texts("premise")
    table = corpus.table.set_column(0, "premise", [[text.upper() for text in texts]])
    shouted = Corpus(corpus.kind, table, "made up", "0" * 16)
    rows = np.arange(4)
    quiet, loud = (tokenized(c, tokenize) for c in (corpus, shouted))
    assert np.array_equal(quiet.numbers("premise", rows), loud.numbers("premise", rows))
    assert quiet.take("premise", rows[::-1]).lists() == tokenize(texts[::-1])


def test_what_is_there_is_mapped_and_not_made_again(tmp_path: Path) -> None:
    counted = Counted()
    made = TokenStore(CORPUS, RUN_COLUMNS, tmp_path).open(counted)
    assert right(made, CORPUS) and counted.asked == len(CORPUS.sentences())
    assert hidden(tmp_path) == {".lock"}
    again = TokenStore(CORPUS, RUN_COLUMNS, tmp_path).open(unwanted)
    assert right(again, CORPUS) and again.notes == made.notes == []
    (path,) = files(tmp_path)
    assert str(path) in Path("/proc/self/maps").read_text()


def test_what_tokens_depend_on_keeps_them_apart(tmp_path: Path) -> None:
    counted = Counted()
    for facts in (
        RUN_COLUMNS,
        {**RUN_COLUMNS, "length": 9},
        {**RUN_COLUMNS, "tokenizer": "another"},
    ):
        TokenStore(CORPUS, facts, tmp_path).open(counted)
    TokenStore(corpus_of(51), RUN_COLUMNS, tmp_path).open(counted)
    assert len(files(tmp_path)) == 4
    assert counted.asked == 3 * len(CORPUS.sentences()) + len(corpus_of(51).sentences())


def test_a_tokenizer_s_identity_is_what_it_does() -> None:
    _, tokenizer = build_toy()
    before = _identity(tokenizer)
    assert before is not None and before == _identity(build_toy()[1])
    encoder = Encoder(*build_toy(), "mean", 64, train_length=5)
    encoder.tokenize(["cut to five tokens, which the tokenizer remembers"])
    assert _identity(encoder.tokenizer) == before
    changed = build_toy()[1]
    changed.truncation_side = "left"
    cased = build_toy()[1]
    cased.backend_tokenizer.normalizer = None
    _, other = build_toy(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    assert len({before, *map(_identity, (changed, cased, other))}) == 4
    assert _identity(object()) is None


@pytest.mark.parametrize("small", [0, token_store.SMALL])
@pytest.mark.parametrize("special", [True, False])
def test_an_encoder_s_tokens_are_those_of_its_tokenizer(
    small: int, special: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_store, "SMALL", small)
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path))
    corpus = toy_rows(60)
    for length in (6, 32):
        encoder = Encoder(*build_toy(), "mean", 64, train_length=length)
        found = corpus_tokens(encoder, corpus, special=special)
        slow = encoder.tokenize if special else encoder.contents
        expected = [slow(corpus.texts(name)) for name in ("premise", "hypothesis")]
        assert lists_of(found, corpus) == expected
        assert corpus_tokens(encoder, corpus, special=special) is found
    assert len(files(tmp_path)) == (0 if small else 2)


# Several processes, which threads stand for: the lock is the same


def test_those_who_come_at_once_tokenize_a_corpus_once(tmp_path: Path) -> None:
    both = Barrier(2)

    def fill() -> int:
        counted = Counted()
        both.wait()
        assert right(TokenStore(CORPUS, RUN_COLUMNS, tmp_path).open(counted), CORPUS)
        return counted.asked

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(fill) for _ in range(2)]
    assert sorted(one.result() for one in asked) == [0, len(CORPUS.sentences())]
    assert len(files(tmp_path)) == 1


def test_tokens_that_are_there_take_no_memory_of_the_process(tmp_path: Path) -> None:
    corpus = corpus_of(300)
    TokenStore(corpus, RUN_COLUMNS, tmp_path).open(long)
    (path,) = files(tmp_path)
    assert path.stat().st_size > 8e6
    store = TokenStore(corpus, RUN_COLUMNS, tmp_path)
    before = anonymous()
    tokens = store.open(unwanted)
    assert int(tokens.inputs.ids.sum()) > 0
    assert anonymous() - before < path.stat().st_size / 8


def test_what_a_killed_process_left_is_removed_and_not_read(tmp_path: Path) -> None:
    folder = TokenStore(CORPUS, RUN_COLUMNS, tmp_path).folder.path
    scratch = folder / ".tokens.0123abcd"
    scratch.mkdir(parents=True)
    (scratch / "tokens.arrow").write_bytes(b"half a file")
    tokens = TokenStore(CORPUS, RUN_COLUMNS, tmp_path).open(tokenize)
    assert right(tokens, CORPUS) and tokens.notes == []
    assert hidden(tmp_path) == {".lock"}


# Files that are not what they should be


def _another_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _another_corpus(path: Path) -> None:
    TokenStore(corpus_of(40), RUN_COLUMNS, path.parents[1]).open(tokenize)
    (other,) = (file for file in files(path.parents[1]) if file != path)
    path.unlink()
    shutil.copy(other, path.with_name(other.name))


@pytest.mark.parametrize("change", [cut, empty, _another_bit, _another_corpus])
def test_an_unusable_file_is_removed_and_made_again(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    TokenStore(CORPUS, RUN_COLUMNS, tmp_path).open(tokenize)
    (path,) = files(tmp_path)
    change(path)
    tokens = TokenStore(CORPUS, RUN_COLUMNS, tmp_path).open(tokenize)
    assert right(tokens, CORPUS)
    (note,) = tokens.notes
    assert note.startswith(f"token store: {path.parent}/tokens.")
    assert "cannot be used (it is damaged, or belongs to another corpus or tokenizer)" in note
    assert note.endswith("its sentences are tokenized again")
    healed = TokenStore(CORPUS, RUN_COLUMNS, tmp_path).open(unwanted)
    assert right(healed, CORPUS) and healed.notes == []


def test_an_error_of_the_tokenizer_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="tokenized again"):
        TokenStore(CORPUS, RUN_COLUMNS, tmp_path).open(unwanted)
    assert files(tmp_path) == [] and hidden(tmp_path) == {".lock"}


# Folders that cannot be used


@pytest.mark.parametrize("place", ["file", "/proc/self/cache"])
def test_where_nothing_can_be_kept_it_stays_in_memory(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    tokens = TokenStore(CORPUS, RUN_COLUMNS, tmp_path / place).open(tokenize)
    assert right(tokens, CORPUS)
    (note,) = tokens.notes
    assert note.startswith("the tokens stay in memory: token store: ")
    assert "tokens cannot be kept there" in note


def test_on_a_full_disk_it_stays_in_memory_and_leaves_nothing(tmp_path: Path) -> None:
    with full_disk():
        tokens = TokenStore(CORPUS, RUN_COLUMNS, tmp_path).open(tokenize)
    assert right(tokens, CORPUS)
    (line,) = tokens.notes
    assert "stay in memory" in line and "File too large" in line
    assert files(tmp_path) == [] and hidden(tmp_path) <= {".lock"}
