"""Which weights and saved states a study keeps, and their sizes."""

from itertools import islice
from pathlib import Path

from tune_sentcl.config import TrialConfig
from tune_sentcl.history import CONFIRM_ORIGIN, Assignment, ranked
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint
from tune_sentcl.model.checkpoints.loading import load_base
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.question import Question
from tune_sentcl.tuning.queue import Queue

CONTENDERS = 5
"""How many configurations keep a checkpoint while further seeds may change their order."""


def model_bytes(config: TrialConfig, loader: InputLoader) -> int:
    """An upper bound of the bytes of a trial's kept model."""
    inputs = loader.load(config)
    known = inputs.rehearsal
    return kept_bytes(config, inputs.checkpoint) if known is None else known.size


def kept_bytes(config: TrialConfig, checkpoint: Checkpoint) -> int:
    """An upper bound of the bytes of a trial's weights; 0 if its encoder is not downloaded yet.

    A matrix of size width x width has width**2 numbers, its adapters have 2 * rank * width.
    Weights may have two bytes a number and adapters have four, which gives the share 4 * rank /
    width.
    """
    while checkpoint.base is not None:
        # Adapters are small compared with their base, so the base's size counts.
        checkpoint = checkpoint.base
    if checkpoint.is_new_static:
        return sum(weight.nbytes for weight in load_base(checkpoint).transformer.parameters())
    folder, rank = Path(checkpoint.path, checkpoint.place), config.encoder.lora_rank
    files = [*folder.glob("*.safetensors")] or [*folder.glob("pytorch_model*.bin")]
    weights = sum(file.stat().st_size for file in files) if checkpoint.path else 0
    # Several poolings make an embedding wider than the matrices, so its width is no width of a
    # matrix.
    width = None if checkpoint.pooling == "modules" else checkpoint.width
    if not rank or config.method.freezes_encoder or width is None:
        return weights
    return round(weights * min(1.0, 4 * rank / width))


def state_bytes(config: TrialConfig, loader: InputLoader) -> int:
    """An upper bound of the bytes of a trial's state, as a multiple of the trained weights.

    AdamW keeps two moments beside the weights; the best weights so far may be kept, too.
    """
    if config.method.freezes_encoder or not config.method.takes_steps:
        return 0
    keeps_best = config.evaluation.every > 0 and config.evaluation.select == "best"
    return (3 + keeps_best) * model_bytes(config, loader)


