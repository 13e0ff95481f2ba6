"""One trial of a trainer, as the same generator of `Progress` as the other methods."""

import math
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import TrainerCallback

from tune_sentcl.arithmetic import Arithmetic
from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate.suites import Measures
from tune_sentcl.model.checkpoints.tokenizer_files import quiet
from tune_sentcl.model.saving import share
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.score import Score
from tune_sentcl.train import Step
from tune_sentcl.train.loop import is_shown
from tune_sentcl.train.state import TrainingState
from tune_sentcl.trial.accounting import Account
from tune_sentcl.trial.encoder_cost import model_cost_scores
from tune_sentcl.trial.inputs import TrialInputs, measures_of
from tune_sentcl.trial.output import Output, StateWriter, TrialState
from tune_sentcl.trial.rehearsal import (
    Leave,
    check_rows,
    rows_a_step,
    texts_of,
    train_quietly,
)
from tune_sentcl.trial.running import Progress, TrialRun, measure_end, save_if_due
from tune_sentcl.trial.trainers import (
    DenseModel,
    Rehearsal,
    check_losses,
    guarded,
    make_trainer,
    metrics_of,
    own_random_state,
    own_weights,
    source_of,
)


@dataclass
class TrainerTrial(TrialRun):
    """One run of a trainer's trial."""

    trainer: Any = None

    @property
    def name(self) -> str:
        """The name of the method, and of the task of its own scores."""
        return self.config.method.name

    def total_steps(self, state: TrialState) -> int:
        """The steps of the whole training, which a state records."""
        return int(state.training.plain["total"])

    def state(self, step: Step, paused: float | None = None) -> TrialState:
        """The trial's state after a step that the trainer has just saved."""
        files = Path(self.trainer.args.output_dir, f"checkpoint-{step.number}")
        return replace(super().state(step, paused), files=files)

    def pause(self, step: Step) -> Progress:
        """Measure the stage objective at the end of a stage."""
        if self.stage_objective.task != self.name:
            return super().pause(step)
        return self._paused(step.total, self.own_value(self.own_scores()))

    def own_value(self, scores: list[Score]) -> float:
        """The value of the stage objective, which is one of the evaluator's numbers.

        Raises:
            NonFiniteError: It has no value.
        """
        value = self.stage_objective.value(scores, self.inputs.sets.data)
        if value is None:
            text = (
                f"{self.stage_objective} must be finite, and the evaluator gave no finite number"
            )
            move = "Check the evaluator's labels and the learning rate"
            raise NonFiniteError(f"{text}. {move}, or give another --objective")
        return value

    def own_scores(self) -> list[Score]:
        """The evaluator's numbers, times 100 where the rehearsal found them in -1 to 1."""
        known, start = self.inputs.rehearsal or Rehearsal(""), time.perf_counter()
        values = metrics_of(self.trainer, self.name)
        self.account.evaluation_seconds += time.perf_counter() - start
        if not {*known.metrics} <= {*values}:
            rule = "its evaluator must return the same metrics with all hyperparameters"
            raise source_of(self.name).failure("", rule)
        of = partial(Score, "own", self.name, "dev", protocol="plugin", version=known.version)
        # A trainer's evaluator does not say how many items it reads.
        of = partial(of, data=self.inputs.sets.data, n=0)
        scores = []
        for metric in known.metrics:
            value = values[metric] * (100 if metric in known.bounded else 1)
            if math.isfinite(value):
                scores.append(of(metric=metric, value=value))
            else:
                reason = f"the evaluator gave {value}"
                scores.append(of(metric=metric, value=None, reason=reason))
        return scores

    def costs(self, measures: Measures) -> list[Score]:
        """The costs of the model in use, on texts of its evaluator."""
        return model_cost_scores(
            self.trainer.model, texts_of(self.trainer, self.name), self.inputs.sets.data
        )


