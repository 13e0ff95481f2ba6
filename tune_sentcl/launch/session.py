"""One run of a search, seen from the driver: hands out trials and commits how they end."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, Protocol

from optuna.trial import FrozenTrial

from tune_sentcl.errors import TuneSentclError
from tune_sentcl.evaluate.suites import expected_scores
from tune_sentcl.launch.objective import Objective
from tune_sentcl.launch.proposals import Assignment, Proposals, Result
from tune_sentcl.launch.worker import Failure
from tune_sentcl.store.rows import TrialRow
from tune_sentcl.store.study import Study
from tune_sentcl.trial import DEV, InputLoader, Progress
from tune_sentcl.trial.inputs import measures_of

_COSTS = ("steps", "wall_seconds", "train_seconds", "evaluation_seconds", "gpu_seconds")


class Watcher(Protocol):
    """Who is told how a search goes on."""

    def begin(self, done: int, total: int) -> None:
        """The search starts, with so many of its trials done in earlier runs."""
        ...

    def ended(self, row: TrialRow, total: int) -> None:
        """A trial has been committed; the search now plans `total` trials."""
        ...


class Mirror(Protocol):
    """Who is told what the sampler learns."""

    def add(self, trial: FrozenTrial) -> None:
        """A configuration has been told."""
        ...


@dataclass(frozen=True)
class SessionSettings:
    """What a session needs to know beside its parts.

    Attributes:
        space: Name of the space, for the rows.
        objectives: What is maximized; the first ranks the checkpoints.
        keep: How many checkpoints the study keeps.
        origin: Overrides where the trials come from; set for a single trial.
    """

    space: str
    objectives: tuple[Objective, ...]
    keep: int
    origin: Literal["single"] | None = None


class Session:
    """The driver's side of a search; every launcher drives it in the same way.

    Laws: `next` hands out each trial once; each handed-out trial is ended once, and an end that is
    reported again changes nothing; an end is in the study before anybody else hears of it.
    """

    def __init__(
        self,
        study: Study,
        proposals: Proposals,
        loader: InputLoader,
        settings: SessionSettings,
        watcher: Watcher,
        mirror: Mirror | None = None,
    ) -> None:
        self.proposals, self.loader, self.settings = proposals, loader, settings
        self._study, self._watcher, self._mirror = study, watcher, mirror
        self._running: dict[str, Assignment] = {}
        self._last: dict[str, Progress] = {}
        self._attempts = _attempts(study)
        self._kept = _kept(study)
        self._ranking = _ranking(study, settings.objectives[0])
        self.ended = self.failures = 0
        self.fatal: TuneSentclError | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing runs and nothing will."""
        return self.fatal is not None or self.proposals.finished

    @property
    def running(self) -> int:
        """Trials handed out and not ended."""
        return len(self._running)

    def next(self) -> Assignment | None:
        """The next trial; None while there is none to run."""
        if self.fatal is not None:
            return None
        try:
            assignment = self.proposals.next()
            if assignment is not None and assignment.trial_id not in self._kept:
                self._study.discard(assignment.trial_id)
        except TuneSentclError as error:
            self.fatal = error  # a sampled trial reads what is not there, or the study is gone
            return None
        if assignment is not None:
            self._running[assignment.trial_id] = assignment
        return assignment

    def kept(self, trial_id: str) -> bool:
        """Whether a trial has finished before and left its weights: it need only be measured."""
        return trial_id in self._kept

    def progress(self, trial_id: str, progress: Progress) -> None:
        """Take an evaluation point; the final one ends the trial."""
        self._last[trial_id] = progress
        if not progress.final:
            return
        values = [objective.value(progress.scores) for objective in self.settings.objectives]
        found = tuple(value for value in values if value is not None)
        if len(found) < len(values):
            names = ", ".join(map(str, self.settings.objectives))
            text = f"the trial did not measure all of {names}"
            self.fail(trial_id, Failure("ObjectiveError", text, progress.facts))
            return
        self._end(trial_id, Result("finished", found), progress.facts, objective=found[0])

    def prune(self, trial_id: str) -> None:
        """The scheduler has stopped a trial."""
        last = self._last.get(trial_id)
        facts = last.facts if last else {}
        result = Result("pruned", step=last.step if last else 0, dev=last.dev if last else None)
        self._end(trial_id, result, facts, objective=None)

    def stop(self, error: TuneSentclError) -> None:
        """Nothing can be kept any more; trials at hand are left without a row, to run again."""
        self.fatal = error

    def fail(self, trial_id: str, failure: Failure) -> None:
        """A trial has ended with an error."""
        last = self._last.get(trial_id)
        facts = {
            **(last.facts if last else {}),
            **failure.facts,
            "error_type": failure.error_type,
            "error_text": failure.error_text,
        }
        self._end(trial_id, Result("failed"), facts, objective=None)

    def _end(
        self, trial_id: str, result: Result, facts: Mapping[str, Any], *, objective: float | None
    ) -> None:
        assignment = self._running.pop(trial_id, None)
        if assignment is None:
            return
        if result.status == "finished":
            facts = _added(self._kept.get(trial_id, {}), facts)
        row = self._row(assignment, result, facts, objective)
        try:
            if result.status == "finished" or trial_id not in self._kept:
                self._study.commit(row)  # a measurement that fails takes nothing from a trial
            if objective is not None:
                self._rank(trial_id, objective)
            told = self.proposals.end(trial_id, result)
            if told is not None and self._mirror is not None:
                self._mirror.add(told)
        except TuneSentclError as error:
            self.fatal = error  # nothing that ends from here on could be kept
            return
        self._last.pop(trial_id, None)
        self.ended += 1
        self.failures += result.status == "failed"
        self._watcher.ended(row, self.proposals.total)

    def _row(
        self,
        assignment: Assignment,
        result: Result,
        facts: Mapping[str, Any],
        objective: float | None,
    ) -> TrialRow:
        inputs = self.loader.load(assignment.config)
        return TrialRow(
            assignment.config,
            trial_id=assignment.trial_id,
            configuration=assignment.configuration,
            space=self.settings.space,
            origin=self.settings.origin or assignment.origin,
            status=result.status,
            objective=objective,
            objective_name=str(self.settings.objectives[0]),
            attempt=self._attempts.get(assignment.trial_id, 0) + 1,
            data_source=inputs.corpus.source or None,
            data_fingerprint=inputs.fingerprints.data,
            checkpoint_fingerprint=inputs.fingerprints.checkpoint,
            git_commit=self._study.manifest.git_commit,
            **facts,
        )

    def _rank(self, trial_id: str, objective: float) -> None:
        self._ranking[trial_id] = objective
        best = sorted(self._ranking, key=lambda name: self._ranking[name], reverse=True)
        self._study.keep_checkpoints(best[: self.settings.keep])


