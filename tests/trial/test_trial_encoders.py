"""Trials of encoders that people use now: what is trained of them, read, kept and measured."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architecture_samples import KINDS, save_architecture, save_t5
from model_samples import sentence_transformer
from safetensors.torch import load_file
from trial_samples import LOADER, Kept, chosen, finish, measured

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.model.checkpoints.loading import load_base
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.saving import export

WORDS = ["a dog runs .", "the man", "the woman sees a dog in the park while a man sleeps ."]
TOY: dict[str, Any] = {
    "method.name": "cosent",
    "encoder.checkpoint": "toy",
    "encoder.pooling": "mean",
    "encoder.max_length": 64,
    "data.source": "toy",
    "data.limit": 32,
    "optimizer.batch_size": 16,
    "optimizer.lr": 1e-2,
    "evaluation.protocols": ["cosine"],
}


def config_of(**values: Any) -> TrialConfig:
    return parse_dotted({**TOY, **values}, "test")


def own_encoder(end: Any) -> Encoder:
    assert isinstance(end.encoder, Encoder)
    return end.encoder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("architectures")
    t5 = str(save_t5(root / "T5"))
    static = {"static": "static:16:toy"}
    return {
        "T5": t5,
        **static,
        **{name: str(save_architecture(name, root / name)) for name in KINDS},
    }


@pytest.mark.parametrize(
    ("name", "more"),
    [
        *((name, {}) for name in (*KINDS, "T5", "static")),
        *((name, {"encoder.lora_rank": 2}) for name in ("ModernBert", "Qwen3")),
        *((name, {"encoder.freeze_layers": 2}) for name in ("Llama", "T5")),
        (
            "ModernBert",
            {"method.name": "mnr", "method.head": "kept", "encoder.lora_rank": 2},
        ),
    ],
)
def test_from_the_first_step_to_the_exported_folder(
    name: str, more: dict[str, Any], folders: dict[str, str], tmp_path: Path
) -> None:
    pooling = "mean" if name in ("ModernBert", "T5", "static") else "last"
    config = config_of(**{"encoder.checkpoint": folders[name], "encoder.pooling": pooling, **more})
    points, end = finish(config, tmp_path / "study")
    encoder = own_encoder(end)
    assert points[-1].final and len(end.scores) > 0

    start = load_base(LOADER.load(config).checkpoint).transformer.state_dict()
    moved = {
        n
        for n, w in encoder.transformer.named_parameters()
        if n in start and not torch.equal(w, start[n])
    }
    trained = {n for n, w in encoder.transformer.named_parameters() if w.requires_grad}
    assert moved == trained & start.keys()
    assert bool(moved) != ("encoder.lora_rank" in more)

    kept = Kept(tmp_path / "study", config)
    read = kept.encoder()
    assert len(read.tail) == ("method.head" in more)
    if name == "T5":  # two names of one tensor
        stored = load_file(kept.weights / "model.safetensors").keys()
        assert "shared.weight" in stored and "encoder.embed_tokens.weight" not in stored
    expected = encoder.encode(WORDS)
    np.testing.assert_allclose(read.encode(WORDS), expected, atol=1e-5)
    again = chosen(measured(kept, config)[1])
    assert again == pytest.approx(chosen(end), abs=1e-3)
    export(read, tmp_path / "exported", {})
    theirs = sentence_transformer(tmp_path / "exported")
    np.testing.assert_allclose(theirs.encode(WORDS, show_progress_bar=False), expected, atol=1e-5)


def test_a_prefix_is_as_if_it_stood_in_the_rows(tmp_path: Path) -> None:
    texts = [("a dog runs .", "the man", 1.0), ("the dog", "a dog .", 4.0), ("man", "dog", 2.0)]

    def rows(prefix: str) -> str:
        path = tmp_path / f"{len(prefix)}.jsonl"
        lines = (
            json.dumps({"sentence1": prefix + a, "sentence2": prefix + b, "score": score})
            for a, b, score in texts * 4
        )
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    prefix = "the woman sees "
    common = {"data.limit": None, "optimizer.batch_size": 4, "evaluation.data": "toy"}
    knob = config_of(**common, **{"data.source": rows(""), "encoder.text_prefix": prefix})
    written, plain = (config_of(**common, **{"data.source": rows(p)}) for p in (prefix, ""))
    by_knob, by_hand, without = (own_encoder(finish(c)[1]) for c in (knob, written, plain))
    assert by_knob.prefixes == Prefixes("", prefix) and by_hand.prefixes == Prefixes()
    weights = by_knob.state_dict()
    assert all(torch.equal(w, weights[n]) for n, w in by_hand.state_dict().items())
    assert not all(torch.equal(w, weights[n]) for n, w in without.state_dict().items())
    # In evaluation, too, it stands before every sentence.
    read = [prefix + text for text in WORDS]
    assert np.array_equal(by_knob.encode(WORDS), by_hand.encode(read))


def test_prefixes_stay_with_the_weights_and_act_when_they_are_measured(tmp_path: Path) -> None:
    prefixes = {"encoder.text_prefix": "the man sees ", "encoder.query_prefix": "who ? "}
    config = config_of(**prefixes)
    _, end = finish(config, tmp_path)
    kept = Kept(tmp_path, config)
    checkpoint = LOADER.load(config_of(**{"encoder.checkpoint": str(kept.weights)})).checkpoint
    assert checkpoint.prefixes == Prefixes("who ? ", "the man sees ")
    assert chosen(measured(kept, config)[1]) == chosen(end)
    assert chosen(measured(kept, config_of())[1]) != chosen(end)
