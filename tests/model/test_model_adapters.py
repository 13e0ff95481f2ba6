"""Low-rank adapters: against the formula, against peft's own reading, and as files."""

import json
from pathlib import Path
from typing import Any

import layout_samples
import numpy as np
import pytest
import torch
from architecture_samples import KINDS, save_architecture
from layout_samples import toy
from model_samples import SENTENCES, save_roberta, sentence_transformer

from tune_sentcl.config import EncoderConfig
from tune_sentcl.errors import CheckpointError
from tune_sentcl.model.checkpoints import adapters
from tune_sentcl.model.checkpoints.adapters import Adapted, add_adapters
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint, resolve_checkpoint
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.saving import export, keep
from tune_sentcl.model.trained import freeze_lowest

__all__ = ["toy"]

WORDS = [text for text in SENTENCES if text]


def lora(rank: int, alpha: float, targets: str) -> EncoderConfig:
    return EncoderConfig(lora_rank=rank, lora_alpha=alpha, lora_dropout=0.0, lora_targets=targets)


LORA = lora(3, 5.0, "all-linear")


def checkpoint_of(name: str, folder: Path) -> Checkpoint:
    if name == "Roberta":
        name = str(save_roberta(folder))
    elif name in KINDS:
        name = str(save_architecture(name, folder))
    return resolve_checkpoint(name)


def adapted(
    checkpoint: Checkpoint, options: EncoderConfig = LORA, seed: int = 4, frozen: int = 0
) -> Encoder:
    """An encoder whose adapters are no longer what they begin as."""
    encoder = load_encoder(checkpoint, "mean", 16)
    if frozen:
        freeze_lowest(encoder.transformer, frozen)
    add_adapters(encoder.transformer, options, seed)
    encoder.adapted = Adapted(checkpoint.name, checkpoint.fingerprint)
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in encoder.named_parameters():
            if "lora_B" in name:
                weight.copy_(torch.randn(weight.shape, generator=draws) * 0.1)
    return encoder.eval()


def shifted(one: Encoder, other: Encoder) -> bool:
    return not np.allclose(one.encode(WORDS), other.encode(WORDS), atol=1e-3)


