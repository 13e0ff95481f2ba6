"""Low-rank adapters (LoRA, Hu et al., ICLR 2022): small trained matrices beside frozen ones.

A layer's W x becomes W x + (alpha / rank) B A dropout(x). Only A and B are trained; B begins at 0.
During training they are peft's modules in the transformer. A checkpoint holds only their numbers,
in peft's files. Loading adds them into W, which does not need peft.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tune_sentcl.config import EncoderConfig
from tune_sentcl.errors import CheckpointError, Fault
from tune_sentcl.model.checkpoints.checkpoint_files import ADAPTER_FILES

_NAME = "default"
_PEFT = "base_model.model."  # peft's prefix of every name
_A, _B, _END = ".lora_A", ".lora_B", ".weight"
_SHOWN = 8
_NOT_MERGED = re.compile("modules_to_save|token_adapter|trainable_tokens")
_CONFIG, _WEIGHTS = ADAPTER_FILES


@dataclass(frozen=True)
class Lora:
    """The settings of adapters.

    Attributes:
        rank: The rank of each pair of matrices.
        alpha: Divided by the rank it is the factor of their product.
        dropout: The dropout of their inputs.
        targets: The layers with adapters: `all-linear`, `auto`, or names separated by commas; for
            existing adapters the full names of their layers.
    """

    rank: int
    alpha: float
    dropout: float
    targets: str

    @classmethod
    def of(cls, options: EncoderConfig) -> "Lora":
        """The settings of a config."""
        return cls(
            options.lora_rank, options.lora_alpha, options.lora_dropout, options.lora_targets
        )

    @property
    def scale(self) -> float:
        """The factor of the product of two matrices."""
        return self.alpha / self.rank


@dataclass(frozen=True)
class Adapted:
    """Adapters of an encoder.

    Attributes:
        lora: Their settings.
        base: The name of the checkpoint with the frozen weights.
        fingerprint: The fingerprint of that checkpoint.
    """

    lora: Lora
    base: str
    fingerprint: str


def require_peft() -> None:
    """Raise a CheckpointError if peft is not installed."""
    if find_spec("peft") is None:
        rule, move = "its package is not installed", "Run: pip install 'tune-sentcl[lora]'."
        raise CheckpointError(Fault("encoder.lora_rank", "", "peft", rule, move))


def add_adapters(transformer: Any, lora: Lora, seed: int) -> Lora:
    """Add adapters to a transformer, and freeze all its other weights.

    The transformer must be on the CPU and is changed in place. Layers that are already frozen get
    no adapters. The seed draws the matrices A; torch's global generator does not change.

    Returns:
        The settings with the full names of the layers that now have adapters.

    Raises:
        CheckpointError: peft is not installed, the targets name no layer, or the transformer has
            no linear layer.
    """
    require_peft()
    from peft import LoraConfig, inject_adapter_in_model

    names = _target_names(transformer, lora.targets)
    transformer.requires_grad_(False)
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=names,
    )
    with torch.random.fork_rng(devices=[]):
        # Not `torch.manual_seed`, which would change the accelerators' streams outside the fork.
        torch.default_generator.manual_seed(seed)
        inject_adapter_in_model(config, transformer, _NAME)
    return replace(lora, targets=",".join(names))


def whole_state(transformer: Any, lora: Lora | None) -> dict[str, Tensor]:
    """A transformer's weights under their own names, tied weights once, with adapters added in."""
    tied = {name for name, _ in transformer.named_parameters(remove_duplicate=False)}
    tied -= {name for name, _ in transformer.named_parameters()}
    state = {name: w for name, w in transformer.state_dict().items() if name not in tied}
    if lora is None:
        return state
    plain = {
        name.replace(".base_layer.", "."): weight
        for name, weight in state.items()
        if f"{_A}." not in name and f"{_B}." not in name
    }
    return plain | dict(_sums(plain, _matrices(state), lora.scale))


