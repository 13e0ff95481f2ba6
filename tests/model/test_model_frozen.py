"""An encoder that stands still, with and without layers behind it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_samples import SENTENCES, sentence_transformer
from torch import nn

from tune_sentcl.errors import CheckpointError, NonFiniteError
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint, resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.modules import Tail, dense
from tune_sentcl.model.saving import export


@pytest.fixture(autouse=True)
def cache_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path / "cache"))


def _layer(inputs: int, outputs: int) -> Any:
    layer = nn.Linear(inputs, outputs)
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=draws))
    return dense(layer, "ReLU")


def _frozen(checkpoint: Checkpoint) -> FrozenEncoder:
    return FrozenEncoder(checkpoint, "mean", 12, "cpu", SENTENCES)


def test_rows_are_the_encoder_s_at_each_length_and_pooling() -> None:
    checkpoint = resolve_checkpoint("toy")
    for pooling in ("mean", "static_last"):
        for length in (12, 6):
            expected = load_encoder(checkpoint, pooling, length).encode(SENTENCES)
            frozen = FrozenEncoder(checkpoint, pooling, length, "cpu", SENTENCES)
            assert (frozen.dim, frozen.width, frozen.cache.encoded) == (32, 32, 4)
            np.testing.assert_allclose(frozen.base(SENTENCES), expected, atol=1e-6)
            np.testing.assert_allclose(frozen.encode(SENTENCES[::-1]), expected[::-1], atol=1e-6)
    again = _frozen(checkpoint)
    assert again.cache.encoded == 0
    # What was not announced is encoded when it is asked for.
    assert again.encode(["something else"]).shape == (1, 32)
    assert again.cache.encoded == 1
    assert again.encode([]).shape == (0, 32)


def test_a_tail_behind_frozen_embeddings_is_trained_and_exported_with_the_encoder(
    tmp_path: Path,
) -> None:
    frozen = _frozen(resolve_checkpoint("toy"))
    assert list(frozen.parameters()) == []
    base = torch.from_numpy(frozen.base(SENTENCES))
    layer = _layer(32, 6)
    frozen.tail = Tail(layer)
    assert (frozen.dim, frozen.width, len(list(frozen.parameters()))) == (32, 6, 2)
    expected = (base @ layer.linear.weight.T + layer.linear.bias).relu().detach().numpy()
    for training in (True, False):
        frozen.train(training)
        np.testing.assert_allclose(frozen.encode(SENTENCES), expected, atol=1e-5)
        assert frozen.training is training
    whole = frozen.whole()
    assert whole is not None and whole.width == 6
    with torch.no_grad():  # training may go on while it is saved
        layer.linear.weight[0] = torch.nan
    np.testing.assert_allclose(whole.encode(SENTENCES), expected, atol=1e-5)
    export(whole, tmp_path / "exported", {})
    theirs = sentence_transformer(tmp_path / "exported")
    rows = theirs.encode(SENTENCES, show_progress_bar=False)
    np.testing.assert_allclose(rows, expected, atol=1e-5)

    frozen.train()
    with pytest.raises(NonFiniteError, match=r"'a dog runs \.'"):
        frozen.encode(SENTENCES)
    assert frozen.training


def test_layers_of_the_checkpoint_come_before_those_of_the_method(tmp_path: Path) -> None:
    encoder = load_encoder(resolve_checkpoint("toy"), "mean", 12)
    encoder.tail = Tail(_layer(32, 5))
    export(encoder, tmp_path / "exported", {})
    checkpoint = resolve_checkpoint(str(tmp_path / "exported"))
    frozen = _frozen(checkpoint)
    assert (frozen.dim, frozen.width) == (5, 5)
    np.testing.assert_allclose(frozen.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-6)
    frozen.tail = Tail(_layer(5, 3))
    whole = frozen.whole()
    assert whole is not None and len(whole.tail) == 2
    np.testing.assert_allclose(whole.encode(SENTENCES), frozen.encode(SENTENCES), atol=1e-5)


def test_word_vectors_stand_still_too(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("dog 1 2\nman 3 4\n")
    checkpoint = resolve_checkpoint(str(path))
    frozen = FrozenEncoder(checkpoint, "cls", 512, "cpu", ["dog man", "dog"])
    assert frozen.encode(["dog man", "man"]).tolist() == [[2, 3], [3, 4]]
    assert (frozen.dim, frozen.cache.encoded, frozen.whole()) == (2, 3, None)
    # Neither pooling nor length means anything to them.
    again = FrozenEncoder(checkpoint, "mean", 8, "cpu", ["dog man", "dog"])
    assert again.cache.encoded == 0
    with pytest.raises(
        CheckpointError, match=r"word vectors have no transformer that could be trained\. Use"
    ):
        load_encoder(checkpoint, "mean", 12)
