"""ModernBERT and decoders as sentence encoders, against the library sentence by sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architecture_samples import DECODERS, END, KINDS, save_architecture
from model_samples import SENTENCES

from tune_sentcl.config import Pooling
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder

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
    model = library.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).last_hidden_state[0].double()


@pytest.mark.parametrize("name", KINDS)
def test_padding_changes_no_embedding(name: str, folders: dict[str, Path]) -> None:
    mean, last = (encoder_of(folders[name], pooling) for pooling in ("mean", "last"))
    assert not mean.packs  # windows, groups of heads, or causal attention
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