class _Steps(TrainerCallback):  # type: ignore[misc]
    """Takes the trainer's steps: records them, and saves and stops where the trial must.

    Attributes:
        last: The last step.
        ends_stage: Whether it ends the trial's stage.
    """

    def __init__(self, trial: TrainerTrial, output: Output | None, resumed: TrialState | None):
        self._trial, self._output, self._resumed = trial, output, resumed
        self._writer = StateWriter(output)
        self.last: Step | None = None
        self.ends_stage = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Restore the losses' own weights, which the trainer's checkpoint lacks."""
        check_losses(self._trial.trainer, self._trial.name, more["optimizer"])
        if self._resumed is None:
            return
        saved = self._resumed.training.tensors
        with torch.no_grad():
            for name, weight in own_weights(self._trial.trainer).items():
                weight.copy_(saved[name])
        if state.global_step >= state.max_steps:
            # Otherwise the trainer would make one more step.
            raise Leave

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Ask for a checkpoint where one is due."""
        number, total, output = state.global_step, state.max_steps, self._output
        samples = number * rows_a_step(self._trial.trainer)
        kind: Arithmetic = "bf16" if args.bf16 else "fp32"
        now = partial(self._training_state, number, samples, total, kind)
        self.last = Step(number, total, state.epoch, samples, {}, kind, (), now)
        self._trial.record_step(self.last)
        is_last = number == total
        is_draining = output is not None and output.is_draining()
        until = 1.0 if output is None else output.until
        self.ends_stage = not is_last and number >= until * total
        if is_draining or self.ends_stage or self._writer.due(last=is_last):
            control.should_save = True
        control.should_training_stop |= self.ends_stage

    def _training_state(
        self, number: int, samples: int, total: int, kind: Arithmetic
    ) -> TrainingState:
        weights = own_weights(self._trial.trainer)
        copied = {
            name: value.detach().cpu().clone().contiguous() for name, value in weights.items()
        }
        return TrainingState(number, samples, copied, {"total": total, "arithmetic": kind})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
        """Record the losses of the step that has just ended."""
        step = self.last
        if step is None or "loss" not in logs:
            return
        losses = {"loss": float(logs["loss"])}
        parts = {k: v for k, v in logs.items() if k not in _NO_LOSSES and isinstance(v, float)}
        losses |= {f"loss.{name}": value for name, value in parts.items()}
        if not math.isfinite(losses["loss"]):
            text = f"loss must be finite, but is {logs['loss']} at step {step.number}"
            raise NonFiniteError(text)
        if is_shown(step.number, step.total):
            self._trial.record_step(replace(step, losses=losses))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the checkpoint that the trainer has written, unless it ends a stage."""
        if self.last is not None and not self.ends_stage:
            save_if_due(self._trial, self.last, self._writer, self._output)


_NO_LOSSES = ("loss", "grad_norm", "learning_rate", "epoch")


def run_trainer(
    config: TrialConfig,
    inputs: TrialInputs,
    account: Account,
    output: Output | None,
    stage_objective: Objective,
) -> Generator[Progress, None, tuple[Any, tuple[Score, ...]]]:
    """Train a trainer, evaluate and write, as `run` does; torch's threads are set by the caller.

    Returns:
        The model and its scores; a trial that has paused has none.
    """
    with own_random_state(), TemporaryDirectory(prefix="tune_sentcl_") as scratch:
        trainer = make_trainer(config.method, config.seed, account.device, Path(scratch, "run"))
        trial = _trial(config, inputs, account, stage_objective, trainer)
        state = trial.load_saved_state(output, Path(scratch, "resumed"))
        until = 1.0 if output is None else output.until
        if state is not None:
            trial.resume(state)
            if (paused := trial.paused_again(state, until)) is not None:
                yield paused
                return trainer.model, ()
        account.begin_training()
        steps = _Steps(trial, output, state)
        trainer.add_callback(steps)
        training = partial(train_quietly, trainer, None if state is None else state.files)
        guarded(config.method.name, training, always=False)
        last = steps.last
        if steps.ends_stage and last is not None and output is not None:
            progress = trial.pause(last)
            output.pause(trial.state(last, paused=progress.dev))
            yield progress
            return trainer.model, ()
        ended, total = trainer.state.global_step, trainer.state.max_steps
        if ended < total:
            rule = f"its trainer must not stop by itself, and stopped at step {ended} of {total}"
            raise source_of(config.method.name).failure("", rule)
        progress = trial.progress(account.steps, _scores(trial), final=True)
        _keep(trial, output)
        yield progress
    return trainer.model, progress.scores


def measure_trainer(
    config: TrialConfig, inputs: TrialInputs, folder: Path, account: Account
) -> Generator[Progress, None, tuple[Any, tuple[Score, ...]]]:
    """Score a kept model of a trainer, as `measure` does."""
    with own_random_state(), TemporaryDirectory(prefix="tune_sentcl_") as scratch:
        trainer = make_trainer(config.method, config.seed, account.device, Path(scratch))
        with quiet():
            trainer._load_from_checkpoint(str(folder))
        trial = _trial(config, inputs, account, DEFAULT, trainer)
        progress = trial.progress(0, _scores(trial), final=True)
        yield progress
    return trainer.model, progress.scores


def _trial(
    config: TrialConfig,
    inputs: TrialInputs,
    account: Account,
    stage_objective: Objective,
    trainer: Any,
) -> TrainerTrial:
    """The trial of a new trainer.

    Raises:
        OtherInputsError: The trainer's rows are not those of the rehearsal.
    """
    if inputs.rehearsal is not None:
        check_rows(trainer, config.method.name, inputs.rehearsal)
    sets = inputs.sets
    others = tuple(task for task in sets.own if task.name != config.method.name)
    inputs = replace(inputs, sets=replace(sets, own=others))
    encoder: Any = DenseModel(trainer)
    return TrainerTrial(config, inputs, encoder, account, stage_objective, trainer=trainer)


def _scores(trial: TrainerTrial) -> tuple[Score, ...]:
    """The trainer's own scores, and those of further tasks.

    Raises:
        NonFiniteError: The stage objective has no value.
    """
    own, sets = trial.own_scores(), trial.inputs.sets
    if trial.stage_objective.task == trial.name:
        trial.own_value(own)
    if sets.own or sets.sts or sets.transfer:
        return (*own, *measure_end(trial))
    measures = measures_of(trial.config)
    return (*own, *(trial.costs(measures) if measures.cost else ()))


def _keep(trial: TrainerTrial, output: Output | None) -> None:
    """Write the trainer's model as the study's."""
    if output is None or not output.keep_checkpoint:
        return

    def write(folder: Path) -> None:
        with quiet():
            trial.trainer.model.save_pretrained(str(folder))
        share(folder)

    output.files.write_checkpoint(output.trial_id, write)
