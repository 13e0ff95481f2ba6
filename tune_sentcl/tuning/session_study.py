"""The study of a running session: its rows, checkpoints, saved states and manifest."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice
from typing import Any, Literal

import pyarrow as pa

from tune_sentcl.history import (
    CONFIRM_ORIGIN,
    Assignment,
    History,
    RankKey,
    Status,
    constant_score,
    estimates,
    rank_key,
)
from tune_sentcl.score import Score
from tune_sentcl.store.manifest import PlanRecord
from tune_sentcl.store.rows import TrialRow, with_search_origins
from tune_sentcl.store.writing.driver import StudyDriver
from tune_sentcl.trial import Progress
from tune_sentcl.tuning.configuration_groups import Groups
from tune_sentcl.tuning.proposals import Proposals

CONTENDERS = 5
"""The configurations that keep a checkpoint each while further seeds may change their order."""

_COSTS = (
    "wall_seconds",
    "evaluation_seconds",
    "gpu_seconds",
    "saving_seconds",
    "encoding_seconds",
)


@dataclass(frozen=True)
class SessionSettings:
    """Settings of a session.

    Attributes:
        space: Name of the space, for the rows.
        keep: Number of checkpoints that the study keeps.
        origin: The origin of every trial, for single trials and fresh seeds; None takes the
            origin that each trial has.
        confirmed: Whether fresh seeds follow this search, as a part of it.
    """

    space: str
    keep: int
    origin: Literal["single", "confirm"] | None = None
    confirmed: bool = False


class SessionStudy:
    """Writes a session's trials to its study, and deletes the files that no trial needs.

    Attributes:
        failed_now: Finished trials that were trained or measured again in this session, with
            whether that failed.
        resumable: Failed trials that only lost their workers. They keep their states, because
            they go on when the command is repeated.
    """

    def __init__(
        self, driver: StudyDriver, proposals: Proposals, settings: SessionSettings
    ) -> None:
        self._driver, self._settings = driver, settings
        self._proposals, self._history = proposals, proposals.history
        self._loader = proposals.namer.loader
        self.failed_now: dict[str, bool] = {}
        self.resumable = set(self._history.with_status("failed"))
        recorded = driver.study.manifest.search
        self._failed_before = frozenset(recorded.failed_again if recorded else ())

    @property
    def failed_again(self) -> set[str]:
        """Finished trials whose further training or measuring has failed in this session."""
        return {trial_id for trial_id, failed in self.failed_now.items() if failed}

    def failed_so_before(self, trial_id: str, error_type: str) -> bool:
        """Whether a trial failed with the same type of error in an earlier run."""
        return self._history.error_type(trial_id) == error_type or trial_id in self._failed_before

    def keep_best_checkpoints(self) -> None:
        """Keep the best checkpoints and those that queued measurements need; delete the others.

        One is of the configuration that ranks first, because a single trial of another one may be
        better by luck. Further seeds change the order, so the first `CONTENDERS` keep one each
        until the search is complete. Checkpoints of other commands rank by their scores alone.

        Raises:
            StudyError: The disk refused.
        """
        if self._settings.origin == CONFIRM_ORIGIN:
            return  # fresh seeds keep no checkpoints and replace none
        kept = self._driver.study.checkpoints()
        weights = {name for name in kept if self._history.status(name) == "finished"}
        best = sorted(weights, key=lambda name: (-self._history.checkpoint_score(name), name))
        leaders = self._leaders(weights)
        of_leaders = [next((m for m in best if m in trials), None) for trials in leaders]
        ranked = dict.fromkeys(m for m in (*of_leaders[:1], *best) if m is not None)
        wanted = {*islice(ranked, self._settings.keep), *self._proposals.waiting()}
        sampling = self._proposals.sampling
        is_raced = sampling.reduction is not None and len(sampling.seeds) > 1
        if self._settings.keep and is_raced and not self._proposals.finished:
            wanted.update(m for m in of_leaders if m is not None)
        if not kept <= wanted:
            self._driver.keep_checkpoints(wanted)
        self._history.weights = weights & wanted

    def _leaders(self, weights: set[str]) -> list[tuple[str, ...]]:
        """The trials of the best configurations; none if other commands have made some weights."""
        groups = self._proposals.groups
        known = (trial_id for name in groups.known() for trial_id in groups.all_trials(name))
        keys = rank_keys(groups, self._history) if weights.issubset(known) else {}
        best = nsmallest(CONTENDERS, keys, keys.__getitem__)
        return [groups.all_trials(name) for name in best]

    def drop_states(self, *, complete: bool) -> None:
        """Delete the states of trials that have ended and do not run again.

        Trials that only lost their workers keep theirs. Once the search is complete, all other
        states go too; where fresh seeds follow, once those are complete. Single trials are
        searches of their own, so that one of them deletes no state of another.

        Args:
            complete: Whether the search is complete.

        Raises:
            StudyError: The disk refused.
        """
        is_whole_search = self._settings.origin is None and not self._settings.confirmed
        drop_all = complete and (is_whole_search or self._settings.origin == CONFIRM_ORIGIN)
        needed = self._proposals.waiting() | self.resumable
        for name in self._driver.study.states() - needed:
            if drop_all or self._history.status(name):
                self._driver.drop_state(name)

    def record(
        self,
        plan: PlanRecord | None = None,
        rungs: Sequence[Mapping[str, Any]] | None = None,
        first_rung: int | None = None,
    ) -> None:
        """Write the results of the search to the study's manifest.

        Args:
            plan: Planned and measured seconds; None keeps the recorded ones.
            rungs: The reports of the rungs; None keeps the recorded ones.
            first_rung: Rows of the first rung; None keeps the recorded ones.

        Raises:
            StudyError: The disk refused.
        """
        search = self._driver.study.manifest.search
        if search is not None:
            failed = (set(search.failed_again) - self.failed_now.keys()) | self.failed_again
            search = replace(
                search,
                rungs=search.rungs if rungs is None else tuple(rungs),
                failed_again=tuple(sorted(failed)),
                first_rung=search.first_rung if first_rung is None else first_rung,
            )
        self._driver.record(search, plan)

    def compact(self, running: Collection[str]) -> None:
        """Write one file a table, with the values of the present objectives.

        Args:
            running: Trials that have not ended.

        Raises:
            StudyError: The disk refused; nothing is lost.
        """
        groups = self._proposals.groups
        origins = (
            {name: groups.of_trial(name).origin for name in groups.trials()}
            if self._settings.origin is None
            else {}
        )

        def with_objectives(trials: pa.Table) -> pa.Table:
            # The search asked for these seeds too: they took part in the choice.
            return with_search_origins(self._history.with_objectives(trials), origins)

        self._driver.compact(with_objectives, running)

    def record_end(
        self,
        assignment: Assignment,
        status: Status,
        run_columns: Mapping[str, Any],
        scores: Iterable[Score],
        last: Progress | None,
    ) -> None:
        """Add an end to the history; only trainings count as attempts."""
        trial_id = assignment.trial_id
        attempt = self._history.attempts(trial_id) + (assignment.action != "measure")
        self._history.record_end(trial_id, status, attempt, scores)
        self._history.record_steps(trial_id, run_columns.get("steps"))
        self._history.set_evaluation_data(trial_id, self.data(assignment))
        if status == "failed":
            self._history.record_error(trial_id, run_columns.get("error_type"))
        elif status == "pruned" and last is not None:
            self._history.record_pruned(trial_id, last.rows, last.dev)

    def row(
        self, assignment: Assignment, status: Status, run_columns: Mapping[str, Any]
    ) -> TrialRow:
        """The row of a trial that has ended."""
        inputs = self._loader.load(assignment.config)
        values = self._history.values(assignment.trial_id, inputs.sets.data)
        if status != "finished":  # earlier values are not this attempt's
            values = (None,) * len(values)
        found = {
            "data_source": inputs.corpus.source or None,
            "data_fingerprint": inputs.fingerprints.data,
            "checkpoint_fingerprint": inputs.fingerprints.checkpoint,
            "selection_fingerprint": inputs.fingerprints.selection or None,
            "git_commit": self._driver.study.manifest.git_commit,
        }
        return TrialRow(
            assignment.config,
            trial_id=assignment.trial_id,
            configuration=assignment.configuration,
            space=self._settings.space,
            origin=self._settings.origin or assignment.origin,
            status=status,
            objectives=tuple(zip(map(str, self._history.objectives), values, strict=True)),
            attempt=self._history.attempts(assignment.trial_id),
            attempt_files=assignment.attempt_files,
            **{**found, **run_columns},
        )

    def data(self, assignment: Assignment) -> str:
        """The evaluation data that a trial is scored on."""
        return self._loader.load(assignment.config).sets.data


def with_all_costs(training: Mapping[str, Any], measuring: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a trial that was measured again: of its training, with summed costs."""
    costs = {
        name: (training.get(name) or 0.0) + measuring[name]
        for name in _COSTS
        if measuring.get(name) is not None
    }
    return {**measuring, **training, **costs, "notes": measuring.get("notes")}


def rank_keys(groups: Groups, history: History) -> dict[str, RankKey]:
    """The sort key of each configuration that lost no seed; the smallest is the best.

    All configurations and seeds of the study count, those of earlier commands too, as in the
    tables of the study.
    """
    scores: dict[str, list[float]] = {}
    for name in groups.known():
        own: tuple[str, ...] = ()
        values: list[float] = []
        if name in groups:
            if not (groups[name].ended and groups[name].outcome()[1]):
                continue
            own, values = groups[name].trial_ids, groups[name].first_objective()
        others = groups.all_trials(name)[len(own) :]
        values = [*values, *map(history.checkpoint_score, others)]
        if min(values, default=-math.inf) > -math.inf:
            scores[name] = values
    grid = (name for name in scores if name in groups and groups[name].origin == "grid")
    constant = {n for n in grid if constant_score(scores[n], groups.values(n)) is not None}
    found_estimates = estimates(scores, constant)
    return {name: rank_key(found_estimates[name], own, 0, name) for name, own in scores.items()}
