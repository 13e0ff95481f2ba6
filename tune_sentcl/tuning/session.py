"""One run of a search, seen from the driver: hands out trials and commits how they end."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import shorten
from typing import Any, Literal

import pyarrow as pa

from tune_sentcl.errors import (
    DeviceError,
    NodeDrainingError,
    TrialTimeoutError,
    TuneSentclError,
    first_line,
)
from tune_sentcl.history import CONFIRM_ORIGIN, Assignment, Status
from tune_sentcl.score import Score
from tune_sentcl.store.manifest import PlanRecord
from tune_sentcl.store.rows import TrialRow, chosen_by
from tune_sentcl.store.writing.driver import StudyDriver
from tune_sentcl.trial import Progress
from tune_sentcl.tuning.budget import Budget
from tune_sentcl.tuning.configuration_groups import CONFIGURATION_ERRORS
from tune_sentcl.tuning.optuna_journal import JournalMirror, ReportedTrial
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.rungs import Rungs
from tune_sentcl.tuning.worker import Failure
from tune_sentcl.watch.watcher import Watcher

_MAX_NODE_MOVES = 20  # of a trial whose node is about to go: Ray gives those no new ones
_MAX_RESTARTS = 3  # of a trial that no worker had begun: nothing speaks against it
_COSTS = (
    "wall_seconds",
    "evaluation_seconds",
    "gpu_seconds",
    "saving_seconds",
    "encoding_seconds",
)


@dataclass(frozen=True)
class SessionSettings:
    """What a session needs to know beside its parts.

    Attributes:
        space: Name of the space, for the rows.
        keep: How many checkpoints the study keeps.
        origin: Overrides where the trials come from; set for single trials and fresh seeds.
        confirmed: Whether fresh seeds are run behind this search, as a part of it.
    """

    space: str
    keep: int
    origin: Literal["single", "confirm"] | None = None
    confirmed: bool = False


@dataclass
class StoppingRules:
    """What ends trials, and the search, before their time.

    Attributes:
        rungs: Where trials are compared, with what ran before; None: nowhere.
        budget: What the search may take.
        retries: How often a trial is run again whose worker was lost.
    """

    rungs: Rungs | None = None
    budget: Budget = field(default_factory=Budget)
    retries: int = 2


class Session:
    """The driver's side of a search; every launcher drives it in the same way.

    Laws: `next` hands out each trial once, and again where its worker was lost; each trial
    that is handed out is ended once, and an end that is reported again changes nothing; an end is
    in the study before anybody else hears of it; a finished trial stays finished, whatever becomes
    of a further measurement or training.
    """

    def __init__(
        self,
        driver: StudyDriver,
        proposals: Proposals,
        settings: SessionSettings,
        watcher: Watcher,
        mirror: JournalMirror | None = None,
        rules: StoppingRules | None = None,
    ) -> None:
        """Take up a search; `proposals` has recalled what the study holds."""
        self.proposals, self.settings = proposals, settings
        self.history = proposals.history
        rules = rules or StoppingRules()
        self.rungs, self.budget, self._retries = rules.rungs, rules.budget, rules.retries
        self.loader = proposals.namer.loader
        self._driver, self.watcher, self._mirror = driver, watcher, mirror
        self._running: dict[str, Assignment] = {}
        # A failed trial has a state only where it lost its workers: it goes on in a repetition.
        self._resumable = set(self.history.with_status("failed"))
        search_record = driver.study.manifest.search
        self._failed_again = frozenset(search_record.failed_again if search_record else ())
        self._lost_workers: Counter[tuple[str, bool]] = Counter()
        self._node_moves: Counter[str] = Counter()
        self._last_progress: dict[str, Progress] = {}
        self.ended = self.failures = self.timed_out = 0
        self._repeat_failed: dict[str, bool] = {}
        self.fatal: TuneSentclError | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing runs and nothing will."""
        return self.fatal is not None or bool(self.stop_reason) or self.proposals.finished

    @property
    def failed_again(self) -> set[str]:
        """Finished trials whose further training or measuring has failed in this session."""
        return {trial_id for trial_id, failed in self._repeat_failed.items() if failed}

    @property
    def num_running(self) -> int:
        """Trials handed out and not ended."""
        return len(self._running)

    @property
    def num_queued(self) -> int:
        """Trials that are to run and need no draw."""
        return self.proposals.num_queued

    @property
    def stop_reason(self) -> str | None:
        """Why the search ends although there are trials left; None while it does not."""
        return self.budget.failure_reason if self.proposals.finished else self.budget.stop_reason()

    def next(self, *, idle: bool = True) -> Assignment | None:
        """The next trial; None while there is none to run.

        Args:
            idle: Whether a worker is free for it now; else it will wait for one.
        """
        if self.fatal is not None or self.stop_reason:
            return None
        assignment = self.proposals.next(idle=idle)
        for reported in self.proposals.skipped():
            self._mirror_trial(reported)
        if assignment is None:
            return None
        name = assignment.trial_id
        attempt_files, files_before = (
            self._driver.attempt_files(name),
            self._driver.attempt_before(name),
        )
        self._resumable.discard(name)
        self._running[name] = replace(
            assignment, attempt_files=attempt_files, files_before=files_before
        )
        if self._mirror is not None:
            self._mirror.begin(
                assignment.configuration, self.proposals.running_trial(assignment.configuration)
            )
        return self._running[name]

    def started(self, trial_id: str, gpus: float = 0.0) -> None:
        """A worker has begun a trial, on a share of a GPU."""
        if trial_id in self._running:
            self.budget.started(trial_id, gpus)
            self.watcher.started(self._running[trial_id])

    def progress(self, trial_id: str, progress: Progress) -> bool:
        """Take an evaluation point; the final one ends the trial.

        Returns:
            Whether the trial is to go on; it has ended as pruned where it is not.
        """
        assignment = self._running.get(trial_id)
        if assignment is None:
            return False
        self._last_progress[trial_id] = progress
        continues = self._compare(assignment, progress)
        if progress.final:
            self.budget.result("finished", None)
            self._end(trial_id, "finished", progress.run_columns, progress.scores)
            return continues
        self.watcher.point(trial_id, progress)
        if not continues:
            self.prune(trial_id)
        return continues

    def prune(self, trial_id: str) -> None:
        """A trial is stopped early."""
        last = self._last_progress.get(trial_id)
        self._end(trial_id, "pruned", last.run_columns if last else {})

    def fail(self, trial_id: str, failure: Failure, *, accident: bool = False) -> None:
        """A trial has ended with an error.

        Args:
            trial_id: The trial.
            failure: The error.
            accident: Whether it says nothing of the trials that follow.
        """
        if trial_id not in self._running:
            return
        last = self._last_progress.get(trial_id)
        run_columns = {
            **(last.run_columns if last else {}),
            **failure.run_columns,
            "error_type": failure.error_type,
            "error_text": failure.error_text,
        }
        timed_out = failure.error_type == TrialTimeoutError.__name__
        self.timed_out += timed_out
        if not (accident or timed_out or self._failed_before(trial_id, failure.error_type)):
            self.budget.result("failed", failure.error_type)
        self._end(trial_id, "failed", run_columns)

    def worker_lost(self, trial_id: str, failure: Failure) -> None:
        """A worker is gone before its trial has ended; another goes on, if tries are left."""
        assignment = self._running.get(trial_id)
        if assignment is None:
            return
        if self.budget.overdue(trial_id):  # it did not look at the clock, and was ended for that
            error = TrialTimeoutError.__name__
            text = f"the trial was given {self.budget.trial_seconds:g} s, and did not come back"
            self.fail(trial_id, Failure(error, text, failure.run_columns))
            return
        has_started = self.budget.is_running(trial_id)
        self._lost_workers[trial_id, has_started] += 1
        tries, most = (
            self._lost_workers[trial_id, has_started],
            self._retries if has_started else _MAX_RESTARTS,
        )
        if tries > most:
            why = "lost its worker (retries)" if has_started else "found no worker that began it"
            text = f"each of {tries} tries {why}; the last: {failure.error_text}"
            error = failure.error_type
            if error in CONFIGURATION_ERRORS:  # the node's memory was full, not the device's
                error = "WorkerLostError"
            failure = replace(failure, error_type=error, error_text=text)
            if self.history.status(trial_id) != "finished":
                self._resumable.add(trial_id)
            # A device that no worker can use is no accident.
            self.fail(trial_id, failure, accident=failure.error_type != DeviceError.__name__)
            return
        reason = shorten(first_line(failure.error_text) or "no reason told", 160)
        message = f"lost its worker and is tried once more ({tries} of {most}): {reason}"
        self._requeue(assignment, message)

    def _failed_before(self, trial_id: str, error_type: str) -> bool:
        """Whether a trial failed with the same error in an earlier run; that is no news."""
        repeated = self.history.error_type(trial_id) == error_type
        return repeated or trial_id in self._failed_again

    def node_draining(self, trial_id: str) -> None:
        """The node of a trial is about to go: another goes on with it, which costs no try."""
        assignment = self._running.get(trial_id)
        if assignment is None:
            return
        self._node_moves[trial_id] += 1
        if self._node_moves[trial_id] > _MAX_NODE_MOVES:
            text = f"it has left {_MAX_NODE_MOVES} nodes that were about to go"
            self.worker_lost(trial_id, Failure(NodeDrainingError.__name__, text, {}))
            return
        self._requeue(assignment, "moves, for its node is about to go")

    def _requeue(self, assignment: Assignment, message: str) -> None:
        name = assignment.trial_id
        del self._running[name]
        self._last_progress.pop(name, None)
        self.budget.ended(name)
        self.proposals.requeue(name, assignment.action)
        self.watcher.say(f"trial {name} {message}")

    def share(self) -> None:
        """Hear that other machines see the study.

        Raises:
            StudyError: Another driver has it, or the disk refused.
        """
        self._driver.share()

    def abort(self, error: TuneSentclError) -> None:
        """Nothing can be kept any more; trials at hand are left without a row, to run again."""
        self.fatal = error

    def keep_best_checkpoints(self) -> None:
        """Keep the best checkpoints, and those that a measurement waits for; let the others go.

        Raises:
            StudyError: The disk refused.
        """
        if self.settings.origin == CONFIRM_ORIGIN:  # fresh seeds keep none, and put nobody out
            return
        kept = self._driver.study.checkpoints()
        weights = {name for name in kept if self.history.status(name) == "finished"}
        best = sorted(weights, key=lambda name: (-self.history.checkpoint_score(name), name))
        wanted = {*best[: self.settings.keep], *self.proposals.waiting()}
        if not kept <= wanted:
            self._driver.keep_checkpoints(wanted)
        self.history.weights = weights & wanted

    def drop_states(self) -> None:
        """Let go of what trials left to go on from that have ended and do not run again.

        Those that only lost their workers run again when the command is repeated. Once the search
        is complete, nobody asks for what else lies there, where fresh seeds follow once those are;
        of single trials each is a search.

        Raises:
            StudyError: The disk refused.
        """
        complete = self.finished and self.fatal is None and not self.stop_reason
        is_whole_search = self.settings.origin is None and not self.settings.confirmed
        drop_all = complete and (is_whole_search or self.settings.origin == CONFIRM_ORIGIN)
        needed = self.proposals.waiting() | self._resumable
        for name in self._driver.study.states() - needed:
            if drop_all or self.history.status(name):
                self._driver.drop_state(name)

    def record(
        self,
        plan: PlanRecord | None = None,
        rungs: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Write down what the search has come to.

        Args:
            plan: What it took; None keeps what is there.
            rungs: What its rungs have done; None likewise.

        Raises:
            StudyError: The disk refused.
        """
        search_record = self._driver.study.manifest.search
        if search_record is not None:
            failed = (
                set(search_record.failed_again) - self._repeat_failed.keys()
            ) | self.failed_again
            search_record = replace(
                search_record,
                rungs=search_record.rungs if rungs is None else tuple(rungs),
                failed_again=tuple(sorted(failed)),
            )
        self._driver.record(search_record, plan)

    def compact(self) -> None:
        """Leave the study at rest: one file a table, which speaks of the present objectives.

        Raises:
            StudyError: The disk refused; nothing is lost.
        """
        origins = self.proposals.origins() if self.settings.origin is None else {}

        def compacted(trials: pa.Table) -> pa.Table:
            # Fresh seeds that this search was asked for have taught and chosen like its others.
            return chosen_by(self.history.with_objectives(trials), origins)

        self._driver.compact(compacted, self._running)

    def _end(
        self,
        trial_id: str,
        status: Status,
        run_columns: Mapping[str, Any],
        scores: Iterable[Score] = (),
    ) -> None:
        assignment = self._running.pop(trial_id, None)
        if assignment is None:
            return
        self.budget.ended(trial_id)
        last = self._last_progress.pop(trial_id, None)
        is_recorded = status == "finished" or self.history.status(trial_id) != "finished"
        if assignment.action != "train":
            self._repeat_failed[trial_id] = status == "failed"
        if assignment.action == "measure":
            run_columns = _with_first_training(self.history.run_columns(trial_id), run_columns)
        if is_recorded:
            self._record_in_history(assignment, status, run_columns, scores, last)
        row = self._row(assignment, status, run_columns)
        try:
            if is_recorded:  # else what the trial had before stays as it was
                self._driver.commit(row, self._running, weights=self.settings.keep > 0)
            reported = self.proposals.end(
                trial_id, self.history.result(trial_id, self._evaluation_data(assignment))
            )
            self._clean_up(status, run_columns)
        except TuneSentclError as error:
            self.fatal = error  # nothing that ends from here on could be kept
            return
        self._mirror_trial(reported)
        self.ended += 1
        self.failures += status == "failed"
        self.watcher.ended(row, self.proposals.total)

    def _clean_up(self, status: Status, run_columns: Mapping[str, Any]) -> None:
        """Let go of what nobody needs once a trial has ended."""
        if status == "finished" and (self.settings.keep or self.history.weights):
            self.keep_best_checkpoints()
        if run_columns.get("saving_seconds"):
            self.drop_states()

    def _compare(self, assignment: Assignment, progress: Progress) -> bool:
        """Whether a trial is to go on: always where it has finished, or gone on here, before."""
        if self.rungs is None or progress.dev is None or assignment.action == "measure":
            return True
        point = (assignment.configuration, assignment.trial_id, progress.rows, progress.dev)
        if progress.final or progress.already_reported or assignment.action == "retrain":
            self.rungs.add_point(*point)
            return True
        return self.rungs.should_continue(*point)

    def _mirror_trial(self, reported: ReportedTrial | None) -> None:
        if reported is not None and self._mirror is not None:
            self._mirror.add(*reported)

    def _record_in_history(
        self,
        assignment: Assignment,
        status: Status,
        run_columns: Mapping[str, Any],
        scores: Iterable[Score],
        last: Progress | None,
    ) -> None:
        """Let the history know; only trainings count as attempts."""
        trial_id = assignment.trial_id
        attempt = self.history.attempts(trial_id) + (assignment.action != "measure")
        self.history.record_end(trial_id, status, attempt, scores)
        self.history.set_evaluation_data(trial_id, self._evaluation_data(assignment))
        if status == "failed":
            self.history.record_error(trial_id, run_columns.get("error_type"))
        elif status == "pruned" and last is not None:
            self.history.record_pruned(trial_id, last.rows, last.dev)

    def _row(
        self, assignment: Assignment, status: Status, run_columns: Mapping[str, Any]
    ) -> TrialRow:
        inputs = self.loader.load(assignment.config)
        values = self.history.values(assignment.trial_id, inputs.sets.data)
        if status != "finished":  # what it may have had before is not this attempt's
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
            space=self.settings.space,
            origin=self.settings.origin or assignment.origin,
            status=status,
            objectives=tuple(zip(map(str, self.history.objectives), values, strict=True)),
            attempt=self.history.attempts(assignment.trial_id),
            attempt_files=assignment.attempt_files,
            **{**found, **run_columns},
        )

    def _evaluation_data(self, assignment: Assignment) -> str:
        return self.loader.load(assignment.config).sets.data


def _with_first_training(
    training: Mapping[str, Any], measuring: Mapping[str, Any]
) -> dict[str, Any]:
    """What is written of a trial that was measured again: how it was trained, and all it cost."""
    costs = {
        name: (training.get(name) or 0.0) + measuring[name]
        for name in _COSTS
        if measuring.get(name) is not None
    }
    # Rows of older releases have no start-up; that of the measuring is not theirs.
    return {
        **measuring,
        "startup_seconds": None,
        **training,
        **costs,
        "notes": measuring.get("notes"),
    }
