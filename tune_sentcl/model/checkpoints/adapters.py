"""Low-rank adapters (LoRA, Hu et al., ICLR 2022): small trained matrices beside frozen weights.

A layer's W x becomes W x + (alpha / rank) B A dropout(x). Only A and B are trained; B begins at 0.
The adapters are peft's modules inside the transformer, and a checkpoint stores them in peft's
files.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from tune_sentcl.config import EncoderConfig
from tune_sentcl.errors import CheckpointError, Fault

_SHOWN = 8
_NOT_MERGED = re.compile("modules_to_save|token_adapter|trainable_tokens")


@dataclass(frozen=True)
class Adapted:
    """Adapters of an encoder.

    Attributes:
        base: The name of the checkpoint with the frozen weights.
        fingerprint: The fingerprint of that checkpoint.
    """

    base: str
    fingerprint: str


def require_peft() -> None:
    """Raise CheckpointError if peft is not installed."""
    if find_spec("peft") is None:
        rule, move = "the package peft is not installed", "Run: pip install 'tune-sentcl[lora]'."
        raise CheckpointError(Fault("encoder.lora_rank", value="peft", rule=rule, move=move))


def add_adapters(transformer: Any, options: EncoderConfig, seed: int) -> None:
    """Add adapters to a transformer, and freeze all its other weights.

    The transformer must be on the CPU and is changed in place. Layers that are already frozen get
    no adapters. The seed draws the matrices A; torch's global generator does not change.

    Raises:
        CheckpointError: peft is not installed, the targets name no layer, or the transformer has
            no linear layer.
    """
    require_peft()
    from peft import LoraConfig

    names = _target_names(transformer, options.lora_targets)
    transformer.requires_grad_(False)
    config = LoraConfig(
        r=options.lora_rank,
        lora_alpha=options.lora_alpha,
        lora_dropout=options.lora_dropout,
        target_modules=names,
    )
    with torch.random.fork_rng(devices=[]):
        # `torch.manual_seed` would also seed the GPUs' generators, which this `fork_rng` does not
        # restore.
        torch.default_generator.manual_seed(seed)
        transformer.add_adapter(config)
    # The fingerprint hashes the saved adapters' config, so it must not contain a path or a set,
    # whose order varies.
    config.target_modules, config.base_model_name_or_path = names, None


def merge(transformer: Any) -> None:
    """Add the adapters that peft put into a transformer into its weights, in place."""
    if not getattr(transformer, "_hf_peft_config_loaded", False):
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    library: Any = BaseTunerLayer
    for name, part in list(transformer.named_modules()):
        if isinstance(part, library):
            part.merge()
            parent, _, last = name.rpartition(".")
            setattr(transformer.get_submodule(parent), last, part.get_base_layer())
    kept = [name for name in transformer.state_dict() if _NOT_MERGED.search(name)]
    if kept:
        rule = f"its adapters hold weights that cannot be merged: {kept[0]}"
        move = "Merge the adapters by peft's merge_and_unload, and save the whole model."
        raise CheckpointError(Fault("encoder.checkpoint", rule=rule, move=move))
    transformer._hf_peft_config_loaded = False
    del transformer.peft_config
    transformer.requires_grad_(True)


def _target_names(transformer: Any, targets: str) -> list[str]:
    """The full names of the layers that targets select.

    Raises:
        CheckpointError: The targets select no layer.
    """
    linear = [name for name, part in transformer.named_modules() if _fits(part)]
    if not linear:
        # GPT-2, for example, has transformers' `Conv1D` in place of linear layers.
        kind = transformer.config.model_type
        rule, move = "has no linear layers to adapt", "Set encoder.lora_rank to 0."
        raise CheckpointError(Fault("encoder.lora_rank", value=kind, rule=rule, move=move))
    if targets == "all-linear":
        asked = chosen = linear
    else:
        asked = _listed(transformer, targets)
        chosen = [name for name in linear if _named(name, asked)]
    unknown = [name for name in asked if not any(_named(layer, [name]) for layer in chosen)]
    if unknown or not chosen:
        rule = f"names no linear layer of the trained encoder: {', '.join(unknown)}"
        ends = list(dict.fromkeys(name.rpartition(".")[2] for name in linear))
        move = f"Use all-linear, or some of {', '.join(ends[:_SHOWN])}."
        raise CheckpointError(Fault("encoder.lora_targets", value=targets, rule=rule, move=move))
    return chosen


def _listed(transformer: Any, targets: str) -> list[str]:
    if targets != "auto":
        return [name.strip() for name in targets.split(",") if name.strip()]
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    kind = transformer.config.model_type
    target_names = KNOWN.get(kind)
    if target_names is None:
        rule = f"peft has no default layers for {kind}"
        move = "Use all-linear, or name layers."
        raise CheckpointError(Fault("encoder.lora_targets", value=targets, rule=rule, move=move))
    return list(target_names)


def _named(layer: str, names: Iterable[str]) -> bool:
    return any(layer == name or layer.endswith(f".{name}") for name in names)


def _fits(part: object) -> bool:
    return isinstance(part, nn.Linear) and part.weight.requires_grad
