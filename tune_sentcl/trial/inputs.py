"""The inputs of trials, loaded and fingerprinted once for all trials that share them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tune_sentcl.config import (
    METHODS,
    DataConfig,
    DataName,
    EmbeddingLossConfig,
    EvaluationConfig,
    Fingerprints,
    MethodConfig,
    NoneConfig,
    Rows,
    TrialConfig,
    Values,
    code_of,
    completed,
    evaluation_data,
    plugin_of,
    trial_id_of,
)
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.data.task import StsTask, fingerprint_of, sts_fingerprint
from tune_sentcl.data.tasks.evaluation_sets import EvaluationSets, load_sets
from tune_sentcl.data.tasks.own_task import ForeignTask, objectives_of
from tune_sentcl.errors import CheckpointError, DataError, Fault, PluginError
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
from tune_sentcl.model.mining import mined_negatives, mining_name, with_negatives
from tune_sentcl.model.trained import require_trained_layer
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.mined import read_mined
from tune_sentcl.trial.trainers import Rehearsal, changed_knobs

_MINED_CORPORA = 4
"""The most corpora with mined negatives that a process keeps; others are read again."""


@dataclass(frozen=True)
class TrialInputs:
    """All inputs of a trial.

    Attributes:
        corpus: The training rows.
        sets: The evaluation sets.
        checkpoint: The base model.
        fingerprints: Content hashes of the inputs.
        resource: The method's further input, or None; the data's fingerprint covers it.
        rehearsal: The rehearsal of a trainer; None for other methods.
    """

    corpus: Corpus
    sets: EvaluationSets
    checkpoint: Checkpoint
    fingerprints: Fingerprints
    resource: Resource | None = None
    rehearsal: Rehearsal | None = None

    def fingerprints_now(self) -> Fingerprints:
        """The fingerprints, with a new hash of the weights, whose files may have been replaced.

        A trainer's trial compares its rows itself.

        Raises:
            CheckpointError: The weights no longer exist.
        """
        if self.rehearsal is not None:
            return self.fingerprints
        return replace(self.fingerprints, checkpoint=fingerprint_now(self.checkpoint))

    def sentences(self) -> list[str]:
        """Every distinct sentence that the trial may encode."""
        return list(dict.fromkeys([*self.corpus.sentences(), *self.sets.sentences()]))

    def trial_id(self, config: TrialConfig) -> str:
        """The id of a config's trial with these inputs."""
        values = completed(config.dotted(), auto_values_of(self.checkpoint))
        return trial_id_of(values, self.fingerprints)


