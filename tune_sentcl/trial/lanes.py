"""Several trials as lanes of one training, each told as if it ran alone."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import StudyError
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.placing import wait_for
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.train import Step
from tune_sentcl.train.deck import Lane
from tune_sentcl.train.lane import enter, steps
from tune_sentcl.train.stack import Stack
from tune_sentcl.train.state import TrainingState
from tune_sentcl.trial.accounting import Account
from tune_sentcl.trial.assembly import assemble, torch_threads
from tune_sentcl.trial.inputs import TrialInputs
from tune_sentcl.trial.output import Output
from tune_sentcl.trial.run import story
from tune_sentcl.trial.running import Progress, Running

_PATIENCE_S = 0.1
"""Seconds that the lanes train on before each is looked at: its clock, its state, its machine."""


@dataclass(eq=False)
class Share:
    """A clock of what a lane takes: all of the time in which it is alone, its part of the rest."""

    _seconds: float = 0.0
    _since: float | None = None

    def __call__(self) -> float:
        """Seconds so far."""
        return self._seconds + (0.0 if self._since is None else time.perf_counter() - self._since)

    def add(self, seconds: float) -> None:
        """Charge it with a part of what lanes have done together."""
        self._seconds += seconds

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Charge it with what happens in here."""
        self._since = time.perf_counter()
        try:
            yield
        finally:
            self._seconds, self._since = self(), None


@dataclass(frozen=True)
class LaneTrial:
    """One trial among others.

    Attributes:
        config: The trial.
        inputs: What `InputLoader.load` gave for it.
        account: Where to compute, the same for all; its clock is `share`.
        share: What it is charged.
        output: As for `run`.
    """

    config: TrialConfig
    inputs: TrialInputs
    account: Account
    share: Share
    output: Output | None = None


Told = tuple[int, Progress | Exception]
"""A trial by its place, and its point; or the error that it has ended with."""


@dataclass(eq=False)
class _Run:
    """A trial, its story as long as it is told, and its lane as long as it trains."""

    trial: LaneTrial
    stopped: bool = False
    story: Generator[Progress | None, None, None] | None = None
    lane: Lane | None = None

    def begin(self, stack: Stack, method: AnyMethod, compared_by: Objective) -> None:
        trial = self.trial
        inputs, config = trial.inputs, trial.config

        def training(state: TrainingState | None) -> Iterator[Step | None]:
            self.lane = enter(stack, method, inputs.corpus, config, state)
            yield from steps(stack, self.lane)
            self.lane = None

        running = Running(config, inputs, method.encoder, trial.account, compared_by)
        self.story = story(running, training, trial.output)

    def end(self) -> None:
        if self.story is not None:
            self.story.close()
        self.story = self.lane = None

    def tell(self) -> Progress | None:
        """Go on to its next point, or until it waits for the stack; None then, and at its end."""
        if self.story is None:
            return None
        with self.trial.share.alone():
            try:
                return next(self.story)
            except StopIteration:
                self.story = None
                return None


@dataclass
class Lanes:
    """Trials that are `alike` (`train.lane`), trained as one.

    Laws: what is told and written of a trial is what `run` would tell and write, up to the
    rounding of sums; a trial that ends, in whatever way, changes nothing of the others; the
    seconds of all trials add up to those of all together.

    Attributes:
        trials: One or more.
        compared_by: As for `run`.
        over: Whether all of them are to end, and why does not matter; asked again and again.
    """

    trials: Sequence[LaneTrial]
    compared_by: Objective = DEFAULT
    over: Callable[[], bool] = lambda: False
    _runs: list[_Run] = field(init=False)

    def __post_init__(self) -> None:
        self._runs = [_Run(trial) for trial in self.trials]

    def stop(self, place: int) -> None:
        """End a trial; to be called before the next point is asked for."""
        self._runs[place].stopped = True

    def points(self) -> Generator[Told, None, None]:
        """Train all: the points of each in their order, and its error if it has one.

        Raises:
            StudyError: The disk refused.
        """
        account = self.trials[0].account
        devices = [account.device] if account.device.startswith("cuda") else []
        with torch_threads(account.cpus), torch.random.fork_rng(devices=devices):
            stack = Stack(self.trials[0].inputs.corpus, account.device)
            try:
                yield from self._begin(stack)
                waiting = self._runs
                while waiting and not self.over():
                    for run in waiting:
                        yield from self._tell(run)
                    try:
                        waiting = self._update(stack)
                    except Exception as error:  # noqa: BLE001 - it is the end of each of them
                        yield from self._fail(error)
                        waiting = []
            finally:
                for run in self._runs:
                    run.end()

    def _begin(self, stack: Stack) -> Generator[Told, None, None]:
        """Make the trials' methods; the first one's encoder serves all."""
        first: AnyMethod | None = None
        for place, run in enumerate(self._runs):
            try:
                with run.trial.share.alone():
                    trial = run.trial
                    trial.account.lanes = len(self._runs)
                    device = trial.account.device
                    method = assemble(trial.config, trial.inputs, device, beside=first)
                    run.begin(stack, method, self.compared_by)
            except Exception as error:  # noqa: BLE001 - the border of a trial
                yield place, error
            else:
                first = first or method

    def _tell(self, run: _Run) -> Generator[Told, None, None]:
        """All points of a trial up to where it waits for the others, or its error."""
        place = self._runs.index(run)
        while run.story is not None:
            try:
                progress = run.tell()
            except StudyError:
                raise
            except Exception as error:  # noqa: BLE001 - the border of a trial: the others go on
                run.end()
                yield place, error
                return
            if progress is None:
                return
            with run.trial.share.alone():  # it waits until somebody has heard of it
                yield place, progress
            if run.stopped:
                run.end()

    def _update(self, stack: Stack) -> list[_Run]:
        """Make updates until a trial has to be looked at: which ones are."""
        training = {run.lane: run for run in self._runs if run.lane is not None}
        if not training:
            return []
        began, stops = time.perf_counter(), list[_Run]()
        while not stops and time.perf_counter() < began + _PATIENCE_S:
            stack.update(list(training))
            stops = [run for lane, run in training.items() if lane.number == lane.until]
        # Else whoever looks first would wait, and pay, for all.
        wait_for(torch.device(self.trials[0].account.device))
        each = (time.perf_counter() - began) / len(training)
        for run in training.values():
            run.trial.share.add(each)
        return stops or list(training.values())

    def _fail(self, error: Exception) -> Generator[Told, None, None]:
        """An update that could not be made ends all that wait for it."""
        for place, run in enumerate(self._runs):
            if run.story is not None:
                run.end()
                yield place, error
