"""Checks that the study's disk has room for the checkpoints and states of a search."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint
from tune_sentcl.model.checkpoints.loading import load_base
from tune_sentcl.store.trial_folders import STATES, WEIGHTS
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.resources import this_machine, trials_at_a_time

CONTENDERS = 5
"""The configurations that keep a checkpoint each while further seeds may change their order."""

_TABLES = 1_000_000


def kept_bytes(config: TrialConfig, checkpoint: Checkpoint) -> int:
    """Upper bound of the bytes of a trial's checkpoint; 0 if its encoder is not downloaded yet.

    A matrix of size width x width has width**2 numbers, its adapters 2 * rank * width. The weights
    may have two bytes a number, and adapters have four: hence 4 * rank / width.
    """
    while checkpoint.base is not None:  # its adapters are small in comparison
        checkpoint = checkpoint.base
    if checkpoint.is_new_static:
        return sum(weight.nbytes for weight in load_base(checkpoint).transformer.parameters())
    folder, rank = Path(checkpoint.path, checkpoint.place), config.encoder.lora_rank
    files = [*folder.glob("*.safetensors")] or [*folder.glob("pytorch_model*.bin")]
    weights = sum(file.stat().st_size for file in files) if checkpoint.path else 0
    # Poolings side by side make an embedding wider than the matrices.
    width = None if checkpoint.pooling == "modules" else checkpoint.width
    if not rank or config.method.freezes_encoder or width is None:
        return weights
    return round(weights * min(1.0, 4 * rank / width))


def state_bytes(config: TrialConfig, loader: InputLoader) -> int:
    """Upper bound of the bytes of a trial's state, as a multiple of the trained weights.

    AdamW keeps two moments beside the weights; the best weights so far may be kept too.
    """
    if config.method.freezes_encoder or not config.method.takes_steps:
        return 0
    keeps_best = config.evaluation.every > 0 and config.evaluation.select == "best"
    return (3 + keeps_best) * kept_bytes(config, loader.load(config).checkpoint)


class DiskNeed(NamedTuple):
    """Upper bounds of the bytes that a search writes to its study at one time.

    Attributes:
        weights: The checkpoints to keep, and one of each running trial.
        states: States of the running trials and of paused ones.
    """

    weights: int = 0
    states: int = 0

    @classmethod
    def of(cls, proposals: Proposals, loader: InputLoader) -> Self:
        """The need of a search's trials, each as large as that of the largest known config."""
        options = proposals.options
        configs = [trial.config for trial in proposals.queued() if trial.action != "measure"]
        count = len(configs) + len(proposals.expected())
        if not count:
            return cls()
        configs = configs or [trial.config for trial in proposals.assignments()]
        # All that the sizes depend on.
        kinds = {(c.encoder, c.method.name, c.evaluation): c for c in configs}
        configs = list(kinds.values())
        weights = max(kept_bytes(config, loader.load(config).checkpoint) for config in configs)
        state = max(state_bytes(config, loader) for config in configs)
        # A cluster's slots are unknown here; one is assumed, so that nothing that fits is refused.
        slots = options.max_concurrent or 1
        if options.is_here:
            slots = trials_at_a_time(options, [this_machine()])
        running = (min(count, slots) + 1) * state if options.save_every else 0  # one is replaced
        halves = options.samples and not options.is_whole
        pauses = proposals.stages is not None and len(proposals.stages.halvings[0].shares) > 1
        paused = int(min(count * state, options.states * 1e9)) if pauses else 0
        places = options.keep + slots + CONTENDERS * halves if options.keep else 0
        return cls(min(count, places) * weights, running + paused)


def check_disk(study: str, need: DiskNeed) -> None:
    """Refuse a search whose checkpoints and states cannot fit.

    Existing checkpoints and states of the study count as free space: they are replaced or kept.
    Free space behind a URL is unknown, and the check passes.
    """
    if "://" in study:
        return
    missing = sum(need) + _TABLES
    for file in (file for name in (WEIGHTS, STATES) for file in Path(study, name).rglob("*")):
        with suppress(FileNotFoundError):  # a running trial may replace its state meanwhile
            missing -= file.lstat().st_size if file.is_file() else 0
    existing = next(p for p in (Path(study), *Path(study).absolute().parents) if p.is_dir())
    free = shutil.disk_usage(existing).free
    if free < missing:
        rule = f"needs {missing / 1e6:.0f} MB more, and the disk has {free / 1e6:.0f} MB free"
        less = "keep fewer checkpoints (--keep) or states (--save-every 0, --states 0)"
        move = f"Make room, or {less}."
        raise ResourceError(Fault("--study", "", study, rule, move))
