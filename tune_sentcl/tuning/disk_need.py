"""Checks that the study's disk has room for the checkpoints and states of a search."""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint
from tune_sentcl.store.checkpoints import FOLDER, STATES
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.search_options import SearchOptions

CONTENDERS = 5
"""The configurations that keep a checkpoint each while further seeds may change their order."""

_TABLES = 1_000_000


def weight_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of an encoder's weights; 0 if they are not downloaded yet."""
    if checkpoint.base is not None:  # its adapters are small in comparison
        return weight_bytes(checkpoint.base)
    folder = Path(checkpoint.path)
    if not checkpoint.path or not folder.is_dir():
        return 0
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def kept_bytes(config: TrialConfig, checkpoint: Checkpoint) -> int:
    """Upper bound of the bytes of a trial's checkpoint.

    A matrix of size width x width has width**2 numbers, its adapters 2 * rank * width. The weights
    may have two bytes a number, and adapters have four: hence 4 * rank / width.
    """
    while checkpoint.base is not None:
        checkpoint = checkpoint.base
    weights, rank = weight_bytes(checkpoint), config.encoder.lora_rank
    if not rank or config.method.freezes_encoder or checkpoint.width is None:
        return weights
    return round(weights * min(1.0, 4 * rank / checkpoint.width))


def state_share(config: TrialConfig) -> int:
    """Upper bound of the size of a running trial's state, in multiples of the trained weights.

    AdamW keeps two moments beside the weights, other optimizers fewer; the best weights so far may
    be kept too.
    """
    if config.method.freezes_encoder or not config.method.takes_steps:
        return 0
    return 3 + (config.evaluation.every > 0 and config.evaluation.select == "best")


def state_bytes(config: TrialConfig, loader: InputLoader) -> int:
    """Upper bound of the bytes of a trial's state."""
    return kept_bytes(config, loader.load(config).checkpoint) * state_share(config)


@dataclass(frozen=True)
class DiskNeed:
    """Upper bounds of the bytes that a search writes to its study.

    Attributes:
        trained: Weights of all trials that are still to be trained.
        kept: Weights at one time: the checkpoints to keep, and one of each running trial.
        states: States of the running trials and of paused ones.
    """

    trained: int = 0
    kept: int = 0
    states: int = 0

    @classmethod
    def of(
        cls,
        configs: Iterable[TrialConfig],
        loader: InputLoader,
        options: SearchOptions,
        count: int,
        slots: int,
    ) -> Self:
        """The need of `count` trials, `slots` at a time, each as large as the largest config's."""
        sizes = [(kept_bytes(c, loader.load(c).checkpoint), state_share(c)) for c in configs]
        weights = max(size for size, _ in sizes)
        state = max(size * share for size, share in sizes)
        running = (min(count, slots) + 1) * state  # one is being replaced
        halves = options.samples and not options.is_whole
        contenders = CONTENDERS if halves else 0
        paused = min(count * state, options.states * 1e9) if halves else 0
        return cls(
            count * weights,
            (options.keep + contenders + slots) * weights if options.keep else 0,
            (running if options.save_every else 0) + int(paused),
        )


def check_disk(study: str, need: DiskNeed) -> None:
    """Refuse a search whose checkpoints and states cannot fit.

    Existing checkpoints and states of the study count as free space: they are replaced or kept.
    Free space behind a URL is unknown, and the check passes.
    """
    if "://" in study:
        return
    kept, states = (_bytes_in(Path(study, name)) for name in (FOLDER, STATES))
    missing = min(need.trained + kept, need.kept) + need.states + _TABLES - kept - states
    existing = next(p for p in (Path(study), *Path(study).absolute().parents) if p.is_dir())
    free = shutil.disk_usage(existing).free
    if free < missing:
        rule = (
            f"needs {missing / 1e6:.0f} MB more for its checkpoints, states and tables, and the "
            f"disk has {free / 1e6:.0f} MB free"
        )
        move = (
            "Make room, choose another disk, keep fewer checkpoints (--keep), or save no states "
            "(--save-every 0)."
        )
        raise ResourceError(Fault("--study", "", study, rule, move))


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a running trial may replace its state meanwhile
            total += path.lstat().st_size if path.is_file() else 0
    return total