class InputLoader:
    """Loads inputs from one data root, each corpus, evaluation set and checkpoint once.

    Attributes:
        root: The data root.
        stage_objective: The stage objective, which may also select weights.
        objectives: The objectives of the search; their cut-offs are added to the sets. Set them
            before the first load.
        study: The study from which to read mined negatives; None: mine them.
        newly_mined: The negatives that `study` lacks, by the names of their files.
    """

    def __init__(self, root: Path | None, stage_objective: Objective = DEFAULT) -> None:
        self.root, self.stage_objective = root, stage_objective
        self.objectives: tuple[Objective, ...] = ()
        self.study: StudyFiles | None = None
        self.newly_mined: dict[str, pa.Table] = {}
        self._corpora: dict[tuple[Rows, DataConfig], Corpus] = {}
        self._sets: dict[tuple[DataName, EvaluationConfig], EvaluationSets] = {}
        self._sts_fingerprints: dict[DataName, str] = {}
        self._checkpoints: dict[str, Checkpoint] = {}
        self._resources: dict[tuple[str, ...], Resource | None] = {}
        self._rehearsals: dict[tuple[str, str], Rehearsal] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle rows, sets and rehearsals for workers, which resolve names of checkpoints."""
        return {**self.__dict__, "study": None, "newly_mined": {}, "_checkpoints": {}}

    def load(self, config: TrialConfig) -> TrialInputs:
        """Load the inputs of a config.

        Raises:
            DataError: A file is missing or damaged.
            CheckpointError: The encoder or its adapters' library is missing, the embeddings are
                narrower than the method asks, all layers are frozen, or the encoder is static but
                the method or an option needs a transformer.
        """
        if config.method.is_trainer:
            return self._load_trainer(config)
        corpus = self._corpus(config.method.rows, config.data)
        resource = self._resource(config.method)
        sets = self.sets(config)
        checkpoint = self.checkpoint(config.encoder.checkpoint)
        if isinstance(config.method, EmbeddingLossConfig | NoneConfig) and checkpoint.width:
            require_widths(config.method, checkpoint.width)
        if not config.method.freezes_encoder:
            _require_trainable(config, checkpoint)
        # Without evaluation points, no weights are selected, so the id needs no hash of the dev
        # set.
        selects = config.evaluation.select == "best" and config.evaluation.every > 0
        selection = self._selection_fingerprint(sets) if selects else ""
        code = code_of(config.method.name)
        prints = Fingerprints(_joined(corpus, resource), checkpoint.fingerprint, selection, code)
        return TrialInputs(corpus, sets, checkpoint, prints, resource)

    def _load_trainer(self, config: TrialConfig) -> TrialInputs:
        name, sets = config.method.name, self.sets(config)
        rehearsal = self.rehearsal(config.method)
        if not rehearsal.dense and len(sets.own) + len(sets.sts) + len(sets.transfer) > 1:
            rule = f"trainer {name} gives no dense vector for each text, which these tasks need"
            move = "Remove evaluation.suites and evaluation.own."
            raise DataError(Fault("evaluation", rule=rule, move=move))
        corpus = Corpus("nothing", pa.table({}), name, rehearsal.data)
        prints = Fingerprints(rehearsal.data, "", code=code_of(name))
        start = Checkpoint(name=name, path="", fingerprint="")
        return TrialInputs(corpus, sets, start, prints, rehearsal=rehearsal)

    def rehearsal(self, config: MethodConfig) -> Rehearsal:
        """The rehearsal of a trainer with the hyperparameters of a configuration.

        Real numbers keep their defaults, because no rows and no number of steps should follow
        from them.

        Raises:
            PluginError: The trainer's plugin is not loaded, or the trainer breaks a rule.
        """
        name = config.name
        if METHODS[name].implementation is None:
            rule, move = "the method's plugin must be given", f"Give --plugin {plugin_of(name)}."
            raise PluginError(Fault("method.name", value=name, rule=rule, move=move))
        changed = changed_knobs(config).items()
        chosen = {key: value for key, value in changed if not isinstance(value, float)}
        knobs = json.dumps(chosen) if chosen else ""
        if (name, knobs) not in self._rehearsals:
            # This import is not at the top, because it loads accelerate.
            from tune_sentcl.trial.rehearsal import rehearse_apart

            found = rehearse_apart(name, knobs)
            if knobs:
                known = self.rehearsal(METHODS[name].config.model_validate({"name": name}))
                of_scores = {key: getattr(known, key) for key in ("metrics", "bounded", "chained")}
                found = replace(found, **of_scores)
            self._rehearsals[name, knobs] = found
        return self._rehearsals[name, knobs]

    def sets(self, config: TrialConfig) -> EvaluationSets:
        """The evaluation sets of a config; for a trainer, its own scores are the last task.

        Raises:
            DataError: A file is missing or damaged.
            PluginError: A trainer breaks a rule.
        """
        sets, name = self._sets_of(config), config.method.name
        if not config.method.is_trainer:
            return sets
        if any(task.name == name for task in sets.own):
            rule = "the trainer's scores already have this name"
            raise DataError(
                Fault("evaluation.own", value=name, rule=rule, move="Rename the task.")
            )
        known = self.rehearsal(config.method)
        own: Any = "dev", (), known.metrics, name, "plugin", sets.data, known.version
        return replace(sets, own=(*sets.own, ForeignTask(name, *own)))

    def _sets_of(self, config: TrialConfig) -> EvaluationSets:
        # `every` and `select` are left out of the key, because they do not change the sets.
        asked, data = config.evaluation, evaluation_data(config)
        wanted = EvaluationConfig(
            suites=asked.suites,
            protocols=asked.protocols,
            own=asked.own,
            cutoffs=asked.cutoffs,
        )
        if (data, wanted) not in self._sets:
            loaded = load_sets(data, self.root, asked.suites, asked.protocols, asked.own)
            self._sets[data, wanted] = loaded.with_cutoffs(asked.cutoffs, self.objectives)
        return self._sets[data, wanted]

    def _corpus(self, kind: Rows, config: DataConfig) -> Corpus:
        # Settings of batching are left out of the key, because they do not change the rows.
        unbatched = {"order": "file", "drop_last": False, "mix": "proportional"}
        rows = config.model_copy(update=unbatched)
        if (kind, rows) not in self._corpora:
            found = load_rows(kind, rows, self.root)
            if kind == "triplets" and rows.mined:
                found = self._with_mined(found, rows)
                # If `mined` has a range, each trial may have its own corpus. The oldest ones are
                # dropped, because all of them would fill the memory.
                older = [key for key in self._corpora if key[1].mined]
                for key in older[: 1 - _MINED_CORPORA]:
                    del self._corpora[key]
            self._corpora[kind, rows] = found
        return self._corpora[kind, rows]

    def _with_mined(self, corpus: Corpus, config: DataConfig) -> Corpus:
        try:
            checkpoint = self.checkpoint(config.mined_by)
        except CheckpointError as error:
            faults = (replace(fault, where="data.mined_by") for fault in error.faults)
            raise CheckpointError(faults) from None
        name = mining_name(corpus, config, checkpoint)
        mined = self.newly_mined.get(name)
        if mined is None and self.study is not None:
            mined = read_mined(self.study, name, len(corpus))
        if mined is None:
            mined = self.newly_mined[name] = mined_negatives(corpus, config, checkpoint)
        return with_negatives(corpus, mined)

    def _resource(self, config: MethodConfig) -> Resource | None:
        # The resources are kept, because the driver sends them to the workers. The key leaves out
        # real-valued hyperparameters: no resource depends on them, and they differ between sampled
        # trials.
        kind = tuple(str(v) for v in dict(config).values() if not isinstance(v, float))
        if kind not in self._resources:
            self._resources[kind] = method_class(config).resource(config, self.root)
        return self._resources[kind]

    def _selection_fingerprint(self, sets: EvaluationSets) -> str:
        """A hash of the dev set that selects weights; for a custom task, also of the metric."""
        chosen = self.stage_objective
        if not chosen.is_own:
            sts = self._sts_fingerprint(sets.data, sets.sts)
            # If STS-B selects, trial ids contain the hash of its data alone.
            return sts if chosen == DEFAULT else fingerprint_of([(sts, str(chosen))])
        versions = (task.version or "" for task in sets.own if chosen in objectives_of(task))
        return fingerprint_of([(next(versions, ""), chosen.metric)])

    def _sts_fingerprint(self, data: DataName, tasks: Sequence[StsTask]) -> str:
        # The hashes are kept, because hashing all sentences takes longer than the rest of a load.
        if data not in self._sts_fingerprints:
            self._sts_fingerprints[data] = sts_fingerprint(tasks)
        return self._sts_fingerprints[data]

    def checkpoint(self, name: str) -> Checkpoint:
        """Find a checkpoint by its name.

        Raises:
            CheckpointError: It cannot be found.
        """
        if name not in self._checkpoints:
            self._checkpoints[name] = resolve_checkpoint(name)
        return self._checkpoints[name]


def auto_values_of(checkpoint: Checkpoint) -> Values:
    """The values that a checkpoint's files give for options set to `auto`."""
    pooling, length = used(checkpoint, "auto", "auto")
    return {"encoder.pooling": pooling, "encoder.max_length": length}


