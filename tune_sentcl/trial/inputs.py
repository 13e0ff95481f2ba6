"""What a trial reads, loaded and fingerprinted once for all trials that share it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tune_sentcl.config import (
    DataConfig,
    DataName,
    EncoderConfig,
    EvaluationConfig,
    Fingerprints,
    MethodConfig,
    Rows,
    SidesConfig,
    TrialConfig,
    Values,
    completed,
    configuration_id_of,
    evaluation_data,
    trial_id_of,
)
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.data.task import fingerprint_of
from tune_sentcl.data.tasks.evaluation_sets import EvaluationSets, load_sets
from tune_sentcl.data.tasks.own_task import objectives_of
from tune_sentcl.data.tasks.sts_data import StsTask, sts_fingerprint
from tune_sentcl.evaluate import Measures
from tune_sentcl.methods import method_class
from tune_sentcl.methods.base import Resource
from tune_sentcl.methods.embedding_losses import require_widths
from tune_sentcl.model.checkpoints.adapters import require_peft
from tune_sentcl.model.checkpoints.checkpoint import (
    Checkpoint,
    fingerprint_now,
    resolve_checkpoint,
    used,
)
from tune_sentcl.model.trained import require_trained_layer
from tune_sentcl.objective import DEFAULT, Objective


@dataclass(frozen=True)
class TrialInputs:
    """Everything that a trial reads.

    Attributes:
        corpus: The training rows.
        sets: What it is scored on.
        checkpoint: The starting weights.
        fingerprints: Content hashes of the above.
        resource: What the method reads beside the rows, or None; it counts as data.
    """

    corpus: Corpus
    sets: EvaluationSets
    checkpoint: Checkpoint
    fingerprints: Fingerprints
    resource: Resource | None = None

    def fingerprints_now(self) -> Fingerprints:
        """The fingerprints, with the weights looked at again: files may have been replaced.

        Raises:
            CheckpointError: They are gone.
        """
        return replace(self.fingerprints, checkpoint=fingerprint_now(self.checkpoint))

    def sentences(self) -> list[str]:
        """Every distinct sentence that the trial may have to encode."""
        return list(dict.fromkeys([*self.corpus.sentences(), *self.sets.sentences()]))

    def trial_id(self, config: TrialConfig) -> str:
        """The trial's name under these inputs."""
        values = completed(config.dotted(), auto_values_of(self.checkpoint))
        return trial_id_of(values, self.fingerprints)

    def configuration_id(self, config: TrialConfig) -> str:
        """The name of the trial's configuration, its seed left out."""
        values = completed(config.dotted(), auto_values_of(self.checkpoint))
        return configuration_id_of(values, self.fingerprints)