def write_adapters(transformer: Any, lora: Lora, folder: Path) -> None:
    """Write a transformer's adapters as peft does, in an existing folder.

    Raises:
        SafetensorError, OSError: A file cannot be written.
    """
    tensors = {
        f"{_PEFT}{name}": weight.detach().cpu().contiguous().clone()
        for name, weight in _matrices(transformer.state_dict()).items()
    }
    save_file(tensors, folder / _WEIGHTS, metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": lora.targets.split(","),
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / _CONFIG).write_text(text, encoding="utf-8")


def add_into(transformer: Any, folder: Path) -> None:
    """Add the adapters of a folder into the weights of a plain transformer.

    Raises:
        OSError, ValueError, KeyError, TypeError, SafetensorError: A file is missing or damaged.
        RuntimeError: The adapters are of another architecture.
    """
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    tensors = load_file(folder / _WEIGHTS)
    matrices = {name.removeprefix(_PEFT): weight for name, weight in tensors.items()}
    state: dict[str, Tensor] = transformer.state_dict()
    with torch.no_grad():
        for name, weight in _sums(state, matrices, config["lora_alpha"] / config["r"]):
            state[name].copy_(weight)


def merge(transformer: Any) -> None:
    """Add adapters that peft has put into a transformer into its weights, in place."""
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
        rule = f"its adapters hold weights that are no sum: {kept[0]}"
        move = "Merge them by peft's merge_and_unload, and save the whole model."
        raise CheckpointError(Fault("encoder.checkpoint", "", "", rule, move))
    transformer._hf_peft_config_loaded = False
    del transformer.peft_config
    transformer.requires_grad_(True)


def _matrices(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The matrices of adapters under peft's names in a file, which omit the adapter's name."""
    ends = (f"{_A}.{_NAME}{_END}", f"{_B}.{_NAME}{_END}")
    found = {name: weight for name, weight in state.items() if name.endswith(ends)}
    return {name.replace(f".{_NAME}{_END}", _END): weight for name, weight in found.items()}


def _sums(
    state: Mapping[str, Tensor], matrices: Mapping[str, Tensor], scale: float
) -> Iterator[tuple[str, Tensor]]:
    """The new weights of the layers with adapters."""
    for name, down in matrices.items():
        if name.endswith(f"{_A}{_END}"):
            layer = name.removesuffix(f"{_A}{_END}")
            weight, up = state[f"{layer}{_END}"], matrices[f"{layer}{_B}{_END}"]
            down, up = down.to(weight), up.to(weight)
            yield f"{layer}{_END}", weight + scale * (up @ down)


def _target_names(transformer: Any, targets: str) -> list[str]:
    """The full names of the layers that targets select.

    Raises:
        CheckpointError: They select none.
    """
    linear = [name for name, part in transformer.named_modules() if _fits(part)]
    if not linear:  # such as in GPT-2, whose layers are transformers' own Conv1D
        kind = transformer.config.model_type
        rule, move = "has no linear layers to adapt", "Set encoder.lora_rank to 0."
        raise CheckpointError(Fault("encoder.lora_rank", "", kind, rule, move))
    if targets == "all-linear":
        asked = found = linear
    else:
        asked = _listed(transformer, targets)
        found = [name for name in linear if _named(name, asked)]
    unknown = [name for name in asked if not any(_named(layer, [name]) for layer in found)]
    if unknown or not found:
        rule = f"names no linear layer of the encoder that is trained: {', '.join(unknown)}"
        ends = list(dict.fromkeys(name.rpartition(".")[2] for name in linear))
        move = f"Take all-linear, or some of {', '.join(ends[:_SHOWN])}."
        raise CheckpointError(Fault("encoder.lora_targets", "", targets, rule, move))
    return found


def _listed(transformer: Any, targets: str) -> list[str]:
    if targets != "auto":
        return [name.strip() for name in targets.split(",") if name.strip()]
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    kind = transformer.config.model_type
    target_names = KNOWN.get(kind)
    if target_names is None:
        rule = f"peft has no default layers for {kind}"
        move = "Take all-linear, or name layers."
        raise CheckpointError(Fault("encoder.lora_targets", "", targets, rule, move))
    return list(target_names)


def _named(layer: str, names: Iterable[str]) -> bool:
    return any(layer == name or layer.endswith(f".{name}") for name in names)


def _fits(part: object) -> bool:
    return isinstance(part, nn.Linear) and part.weight.requires_grad
