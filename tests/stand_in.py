"""A launcher whose trials train nothing: they write what a worker would, with planted numbers."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from stops import Stopped as Stopped

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import StudyError
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.history import Assignment
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.score import Measurement, Score
from tune_sentcl.store.rows import CurvePoint
from tune_sentcl.store.trial_folders import TrialFiles
from tune_sentcl.train.state import TrainingState
from tune_sentcl.trial import Account, Progress
from tune_sentcl.trial.inputs import measures_of
from tune_sentcl.trial.output import TrialState, made_for
from tune_sentcl.tuning.search import Launcher
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Failure


def by(launch: Callable[[Session], None]) -> Launcher:
    """A launcher that runs every session by `launch`."""
    return lambda question, path: nullcontext(launch)


Fate = Literal["finish", "fail", "diverge", "lose", "lose_once"]
Seen = tuple[int, float]
"""Rows seen, and the score there."""
WEIGHTS = "weights"
Left = tuple[str, int]
"""What a state is made for, and how many points are behind it."""


def planted(config: TrialConfig, measurement: Measurement, metric: str, split: str) -> float:
    """A number that depends on the trial and on what is measured, and on nothing else."""
    knobs = (config.dotted().get("method.lambda"), config.seed)
    text = repr((knobs, tuple(measurement)[:5], metric, split))
    return int(hashlib.sha256(text.encode()).hexdigest()[:6], 16) / 2**24 * 100


def planted_scores(config: TrialConfig, measurement: Measurement) -> Iterator[Score]:
    """The scores of whole tasks that one measurement brings."""
    data, task, split, protocol, seed, _ = measurement
    kinds: dict[str, list[tuple[str, Any]]] = {
        "cosine": [("spearman", split), ("pearson", split)],
        "relatedness": [("pearson", "dev"), ("pearson", "test"), ("spearman", "test")],
    }
    for metric, on in kinds.get(protocol, [("accuracy", "dev"), ("accuracy", "test")]):
        yield Score(
            "sts" if protocol in kinds else "transfer",
            task,
            on,
            metric,
            protocol,
            data,
            planted(config, measurement, metric, on),
            10,
            aggregation="all" if task[:4] == "STS1" else None,
            classifier_seed=seed,
        )


@dataclass
class StandIn:
    """Runs a session's trials, `at_once` of them side by side.

    Attributes:
        study: Where they leave their files.
        fate: How a trial ends.
        error: The class of the error with which a trial fails; one that diverges has
            `NonFiniteError`.
        lost_as: The class of what Ray says of a worker that is lost.
        broken: Tasks that cannot be scored.
        keep: Whether weights are left.
        curve: The evaluation points of a trial: rows seen and score, the last at its end.
        points: After how many of them, of all trials together, the driver dies; None: never.
        saves: Whether a trial leaves a state behind each of its points but the last, and one that
            pauses the state that is asked for; a worker is then lost behind the first point that
            it reaches itself, and not before.
        handed: What was handed out, in order.
        left: The trials that left weights.
        lost: The trials whose worker was lost.
        pauses: Each pause in order: the trial, the share of its training, and its score there.
        ends: What ended, in order: each trial with `finished`, `pruned`, `lost` or an error.
        events: In order, what of its points was behind a trial that began, and behind each state.
        opened: The files of each attempt, by the trial and the attempt's label.
    """

    study: Path
    fate: Callable[[TrialConfig], Fate] = lambda config: "finish"
    broken: frozenset[str] = frozenset()
    keep: bool = True
    error: str = "ValueError"
    lost_as: str = "WorkerDied"
    at_once: int = 2
    curve: Callable[[TrialConfig], Sequence[Seen]] = lambda config: ((32, 10.0), (64, 20.0))
    points: int | None = None
    saves: bool = False
    handed: list[tuple[str, str]] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    pauses: list[tuple[str, float, float]] = field(default_factory=list)
    ends: list[tuple[str, str]] = field(default_factory=list)
    events: list[tuple[Literal["begins", "leaves"], str, Left]] = field(default_factory=list)
    opened: dict[tuple[str, str], TrialFiles] = field(default_factory=dict)

    def __call__(self, session: Session) -> None:
        """Run everything."""
        running: list[Assignment] = []
        while not session.finished:
            assignment = session.next() if len(running) < self.at_once else None
            if assignment is not None:
                self.handed.append((assignment.trial_id, assignment.action))
                running.append(assignment)
            elif running:
                self._work(session, running.pop(0))
        if session.fatal is not None:
            raise session.fatal

    def _work(self, session: Session, assignment: Assignment) -> None:
        name = assignment.trial_id
        fate = self.fate(assignment.config)
        session.started(name)
        measures = assignment.action == "measure"
        if self._loses(assignment, fate) and (measures or not self.saves):
            self._lose(session, name)
        elif measures:
            files = self._files(assignment)
            with files.checkpoint(name) as folder:
                assert (folder / WEIGHTS).read_text() == name
            self._finish(session, assignment)
        else:
            self._train(session, assignment, fate)

    def _loses(self, assignment: Assignment, fate: Fate) -> bool:
        once = assignment.trial_id not in self.lost
        lost = {"lose": True, "lose_once": once, "fail": assignment.action == "measure"}
        return lost.get(fate, False)

    def _files(self, assignment: Assignment) -> TrialFiles:
        name, label = assignment.trial_id, assignment.attempt_files
        made = TrialFiles(self.study, label, assignment.files_before)
        return self.opened.setdefault((name, label), made)  # because an attempt counts its states

    def _lose(self, session: Session, name: str) -> None:
        self.lost.add(name)
        self.ends.append((name, "lost"))
        session.worker_lost(name, Failure(self.lost_as, "gone", {}))

    def _train(self, session: Session, assignment: Assignment, fate: Fate) -> None:
        name, files = assignment.trial_id, self._files(assignment)
        if not self._go_through(session, assignment, fate):
            return
        self._die()
        if fate in ("fail", "diverge"):
            error = self.error if fate == "fail" else "NonFiniteError"
            self.ends.append((name, error))
            session.fail(name, Failure(error, "planted", {}))
        else:
            if self.keep:
                files.write_checkpoint(name, lambda folder: _leave(folder, name))
                self.left.add(name)
            self._finish(session, assignment)

    def _go_through(self, session: Session, assignment: Assignment, fate: Fate) -> bool:
        """All points but the last, or those up to a pause; whether the trial then goes on."""
        name, files = assignment.trial_id, self._files(assignment)
        curve, objective = self.curve(assignment.config), session.loader.stage_objective
        pause = 0 if fate in ("fail", "diverge") else pause_of(curve, assignment.until)
        made = made_for(assignment.config, session.loader.stage_objective)
        behind = self._begin(files, name, made)
        for count, seen in enumerate(curve[:-1], 1):
            if count > behind:
                self._die()
            if count == pause:
                self._pause(session, assignment, (made, count), seen)
                return False
            if count > behind:
                session.progress(name, _point(curve[:count], objective))
                if self.saves and self._leave_state(session, assignment, (made, count), fate):
                    return False
        return True

    def _pause(self, session: Session, assignment: Assignment, left: Left, seen: Seen) -> None:
        name, (rows, score) = assignment.trial_id, seen
        points = self.curve(assignment.config)[: left[1]]
        least = assignment.pause_above
        if self.saves and least is not None and score >= least:
            self._write_state(assignment, left, rows)
        self.ends.append((name, "pruned"))
        self.pauses.append((name, assignment.until, score))
        point = _point(points, session.loader.stage_objective, paused=True)
        session.progress(name, point)

    def _leave_state(
        self, session: Session, assignment: Assignment, left: Left, fate: Fate
    ) -> bool:
        """Write the state behind a point; whether the worker is lost there."""
        self._write_state(assignment, left, self.curve(assignment.config)[left[1] - 1][0])
        is_lost = self._loses(assignment, fate)
        if is_lost:
            self._lose(session, assignment.trial_id)
        return is_lost

    def _write_state(self, assignment: Assignment, left: Left, seen: int) -> None:
        files, (made, count) = self._files(assignment), left
        files.write_state(assignment.trial_id, _state(made, count, seen).write)
        self.events.append(("leaves", assignment.trial_id, left))

    def _begin(self, files: TrialFiles, name: str, made: str) -> int:
        """How many points are behind a trial that begins."""
        try:
            with files.state(name) as folder:
                state = None if folder is None else TrialState.read(folder)
        except StudyError:  # it is damaged
            state = None
        behind = 0 if state is None or state.made_for != made else state.training.number
        self.events.append(("begins", name, (made, behind)))
        return behind

    def _die(self) -> None:
        if self.points is not None:
            self.points -= 1
            if self.points < 0:
                raise Stopped

    def _finish(self, session: Session, assignment: Assignment) -> None:
        scores = self._scores(session, assignment.config)
        curve = self.curve(assignment.config)
        self.ends.append((assignment.trial_id, "finished"))
        point = _point(curve, session.loader.stage_objective, scores, final=True)
        session.progress(assignment.trial_id, point)

    def _scores(self, session: Session, config: TrialConfig) -> list[Score]:
        inputs = session.loader.load(config)
        found: list[Score] = []
        for measurement in expected_measurements(inputs.sets, measures_of(config)):
            scores = list(planted_scores(config, measurement))
            if measurement.task in self.broken and measurement.protocol != "cosine":
                last = scores[-1]
                found.append(_without_value(last))
            else:
                found += scores
        return found


def _without_value(score: Score) -> Score:
    values = {name: getattr(score, name) for name in Score.__dataclass_fields__ if name != "_"}
    return Score(**{**values, "value": None, "reason": "it is broken"})


def _state(made: str, number: int, seen: int) -> TrialState:
    tensors = {"weights": torch.full((2,), float(number))}
    return TrialState(made, TrainingState(number, seen, tensors, {}))


def _leave(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS).write_text(name)


def _curves(curve: Sequence[Seen], objective: Objective) -> list[CurvePoint]:
    names = {DEFAULT.curve, objective.curve}
    return [
        CurvePoint(step, step / 2, seen, name, score)
        for step, (seen, score) in enumerate(curve, 1)
        for name in sorted(names)
    ]


def pause_of(curve: Sequence[Seen], until: float) -> int:
    """The number of the point at which a trial pauses; 0 if it runs to its end."""
    return 0 if until == 1 else max(1, min(len(curve) - 1, math.ceil(until * len(curve))))


def _point(
    curve: Sequence[Seen],
    objective: Objective,
    scores: Sequence[Score] = (),
    *,
    final: bool = False,
    paused: bool = False,
) -> Progress:
    step, (seen, score) = len(curve), curve[-1]
    account = Account()
    account.steps = step
    account.saving_seconds = 0.001
    facts = account.run_columns()
    points = tuple(_curves(curve, objective))
    return Progress(step, step + 1, seen, score, tuple(scores), facts, final, paused, points)
