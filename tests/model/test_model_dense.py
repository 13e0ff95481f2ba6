"""Layers behind the pooling: in our files, in sentence-transformers', and in fingerprints."""

import copy
import importlib
import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from model_samples import SENTENCES, sentence_transformer
from safetensors.torch import load_file, save_file
from torch import nn

from tune_sentcl.config import Pooling
from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.dense import Activation, Dense, Tail, read_dense, write_dense
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.saving import export

POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)


def _layer(inputs: int, outputs: int, activation: Activation, bias: bool = True) -> Dense:
    layer = nn.Linear(inputs, outputs, bias)
    draws = torch.Generator().manual_seed(inputs + outputs)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draws) / inputs**0.5)
    return Dense(layer, activation)


def _encoder(pooling: Pooling = "mean") -> Encoder:
    encoder = load_encoder(resolve_checkpoint("toy"), pooling, 12)
    encoder.tail = Tail(_layer(32, 24, "relu"), _layer(24, 8, "none", bias=False))
    return encoder


def _exported(folder: Path) -> Path:
    export(_encoder(), folder, {})
    return folder


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_its_formula_and_survives_its_files(
    activation: Activation, bias: bool, tmp_path: Path
) -> None:
    dense = _layer(5, 3, activation, bias)
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    expected = x @ dense.linear.weight.T + (dense.linear.bias if bias else 0.0)
    if activation == "relu":
        expected = expected.clamp(min=0)
    elif activation == "tanh":
        expected = 2 / (1 + (-2 * expected).exp()) - 1
    elif activation == "gelu":
        expected = expected * 0.5 * (1 + torch.erf(expected / 2**0.5))
    torch.testing.assert_close(dense(x), expected)
    write_dense(dense, tmp_path)
    again = read_dense(tmp_path)
    assert again.activation == activation
    assert torch.equal(again(x), dense(x))


def test_a_tail_s_width_and_copies() -> None:
    tail = Tail(_layer(4, 6, "relu"), _layer(6, 2, "none"))
    assert (tail.width(4), Tail().width(4)) == (2, 4)
    x = torch.ones(1, 4)
    assert torch.equal(Tail()(x), x)
    other = copy.deepcopy(tail)
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    assert other.layers[0] is other[0]  # one and the same, not a copy beside the copy
    assert not other(x).any() and tail(x).any()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_round_trip_with_a_tail(pooling: Pooling, tmp_path: Path) -> None:
    encoder = _encoder(pooling)
    expected = encoder.encode(SENTENCES)
    assert expected.shape == (4, encoder.width) == (4, 8)
    folder = tmp_path / "exported"
    export(encoder, folder, {})

    checkpoint = resolve_checkpoint(str(folder))
    assert (checkpoint.pooling, checkpoint.max_length) == (pooling, 12)
    assert len(checkpoint.dense) == 2 and checkpoint.width == 8
    again = load_encoder(checkpoint, pooling, 12)
    assert np.array_equal(again.encode(SENTENCES), expected)
    assert [layer.activation for layer in again.tail.layers] == ["relu", "none"]

    theirs = sentence_transformer(folder)
    found = theirs.encode(SENTENCES, show_progress_bar=False)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert "Embeddings have 8 dimensions" in (folder / "README.md").read_text()

    # An exported folder may be trained further and exported again.
    export(again, tmp_path / "twice", {})
    twice = load_encoder(resolve_checkpoint(str(tmp_path / "twice")), pooling, 12)
    assert np.array_equal(twice.encode(SENTENCES), expected)


def test_each_load_has_a_tail_of_its_own(tmp_path: Path) -> None:
    checkpoint = resolve_checkpoint(str(_exported(tmp_path / "exported")))
    first = load_encoder(checkpoint, "mean", 12)
    expected = first.encode(SENTENCES)
    with torch.no_grad():
        for weight in first.tail.parameters():
            weight.zero_()
    assert np.array_equal(load_encoder(checkpoint, "mean", 12).encode(SENTENCES), expected)
    assert {name for name, _ in first.named_parameters() if name.startswith("tail")} == {
        "tail.0.linear.weight",
        "tail.0.linear.bias",
        "tail.1.linear.weight",
    }


def _more_bias(folder: Path) -> None:
    weights = load_file(folder / "2_Dense/model.safetensors")
    weights["linear.bias"][0] += 1.0
    save_file(weights, folder / "2_Dense/model.safetensors")


def _other_activation(folder: Path) -> None:
    path = folder / "2_Dense/config.json"
    path.write_text(path.read_text().replace("ReLU", "Tanh"))


def _other_order(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[2], modules[3] = modules[3], modules[2]
    (folder / "modules.json").write_text(json.dumps(modules))


def _fewer(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:-1]))


