"""What a trial reads, loaded and fingerprinted once for all trials that share it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tune_sentcl.config import (
    DataConfig,
    Fingerprints,
    TrialConfig,
    configuration_id,
    trial_id,
)
from tune_sentcl.data.nli import NliCorpus, load_nli
from tune_sentcl.data.sts import StsTask, load_sts, sts_fingerprint
from tune_sentcl.model.checkpoint import Checkpoint, resolve_checkpoint


@dataclass(frozen=True)
class TrialInputs:
    """Everything that a trial reads.

    Attributes:
        corpus: The training rows.
        tasks: The STS sets that it is scored on.
        evaluation_data: Whose sets they are: `toy`, or `root` for the data root.
        checkpoint: The starting weights.
        fingerprints: Content hashes of the above.
    """

    corpus: NliCorpus
    tasks: tuple[StsTask, ...]
    evaluation_data: Literal["toy", "root"]
    checkpoint: Checkpoint
    fingerprints: Fingerprints

    def trial_id(self, config: TrialConfig) -> str:
        """The trial's name under these inputs."""
        return trial_id(config, self.fingerprints)

    def configuration_id(self, config: TrialConfig) -> str:
        """The name of the trial's configuration, its seed left out."""
        return configuration_id(config, self.fingerprints)


class InputLoader:
    """Loads inputs from one data root, each corpus, set of tasks and checkpoint once."""

    def __init__(self, root: Path | None) -> None:
        self.root = root
        self._corpora: dict[tuple[str, int | None], NliCorpus] = {}
        self._tasks: dict[Literal["toy", "root"], tuple[StsTask, ...]] = {}
        self._selections: dict[Literal["toy", "root"], str] = {}
        self._checkpoints: dict[str, Checkpoint] = {}

    def load(self, config: TrialConfig) -> TrialInputs:
        """Load what a config needs.

        Raises:
            DataError: A file is missing or damaged.
            CheckpointError: The encoder cannot be found.
        """
        corpus = self._corpus(config.data)
        data = evaluation_data(config)
        tasks = self._sts(data)
        checkpoint = self._checkpoint(config.encoder.checkpoint)
        selection = self._selection(data) if config.evaluation.select == "best" else ""
        prints = Fingerprints(corpus.fingerprint, checkpoint.fingerprint, selection)
        return TrialInputs(corpus, tasks, data, checkpoint, prints)

    def _corpus(self, config: DataConfig) -> NliCorpus:
        key = (config.source, config.limit)
        if key not in self._corpora:
            self._corpora[key] = load_nli(config.source, config.limit, self.root)
        return self._corpora[key]

    def _sts(self, data: Literal["toy", "root"]) -> tuple[StsTask, ...]:
        if data not in self._tasks:
            self._tasks[data] = load_sts(data, self.root)
        return self._tasks[data]

    def _selection(self, data: Literal["toy", "root"]) -> str:
        # Hashing every sentence takes longer than all else that a load does, and loads are many.
        if data not in self._selections:
            self._selections[data] = sts_fingerprint(self._sts(data))
        return self._selections[data]

    def _checkpoint(self, name: str) -> Checkpoint:
        if name not in self._checkpoints:
            self._checkpoints[name] = resolve_checkpoint(name)
        return self._checkpoints[name]


def evaluation_data(config: TrialConfig) -> Literal["toy", "root"]:
    """Whose evaluation sets a config means; `auto` is toy for trials trained on toy."""
    if config.evaluation.data == "auto":
        return "toy" if config.data.source == "toy" else "root"
    return config.evaluation.data
