"""The driver's side of a search: hand out trials, commit their ends, and stop at limits."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from textwrap import shorten
from typing import Any

import pyarrow as pa

from tune_sentcl.errors import (
    DeviceError,
    NodeDrainingError,
    TrialTimeoutError,
    TuneSentclError,
    first_line,
)
from tune_sentcl.history import Assignment, Status
from tune_sentcl.model.mining import too_few
from tune_sentcl.score import Score
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.rows import with_search_origins
from tune_sentcl.trial import Progress
from tune_sentcl.tuning.journal import JournalMirror
from tune_sentcl.tuning.keeping import Keeping
from tune_sentcl.tuning.question import Question
from tune_sentcl.tuning.queue import Queue
from tune_sentcl.tuning.stages import CONFIGURATION_ERRORS
from tune_sentcl.tuning.trial_rows import TrialRows, with_all_costs
from tune_sentcl.tuning.worker import Failure
from tune_sentcl.watch.watcher import Watcher

_MAX_MOVES = 20  # the largest number of moves of a trial away from draining nodes
_MAX_RESTARTS = 3  # the largest number of restarts of a trial that no worker began
# The largest number of failed captures of CUDA graphs in a search, each of which costs a worker.
_MAX_CAPTURES = 2


@dataclass
class Limits:
    """The limits of one command. A limit that was reached stays reached.

    Attributes:
        max_failures: How many trials may fail in a row with the same type of error. A finished or
            stopped trial resets the count. A lost worker and a trial's timeout do not count.
        max_seconds: Seconds from now on; None: no limit.
        max_gpu_seconds: GPU seconds of all trials, including running ones; None: no limit.
        trial_seconds: Seconds of each trial; None: no limit.
        clock: Returns the time in seconds.
        failure_reason: Why too many failures in a row ended the search; None if they did not.
    """

    max_failures: int = 5
    max_seconds: float | None = None
    max_gpu_seconds: float | None = None
    trial_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    failure_reason: str | None = field(default=None, init=False)
    _limit_reason: str | None = field(default=None, init=False)
    _failures_in_a_row: tuple[str, int] = field(default=("", 0), init=False)
    _running: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    _gpu_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._start = self._charged_until = self.clock()

    def started(self, trial_id: str, gpus: float) -> None:
        """Begin to charge a trial for its share of a GPU."""
        self._charge_gpus()
        self._running[trial_id] = (self.clock(), gpus)  # the start time, and the share of a GPU

    def ended(self, trial_id: str) -> None:
        """Stop charging a trial."""
        self._charge_gpus()
        self._running.pop(trial_id, None)

    def is_running(self, trial_id: str) -> bool:
        """Whether a trial has begun and not ended."""
        return trial_id in self._running

    def overdue(self, trial_id: str) -> bool:
        """Whether a running trial has exceeded its own time limit."""
        if self.trial_seconds is None or trial_id not in self._running:
            return False
        start, _ = self._running[trial_id]
        return self.clock() - start > self.trial_seconds

    def result(self, status: Status, error_type: str | None) -> None:
        """Count failures in a row; call it for a trial's own result, not after a lost worker."""
        before, count = self._failures_in_a_row
        count = 0 if status != "failed" else count + 1 if error_type == before else 1
        self._failures_in_a_row = (str(error_type), count)
        if count >= self.max_failures:
            self.failure_reason = f"{count} trials in a row failed with {error_type}"

    def reset_failures(self) -> None:
        """Reset the count of failures, so that a confirmation can run."""
        self._failures_in_a_row, self.failure_reason = ("", 0), None

    def stop_reason(self) -> str | None:
        """The limit that ends the search now; None if no limit is reached."""
        if self.failure_reason is not None:
            return self.failure_reason
        if self._limit_reason is None and self.seconds_left() <= 0:
            self._limit_reason = "the GPU hours of --max-gpu-hours are used up"
            if self._time_left() <= 0:
                self._limit_reason = "the time of --max-time is over"
        return self._limit_reason

    def seconds_left(self) -> float:
        """Seconds until a limit is reached with the current GPUs; infinite without a limit."""
        if self.max_gpu_seconds is None:
            return self._time_left()
        self._charge_gpus()
        gpus_in_use, left = self._gpus_in_use(), self.max_gpu_seconds - self._gpu_seconds
        unused = math.inf if left > 0 else 0.0
        return min(self._time_left(), left / gpus_in_use if gpus_in_use else unused)

    def _gpus_in_use(self) -> float:
        return sum(gpus for _, gpus in self._running.values())

    def _charge_gpus(self) -> None:
        """Charge the GPUs in use for the time since the last call."""
        now = self.clock()
        self._gpu_seconds += self._gpus_in_use() * (now - self._charged_until)
        self._charged_until = now

    def _time_left(self) -> float:
        if self.max_seconds is None:
            return math.inf
        return self.max_seconds - (self.clock() - self._start)