class InputLoader:
    """Loads inputs from one data root, each corpus, set of tasks and checkpoint once.

    Attributes:
        root: The data root.
        early_stopping_objective: By what trials are compared while they run, and weights may be
            chosen.
        objectives: What is maximized, which may bring cut-offs; to be set before anything is read.
    """

    def __init__(self, root: Path | None, early_stopping_objective: Objective = DEFAULT) -> None:
        self.root, self.early_stopping_objective = root, early_stopping_objective
        self.objectives: tuple[Objective, ...] = ()
        self._corpora: dict[tuple[Rows, DataConfig], Corpus] = {}
        self._sets: dict[tuple[DataName, EvaluationConfig], EvaluationSets] = {}
        self._selections: dict[DataName, str] = {}
        self._checkpoints: dict[str, Checkpoint] = {}
        self._resources: dict[tuple[str, ...], Resource | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Rows and sets go to the workers; what a checkpoint's name means there they look up."""
        return {**self.__dict__, "_checkpoints": {}}

    def load(self, config: TrialConfig) -> TrialInputs:
        """Load what a config needs.

        Raises:
            DataError: A file is missing or damaged.
            CheckpointError: The encoder, or what its adapters need, cannot be found, its
                embeddings have fewer numbers than the method asks for, it has no layers but
                those that are to stay as they are, or it pools as nothing does here.
        """
        corpus = self._corpus(config.method.rows, config.data)
        resource = self._resource(config.method)
        sets = self.sets(config)
        checkpoint = self.checkpoint(config.encoder.checkpoint)
        used(checkpoint, config.encoder.pooling, config.encoder.max_length)
        if isinstance(config.method, SidesConfig) and checkpoint.width is not None:
            require_widths(config.method, checkpoint.width)
        if not config.method.freezes_encoder:
            _require_trainable(config.encoder, checkpoint)
        # Without points in between there is nothing to choose among.
        best = config.evaluation.select == "best" and config.evaluation.every > 0
        selection = self._chosen_on(sets) if best else ""
        prints = Fingerprints(_joined(corpus, resource), checkpoint.fingerprint, selection)
        return TrialInputs(corpus, sets, checkpoint, prints, resource)

    def sets(self, config: TrialConfig) -> EvaluationSets:
        """What a trial is scored on.

        Raises:
            DataError: A file is missing or damaged.
        """
        return self._evaluation_sets(evaluation_data(config), config.evaluation)

    def _corpus(self, kind: Rows, config: DataConfig) -> Corpus:
        # How rows are dealt into batches does not change them.
        unbatched = {"order": "file", "drop_last": False, "mix": "proportional"}
        rows = config.model_copy(update=unbatched)
        if (kind, rows) not in self._corpora:
            self._corpora[kind, rows] = load_rows(kind, rows, self.root)
        return self._corpora[kind, rows]

    def _resource(self, config: MethodConfig) -> Resource | None:
        # Kept here, so that workers are sent what the driver has read.
        # No resource depends on a real-valued knob, and of those there is one a sampled trial.
        kind = tuple(str(v) for v in dict(config).values() if not isinstance(v, float))
        if kind not in self._resources:
            self._resources[kind] = method_class(config).resource(config, self.root)
        return self._resources[kind]

    def _evaluation_sets(self, data: DataName, config: EvaluationConfig) -> EvaluationSets:
        # When it is measured does not change what is measured.
        wanted = EvaluationConfig(
            suites=config.suites,
            protocols=config.protocols,
            own=config.own,
            cutoffs=config.cutoffs,
        )
        if (data, wanted) not in self._sets:
            found = load_sets(data, self.root, config.suites, config.protocols, config.own)
            self._sets[data, wanted] = found.with_cutoffs(config.cutoffs, self.objectives)
        return self._sets[data, wanted]

    def _chosen_on(self, sets: EvaluationSets) -> str:
        """What chooses weights: the development set and, of the user's own, the score too."""
        chosen = self.early_stopping_objective
        if not chosen.is_own:
            found = self._selection(sets.data, sets.sts)
            # As ids have it since nothing but STS-B could choose.
            return found if chosen == DEFAULT else fingerprint_of([(found, str(chosen))])
        there = (task.version or "" for task in sets.own if chosen in objectives_of(task))
        return fingerprint_of([(next(there, ""), chosen.metric)])

    def _selection(self, data: DataName, tasks: Sequence[StsTask]) -> str:
        # Hashing every sentence takes longer than all else that a load does, and loads are many.
        if data not in self._selections:
            self._selections[data] = sts_fingerprint(tasks)
        return self._selections[data]

    def checkpoint(self, name: str) -> Checkpoint:
        """What a checkpoint's name means.

        Raises:
            CheckpointError: It cannot be found.
        """
        if name not in self._checkpoints:
            self._checkpoints[name] = resolve_checkpoint(name)
        return self._checkpoints[name]


def auto_values_of(checkpoint: Checkpoint) -> Values:
    """What stands in place of `auto` where a config leaves it to a checkpoint's files.

    Where they say of the pooling what cannot be done here, `auto` stays; `load` refuses it.
    """
    pooling, length = used(replace(checkpoint, pooling_problem=""), "auto", "auto")
    kept = "auto" if checkpoint.pooling_problem else pooling
    return {"encoder.pooling": kept, "encoder.max_length": length}


def measures_of(config: TrialConfig, device: str = "cpu") -> Measures:
    """How a trial is scored; STS by cosine always, for searches are steered by it."""
    asked, method = config.evaluation, config.method
    return Measures(
        asked.suites,
        tuple(dict.fromkeys(("cosine", *asked.protocols))),
        asked.classifier_seeds,
        device,
        own=asked.own,
        widths=method.dims if isinstance(method, SidesConfig) else (),
    )


def _require_trainable(options: EncoderConfig, checkpoint: Checkpoint) -> None:
    if options.lora_rank:
        require_peft()
    if options.freeze_layers and checkpoint.layers is not None:
        require_trained_layer(options.freeze_layers, checkpoint.layers)


def _joined(corpus: Corpus, resource: Resource | None) -> str:
    if resource is None:
        return corpus.fingerprint
    both = f"{corpus.fingerprint}\0{resource.fingerprint}"
    return hashlib.sha256(both.encode()).hexdigest()[:16]
