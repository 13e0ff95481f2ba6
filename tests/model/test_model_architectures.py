"""ModernBERT, decoders and frozen layers, against the library and the unfrozen encoder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architecture_samples import DECODERS, END, KINDS, save_architecture
from model_samples import SENTENCES
from torch import nn

from tune_sentcl.config import Pooling
from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.modules import Tail, dense
from tune_sentcl.model.trained import freeze_lowest, restore_trained, trained_state

LONG = 64
WORDS = [text for text in SENTENCES if text]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("architectures")
    return {name: save_architecture(name, root / name) for name in KINDS}


def encoder_of(folder: Path, pooling: Pooling = "mean") -> Encoder:
    return load_encoder(resolve_checkpoint(str(folder)), pooling, LONG)


def alone(folder: Path, ids: list[int]) -> Any:
    """The states of one input by the library itself, which knows of no padding."""
    import transformers

    library: Any = transformers
    model = library.AutoModel.from_pretrained(folder, dtype=torch.float64).eval()
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("packed", [True, False])
def test_neither_packing_nor_padding_changes_an_embedding(
    packed: bool, name: str, folders: dict[str, Path]
) -> None:
    mean, last = (encoder_of(folders[name], pooling).double() for pooling in ("mean", "last"))
    mean.packed = last.packed = packed
    assert mean.packs == packed
    both = mean.encode(WORDS), last.encode(WORDS)
    for row, ids in enumerate(mean.tokenize(WORDS)):
        states = alone(folders[name], ids)
        np.testing.assert_allclose(both[0][row], states.mean(0).numpy(), atol=1e-5)
        np.testing.assert_allclose(both[1][row], states[-1].numpy(), atol=1e-5)
    if name in DECODERS:
        assert mean.tokenizer.pad_token == END
        assert mean.transformer.config.use_cache is False


@pytest.mark.parametrize("name", DECODERS)
def test_a_sentence_without_a_token_is_the_zero_vector(
    name: str, folders: dict[str, Path]
) -> None:
    for pooling in ("mean", "last"):
        rows = encoder_of(folders[name], pooling).encode(SENTENCES)
        assert [bool(row.any()) for row in rows] == [bool(text) for text in SENTENCES]


def test_a_decoder_saved_with_its_head_loads_without_it(tmp_path: Path) -> None:
    import transformers

    library: Any = transformers
    plain = save_architecture("Qwen2", tmp_path / "plain")
    model = library.AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)
    whole = save_architecture("Qwen2", tmp_path / "whole")
    model.save_pretrained(whole)
    ours, theirs = (encoder_of(folder, "last").encode(WORDS) for folder in (plain, whole))
    assert np.array_equal(ours, theirs)


def short_encoder(name: str, tmp_path: Path) -> Encoder:
    if name != "toy":
        name = str(save_architecture(name, tmp_path))
    return load_encoder(resolve_checkpoint(name), "mean", 16)


def gradients(encoder: Encoder) -> dict[str, torch.Tensor]:
    encoder.zero_grad()
    encoder(encoder.tokenize(WORDS)).pow(2).sum().backward()
    return {
        name: weight.grad.clone()
        for name, weight in encoder.transformer.named_parameters()
        if weight.grad is not None
    }


@pytest.mark.parametrize("name", ["toy", "ModernBert", "Qwen2"])
def test_gradients_of_the_rest_are_those_of_the_unfrozen(name: str, tmp_path: Path) -> None:
    encoder = short_encoder(name, tmp_path)
    whole = gradients(encoder)
    assert len(whole) == len(list(encoder.transformer.parameters()))
    freeze_lowest(encoder.transformer, 1)
    found = gradients(encoder)
    stack = "encoder.layer." if name == "toy" else "layers."
    own = {n for n in whole if n.startswith(stack) and not n.startswith(f"{stack}0.")}
    last = {"norm.weight", "final_norm.weight"} & whole.keys()  # behind the layers
    assert found.keys() == own | last
    for weight, gradient in found.items():
        torch.testing.assert_close(gradient, whole[weight], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("name", "layers"), [("toy", 2), ("Qwen3", 3), ("ModernBert", 3)])
def test_a_layer_is_left(name: str, layers: int, tmp_path: Path) -> None:
    encoder = short_encoder(name, tmp_path)
    for count in (layers, layers + 1, 99):
        with pytest.raises(
            CheckpointError, match=rf"freeze_layers: {count}: must leave .*{layers}"
        ):
            freeze_lowest(encoder.transformer, count)
    assert all(weight.requires_grad for weight in encoder.parameters())
    freeze_lowest(encoder.transformer, layers - 1)
    assert any(weight.requires_grad for weight in encoder.parameters())


def test_a_state_has_what_moves_and_nothing_else(tmp_path: Path) -> None:
    encoder = short_encoder("toy", tmp_path)
    encoder.tail = Tail(dense(nn.Linear(32, 4), "Identity"))
    assert trained_state(encoder).keys() == encoder.state_dict().keys()
    freeze_lowest(encoder.transformer, 1)
    kept = {name: value.clone() for name, value in trained_state(encoder).items()}
    moved = {name for name, weight in encoder.named_parameters() if weight.requires_grad}
    assert moved <= kept.keys()
    assert not any("embeddings" in name or "layer.0." in name for name in kept)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    with torch.no_grad():
        for weight in encoder.parameters():
            if weight.requires_grad:
                weight.zero_()
    restore_trained(encoder, kept)
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    other = short_encoder("toy", tmp_path)
    with pytest.raises(KeyError, match="a state of other weights"):
        restore_trained(other, kept)
