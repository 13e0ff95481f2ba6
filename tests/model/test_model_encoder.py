"""The encoder: laws of `encode`, and other kinds of model than BERT."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from model_samples import save_roberta

from tune_sentcl.config import Pooling
from tune_sentcl.errors import CheckpointError, NonFiniteError
from tune_sentcl.model import encoding
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.encoder import Encoder, load_encoder

POOLINGS: tuple[Pooling, ...] = get_args(Pooling)[:-1]  # without `modules`
PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog", "runs", "sees"),
    *"abcdefghijklmnopqrstuvwxyz.",
    *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"),
]
SENTENCES = [
    "a cat runs .",
    "dog",
    "",
    "the quick dog sees a cat that sees a dog that runs far away .",
    "a cat runs .",
    "cat sees dog",
]


def _toy(pooling: Pooling = "mean", max_length: int = 64) -> Encoder:
    return Encoder(*build_toy(PIECES), pooling, max_length).eval()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_encode_equals_the_transformer_on_each_sentence_alone(pooling: Pooling) -> None:
    encoder = _toy(pooling).double()
    found = encoder.encode(SENTENCES)
    for row, ids in enumerate(encoder.tokenize(SENTENCES)):
        with torch.no_grad():
            layers = encoder.transformer(
                torch.tensor([ids]), output_hidden_states=True
            ).hidden_states
        # [static embeddings, after layer 1, after layer 2]
        static, first, last = (layer[0] for layer in layers)
        expected = {
            "mean": last.mean(0),
            "cls": last[0],
            "last": last[-1],
            "mean_without_cls": last[1:].mean(0),
            "first_last": ((first + last) / 2).mean(0),
            "static_last": ((static + last) / 2).mean(0),
        }[pooling]
        np.testing.assert_allclose(found[row], expected.numpy(), atol=1e-6)


def test_equal_sentences_have_equal_rows_and_are_encoded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoding, "_TOKENS_ON_CPU", 1)  # so that each is a batch
    seen: list[tuple[int, int]] = []
    found = _toy().encode(SENTENCES, lambda done, total: seen.append((done, total)))
    assert np.array_equal(found[0], found[4])
    assert found.dtype == np.float32
    assert found.shape == (6, 32)
    assert seen == [(done, 5) for done in range(1, 6)]


def test_encode_has_no_dropout_and_restores_the_training_flag() -> None:
    assert _toy().encode([]).shape == (0, 32)
    encoder = _toy()
    for training in (False, True):
        encoder.train(training)
        assert np.array_equal(encoder.encode(SENTENCES), encoder.encode(SENTENCES))
        assert encoder.training is encoder.transformer.training is training
    with torch.no_grad():
        encoder.transformer.embeddings.word_embeddings.weight[5] = torch.nan
    with pytest.raises(NonFiniteError, match=r"'a cat runs \.'"):
        encoder.encode(["dog", "a cat runs .", "cat"])
    assert encoder.training


def test_load_gives_fresh_weights_each_time() -> None:
    checkpoint = resolve_checkpoint("toy")
    before = torch.get_rng_state()
    first = load_encoder(checkpoint, "mean", 64)
    expected = first.encode(SENTENCES)
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(1.0)
    second = load_encoder(checkpoint, "mean", 64)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(second.encode(SENTENCES), expected)
    assert not second.training
    assert all(parameter.requires_grad for parameter in second.parameters())


@pytest.fixture
def roberta(tmp_path: Path) -> Path:
    return save_roberta(tmp_path)


def test_roberta_has_fewer_positions_than_rows(
    roberta: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    encoder = load_encoder(resolve_checkpoint(str(roberta)), "mean", 512)
    assert encoder.max_length == 16  # 18 rows, of which two stand before the first position
    assert np.isfinite(encoder.encode(["a sentence far longer than sixteen bytes"])).all()
    assert encoder.tokenize([""]) == [[0, 2]]
    assert capfd.readouterr() == ("", ""), "loading is silent"


def test_pooling_that_needs_cls_is_refused_without_one(roberta: Path) -> None:
    encoder = load_encoder(resolve_checkpoint(str(roberta)), "mean", 16)
    import tokenizers

    encoder.tokenizer.backend_tokenizer.post_processor = tokenizers.processors.ByteLevel(
        trim_offsets=True
    )
    Encoder(encoder.transformer, encoder.tokenizer, "mean", 16)
    for pooling in ("cls", "mean_without_cls"):
        with pytest.raises(CheckpointError, match="no classification token"):
            Encoder(encoder.transformer, encoder.tokenizer, pooling, 16)
