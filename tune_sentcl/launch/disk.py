"""Whether a study's disk has room for what a search will leave there."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tune_sentcl.config import AdamwConfig, SgdConfig, TrialConfig
from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.model.checkpoint import Checkpoint
from tune_sentcl.trial import InputLoader


def checkpoint_bytes(checkpoint: Checkpoint) -> int:
    """Disk of an encoder's weights; 0 where they lie on a hub and nobody here has seen them."""
    folder = Path(checkpoint.path)
    if not checkpoint.path or not folder.is_dir():
        return 0
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


@dataclass(frozen=True)
class Sizes:
    """What trials put on a study's disk.

    Attributes:
        checkpoint: Bytes of the largest one's weights.
        state: Bytes of the largest state that one of them leaves while it runs.
    """

    checkpoint: int
    state: int

    @classmethod
    def of(cls, configs: Iterable[TrialConfig], loader: InputLoader, least: int = 0) -> Self:
        """Look at the files of the trials' encoders.

        Args:
            configs: The trials, one at least.
            loader: Knows their checkpoints.
            least: Bytes of the weights of an encoder that was loaded, whose files may be away.
        """
        kinds = {(loader.load(config).checkpoint, state_share(config)) for config in configs}
        found = [(max(least, checkpoint_bytes(files)), share) for files, share in kinds]
        return cls(max(size for size, _ in found), max(size * share for size, share in found))

    def states(self, options: SearchOptions, at_once: int) -> int:
        """Bytes of the states of so many trials side by side, one of them being replaced."""
        return (at_once + 1) * self.state if options.save_every else 0


def state_share(config: TrialConfig) -> int:
    """How many times an encoder's weights are in a running trial's state; heads are small."""
    if config.method.freezes_encoder or not config.method.takes_steps:
        return 0
    match config.optimizer:
        case AdamwConfig():
            moments = 2
        case SgdConfig(momentum=0):
            moments = 0
        case _:
            moments = 1
    chooses = config.evaluation.every > 0 and config.evaluation.select == "best"
    return 1 + moments + chooses


def check_disk(study: str, needed: int) -> None:
    """Refuse a search whose checkpoints and states cannot fit.

    Args:
        study: The study's folder, or a URL, whose room nobody can tell.
        needed: Bytes that it will take.

    Raises:
        ResourceError: The disk has less room.
    """
    if "://" in study:
        return
    folder = next(p for p in (Path(study), *Path(study).parents) if p.is_dir())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ResourceError(
            Fault(
                "--study",
                "",
                study,
                f"needs {needed / 1e6:.0f} MB for its checkpoints, states and tables, "
                f"and the disk has {free / 1e6:.0f} MB free",
                "Make room, choose another disk, keep fewer checkpoints (--keep), or leave no "
                "states (--save-every 0).",
            )
        )
