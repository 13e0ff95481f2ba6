"""What moves while a trial runs, and what is told of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import StudyError
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.score import Score
from tune_sentcl.store.rows import CurvePoint
from tune_sentcl.train import Step, count_steps
from tune_sentcl.trial.accounting import Account
from tune_sentcl.trial.inputs import TrialInputs
from tune_sentcl.trial.output import Output
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

    def see(self, step: Step) -> None:
        """Note a step that has been made.

        Raises:
            TrialTimeoutError: The trial's time is over.
        """
        self.account.check_time()
        self.account.count(step.number)
        self.rows, self.parts = step.samples, step.parts
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
                facts = self._facts()
                yield Progress(number, total, rows, self.dev, (), facts, final=False, retold=True)

    def progress(
        self, total: int, scores: tuple[Score, ...] = (), *, final: bool = False
    ) -> Progress:
        """What there is to tell now; `total` updates are made in all."""
        facts = self._facts()
        return Progress(self.account.steps, total, self.rows, self.dev, scores, facts, final)

    def _facts(self) -> dict[str, Any]:
        """What the trial cost, its encoder's passes included."""
        facts = self.account.facts()
        notes = list(self.notes)
        parts, size = self.inputs.corpus.parts, self.config.optimizer.batch_size
        rows = max(parts, default=len(self.inputs.corpus))
        dropped = self.inputs.corpus.dropped
        if dropped:
            notes.append(f"data.blanks = drop left out {dropped:,} rows with a blank sentence")
        if self.account.steps and rows < size:
            of = (
                f"{rows} rows of any source: one batch of each"
                if parts
                else f"{rows} rows: one batch of all"
            )
            notes.append(f"optimizer.batch_size = {size} is more than the {of}")
        if self.parts > 1:
            whole = "for whole ones did not fit the device's memory"
            notes.append(f"each batch in {self.parts} parts, {whole}")
        if isinstance(self.encoder, FrozenEncoder):
            cache = self.encoder.cache
            facts["encoded_sentences"], facts["encoding_seconds"] = cache.encoded, cache.seconds
            notes += cache.notes
        return {**facts, "notes": "; ".join(notes) or None}
