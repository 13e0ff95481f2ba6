"""How large low-rank adapters will be, from the head of a weight file alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from tune_sentcl.config import TrialConfig
from tune_sentcl.model.checkpoint import Checkpoint

_BYTES = 4


@dataclass(frozen=True)
class AdapterSize:
    """What decides it.

    Attributes:
        rank: Of the adapters.
        targets: Which layers have them, as the config says it.
    """

    rank: int
    targets: str

    @classmethod
    def of(cls, config: TrialConfig) -> "AdapterSize | None":
        """Of a trial's adapters; None where it has none."""
        options = config.encoder
        if config.method.freezes_encoder or not options.lora_rank:
            return None
        return cls(options.lora_rank, options.lora_targets)

    def most(self, checkpoint: Checkpoint) -> int | None:
        """Bytes of the adapters of an encoder, or somewhat more; None where its files are away.

        Every matrix is taken for a layer's that is none of words or positions; what `auto` means
        peft knows, and here it means all.
        """
        while checkpoint.base is not None:
            checkpoint = checkpoint.base
        folder = Path(checkpoint.path)
        files = sorted(folder.glob("*.safetensors")) if checkpoint.path else []
        return sum(map(self._in_file, files)) if files else None

    def _in_file(self, path: Path) -> int:
        total = 0
        with safe_open(path, framework="np") as file:
            named: Any = file
            for name in named.keys():  # noqa: SIM118 - it is no mapping
                shape = named.get_slice(name).get_shape()
                if len(shape) == 2 and "embed" not in name and self._has(name):
                    total += self.rank * sum(shape)
        return total * _BYTES

    def _has(self, name: str) -> bool:
        if self.targets in ("all-linear", "auto"):
            return True
        layer = name.removesuffix(".weight")
        asked = (target.strip() for target in self.targets.split(","))
        return any(f".{layer}".endswith(f".{target}") for target in asked)
