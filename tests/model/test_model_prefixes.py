"""Text before sentences: in tokens, embeddings, caches, stores and what is exported."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from model_samples import SENTENCES, sentence_transformer

from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.rows.kinds import KINDS
from tune_sentcl.data.task import Prompt
from tune_sentcl.errors import CheckpointError
from tune_sentcl.model import token_store
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes, holds_queries
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.saving import export
from tune_sentcl.model.token_store import corpus_tokens

BOTH = Prefixes("the man sees ", "a dog runs . ")
PLAIN = Prefixes()


def toy(prefixes: Prefixes = PLAIN) -> Encoder:
    encoder = load_encoder(resolve_checkpoint("toy"), "mean", 64)
    encoder.prefixes = prefixes
    return encoder


def written(prefix: str) -> list[str]:
    """The sentences with a prefix, by hand."""
    return [f"{prefix}{text}" for text in SENTENCES]


@pytest.fixture
def anchored() -> Corpus:
    """Rows with a column of queries, which holds a sentence that is also a text."""
    columns = {"anchor": SENTENCES, "positive": SENTENCES[::-1]}
    return make_corpus("triplets", pa.table(columns), "made up")


def test_who_asks_is_the_anchor_alone() -> None:
    names = {name for kind in KINDS.values() for name in kind.columns}
    texts = names | {"premise", "hypothesis", "text", "sentence1", "sentence2", "positive"}
    assert holds_queries("anchor")
    assert not any(holds_queries(name) for name in texts - {"anchor"})


def test_an_encoder_reads_what_stands_before_a_sentence() -> None:
    plain, with_both = toy(), toy(BOTH)
    prompts: dict[Prompt, str] = {"query": BOTH.query, "text": BOTH.text, "document": BOTH.text}
    for prompt, prefix in prompts.items():
        expected = written(prefix)
        assert with_both.tokenize(SENTENCES, prompt=prompt) == plain.tokenize(expected)
        assert with_both.contents(SENTENCES, prompt=prompt) == plain.contents(expected)
        found = with_both.encode(SENTENCES, prompt=prompt)
        assert np.array_equal(found, plain.encode(expected))
    assert np.array_equal(with_both.encode(SENTENCES), plain.encode(written(BOTH.text)))


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("small", [0, token_store.SMALL])
def test_a_corpus_has_each_column_s_prefix(
    small: int, special: bool, anchored: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path))
    monkeypatch.setattr(token_store, "SMALL", small)
    rows = np.arange(len(anchored))
    plain = toy()
    # One tokenizer serves all encoders: nobody is given what another one has stored.
    for prefixes in (PLAIN, BOTH, Prefixes("", BOTH.text), Prefixes(BOTH.query, ""), PLAIN):
        found = corpus_tokens(toy(prefixes), anchored, special=special)
        read = plain.tokenize if special else plain.contents
        for column, prefix in (("anchor", prefixes.query), ("positive", prefixes.text)):
            texts = [f"{prefix}{text}" for text in anchored.texts(column)]
            assert found.take(column, rows).lists() == read(texts)
    assert len([*tmp_path.glob("*.arrow")]) == (0 if small else 4)


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


@pytest.mark.parametrize(
    "prefixes",
    [
        *(BOTH, Prefixes(query=BOTH.query), Prefixes(text=BOTH.text)),
        *(Prefixes("", "a ", "the "), Prefixes("who ? ", "a ", ""), Prefixes("", "", "the ")),
    ],
    ids=str,
)
@pytest.mark.parametrize("pooling", ["mean", "mean_without_cls"])
def test_what_is_exported_has_them_as_prompts(
    prefixes: Prefixes, pooling: str, tmp_path: Path
) -> None:
    encoder = load_encoder(resolve_checkpoint("toy"), pooling, 64)  # type: ignore[arg-type]
    encoder.prefixes = prefixes
    export(encoder, tmp_path, {})
    theirs = sentence_transformer(tmp_path)
    texts, queries = encoder.encode(SENTENCES), encoder.encode(SENTENCES, prompt="query")
    for found, expected in (
        (theirs.encode(SENTENCES), texts),
        (theirs.encode_document(SENTENCES), encoder.encode(SENTENCES, prompt="document")),
        (theirs.encode(SENTENCES, prompt_name="query"), queries),
        (theirs.encode_query(SENTENCES), queries),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert resolve_checkpoint(str(tmp_path)).prefixes == prefixes
    if pooling != "mean_without_cls":  # which only our own file names
        (tmp_path / "tune_sentcl.json").unlink()
        again = resolve_checkpoint(str(tmp_path))
        assert (again.prefixes, again.pooling) == (prefixes, pooling)


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
        found = toy(read({"prompts": stated, "default_prompt_name": default}))
        assert found.prefixes == expected
        theirs = sentence_transformer(tmp_path)
        by_prompt: dict[Prompt, Any] = {
            "text": theirs.encode,
            "query": theirs.encode_query,
            "document": theirs.encode_document,
        }
        for prompt, encode in by_prompt.items():
            ours = found.encode(SENTENCES, prompt=prompt)
            np.testing.assert_allclose(encode(SENTENCES), ours, atol=1e-5)
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
    with pytest.raises(CheckpointError, match="leave prompts out of their pooling"):
        encoder.encode(["a dog"], prompt="query")
