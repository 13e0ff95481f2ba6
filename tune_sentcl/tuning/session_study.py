"""The study of a running session: its rows, checkpoints, saved states and manifest."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import pyarrow as pa

from tune_sentcl.history import (
    CONFIRM_ORIGIN,
    Assignment,
    Status,
    ranked,
)
from tune_sentcl.score import Score
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.manifest import PlanRecord
from tune_sentcl.store.rows import TrialRow, with_search_origins
from tune_sentcl.trial import InputLoader, Progress
from tune_sentcl.tuning.disk_need import CONTENDERS, state_bytes
from tune_sentcl.tuning.proposals import Proposals

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
        has_states: Whether the study has held states of trials lately.
        failed_now: Finished trials that were trained or measured again in this session, with
            whether that failed.
        older: The trials of plugins that have changed since.
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
        self.has_states = bool(driver.study.states())
        self._sizes: dict[str, int] = {}  # of states, by trial
        self._other_stages = _stages_without(self._history.table, self._loader)
        older, table = driver.study.older(), self._history.table
        names = zip(table["trial_id"].to_pylist(), table["configuration"].to_pylist(), strict=True)
        self.older = {trial_id for trial_id, name in names if name in older}
        recorded = driver.study.manifest.search
        self._failed_before = frozenset(recorded.failed_again if recorded else ())
        self.keep_mined()

    @property
    def failed_again(self) -> set[str]:
        """Finished trials whose further training or measuring has failed in this session."""
        return {trial_id for trial_id, failed in self.failed_now.items() if failed}

    def failed_so_before(self, trial_id: str, error_type: str) -> bool:
        """Whether a trial failed with the same type of error in an earlier run."""
        return self._history.error_type(trial_id) == error_type or trial_id in self._failed_before

    def keep_best_checkpoints(self) -> None:
        """Keep the best checkpoints and those that queued measurements need; delete the others.

        The first is of the winning configuration, because a single trial of another configuration
        may be better by luck. Further seeds change the order, so the first `CONTENDERS` keep one
        each until the search is complete. Checkpoints of other commands rank by their scores
        alone.

        Raises:
            StudyError: The disk refused.
        """
        if self._settings.origin == CONFIRM_ORIGIN:
            return  # fresh seeds keep no checkpoints and replace none
        kept = self._driver.checkpoints()
        weights = {name for name in kept if self._history.status(name) == "finished"}
        best = sorted(weights - self.older, key=self._checkpoint_rank)
        best += sorted(weights & self.older, key=self._checkpoint_rank)
        leaders = self._leaders(weights)
        of_leaders = [next((m for m in best if m in trials), None) for trials in leaders]
        in_order = dict.fromkeys(m for m in (*of_leaders[:1], *best) if m is not None)
        wanted = {*islice(in_order, self._settings.keep), *self._proposals.waiting()}
        if self._settings.keep and len(self._proposals.seeds) > 1 and not self._proposals.finished:
            wanted.update(m for m in of_leaders if m is not None)
        if not kept <= wanted:
            self._driver.keep_checkpoints(wanted)
        self._history.weights = weights & wanted

    def _checkpoint_rank(self, name: str) -> tuple[float, str]:
        return -self._history.checkpoint_score(name), name

    def _leaders(self, weights: set[str]) -> list[tuple[str, ...]]:
        """The trials of the best configurations; none if other commands have made some weights."""
        known = list(self._proposals.configurations.values())
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
        """Delete the states of trials that have ended and do not run again.

        Trials that only lost their workers keep theirs, and so do paused ones, those of the latest
        stages and then the best first, as many as `--states` holds. Once the search is complete,
        the states of trials without a row go too; where fresh seeds follow, once those are
        complete. Single trials are searches of their own, so that one of them deletes no state of
        another.

        Args:
            complete: Whether the search is complete.

        Raises:
            StudyError: The disk refused.
        """
        is_whole_search = self._settings.origin is None and not self._settings.confirmed
        drop_all = complete and (is_whole_search or self._settings.origin == CONFIRM_ORIGIN)
        there = self._driver.study.states()
        needed = self._proposals.waiting() | self.resumable
        paused = [name for name in there if self._history.status(name) == "pruned"]
        paused.sort(key=self._pause_order, reverse=True)
        left = self._proposals.options.states * 1e9
        for name in paused:
            left -= self._state_bytes(name)
            if left >= 0:
                needed.add(name)
            elif name not in self._proposals.running:
                needed.discard(name)
        self.has_states = bool(there)
        for name in there - needed:
            if drop_all or self._history.status(name):
                self._driver.drop_state(name)

    def pause_above(self, assignment: Assignment) -> float | None:
        """The least score with which a paused trial leaves a state; None: it leaves none."""
        keeps = self._proposals.options.states > 0
        name, until = assignment.configuration, assignment.until
        return self._proposals.pause_above(name, until) if keeps else None

    def _state_bytes(self, trial_id: str) -> int:
        """Upper bound of the bytes of a state; 0 for that of another search.

        It is computed once: every end of a stage asks for those of all paused trials.
        """
        configurations = self._proposals.configurations
        if trial_id not in self._sizes:
            place = configurations.of_trial(trial_id)
            config = place and configurations.config(place[0].name)
            self._sizes[trial_id] = state_bytes(config, self._loader) if config else 0
        return self._sizes[trial_id]

    def _pause_order(self, name: str) -> tuple[float, float]:
        """The share to which a paused trial has trained, and its score there."""
        return max(self._history.stages(name).items(), default=(0.0, 0.0))

    def record(self, plan: PlanRecord | None = None) -> None:
        """Write the results of the search to the study's manifest.

        Args:
            plan: Planned and measured seconds; None keeps the recorded ones.

        Raises:
            StudyError: The disk refused.
        """
        search = self._driver.study.manifest.search
        if search is not None:
            failed = (set(search.failed_again) - self.failed_now.keys()) | self.failed_again
            search = replace(search, failed_again=tuple(sorted(failed)))
        self._driver.record(search, plan)

    def rewrite(self) -> None:
        """Write the values of the present objectives into all rows.

        Raises:
            StudyError: The disk refused; nothing is lost.
        """
        origins = {}
        if self._settings.origin is None:
            origins = {trial.trial_id: trial.origin for trial in self._proposals.assignments()}

        def with_objectives(trials: pa.Table) -> pa.Table:
            # The search asked for these seeds too: they took part in the choice.
            return with_search_origins(self._history.with_objectives(trials), origins)

        self._driver.rewrite(with_objectives)

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
        goes_on = self._history.status(trial_id) == "pruned"
        attempt = self._history.attempts(trial_id) + (assignment.action != "measure")
        self._history.record_end(trial_id, status, attempt - goes_on, scores)
        if status == "failed":
            self._history.record_error(trial_id, run_columns.get("error_type"))
        elif status == "pruned" and last is not None and last.dev is not None:
            self._history.record_stage(trial_id, assignment.until, last.dev)

    def row(
        self, assignment: Assignment, status: Status, run_columns: Mapping[str, Any]
    ) -> TrialRow:
        """The row of a trial that has ended."""
        inputs = self._loader.load(assignment.config)
        values = self._history.values(assignment.trial_id)
        if status != "finished":  # earlier values are not this attempt's
            values = (None,) * len(values)
        input_columns = {
            "data_source": inputs.corpus.source or None,
            "data_fingerprint": inputs.fingerprints.data,
            "checkpoint_fingerprint": inputs.fingerprints.checkpoint,
            "selection_fingerprint": inputs.fingerprints.selection or None,
            "code_fingerprint": inputs.fingerprints.code or None,
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
            stages=self._stages(assignment.trial_id),
            attempt=self._history.attempts(assignment.trial_id),
            attempt_files=_label_of(assignment),
            **{**input_columns, **run_columns},
        )

    def keep_halvings(self) -> None:
        """Record the configurations of a halving that has begun, before one of them runs."""
        search, own = self._driver.study.manifest.search, self._proposals.record
        if search is not None and search.halvings != own.halvings:
            self._driver.record(replace(search, halvings=own.halvings))

    def keep_mined(self) -> None:
        """Write newly mined negatives, before a worker reads them."""
        mined = self._loader.newly_mined
        for name in list(mined):
            self._driver.write_mined(name, mined[name])
            del mined[name]

    def _stages(self, trial_id: str) -> tuple[dict[str, Any], ...] | None:
        """The scores at the ends of stages, as the trials table has them."""
        objective = str(self._loader.early_stopping_objective)
        own = sorted(self._history.stages(trial_id).items())
        ends = ({"objective": objective, "share": s, "value": v} for s, v in own)
        return (*self._other_stages.get(trial_id, ()), *ends) or None


def _label_of(assignment: Assignment) -> str:
    """The attempt that has trained the trial's weights."""
    again = assignment.action == "measure" and assignment.files_before
    return again or assignment.attempt_files


def _stages_without(table: pa.Table, loader: InputLoader) -> dict[str, list[dict[str, Any]]]:
    """The scores at the ends of stages that are not of this search's objective, by trial."""
    if "stages" not in table.column_names:
        return {}
    objective = str(loader.early_stopping_objective)
    rows = zip(table["trial_id"].to_pylist(), table["stages"].to_pylist(), strict=True)
    return {
        trial_id: [end for end in ends if end["objective"] != objective]
        for trial_id, ends in rows
        if ends
    }


def with_all_costs(training: Mapping[str, Any], measuring: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a trial that was measured again: of its training, with summed costs."""
    costs = {
        name: (training.get(name) or 0.0) + measuring[name]
        for name in _COSTS
        if measuring.get(name) is not None
    }
    return {**measuring, **training, **costs, "notes": measuring.get("notes")}
