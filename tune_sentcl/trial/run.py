"""The whole story of one trial, as a generator that a launcher pulls."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.task import StsTask
from tune_sentcl.data.tasks.own_task import RetrievalTask
from tune_sentcl.data.tasks.sets import EvaluationSets
from tune_sentcl.errors import NodeDrainingError, NonFiniteError, StudyError
from tune_sentcl.evaluate.by_cosine import score_by_cosine
from tune_sentcl.evaluate.suites import score_sets
from tune_sentcl.model.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.prefixes import Prefixes
from tune_sentcl.model.trained import restore_trained, trained_state
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.score import Predictions, Score
from tune_sentcl.seeding import stream_seed
from tune_sentcl.store.rows import CurvePoint
from tune_sentcl.train import Step, Taking, count_steps, train
from tune_sentcl.train.state import TrainingState
from tune_sentcl.trial.accounting import Account
from tune_sentcl.trial.assembly import assemble, torch_threads
from tune_sentcl.trial.inputs import TrialInputs, measures_of
from tune_sentcl.trial.output import Output
from tune_sentcl.trial.saving import Saving
from tune_sentcl.trial.state import TrialState, made_for


@dataclass(frozen=True)
class Progress:
    """One evaluation point.

    Attributes:
        step: Updates made so far.
        total: Updates that the trial makes.
        rows: Training rows seen so far.
        dev: The score by which trials are compared while they run, x 100, under the weights of the
            last evaluation point; None where there was none yet.
        scores: Every score of the trial at its end; empty before.
        facts: Cost so far, under the names of the trials table's columns.
        final: Whether this is the trial's end; its files are written by then.
        retold: Whether an attempt that was lost has told it before, and was let go on.
    """

    step: int
    total: int
    rows: int
    dev: float | None
    scores: tuple[Score, ...]
    facts: dict[str, Any]
    final: bool
    retold: bool = False


@dataclass(frozen=True)
class Ended:
    """What is left when a trial has finished: its encoder and its scores."""

    encoder: Encoder | FrozenEncoder
    scores: tuple[Score, ...]


Training = Callable[[TrainingState | None], Iterator[Step | None]]
"""A training from its beginning or from a state; None where it waits for others."""


@dataclass
class Running:
    """The moving parts of one run."""

    config: TrialConfig
    inputs: TrialInputs
    encoder: Encoder | FrozenEncoder
    account: Account
    compared_by: Objective = DEFAULT
    rows: int = 0
    parts: int = 1
    dev: float | None = None
    curves: list[CurvePoint] = field(default_factory=list)
    best: tuple[float, dict[str, torch.Tensor]] | None = None
    points: list[tuple[int, int, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pairs: tuple[Predictions, ...] = ()

    def see(self, step: Step) -> None:
        """Note a step that has been made.

        Raises:
            TrialTimeoutError: The trial's time is over.
        """
        self.account.check_time()
        self.account.steps, self.rows, self.parts = step.number, step.samples, step.parts
        self.curves += [
            CurvePoint(step.number, step.epoch, step.samples, name, value)
            for name, value in step.losses.items()
        ]

    def state(self, step: Step) -> TrialState:
        """What the trial is behind a step."""
        made, spent = made_for(self.config, self.compared_by), self.account.spent()
        return TrialState(made, step.state(), self.points, self.curves, self.best, spent)

    def left(self, output: Output | None) -> TrialState | None:
        """What an attempt that was lost has left, if this trial can go on from it."""
        try:
            state = None if output is None else output.saved()
        except StudyError as error:
            self.notes.append(f"began anew, for what a lost attempt had left was damaged: {error}")
            return None
        if state is None or state.made_for == made_for(self.config, self.compared_by):
            return state
        self.notes.append("began anew, for a lost attempt had other settings or versions")
        return None

    def go_on(self, state: TrialState, output: Output | None) -> Iterator[Progress]:
        """Become what a trial that was lost had been, but for the training itself.

        Who compares trials hears of all its points again, and passes none of them anew.
        """
        self.points, self.curves, self.best = [*state.points], [*state.curves], state.best
        self.account.go_on(state.costs)
        self.account.steps, self.rows = state.training.number, state.training.samples
        self.parts = state.training.parts
        self.notes.append(f"went on from step {state.training.number} of an attempt that was lost")
        total = count_steps(self.inputs.corpus, self.config)
        if output is not None:  # also where it is stopped at its next point
            output.point(self.curves)
        for number, rows, self.dev in state.points:
            if number < total:
                facts = _facts(self)
                yield Progress(number, total, rows, self.dev, (), facts, final=False, retold=True)


def run(
    config: TrialConfig,
    inputs: TrialInputs,
    account: Account | None = None,
    output: Output | None = None,
    compared_by: Objective = DEFAULT,
    *,
    accumulate: bool = False,
) -> Generator[Progress, None, Ended]:
    """Train, evaluate, write; yields at each evaluation point, the last one tagged `final`.

    A launcher stops a trial by closing the generator. Whatever `output` receives is written before
    the point that speaks of it is yielded, so that nothing needs to happen after the last one.
    torch's global random state and number of threads are set for the run and restored afterwards.

    Args:
        config: The trial.
        inputs: What `InputLoader.load` gave for it.
        account: Where to compute, and where the cost is counted; None: one thread of the CPU.
        output: Where files go; None keeps everything in memory.
        compared_by: What is measured at evaluation points beside STS-B dev.
        accumulate: Whether batches that do not fit the device's memory are taken in parts, where
            the method's loss lets that be.

    Raises:
        OutOfMemoryError: A batch does not fit, and cannot be taken in parts.
        NodeDrainingError: `output` says that this machine is about to go.
        NonFiniteError: A loss, an embedding or a correlation is not a finite number.
        TrialTimeoutError: It took longer than its account allows.
    """
    account = account or Account()
    device = account.device
    devices = [device] if device.startswith("cuda") else []
    with torch_threads(account.cpus), torch.random.fork_rng(devices=devices):
        method = assemble(config, inputs, device)
        torch.manual_seed(stream_seed(config.seed, "dropout"))
        trial = Running(config, inputs, method.encoder, account, compared_by, notes=method.notes)

        def training(state: TrainingState | None) -> Iterator[Step]:
            return train(method, inputs.corpus, config, state, Taking(accumulate=accumulate))

        scores: tuple[Score, ...] = ()
        with closing(story(trial, training, output)) as told:
            for progress in told:
                if progress is not None:  # which it never is here
                    scores = progress.scores
                    yield progress
    return Ended(trial.encoder, scores)


def story(
    trial: Running, training: Training, output: Output | None
) -> Generator[Progress | None, None, None]:
    """Train, evaluate, write, as `run` does where torch has been set up for the trial.

    Args:
        trial: As it begins.
        training: Gives its steps; None of them is passed on.
        output: As for `run`.
    """
    yield from _train(trial, training, output)
    if trial.best is not None:
        restore_trained(trial.encoder, trial.best[1])
    yield _finish(trial, output)


def measure(
    config: TrialConfig,
    inputs: TrialInputs,
    folder: Path,
    account: Account,
    output: Output,
) -> Generator[Progress, None, Ended]:
    """Score a trial that was trained before, from the weights that it left; yields once.

    Args:
        config: The trial.
        inputs: What `InputLoader.load` gave for it.
        folder: Its checkpoint.
        account: Where to compute, and where the cost is counted.
        output: Where its scores are added.

    Raises:
        CheckpointError: The folder holds no encoder.
        NonFiniteError: An STS score has no value.
    """
    options = config.encoder
    with torch_threads(account.cpus):
        checkpoint = resolve_checkpoint(str(folder))
        encoder = load_encoder(checkpoint, options.pooling, options.max_length, account.device)
        encoder.prefixes = Prefixes.of(options)
        trial = Running(config, inputs, encoder, account)
        scores = _measure_all(trial, output)
        output.files.keep_curves(output.trial_id)
        output.files.keep_pairs(output.trial_id)
        output.leave_pairs(trial.pairs)
        output.files.add_scores(output.trial_id, scores)
        last = Progress(0, 0, 0, None, scores, _facts(trial), final=True)
        yield last
    return Ended(encoder, last.scores)


def _train(
    trial: Running, training: Training, output: Output | None
) -> Generator[Progress | None, None, None]:
    every, saving = trial.config.evaluation.every, Saving(output)
    state = trial.left(output)
    if state is not None:
        yield from trial.go_on(state, output)
    for step in training(None if state is None else state.training):
        if step is None:
            yield None
            continue
        trial.see(step)
        last = step.number == step.total
        if every and (step.number % every == 0 or last):
            _point(trial, step)
            if not last:
                if output is not None:
                    output.point(trial.curves)
                yield _progress(trial, step.total)
        _save(trial, step, saving, output)


def _save(trial: Running, step: Step, saving: Saving, output: Output | None) -> None:
    """Leave what the trial is, where it is time for that.

    Raises:
        NodeDrainingError: It is the last time.
    """
    leaves = output is not None and output.leaves()
    if leaves or saving.due(last=step.number == step.total):
        saving.write(trial.state(step))
        trial.account.saving_seconds = saving.seconds
    if leaves:
        raise NodeDrainingError(f"its machine is about to go, which it left at step {step.number}")


def _point(trial: Running, step: Step) -> None:
    """Measure what trials are compared by, and remember the weights where they are the best."""
    sets, compared_by = trial.inputs.sets, trial.compared_by
    scores = _measure(trial, tasks_at_points(sets, compared_by))
    read = dict.fromkeys(o for o in (DEFAULT, compared_by) if o in (compared_by, *sets.steering))
    found = {objective: _value(objective, scores, sets.data) for objective in read}
    trial.curves += [
        CurvePoint(step.number, step.epoch, step.samples, objective.curve, value)
        for objective, value in found.items()
    ]
    trial.dev = dev = found[compared_by]
    trial.points.append((step.number, step.samples, trial.dev))
    if trial.config.evaluation.select == "best" and (trial.best is None or dev > trial.best[0]):
        weights = {name: value.clone() for name, value in trained_state(trial.encoder).items()}
        trial.best = (dev, weights)


def tasks_at_points(sets: EvaluationSets, compared_by: Objective) -> list[StsTask | RetrievalTask]:
    """What is measured at an evaluation point: STS-B dev, and what trials are compared by."""
    wanted = {(read.task, read.split) for read in (DEFAULT, compared_by)}
    found = (task for task in sets.own if isinstance(task, RetrievalTask))
    cheap: list[StsTask | RetrievalTask] = [*sets.graded, *found]
    return [task for task in cheap if (task.name, task.split) in wanted]


def _finish(trial: Running, output: Output | None) -> Progress:
    scores = _measure_all(trial, output)
    last = _progress(trial, trial.account.steps, scores, final=True)
    if output is not None:
        output.leave_pairs(trial.pairs)
        output.end(_to_keep(trial), trial.curves, scores)
    return last


def _progress(
    trial: Running, total: int, scores: tuple[Score, ...] = (), *, final: bool = False
) -> Progress:
    facts = _facts(trial)
    return Progress(trial.account.steps, total, trial.rows, trial.dev, scores, facts, final)


def _facts(trial: Running) -> dict[str, Any]:
    """What the trial cost, its encoder's passes included."""
    facts = trial.account.facts()
    notes = list(trial.notes)
    parts, size = trial.inputs.corpus.parts, trial.config.optimizer.batch_size
    rows = max(parts, default=len(trial.inputs.corpus))
    if trial.account.steps and rows < size:
        of = (
            f"{rows} rows of any source: one batch of each"
            if parts
            else f"{rows} rows: one batch of all"
        )
        notes.append(f"optimizer.batch_size = {size} is more than the {of}")
    if trial.parts > 1:
        whole = "for whole ones did not fit the device's memory"
        notes.append(f"each batch in {trial.parts} parts, {whole}")
    if isinstance(trial.encoder, FrozenEncoder):
        cache = trial.encoder.cache
        facts["encoded_sentences"], facts["encoding_seconds"] = cache.encoded, cache.seconds
        notes += cache.notes
    return {**facts, "notes": "; ".join(notes) or None}