def measures_of(config: TrialConfig, device: str = "cpu") -> Measures:
    """The measures of a trial; `cosine` is always included, because early stopping needs it."""
    asked, method = config.evaluation, config.method
    is_int8 = isinstance(method, NoneConfig) and method.quantization == "int8"
    return Measures(
        asked.suites,
        tuple(dict.fromkeys(("cosine", *asked.protocols))),
        asked.classifier_seeds,
        device,
        own=asked.own,
        widths=method.dims if isinstance(method, EmbeddingLossConfig) else (),
        cost=asked.cost,
        # The search functions of sentence-transformers rank int8 embeddings by dot product.
        similarity="dot" if is_int8 else "cosine",
    )


_OF_TRANSFORMERS = {
    "simcse": "contrasts a sentence under two dropout masks",
    "conisi": "reads two sentences as one input",
}
"""By method, the reason why it cannot train a static encoder."""


def _require_trainable(config: TrialConfig, checkpoint: Checkpoint) -> None:
    options, name = config.encoder, config.method.name
    if checkpoint.is_static:
        rule = "is not possible for a static encoder, which has no transformer"
        for key in ("lora_rank", "freeze_layers"):
            if value := getattr(options, key):
                fault = Fault(f"encoder.{key}", value=str(value), rule=rule, move="Set it to 0.")
                raise CheckpointError(fault)
        if name in _OF_TRANSFORMERS:
            rule = f"{_OF_TRANSFORMERS[name]}, which a static encoder cannot do"
            move = "Use a method for pairs or triplets, such as mnr or cosent."
            raise CheckpointError(Fault("method.name", value=name, rule=rule, move=move))
    if options.lora_rank:
        require_peft()
    if options.freeze_layers and checkpoint.layers is not None:
        require_trained_layer(options.freeze_layers, checkpoint.layers)


def _joined(corpus: Corpus, resource: Resource | None) -> str:
    if resource is None:
        return corpus.fingerprint
    both = f"{corpus.fingerprint}\0{resource.fingerprint}"
    return hashlib.sha256(both.encode()).hexdigest()[:16]