@pytest.mark.parametrize("change", [_more_bias, _other_activation, _other_order, _fewer])
def test_the_fingerprint_sees_the_layers(change: Any, tmp_path: Path) -> None:
    folder = _exported(tmp_path / "exported")
    before = resolve_checkpoint(str(folder)).fingerprint
    assert resolve_checkpoint(str(_exported(tmp_path / "same"))).fingerprint == before
    change(folder)
    assert resolve_checkpoint(str(folder)).fingerprint != before


def _modules() -> Any:
    return importlib.import_module("sentence_transformers.sentence_transformer.modules")


def _theirs(folder: Path, *behind: Any) -> Any:
    """A model put together and saved by sentence-transformers itself."""
    import sentence_transformers

    models = _modules()

    export(load_encoder(resolve_checkpoint("toy"), "mean", 12), folder / "base", {})
    transformer = models.Transformer(str(folder / "base"), max_seq_length=12)
    model = sentence_transformers.SentenceTransformer(
        modules=[transformer, models.Pooling(32, "mean"), *behind], device="cpu"
    )
    model.save(str(folder / "theirs"))
    return model


@pytest.mark.parametrize("normalized", [True, False])
def test_a_dense_module_of_sentence_transformers_is_read(tmp_path: Path, normalized: bool) -> None:
    models = _modules()

    behind = [models.Dense(32, 7, activation_function=nn.Tanh())]
    model = _theirs(tmp_path, *behind, *([models.Normalize()] if normalized else []))
    checkpoint = resolve_checkpoint(str(tmp_path / "theirs"))
    assert (checkpoint.pooling, checkpoint.pooling_problem) == ("mean", "")
    encoder = load_encoder(checkpoint, "mean", 12)
    assert checkpoint.width == encoder.width == 7
    assert [layer.activation for layer in encoder.tail.layers] == ["tanh"]
    found = encoder.encode(SENTENCES)
    if normalized:  # left out: cosines do not see it
        found = found / np.linalg.norm(found, axis=1, keepdims=True)
    expected = model.encode(SENTENCES, show_progress_bar=False)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_layers_that_do_more_are_refused(tmp_path: Path) -> None:
    models = _modules()

    _theirs(tmp_path, models.Dense(32, 32, use_residual=True))
    checkpoint = resolve_checkpoint(str(tmp_path / "theirs"))
    with pytest.raises(CheckpointError, match="its Dense module is more than a layer on the emb"):
        load_encoder(checkpoint, "mean", 12)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("torch.nn.modules.activation.Softmax", "ends with Softmax, which is not in .*'Tanh'"),
        ("my_module.Tanh", "ends with Tanh, which is not in"),
        ("", "ends with , which is not in"),
    ],
)
def test_other_activations_are_refused(tmp_path: Path, written: str, message: str) -> None:
    folder = _exported(tmp_path / "exported")
    path = folder / "2_Dense/config.json"
    path.write_text(path.read_text().replace("torch.nn.modules.activation.ReLU", written))
    with pytest.raises(CheckpointError, match=rf"cannot be loaded \(its Dense module {message}"):
        load_encoder(resolve_checkpoint(str(folder)), "mean", 12)


def test_shorter_names_of_activations_are_known(tmp_path: Path) -> None:
    folder = _exported(tmp_path / "exported")
    path = folder / "2_Dense/config.json"
    path.write_text(path.read_text().replace("torch.nn.modules.activation.ReLU", "torch.nn.ReLU"))
    encoder = load_encoder(resolve_checkpoint(str(folder)), "mean", 12)
    assert encoder.tail.layers[0].activation == "relu"


@pytest.mark.parametrize("damage", ["gone", "short", "shape", "config"])
def test_damaged_layers_are_named_as_the_checkpoint_s(tmp_path: Path, damage: str) -> None:
    folder = _exported(tmp_path / "exported")
    place = folder / "2_Dense"
    if damage == "gone":
        (place / "model.safetensors").unlink()
    elif damage == "short":
        (place / "model.safetensors").write_bytes(b"short")
    elif damage == "shape":
        save_file({"linear.weight": torch.zeros(2, 2)}, place / "model.safetensors")
    else:
        (place / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"encoder\.checkpoint: '.*exported'"):
        load_encoder(resolve_checkpoint(str(folder)), "mean", 12)


@pytest.mark.parametrize(
    ("kinds", "problem"),
    [
        (["Transformer", "Dense", "Pooling"], "it has a module Dense before its pooling"),
        (["Transformer", "Pooling", "Normalize", "Dense"], "a module Dense after a Normalize"),
    ],
)
def test_layers_in_other_places_are_a_problem(
    tmp_path: Path, kinds: list[str], problem: str
) -> None:
    folder = _exported(tmp_path / "exported")
    (folder / "tune_sentcl.json").unlink()
    places = {"Transformer": "", "Dense": "2_Dense", "Pooling": "1_Pooling"}
    modules = [{"path": places.get(kind, "x"), "type": f"a.{kind}"} for kind in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    found = resolve_checkpoint(str(folder))
    assert (found.pooling, found.dense) == (None, ())
    assert problem in found.pooling_problem