class Session:
    """The driver's side of a search; every launcher drives it in the same way.

    Laws: `next` hands out each trial once per stage, and again after its worker was lost. Each
    trial that was handed out ends once; a second report of its end changes nothing. An end is in
    the study before the sampler and the watchers learn of it. A finished trial stays finished,
    even if a further measurement or training of it fails.
    """

    def __init__(
        self,
        driver: StudyDriver,
        queue: Queue,
        question: Question,
        watcher: Watcher,
        mirror: JournalMirror | None = None,
        limits: Limits | None = None,
        keeping: Keeping | None = None,
    ) -> None:
        """Begin a session over the driver's study, from which `queue` was made.

        `keeping` deletes files that are no longer needed; None: as a search does.
        """
        self.queue, self.history = queue, queue.history
        self.limits = limits or Limits()
        self.loader, self._options = question.loader, question.options
        self.keeping = keeping or Keeping(driver, queue, question)
        self._rows = TrialRows(question, queue.history, driver.study.manifest.git_commit)
        self._driver, self.watcher, self._mirror = driver, watcher, mirror
        self._is_search = question.origin is None
        self._running: dict[str, Assignment] = {}
        self._lost_workers: Counter[tuple[str, bool]] = Counter()
        self._node_moves: Counter[str] = Counter()
        self._without_graphs: set[str] = set()
        self._last_progress: dict[str, Progress] = {}
        self.ended = self.failures = self.timed_out = 0
        self._has_succeeded = bool(self.history.with_status("finished"))
        self.fatal: TuneSentclError | None = None
        self._keep_mined()
        self._mirror_ended(queue.configurations)

    @property
    def finished(self) -> bool:
        """Whether no trial is running and no further trial will run."""
        return self.fatal is not None or bool(self.stop_reason) or self.queue.finished

    def runs(self, trial_id: str, attempt_files: str) -> bool:
        """Whether this attempt at a trial is running; each stage of a trial is another attempt."""
        running = self._running.get(trial_id)
        return running is not None and running.attempt_files == attempt_files

    @property
    def num_running(self) -> int:
        """How many trials were handed out and have not ended."""
        return len(self._running)

    @property
    def stop_reason(self) -> str | None:
        """Why the search ends before all trials have run; None if it does not."""
        return self.limits.failure_reason if self.queue.finished else self.limits.stop_reason()

    def next(self) -> Assignment | None:
        """Hand out the next trial; return None if no trial can run now."""
        if self.fatal is not None or self.stop_reason:
            return None
        assignment = self.queue.next()
        if assignment is None:
            return None
        name = assignment.trial_id
        self._keep_halvings()
        self._keep_mined()
        self.keeping.resumable.discard(name)
        self._running[name] = replace(
            assignment,
            attempt_files=self._driver.next_attempt_label(name),
            files_before=self._driver.committed_label(name),
            pause_above=self.keeping.pause_above(assignment),
            graphs=self._may_capture and name not in self._without_graphs,
        )
        return self._running[name]

    def started(self, trial_id: str, gpus: float = 0.0) -> None:
        """Note that a worker has begun a trial on a share of a GPU."""
        if trial_id in self._running:
            self.limits.started(trial_id, gpus)
            self.watcher.started(self._running[trial_id])

    def progress(self, trial_id: str, progress: Progress) -> bool:
        """Take an evaluation point, or the last report of a trial (its pause or its end).

        Returns:
            Whether the trial is still known to run; if not, its worker may stop it.
        """
        if trial_id not in self._running:
            return False
        self._last_progress[trial_id] = progress
        status: Status = "finished" if progress.final else "pruned"
        if progress.final or progress.paused:
            self.limits.result(status, None)
            self._end(trial_id, status, progress.run_columns, progress.scores)
        else:
            self.watcher.point(trial_id, progress)
        return True

    def fail(self, trial_id: str, failure: Failure, *, accident: bool = False) -> None:
        """End a trial with an error.

        Args:
            trial_id: The trial.
            failure: The error.
            accident: Whether `max_failures` ignores the error.
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
        is_repeated = self.history.error_type(trial_id) == failure.error_type
        if not (accident or timed_out or is_repeated or self._diverged(trial_id, failure)):
            self.limits.result("failed", failure.error_type)
        self._end(trial_id, "failed", run_columns)

    def _diverged(self, trial_id: str, failure: Failure) -> bool:
        """Whether a sampled trial failed through its hyperparameters while other trials succeeded.

        Wide ranges contain many such configurations, so these failures do not end a search.
        """
        is_sampled = self._running[trial_id].origin == "sampler"
        caused = failure.error_type in CONFIGURATION_ERRORS
        return is_sampled and caused and self._has_succeeded

    def worker_lost(self, trial_id: str, failure: Failure) -> None:
        """Requeue a trial whose worker was lost, or end it after its last try."""
        assignment = self._running.get(trial_id)
        if assignment is None:
            return
        if self.limits.overdue(trial_id):
            # The trial ran too long, so the launcher ended its worker.
            error = TrialTimeoutError.__name__
            text = (
                f"the trial was given {self.limits.trial_seconds:g} s, and did not return in time"
            )
            self.fail(trial_id, Failure(error, text, failure.run_columns))
            return
        has_started = self.limits.is_running(trial_id)
        self._lost_workers[trial_id, has_started] += 1
        tries = self._lost_workers[trial_id, has_started]
        most = self._options.retries if has_started else _MAX_RESTARTS
        if tries > most:
            why = "lost its worker" if has_started else "found no worker that started the trial"
            text = f"each of {tries} tries {why}; the last error: {failure.error_text}"
            error = failure.error_type
            if error in CONFIGURATION_ERRORS:
                # The worker died because the node's memory was full, not the device's, so the
                # configuration is not at fault.
                error = "WorkerLostError"
            failure = replace(failure, error_type=error, error_text=text)
            if self.history.status(trial_id) != "finished":
                self.keeping.resumable.add(trial_id)
            # If no worker can use the device, this counts for `max_failures`; other losses of a
            # worker do not.
            self.fail(trial_id, failure, accident=failure.error_type != DeviceError.__name__)
            return
        reason = shorten(first_line(failure.error_text) or "no reason given", 160)
        message = f"lost its worker and is tried once more ({tries} of {most}): {reason}"
        self._requeue(assignment, message)

    def node_draining(self, trial_id: str) -> None:
        """Requeue a trial whose node drains; this is not a try."""
        assignment = self._running.get(trial_id)
        if assignment is None:
            return
        self._node_moves[trial_id] += 1
        if self._node_moves[trial_id] > _MAX_MOVES:
            text = f"the trial has left {_MAX_MOVES} nodes that were draining"
            self.worker_lost(trial_id, Failure(NodeDrainingError.__name__, text, {}))
            return
        self._requeue(assignment, "moves to another node, because its node is draining")

    def capture_failed(self, trial_id: str, failure: Failure) -> None:
        """Requeue a trial whose worker failed to capture a CUDA graph; this is not a try."""
        assignment = self._running.get(trial_id)
        if assignment is None:
            return
        if not assignment.graphs:
            self.worker_lost(trial_id, failure)
            return
        self._without_graphs.add(trial_id)
        reason = shorten(first_line(failure.error_text), 160)
        self._requeue(assignment, f"continues without CUDA graphs in another worker: {reason}")
        if len(self._without_graphs) == _MAX_CAPTURES:
            self.watcher.say(
                "further trials train without CUDA graphs, because two captures failed"
            )

    @property
    def _may_capture(self) -> bool:
        return len(self._without_graphs) < _MAX_CAPTURES

    def _requeue(self, assignment: Assignment, message: str) -> None:
        name = assignment.trial_id
        del self._running[name]
        self._last_progress.pop(name, None)
        self.limits.ended(name)
        self.queue.requeue(name)
        self.watcher.say(f"trial {name} {message}")

    def abort(self, error: TuneSentclError) -> None:
        """End the search with an error; running trials get no row, and run again later."""
        self.fatal = error

    def close(self) -> None:
        """Delete states, complete Optuna's journal, and update the objectives of all rows."""
        self._drop_states()
        if self._mirror is not None:
            # Paused trials do not continue in this search, so the journal gets them now.
            self._mirror.add(self.queue.configurations.values())
        self._rewrite()

    def _rewrite(self) -> None:
        """Write the values of the current objectives into all rows.

        Raises:
            StudyError: The disk cannot be written; nothing is lost.
        """
        assignments = self.queue.assignments() if self._is_search else ()
        origins = {trial.trial_id: trial.origin for trial in assignments}

        def with_objectives(trials: pa.Table) -> pa.Table:
            # Another command ran some of these trials, but the search planned their seeds too, so
            # they took part in its choice.
            return with_search_origins(self.history.with_objectives(trials), origins)

        self._driver.rewrite(with_objectives)

    def _keep_halvings(self) -> None:
        """Record the configurations of a newly begun halving, before any of them runs."""
        search, own = self._driver.study.manifest.search, self.queue.record
        if search is not None and search.halvings != own.halvings:
            self._driver.record(replace(search, halvings=own.halvings))

    def _keep_mined(self) -> None:
        """Write newly mined negatives, before a worker reads them."""
        mined = self.loader.newly_mined
        for name in list(mined):
            self._driver.write_mined(name, mined[name])
            if text := too_few(mined.pop(name)):
                self.watcher.say(text)

    def _drop_states(self) -> None:
        self.keeping.drop_states(
            complete=self.finished and self.fatal is None and not self.stop_reason
        )

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
        self.limits.ended(trial_id)
        last = self._last_progress.pop(trial_id, None)
        is_recorded = status == "finished" or self.history.status(trial_id) != "finished"
        if assignment.action == "measure":
            run_columns = with_all_costs(self.history.run_columns(trial_id), run_columns)
        if is_recorded:
            self._rows.record_end(assignment, status, run_columns, scores, last)
        row = self._rows.row(assignment, status, run_columns)
        try:
            if is_recorded:
                # Otherwise the row of an earlier, finished attempt stays.
                curves = () if last is None else last.curves
                self._driver.commit(
                    row,
                    scores,
                    None if assignment.action == "measure" else curves,
                    weights=self._options.keep > 0,
                )
            self.queue.end(trial_id, self.history.result(trial_id))
            self._clean_up(status, run_columns)
        except TuneSentclError as error:
            self.fatal = error  # the study accepts no further trials, so the search ends
            return
        self._mirror_ended([assignment.configuration])
        self._has_succeeded = self._has_succeeded or status != "failed"
        self.ended += 1
        self.failures += status == "failed"
        self.watcher.ended(row, self.queue.total, last)

    def _mirror_ended(self, names: Iterable[str]) -> None:
        """Add those configurations that will not continue to Optuna's journal."""
        if self._mirror is not None:
            ended = filter(self.queue.has_ended, names)
            self._mirror.add(self.queue.configurations[name] for name in ended)

    def _clean_up(self, status: Status, run_columns: Mapping[str, Any]) -> None:
        """Delete the files that no trial needs after this end."""
        if status == "finished" and (self._options.keep or self.history.weights):
            self.keeping.keep_best_checkpoints()
        if run_columns.get("saving_seconds") or status == "pruned" or self.keeping.has_states:
            self._drop_states()
