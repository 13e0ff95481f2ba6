"""The state of one run of a trial, its progress reports, and its measurements."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.tasks.evaluation_sets import EvaluationSets
from tune_sentcl.data.tasks.own_task import QuickTask
from tune_sentcl.errors import NodeDrainingError, NonFiniteError, StudyError
from tune_sentcl.evaluate.suites import Measures, score_by_cosine, score_sets
from tune_sentcl.items import ItemScores
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.trained import trained_state
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.score import Score
from tune_sentcl.store.rows import CurvePoint
from tune_sentcl.train import Step, count_steps, rows_left_out
from tune_sentcl.trial.accounting import Account
from tune_sentcl.trial.encoder_cost import cost_scores
from tune_sentcl.trial.inputs import TrialInputs, measures_of
from tune_sentcl.trial.output import Output, StateWriter, TrialState, made_for


@dataclass(frozen=True)
class Progress:
    """The report of an evaluation point, a pause or the end.

    Attributes:
        step: Updates made so far.
        total: Updates of the whole trial.
        rows: Training rows seen so far.
        dev: The stage objective x 100 at the last evaluation point; None before the first.
        scores: All scores of the trial at its end; empty before the end.
        run_columns: The cost so far, by column of the trials table.
        final: Whether this is the trial's end; its weights are then written.
        paused: Whether this is the end of the trial's stage, with its score as `dev`.
        curves: The curves so far, about 200 points a metric.
    """

    step: int
    total: int
    rows: int
    dev: float | None
    scores: tuple[Score, ...]
    run_columns: dict[str, Any]
    final: bool
    paused: bool = False
    curves: tuple[CurvePoint, ...] = ()


@dataclass
class TrialRun:
    """The state of one run of a trial."""

    config: TrialConfig
    inputs: TrialInputs
    encoder: Encoder | FrozenEncoder
    account: Account
    stage_objective: Objective = DEFAULT
    rows: int = 0
    dev: float | None = None
    curves: list[CurvePoint] = field(default_factory=list)
    best: tuple[float, dict[str, torch.Tensor]] | None = None
    points: list[tuple[int, int, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    items: tuple[ItemScores, ...] = ()

    def record_step(self, step: Step) -> None:
        """Record a step in the account and the curves.

        Raises:
            TrialTimeoutError: The trial has used up its time.
        """
        self.account.check_time()
        self.account.count(step.number)
        self.account.precision_used = step.arithmetic
        self.rows = step.samples
        self.notes += [note for note in step.notes if note not in self.notes]
        self.curves += [
            CurvePoint(step.number, step.epoch, step.samples, name, value)
            for name, value in step.losses.items()
        ]

    def state(self, step: Step, paused: float | None = None) -> TrialState:
        """The trial's state after a step; `paused` is the score at the end of a stage."""
        depends_on, costs = (
            made_for(self.config, self.stage_objective),
            self.account.spent(),
        )
        best = self.best
        return TrialState(depends_on, step.state(), self.points, self.curves, best, costs, paused)

    def load_saved_state(
        self, output: Output | None, keep: Path | None = None
    ) -> TrialState | None:
        """The saved state of an earlier attempt, if this trial can resume from it.

        The files of a trainer are copied to `keep`, a new folder.
        """
        try:
            state = None if output is None else output.saved(keep)
        except StudyError as error:
            self.notes.append(
                f"started again, because the state of a lost attempt was damaged: {error}"
            )
            return None
        if state is None:
            return None
        why = self._why_unusable(state, 1.0 if output is None else output.until)
        if why:
            self.notes.append(f"started again, because a lost attempt had {why}")
        return None if why else state

    def _why_unusable(self, state: TrialState, until: float) -> str | None:
        if state.made_for != made_for(self.config, self.stage_objective):
            return "other settings or versions"
        end = until * self.total_steps(state)
        before = state.training.number - (state.paused is not None)
        return "trained beyond the end of this stage" if until < 1 and before >= end else None

    def total_steps(self, state: TrialState) -> int:
        """The number of steps of the whole training."""
        return count_steps(self.inputs.corpus, self.config)

    def resume(self, state: TrialState) -> None:
        """Restore the state of a paused or lost attempt, except the state of the training loop."""
        self.points, self.curves, self.best = [*state.points], [*state.curves], state.best
        self.account.resume(state.costs)
        self.account.steps, self.rows = state.training.number, state.training.samples
        self.account.precision_used = state.training.plain["arithmetic"]
        if state.paused is None:
            self.notes.append(f"continued from step {state.training.number} of a lost attempt")
        if state.points:
            self.dev = state.points[-1][2]

    def progress(
        self, total: int, scores: tuple[Score, ...] = (), *, final: bool = False
    ) -> Progress:
        """A report of the current state; the whole trial makes `total` updates."""
        run_columns = self._run_columns()
        return Progress(
            self.account.steps,
            total,
            self.rows,
            self.dev,
            scores,
            run_columns,
            final,
            curves=tuple(self.curves),
        )

    def _paused(self, total: int, score: float) -> Progress:
        return replace(self.progress(total), dev=score, paused=True)

    def paused_again(self, state: TrialState, until: float) -> Progress | None:
        """The report of a stage that an earlier attempt ended; None if training must continue."""
        step, total = state.training.number, self.total_steps(state)
        if state.paused is None or step < until * total:
            return None
        return self._paused(total, state.paused)

    def pause(self, step: Step) -> Progress:
        """Measure the stage objective at the end of a stage.

        This is not an evaluation point: neither the curves nor the choice of the best weights
        change.
        """
        sets, stopping = self.inputs.sets, self.stage_objective
        scores = _measure(self, tasks_at_points(sets, stopping, default=False))
        return self._paused(step.total, value_of(stopping, scores, sets.data))

    def costs(self, measures: Measures) -> list[Score]:
        """The scores of the task `cost` for the encoder."""
        return cost_scores(self.encoder, self.inputs.sets, measures)

    @cached_property
    def _left_out(self) -> int:
        return rows_left_out(self.inputs.corpus, self.config)

    def _run_columns(self) -> dict[str, Any]:
        """The trial's cost, including the encoding by a frozen encoder, and its notes."""
        columns = self.account.run_columns()
        notes = [*self.notes, *self.account.notes]
        parts, size = self.inputs.corpus.parts, self.config.optimizer.batch_size
        sizes = self.inputs.corpus.epoch_sizes()
        rows = max(sizes)
        dropped = self.inputs.corpus.dropped
        if dropped:
            notes.append(f"data.blanks = drop left out {dropped:,} rows with a blank sentence")
        if self.account.steps and self._left_out:
            notes.append(
                f"the first epoch leaves out {self._left_out:,} of the {sum(sizes):,} rows"
            )
        if self.account.steps and rows < size and self.config.method.trains_on_rows:
            of = (
                f"{rows} rows of any source, so each source is one batch"
                if parts
                else f"{rows} rows, so one batch holds them all"
            )
            notes.append(f"optimizer.batch_size = {size} is more than the {of}")
        if isinstance(self.encoder, FrozenEncoder):
            cache = self.encoder.cache
            columns["encoded_sentences"], columns["encoding_seconds"] = (
                cache.encoded,
                cache.seconds,
            )
        return {**columns, "notes": "; ".join(notes) or None}