class Keeping:
    """Deletes the weights and states that no trial of a search needs.

    Attributes:
        has_states: Whether the study held states of trials when it was last checked.
        older: The trials whose plugin has changed since.
        resumable: Failed trials that only lost their workers. Their states are kept, because a
            repeated command continues them.
    """

    def __init__(self, driver: StudyDriver, queue: Queue, question: Question) -> None:
        self._driver, self._queue, self._question = driver, queue, question
        self._history = queue.history
        self.resumable = set(self._history.with_status("failed"))
        self.has_states = bool(driver.study.states())
        self._sizes: dict[str, int] = {}  # the bytes of each trial's states
        older, table = driver.study.older(), self._history.table
        columns = (table[name].to_pylist() for name in ("trial_id", "configuration", "origin"))
        rows = list(zip(*columns, strict=True))
        self.older = {trial_id for trial_id, name, _ in rows if name in older}
        names = (trial_id for trial_id, _, origin in rows if origin == CONFIRM_ORIGIN)
        self._confirming = {name for name in names if queue.configurations.of_trial(name) is None}

    def keep_best_checkpoints(self) -> None:
        """Keep the best weights and those that queued measurements need; delete the others.

        The winner's best trial comes first, because a single trial of another configuration may be
        better by luck. Further seeds change the order, so `CONTENDERS` configurations keep one
        trial's weights each until the search is complete. Weights of other commands are ranked by
        their scores.

        Raises:
            StudyError: The disk cannot be written.
        """
        if self._question.origin == CONFIRM_ORIGIN:
            return  # confirmation seeds keep no weights
        kept = self._driver.checkpoints()
        weights = {name for name in kept if self._history.status(name) == "finished"}
        # `measure` may have trained seeds of a confirmation, but these choose no weights.
        weights -= self._confirming
        best = sorted(weights - self.older, key=self._checkpoint_rank)
        best += sorted(weights & self.older, key=self._checkpoint_rank)
        leaders = self._leaders(weights)
        of_leaders = [next((m for m in best if m in trials), None) for trials in leaders]
        in_order = dict.fromkeys(m for m in (*of_leaders[:1], *best) if m is not None)
        most = self._question.options.keep
        wanted = {*islice(in_order, most), *self._queue.waiting()}
        if most and len(self._question.seeds) > 1 and not self._queue.finished:
            wanted.update(m for m in of_leaders if m is not None)
        if not kept <= wanted:
            self._driver.keep_checkpoints(wanted)
        self._history.weights = weights & wanted

    def _checkpoint_rank(self, name: str) -> tuple[float, str]:
        return -self._history.checkpoint_score(name), name

    def _leaders(self, weights: set[str]) -> list[tuple[str, ...]]:
        """The trials of the best configurations; empty if other commands made some weights."""
        known = list(self._queue.configurations.values())
        if not (weights - self.older).issubset(
            trial for each in known for trial in each.trials.values()
        ):
            return []
        whole = (
            each
            for each in known
            if each.scores() and all(r.status == "finished" for r in each.results.values())
        )
        return [tuple(leader.trials.values()) for leader in ranked(whole)[:CONTENDERS]]

    def drop_states(self, *, complete: bool) -> None:
        """Delete the states of ended trials that do not run again.

        Trials that only lost their workers keep their states. Paused trials keep theirs as far as
        `--states` allows: those of the latest stages first, then the best. When the search is
        complete, states of trials without a row are deleted, too; if confirmation seeds follow,
        when these are complete. A single trial deletes no state of another.

        Args:
            complete: Whether the search is complete.

        Raises:
            StudyError: The disk cannot be written.
        """
        origin, is_confirmed = self._question.origin, self._question.options.confirm > 0
        is_whole_search = origin is None and not is_confirmed
        drop_all = complete and (is_whole_search or origin == CONFIRM_ORIGIN)
        there = self._driver.study.states()
        needed = self._queue.waiting() | self.resumable
        paused = [name for name in there if self._history.status(name) == "pruned"]
        paused.sort(key=self._pause_order, reverse=True)
        left = self._question.options.states * 1e9
        for name in paused:
            left -= self._state_bytes(name)
            if left >= 0:
                needed.add(name)
            elif name not in self._queue.running:
                needed.discard(name)
        self.has_states = bool(there)
        for name in there - needed:
            if drop_all or self._history.status(name):
                self._driver.drop_state(name)

    def pause_above(self, assignment: Assignment) -> float | None:
        """The least score with which a paused trial saves a state; None: it saves no state."""
        keeps = self._question.options.states > 0
        name, until = assignment.configuration, assignment.until
        return self._queue.pause_above(name, until) if keeps else None

    def _state_bytes(self, trial_id: str) -> int:
        """An upper bound of the bytes of a state; 0 for a trial of another search.

        The value is kept, because every end of a stage asks for all paused trials.
        """
        configurations = self._queue.configurations
        if trial_id not in self._sizes:
            place = configurations.of_trial(trial_id)
            config = place and configurations.config(place[0].name)
            self._sizes[trial_id] = state_bytes(config, self._question.loader) if config else 0
        return self._sizes[trial_id]

    def _pause_order(self, name: str) -> tuple[float, float]:
        """A sort key of paused trials: the share to which one has trained, and its score there."""
        return max(self._history.stages(name).items(), default=(0.0, 0.0))
