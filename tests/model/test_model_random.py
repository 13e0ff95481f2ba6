"""`random:NAME`: the architecture of a model, its weights drawn anew, always the same."""

from pathlib import Path

import numpy as np
import pytest
import torch
from model_samples import SENTENCES, save_roberta
from torch import nn

from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.checkpoints.loading import load_base
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.modules import Tail, dense
from tune_sentcl.model.saving import export


def test_weights_are_drawn_anew_and_always_the_same(tmp_path: Path) -> None:
    folder = save_roberta(tmp_path)
    trained = resolve_checkpoint(str(folder))
    redrawn = resolve_checkpoint(f"random:{folder}")
    assert (redrawn.kind, redrawn.name) == ("random", f"random:{folder}")
    assert redrawn.fingerprint != trained.fingerprint
    assert resolve_checkpoint(f"random:{folder}").fingerprint == redrawn.fingerprint

    before = torch.get_rng_state()
    first = load_encoder(redrawn, "mean", 12)
    assert torch.equal(before, torch.get_rng_state())
    load_base.cache_clear()  # as in another process
    torch.rand(1)
    second = load_encoder(redrawn, "mean", 12)
    pretrained = load_encoder(trained, "mean", 12)
    for name, weight in first.named_parameters():
        assert torch.equal(weight, second.get_parameter(name))
        assert weight.shape == pretrained.get_parameter(name).shape
    different = [
        name
        for name, weight in first.named_parameters()
        if not torch.equal(weight, pretrained.get_parameter(name))
    ]
    assert len(different) > 10  # all but the biases and norms, which begin at 0 and 1
    assert all("weight" in name and "LayerNorm" not in name for name in different)
    assert not first.training
    assert np.array_equal(first.encode(SENTENCES), second.encode(SENTENCES))


def test_what_cannot_be_drawn_anew(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("a 1 2\n")
    nested = f"random:random:{save_roberta(tmp_path / 'roberta')}"
    for name in ("random:toy", nested, f"random:{tmp_path / 'vectors.txt'}"):
        with pytest.raises(CheckpointError, match=f"'{name}': only a plain transformer can get"):
            resolve_checkpoint(name)
    encoder = load_encoder(resolve_checkpoint("toy"), "mean", 12)
    encoder.tail = Tail(dense(nn.Linear(32, 4), "Identity"))
    export(encoder, tmp_path / "exported", {})
    with pytest.raises(CheckpointError, match="without layers after its pooling"):
        resolve_checkpoint(f"random:{tmp_path / 'exported'}")