@pytest.mark.parametrize("name", ["toy", "ModernBert", "Qwen3"])
def test_merged_equals_unmerged(name: str, tmp_path: Path) -> None:
    checkpoint = checkpoint_of(name, tmp_path / "base")
    encoder = adapted(checkpoint)
    expected = encoder.encode(WORDS)
    assert shifted(encoder, load_encoder(checkpoint, "mean", 16))

    keep(encoder, tmp_path / "kept", {})
    kept = load_encoder(resolve_checkpoint(str(tmp_path / "kept")), "mean", 16)
    np.testing.assert_allclose(kept.encode(WORDS), expected, atol=1e-5)
    assert not any("lora" in weight for weight in kept.state_dict())

    # What is exported of what is trained, and of what was kept, is the same to the bit.
    for place, model in (("live", encoder), ("later", kept)):
        export(model, tmp_path / place, {})
    live, later = (
        load_encoder(resolve_checkpoint(str(tmp_path / p)), "mean", 16) for p in ("live", "later")
    )
    assert np.array_equal(live.encode(WORDS), later.encode(WORDS))
    assert np.array_equal(live.encode(WORDS), kept.encode(WORDS))
    theirs = sentence_transformer(tmp_path / "live").encode(WORDS, show_progress_bar=False)
    np.testing.assert_allclose(theirs, expected, atol=1e-5)
    assert np.array_equal(encoder.encode(WORDS), expected)  # it still has its adapters


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # its own
def test_peft_reads_what_is_kept(tmp_path: Path) -> None:
    import peft
    import transformers

    library: Any = transformers
    checkpoint = checkpoint_of("Qwen2", tmp_path / "base")
    encoder = adapted(checkpoint)
    keep(encoder, tmp_path / "kept", {})
    base = library.AutoModel.from_pretrained(checkpoint.path, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(base, str(tmp_path / "kept")).merge_and_unload()
    again = Encoder(theirs, encoder.tokenizer, "mean", 16).eval()
    np.testing.assert_allclose(again.encode(WORDS), encoder.encode(WORDS), atol=1e-5)


@pytest.mark.parametrize(
    ("targets", "layers"),
    [
        ("all-linear", 12),
        ("auto", 4),  # peft's for BERT: query and value
        ("query,value", 4),
        ("query, key,output.dense", 8),  # also attention.output.dense
        ("encoder.layer.1.intermediate.dense", 1),
    ],
)
def test_targets_and_how_many_weights_are_trained(targets: str, layers: int) -> None:
    encoder = adapted(resolve_checkpoint("toy"), lora(2, 4.0, targets))
    trained = {n: w for n, w in encoder.named_parameters() if w.requires_grad}
    assert len(trained) == 2 * layers
    assert all(".lora_A." in name or ".lora_B." in name for name in trained)
    assert {min(weight.shape) for weight in trained.values()} == {2}
    scales = [m.scaling for m in encoder.transformer.modules() if hasattr(m, "scaling")]
    assert {"default": 4.0 / 2} in scales


def test_frozen_layers_have_no_adapters() -> None:
    encoder = adapted(resolve_checkpoint("toy"), frozen=1)
    trained = [n for n, w in encoder.named_parameters() if w.requires_grad]
    assert len(trained) == 12 and all(".layer.1." in name for name in trained)
    assert not any("lora" in name and ".layer.0." in name for name in encoder.state_dict())


@pytest.mark.parametrize("targets", ["query,nothing", "auto", ",", "LayerNorm"])
def test_targets_that_are_not_there(targets: str, tmp_path: Path) -> None:
    name = "ModernBert" if targets == "auto" else "toy"
    checkpoint = checkpoint_of(name, tmp_path)
    with pytest.raises(CheckpointError, match=r"encoder\.lora_targets: .*Use all-linear"):
        adapted(checkpoint, lora(2, 4.0, targets))


def test_the_seed_alone_draws_them() -> None:
    before = torch.get_rng_state()
    first, again, other = (adapted(resolve_checkpoint("toy"), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(first.encode(WORDS), again.encode(WORDS))
    assert shifted(first, other)


def test_a_kept_folder_is_small_and_knows_its_base(tmp_path: Path) -> None:
    checkpoint = checkpoint_of("Roberta", tmp_path / "base")
    encoder = adapted(checkpoint, lora(1, 2.0, "query"))
    encoder.prefixes = Prefixes("ask: ", "")
    keep(encoder, tmp_path / "kept", {"trial": "0123"})
    files = {path.name: path.stat().st_size for path in (tmp_path / "kept").glob("*.*")}
    written = ("modules.json", "sentence_bert_config.json", "tune_sentcl.json")
    assert files.keys() == {"adapter_config.json", "adapter_model.safetensors", *written}
    whole = (tmp_path / "base" / "model.safetensors").stat().st_size
    assert files["adapter_model.safetensors"] < whole / 30
    own = json.loads((tmp_path / "kept" / "tune_sentcl.json").read_text())
    assert own["base"] == {"checkpoint": checkpoint.name, "fingerprint": checkpoint.fingerprint}

    found = resolve_checkpoint(str(tmp_path / "kept"))
    assert (found.pooling, found.max_length, found.base) == ("mean", 16, checkpoint)
    assert found.prefixes == Prefixes("ask: ", "")
    keep(adapted(checkpoint, lora(1, 2.0, "query"), seed=5), tmp_path / "other", {})
    prints = {resolve_checkpoint(str(tmp_path / name)).fingerprint for name in ("kept", "other")}
    assert len(prints | {checkpoint.fingerprint}) == 3
    with pytest.raises(
        CheckpointError, match="only a plain transformer can get new random weights"
    ):
        resolve_checkpoint(f"random:{tmp_path / 'kept'}")


def test_a_base_that_is_gone_or_another_one_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "base"
    checkpoint = checkpoint_of("Roberta", folder)
    kept = tmp_path / "kept"
    keep(adapted(checkpoint), kept, {})
    (kept / "adapter_model.safetensors").rename(kept / "away")
    with pytest.raises(CheckpointError, match=r"cannot read .*adapter_model"):
        resolve_checkpoint(str(kept))
    (kept / "adapter_model.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        load_encoder(resolve_checkpoint(str(kept)), "mean", 16)
    (kept / "away").rename(kept / "adapter_model.safetensors")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "more": 1}))
    with pytest.raises(CheckpointError, match="whose files have changed"):
        resolve_checkpoint(str(kept))
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="base"):
        resolve_checkpoint(str(kept))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("base", "rule"),
    [
        (
            "/gone/base",
            r"states the adapters' base model '/gone/base' \(tried /gone/base and the hub\)",
        ),
        ("../gone", r"base model '../gone' \(tried .*/here/../gone and the hub\)"),
        (".", "base model '.', which is a folder of adapters"),
        (None, r"states no base model \(base_model_name_or_path\)"),
        ("../plain", ""),  # counts from the working directory, as for peft
    ],
)
def test_the_base_that_peft_states(
    base: str | None, rule: str, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = layout_samples.adapters(toy, tmp_path / "here")
    stated = json.loads((folder / "adapter_config.json").read_text())
    stated["base_model_name_or_path"] = base
    (folder / "adapter_config.json").write_text(json.dumps(stated))
    monkeypatch.chdir(folder)
    (tmp_path / "plain").symlink_to(toy)
    if not rule:
        found = resolve_checkpoint(str(folder)).base
        assert found and found.fingerprint == resolve_checkpoint(str(toy)).fingerprint
        return
    with pytest.raises(
        CheckpointError, match=f"'{folder}': its adapter_config.json {rule}|{rule}"
    ):
        resolve_checkpoint(str(folder))


def test_without_peft_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match=r"lora_rank: peft: .*tune-sentcl\[lora\]"):
        adapted(resolve_checkpoint("toy"))
