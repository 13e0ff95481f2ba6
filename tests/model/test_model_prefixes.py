"""Text before sentences: in tokens, embeddings, caches, stores and what is exported."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from model_samples import SENTENCES, sentence_transformer

from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.task import Prompt
from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.model.corpus_tokens import corpus_tokens
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.saving import export

BOTH = Prefixes("the man sees ", "a dog runs . ")
PLAIN = Prefixes()


def toy(prefixes: Prefixes = PLAIN, length: int = 64) -> Encoder:
    encoder = load_encoder(resolve_checkpoint("toy"), "mean", 64, train_length=length)
    encoder.prefixes = prefixes
    return encoder


@pytest.fixture
def anchored() -> Corpus:
    """Rows with a column of queries, which holds a sentence that is also a text."""
    columns = {"anchor": SENTENCES, "positive": SENTENCES[::-1]}
    return make_corpus("triplets", pa.table(columns), "made up")


def test_an_encoder_reads_what_stands_before_a_sentence() -> None:
    plain, with_both = toy(), toy(BOTH)
    prompts: dict[Prompt, str] = {"query": BOTH.query, "text": BOTH.text, "document": BOTH.text}
    for prompt, prefix in prompts.items():
        expected = [f"{prefix}{text}" for text in SENTENCES]
        assert with_both.tokenize(SENTENCES, prompt=prompt) == plain.tokenize(expected)
        assert with_both.contents(SENTENCES, prompt=prompt) == plain.contents(expected)
        rows = with_both.encode(SENTENCES, prompt=prompt)
        assert np.array_equal(rows, plain.encode(expected))
    assert np.array_equal(with_both.encode(SENTENCES), plain.encode(BOTH.put(SENTENCES)))


@pytest.mark.parametrize("special", [True, False])
def test_a_corpus_has_each_column_s_prefix_at_each_length(special: bool, anchored: Corpus) -> None:
    rows = np.arange(len(anchored))
    # One tokenizer serves all encoders: nobody is given what another one has stored.
    kinds = (PLAIN, BOTH, Prefixes("", BOTH.text), Prefixes(BOTH.query, ""), PLAIN)
    for length in (6, 64):
        plain = toy(length=length)
        read = plain.tokenize if special else plain.contents
        for prefixes in kinds:
            encoder = toy(prefixes, length)
            tokens = corpus_tokens(encoder, anchored, special=special)
            assert corpus_tokens(encoder, anchored, special=special) is tokens
            for column, prefix in (("anchor", prefixes.query), ("positive", prefixes.text)):
                texts = [f"{prefix}{text}" for text in anchored.texts(column)]
                assert tokens.take(column, rows).lists() == read(texts)


def test_a_frozen_encoder_shares_its_cache_and_serves_nothing_stale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path))
    checkpoint = resolve_checkpoint("toy")
    plain = FrozenEncoder(checkpoint, "mean", 64, "cpu", SENTENCES)
    frozen = FrozenEncoder(checkpoint, "mean", 64, "cpu", BOTH.put(SENTENCES))
    frozen.prefixes = BOTH
    for prompt in ("text", "query"):
        expected = toy(BOTH).encode(SENTENCES, prompt=prompt)
        np.testing.assert_allclose(frozen.encode(SENTENCES, prompt=prompt), expected, atol=1e-6)
        np.testing.assert_allclose(frozen.base(SENTENCES, prompt=prompt), expected, atol=1e-6)
    np.testing.assert_allclose(plain.encode(SENTENCES), toy().encode(SENTENCES), atol=1e-6)
    assert frozen.cache.encoded == 2 * len(SENTENCES)  # those announced, and then the queries
    whole = frozen.whole()
    assert whole is not None and whole.prefixes == BOTH


def encode_alike(folder: Path, encoder: Encoder) -> None:
    """For sentence-transformers as for us, each kind of text has its prefix."""
    theirs = sentence_transformer(folder)
    by_prompt: dict[Prompt, Any] = {
        "text": theirs.encode,
        "query": theirs.encode_query,
        "document": theirs.encode_document,
    }
    for prompt, encode in by_prompt.items():
        expected = encoder.encode(SENTENCES, prompt=prompt)
        np.testing.assert_allclose(encode(SENTENCES), expected, atol=1e-5)


@pytest.mark.parametrize(
    "prefixes",
    [
        *(BOTH, Prefixes(query=BOTH.query), Prefixes(text=BOTH.text)),
        *(Prefixes("", "a ", "the "), Prefixes("who ? ", "a ", ""), Prefixes("", "", "the ")),
    ],
    ids=str,
)
def test_what_is_exported_has_them_as_prompts(prefixes: Prefixes, tmp_path: Path) -> None:
    encoder = toy(prefixes)
    export(encoder, tmp_path, {})
    encode_alike(tmp_path, encoder)
    assert resolve_checkpoint(str(tmp_path)).prefixes == prefixes
    (tmp_path / "tune_sentcl.json").unlink()
    again = resolve_checkpoint(str(tmp_path))
    assert (again.prefixes, again.pooling) == (prefixes, "mean")


def test_prompts_of_others_are_read(tmp_path: Path) -> None:
    export(toy(), tmp_path, {})
    (tmp_path / "tune_sentcl.json").unlink()
    file = tmp_path / "config_sentence_transformers.json"

    def read(values: object) -> Prefixes:
        file.write_text(json.dumps(values))
        return resolve_checkpoint(str(tmp_path)).prefixes

    prompts = {"query": "q ? ", "document": "the ", "passage": "p : ", "sts": "a "}
    named = {key: text for key, text in prompts.items() if key != "document"}
    for stated, default, expected in (
        (prompts, None, Prefixes("q ? ", "", "the ")),
        (prompts, "sts", Prefixes("q ? ", "a ", "the ")),
        (prompts, "document", Prefixes("q ? ", "the ")),
        (named, "sts", Prefixes("q ? ", "a ", "")),
        (named, None, Prefixes("q ? ")),
    ):
        encoder = toy(read({"prompts": stated, "default_prompt_name": default}))
        assert encoder.prefixes == expected
        encode_alike(tmp_path, encoder)
    assert read({"prompts": {"query": "q: "}}) == Prefixes("q: ", "")
    assert read({"prompts": None}) == read([]) == read({}) == PLAIN

    pooling = tmp_path / "1_Pooling" / "config.json"
    said = json.loads(pooling.read_text())
    pooling.write_text(json.dumps({**said, "include_prompt": False}))
    assert resolve_checkpoint(str(tmp_path)).pooling == "mean"
    read({"prompts": prompts})
    checkpoint = resolve_checkpoint(str(tmp_path))
    encoder = load_encoder(checkpoint, "auto", 64)
    assert encoder.pooling == "modules"
    encoder.prefixes = checkpoint.prefixes  # none before texts
    expected = sentence_transformer(tmp_path).encode(SENTENCES)
    np.testing.assert_allclose(expected, encoder.encode(SENTENCES), atol=1e-5)
    with pytest.raises(CheckpointError, match="leave prompts out of the pooling"):
        encoder.encode(["a dog"], prompt="query")
