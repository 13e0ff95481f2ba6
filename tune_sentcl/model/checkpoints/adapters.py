"""Low-rank adapters (LoRA, Hu et al., ICLR 2022): small trained matrices beside frozen ones.

A layer's W x becomes W x + (alpha / rank) B A dropout(x), of which A and B alone are trained; B
begins at 0. While they are trained they are modules of peft's in the transformer itself. What is
kept of them are their numbers, and whoever reads those adds them into W, for which peft is not
needed. The files are as peft writes them.
"""

import json
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
_PEFT = "base_model.model."  # what it puts before every name
_A, _B, _END = ".lora_A", ".lora_B", ".weight"
_SHOWN = 8
_CONFIG, _WEIGHTS = ADAPTER_FILES


@dataclass(frozen=True)
class Lora:
    """What adapters are like.

    Attributes:
        rank: Of each pair of matrices.
        alpha: Over the rank it is what their product is multiplied by.
        dropout: Of what goes into them.
        targets: Which layers have them: `all-linear`, `auto`, or names with commas between; of
            adapters that are there the whole names of their layers.
    """

    rank: int
    alpha: float
    dropout: float
    targets: str

    @classmethod
    def of(cls, options: EncoderConfig) -> "Lora":
        """What a config asks for."""
        return cls(
            options.lora_rank, options.lora_alpha, options.lora_dropout, options.lora_targets
        )

    @property
    def scale(self) -> float:
        """What a product of two matrices is multiplied by."""
        return self.alpha / self.rank


@dataclass(frozen=True)
class Adapted:
    """Adapters of an encoder.

    Attributes:
        lora: What they are like.
        base: The name of the checkpoint whose weights stay as they are.
        fingerprint: Of that checkpoint.
    """

    lora: Lora
    base: str
    fingerprint: str


def require_peft() -> None:
    """See that peft is installed.

    Raises:
        CheckpointError: It is not.
    """
    if find_spec("peft") is None:
        rule, move = "its package is not installed", "Run: pip install 'tune-sentcl[lora]'."
        raise CheckpointError(Fault("encoder.lora_rank", "", "peft", rule, move))


def add_adapters(transformer: Any, lora: Lora, seed: int) -> Lora:
    """Put adapters into a transformer; nothing else of it is trained any longer.

    Layers whose weights are frozen already get none. Torch's global generator stays as it was.

    Args:
        transformer: On the CPU; changed in place.
        lora: What they are like.
        seed: Draws the matrices A.

    Returns:
        The same with the whole names of the layers that have adapters now.

    Raises:
        CheckpointError: peft is not installed, the targets name no layer, or there is none.
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
        # Within the fork; `torch.manual_seed` would move the accelerators' streams too.
        torch.default_generator.manual_seed(seed)
        inject_adapter_in_model(config, transformer, _NAME)
    return replace(lora, targets=",".join(names))


def whole_state(transformer: Any, lora: Lora | None) -> dict[str, Tensor]:
    """A transformer's weights under their own names, tied ones once, adapters added into them.

    Args:
        transformer: Not changed.
        lora: What its adapters are like; None: it has none.
    """
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
    """Write a transformer's adapters as peft does, in a folder that is there.

    Raises:
        SafetensorError, OSError: The disk refused.
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
    """Add what `write_adapters` has written into the weights of a plain transformer.

    Raises:
        OSError, ValueError, KeyError, TypeError, SafetensorError: A file is missing or damaged.
        RuntimeError: They are of another architecture.
    """
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    tensors = load_file(folder / _WEIGHTS)
    matrices = {name.removeprefix(_PEFT): weight for name, weight in tensors.items()}
    state: dict[str, Tensor] = transformer.state_dict()
    with torch.no_grad():
        for name, weight in _sums(state, matrices, config["lora_alpha"] / config["r"]):
            state[name].copy_(weight)


def _matrices(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The matrices of adapters by peft's names in a file, which do not know the adapter's own."""
    ends = (f"{_A}.{_NAME}{_END}", f"{_B}.{_NAME}{_END}")
    found = {name: weight for name, weight in state.items() if name.endswith(ends)}
    return {name.replace(f".{_NAME}{_END}", _END): weight for name, weight in found.items()}


def _sums(
    state: Mapping[str, Tensor], matrices: Mapping[str, Tensor], scale: float
) -> Iterator[tuple[str, Tensor]]:
    """The weights that adapters change, as they become."""
    for name, down in matrices.items():
        if name.endswith(f"{_A}{_END}"):
            layer = name.removesuffix(f"{_A}{_END}")
            weight, up = state[f"{layer}{_END}"], matrices[f"{layer}{_B}{_END}"]
            down, up = down.to(weight), up.to(weight)
            yield f"{layer}{_END}", weight + scale * (up @ down)


def _target_names(transformer: Any, targets: str) -> list[str]:
    """The layers of a transformer that targets mean, by their whole names.

    Raises:
        CheckpointError: They mean none.
    """
    linear = [name for name, part in transformer.named_modules() if _fits(part)]
    if not linear:  # GPT-2's are of a class of transformers' own
        kind = transformer.config.model_type
        rule, move = (
            "has no linear layers, beside which adapters stand",
            "Set encoder.lora_rank to 0.",
        )
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
    known = KNOWN.get(kind)
    if known is None:
        rule = f"peft knows no usual layers of {kind}"
        move = "Take all-linear, or name layers."
        raise CheckpointError(Fault("encoder.lora_targets", "", targets, rule, move))
    return list(known)


def _named(layer: str, names: Iterable[str]) -> bool:
    return any(layer == name or layer.endswith(f".{name}") for name in names)


def _fits(part: object) -> bool:
    return isinstance(part, nn.Linear) and part.weight.requires_grad