def save_if_due(
    trial: TrialRun, step: Step, state_writer: StateWriter, output: Output | None
) -> None:
    """Save the trial's state if it is due.

    Raises:
        NodeDrainingError: The machine is about to shut down.
    """
    is_draining = output is not None and output.is_draining()
    if is_draining or state_writer.due(last=step.number == step.total):
        state_writer.write(trial.state(step))
        trial.account.saving_seconds = state_writer.seconds
    if is_draining:
        raise NodeDrainingError(
            f"its machine is about to shut down; the trial saved its state at step {step.number}"
        )


def measure_point(trial: TrialRun, step: Step) -> None:
    """Measure the stage objective, and keep the weights if its value is the best so far."""
    sets, stopping = trial.inputs.sets, trial.stage_objective
    scores = _measure(trial, tasks_at_points(sets, stopping))
    objectives = dict.fromkeys(o for o in (DEFAULT, stopping) if o in (stopping, *sets.objectives))
    values = {objective: value_of(objective, scores, sets.data) for objective in objectives}
    trial.curves += [
        CurvePoint(step.number, step.epoch, step.samples, objective.curve, value)
        for objective, value in values.items()
    ]
    trial.dev = dev = values[stopping]
    trial.points.append((step.number, step.samples, trial.dev))
    if trial.config.evaluation.select == "best" and (trial.best is None or dev > trial.best[0]):
        weights = {name: value.clone() for name, value in trained_state(trial.encoder).items()}
        trial.best = (dev, weights)


def measure_end(trial: TrialRun) -> tuple[Score, ...]:
    """Every score that the config asks for.

    Failures of protocols that train a classifier become notes. An unread task gets no note,
    because the search has already reported it.

    Raises:
        NonFiniteError: A score by cosine or of retrieval has no value.
    """
    trial.account.check_time()
    start = time.perf_counter()
    measures = measures_of(trial.config, trial.account.device)
    evaluation = score_sets(trial.encoder.encode, trial.inputs.sets, measures)
    costs = trial.costs(measures) if measures.cost else []
    trial.account.evaluation_seconds += time.perf_counter() - start
    plain = [score for score in evaluation.scores if score.protocol in ("cosine", "retrieval")]
    if any(score.value is None for score in plain):
        # Cosine and retrieval scores are measured before the others, so the first NonFiniteError
        # comes from one of them.
        raise next(error for error in evaluation.errors if isinstance(error, NonFiniteError))
    unread = [missing.error for missing in trial.inputs.sets.unread]
    trial.notes += [str(error) for error in evaluation.errors if error not in unread]
    trial.notes += evaluation.notes
    trial.items = evaluation.items
    return (*evaluation.scores, *costs)


def tasks_at_points(
    sets: EvaluationSets, stage_objective: Objective, *, default: bool = True
) -> list[QuickTask]:
    """The tasks of an evaluation point: that of the stage objective, and STS-B dev.

    With `default=False`, as at the end of a stage, STS-B dev is
    measured only if it gives the stage objective.
    """
    objectives = (stage_objective, *((DEFAULT,) if default else ()))
    wanted = {(objective.task, objective.split) for objective in objectives}
    own = (task for task in sets.own if isinstance(task, QuickTask))
    return [task for task in (*sets.sts, *own) if (task.name, task.split) in wanted]


def _measure(trial: TrialRun, tasks: Sequence[QuickTask]) -> list[Score]:
    start = time.perf_counter()
    scores = score_by_cosine(trial.encoder.encode, tasks, trial.inputs.sets.graded)
    trial.account.evaluation_seconds += time.perf_counter() - start
    return scores


def value_of(objective: Objective, scores: Sequence[Score], data: str) -> float:
    """An objective's value.

    Raises:
        NonFiniteError: The objective has no value.
    """
    value = objective.value(scores, data)
    if value is None:
        raise NonFiniteError(f"{objective} has no value")
    return value