def _to_keep(trial: Running) -> Encoder | None:
    """What is worth saving: an encoder that is not simply the checkpoint it came from."""
    if isinstance(trial.encoder, Encoder):
        return trial.encoder
    return trial.encoder.whole() if len(trial.encoder.tail) else None


def _measure(trial: Running, tasks: Sequence[StsTask | RetrievalTask]) -> list[Score]:
    start = time.perf_counter()
    scores = score_by_cosine(trial.encoder.encode, tasks, trial.inputs.sets.graded)
    trial.account.evaluation_seconds += time.perf_counter() - start
    return scores


def _measure_all(trial: Running, output: Output | None) -> tuple[Score, ...]:
    """Every score that the config asks for.

    Raises:
        NonFiniteError: A score that takes nothing but embeddings has no value; what other
            protocol fails is noted, but for tasks that could not be read, of which the search has
            spoken.
    """
    trial.account.check_time()
    start = time.perf_counter()
    measures = measures_of(trial.config, trial.account.device)
    measures = replace(measures, pairs=output is not None and output.keep_pairs)
    found = score_sets(trial.encoder.encode, trial.inputs.sets, measures)
    trial.account.evaluation_seconds += time.perf_counter() - start
    plain = [score for score in found.scores if score.protocol in ("cosine", "retrieval")]
    if any(score.value is None for score in plain):
        # These come first, and so do their errors.
        raise next(error for error in found.errors if isinstance(error, NonFiniteError))
    unread = [missing.error for missing in trial.inputs.sets.unread]
    trial.notes += [str(error) for error in found.errors if error not in unread]
    trial.notes += found.notes
    trial.pairs = found.pairs
    return found.scores


def _value(objective: Objective, scores: Sequence[Score], data: str) -> float:
    value = objective.value(scores, data)
    if value is None:
        raise NonFiniteError(f"{objective} has no value")
    return value