def sampled_configurations(study: Study) -> dict[str, dict[str, Any]]:
    """The nested configs that samplers proposed in earlier runs, by configuration id."""
    rows = study.trials().select(["configuration", "origin", "config"]).to_pylist()
    return {r["configuration"]: json.loads(r["config"]) for r in rows if r["origin"] == "sampler"}


def known_results(
    study: Study, assignments: Sequence[Assignment], loader: InputLoader, settings: SessionSettings
) -> dict[str, Result]:
    """How trials ended in earlier runs, as far as that answers what is asked now.

    A failed trial has no entry, and neither has a finished one that lacks a score of its
    evaluation sets or an objective: both are run again.
    """
    statuses = dict(_columns(study.trials(), "trial_id", "status"))
    scores: dict[str, list[Any]] = {}
    for row in study.scores().to_pylist():
        scores.setdefault(row["trial_id"], []).append(SimpleNamespace(**row))
    stopped = _last_dev(study) if "pruned" in statuses.values() else {}
    results: dict[str, Result] = {}
    for assignment in assignments:
        status = statuses.get(assignment.trial_id)
        if status == "pruned":
            step, dev = stopped.get(assignment.trial_id, (0, None))
            results[assignment.trial_id] = Result("pruned", step=step, dev=dev)
        elif status == "finished":
            inputs = loader.load(assignment.config)
            measured = [
                s for s in scores.get(assignment.trial_id, []) if s.data == inputs.sets.data
            ]
            asked = set(expected_scores(inputs.sets, measures_of(assignment.config.evaluation)))
            values = [objective.value(measured) for objective in settings.objectives]
            found = tuple(value for value in values if value is not None)
            held = {(s.task, s.split, s.protocol, s.classifier_seed) for s in measured}
            if asked <= held and len(found) == len(values):
                results[assignment.trial_id] = Result("finished", found)
    return results


def _last_dev(study: Study) -> dict[str, tuple[int, float]]:
    """The last step with a dev value, and that value, of every trial that has one."""
    columns = _columns(study.curves(), "trial_id", "metric", "step", "value")
    points = sorted((step, name, value) for name, metric, step, value in columns if metric == DEV)
    return {name: (step, value) for step, name, value in points}


def _attempts(study: Study) -> dict[str, int]:
    return dict(_columns(study.trials(), "trial_id", "attempt"))


def _ranking(study: Study, objective: Objective) -> dict[str, float]:
    """What trials of earlier runs, whose checkpoints may still be there, are worth by now."""
    scores: dict[str, list[Any]] = {}
    for row in objective.rows(study.scores()).to_pylist():
        scores.setdefault(row["trial_id"], []).append(SimpleNamespace(**row))
    values = {name: objective.value(found) for name, found in scores.items()}
    return {name: value for name, value in values.items() if value is not None}


def _kept(study: Study) -> dict[str, dict[str, Any]]:
    """What finished trials whose checkpoints are there have cost, by trial."""
    there = set(study.files.names("checkpoints"))
    rows = study.trials().select(["trial_id", "status", *_COSTS]).to_pylist()
    return {
        row["trial_id"]: {name: row[name] for name in _COSTS}
        for row in rows
        if row["status"] == "finished" and row["trial_id"] in there
    }


def _added(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What a trial that was measured again has cost in all; the rest is as of now."""
    both = {k: before[k] + now[k] for k in before if k in now and None not in (before[k], now[k])}
    # Seconds of evaluation alone add nothing to those of training.
    trained = {k: before[k] for k in ("steps", "train_seconds") if before.get(k) is not None}
    return {**now, **both, **trained}


def _columns(table: Any, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
