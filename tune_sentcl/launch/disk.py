"""Whether a study's disk has room for what a search will leave there."""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tune_sentcl.config import AdamwConfig, SgdConfig, TrialConfig
from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.launch.adapter_size import AdapterSize
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.model.cache_folder import cache_root
from tune_sentcl.model.checkpoint import Checkpoint
from tune_sentcl.model.token_store import store_bytes
from tune_sentcl.store.checkpoints import FOLDER, STATES
from tune_sentcl.trial import InputLoader

_TABLES = 1_000_000


def checkpoint_bytes(checkpoint: Checkpoint) -> int:
    """Disk of an encoder's weights; 0 where they lie on a hub and nobody here has seen them."""
    if checkpoint.base is not None:  # beside which its adapters are small
        return checkpoint_bytes(checkpoint.base)
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
        tokens: Bytes of the corpora that they tokenize, which lie in the folder of all caches.
    """

    checkpoint: int
    state: int
    tokens: int = 0

    @classmethod
    def of(cls, configs: Iterable[TrialConfig], loader: InputLoader, least: int = 0) -> Self:
        """Look at the files of the trials' encoders.

        Args:
            configs: The trials, one at least.
            loader: Knows their checkpoints.
            least: Bytes of the weights of an encoder that was loaded, whose files may be away.
        """
        asked = list(configs)
        kinds = {
            (loader.load(config).checkpoint, AdapterSize.of(config), state_share(config))
            for config in asked
        }
        found = [(_kept(files, adapters, least), share) for files, adapters, share in kinds]
        stores = {}
        for config in asked:
            if config.method.takes_steps and not config.method.freezes_encoder:
                inputs, options = loader.load(config), config.encoder
                length = options.train_length or options.max_length
                key = inputs.checkpoint.fingerprint, inputs.corpus.fingerprint, length
                stores[key] = store_bytes(inputs.corpus)
        return cls(
            max(size for size, _ in found),
            max(size * share for size, share in found),
            sum(stores.values()),
        )

    def states(self, options: SearchOptions, at_once: int) -> int:
        """Bytes of the states of so many trials side by side, one of them being replaced."""
        return (at_once + 1) * self.state if options.save_every else 0

    def needs(self, options: SearchOptions, count: int, slots: int) -> "Needs":
        """What a search holds at most that has so many trials to train, `slots` at a time."""
        most = (options.keep + slots) * self.checkpoint if options.keep else 0
        states = self.states(options, min(count, slots))
        return Needs(count * self.checkpoint, most, states, self.tokens)


def _kept(checkpoint: Checkpoint, adapters: AdapterSize | None, least: int) -> int:
    """Bytes of the weights that a trial leaves: its adapters', where it has some."""
    known = None if adapters is None else adapters.most(checkpoint)
    return max(least, checkpoint_bytes(checkpoint)) if known is None else known


def state_share(config: TrialConfig) -> int:
    """How many times the trained weights are in a running trial's state; heads are small.

    Those of layers that stay as they are (`encoder.freeze_layers`) are counted, and are not there.
    """
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


@dataclass(frozen=True)
class Needs:
    """What a search will have on its study's disk at most, in bytes.

    Attributes:
        more: Weights of the trials that it has still to train.
        most: Weights that it holds at one time, whatever was there before: those that it keeps and
            those that come up beside them.
        states: States of the trials that run.
        tokens: Tokens of the corpora, which take of its room where the caches are on its disk.
    """

    more: int
    most: int
    states: int
    tokens: int = 0


def check_disk(study: str, needs: Needs) -> None:
    """Refuse a search whose checkpoints and states cannot fit.

    What the study holds of them already counts as room, for it is replaced or kept.

    Args:
        study: The study's folder, or a URL, whose room nobody can tell.
        needs: What it will hold.

    Raises:
        ResourceError: The disk has less room.
    """
    if "://" in study:
        return
    folder = _there(Path(study))
    kept, states = (_bytes_in(Path(study, name)) for name in (FOLDER, STATES))
    needed = min(needs.more + kept, needs.most) + needs.states + _TABLES
    if _disk(folder) == _disk(cache_root()):
        needed += needs.tokens
    missing = needed - kept - states
    free = shutil.disk_usage(folder).free
    if free < missing:
        raise ResourceError(
            Fault(
                "--study",
                "",
                study,
                f"needs {missing / 1e6:.0f} MB more for its checkpoints, states and tables, "
                f"and the disk has {free / 1e6:.0f} MB free",
                "Make room, choose another disk, keep fewer checkpoints (--keep), or leave no "
                "states (--save-every 0).",
            )
        )


def _there(place: Path) -> Path:
    """A folder, or the nearest one above that there is."""
    return next(p for p in (place, *place.absolute().parents) if p.is_dir())


def _disk(place: Path) -> int:
    return _there(place).stat().st_dev


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # an attempt that still runs replaces its state
            total += path.lstat().st_size if path.is_file() else 0
    return total
