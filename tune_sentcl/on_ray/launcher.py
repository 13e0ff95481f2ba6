"""The Ray launcher: Ray Tune runs the trials of a session."""

import math
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.execution import class_cache
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from tune_sentcl.errors import CaptureError, NodeDrainingError, TuneSentclError, with_frames
from tune_sentcl.on_ray.cluster import cluster, draining, quiet_ray_logging
from tune_sentcl.on_ray.preflight import ACCELERATOR, Survey, cluster_nodes, survey
from tune_sentcl.on_ray.trainable import params_of, train
from tune_sentcl.store.disk import is_alive
from tune_sentcl.trial import Progress
from tune_sentcl.tuning import mps
from tune_sentcl.tuning.machine import Bundle, trials_to_request
from tune_sentcl.tuning.question import Question
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Failure, worker_settings

_RECOUNT_S = 5.0
_STARTING_S = 60.0  # a trial that has waited this long gets the next free worker
_SCRATCH = "tune_sentcl_tune_"
_WORKER_LOST = "WorkerLostError"
_NODE_ID = re.compile(r"\b[0-9a-f]{56}\b")  # Ray's message on a lost worker contains the node's id
# This pattern finds colors and the line that Tune puts above an error. Both are removed, because
# messages show only the first line.
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|^Failure # \d+ \(occurred at .*\)\n", re.MULTILINE)


@contextmanager
def on_ray(question: Question, study: str) -> Iterator[Callable[[Session], None]]:
    """Connect to a Ray cluster and check that it can run a search; yields a launcher.

    Nothing is written to the study, which need not exist yet.

    Raises:
        ResourceError: There is no such cluster, or it cannot run the trials; the error lists every
            reason.
    """
    with quiet_ray_logging(), cluster(question.options.ray_address, question.watcher.say):
        surveyed = survey(question, study)
        surveyed.check()
        for text in surveyed.warnings:
            question.watcher.say(text)
        if not question.watcher.where:
            nodes = cluster_nodes()
            fit = sum(node.slots(surveyed.trial) for node in nodes)
            num_parallel = min(fit, question.options.max_concurrent or fit)
            count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
            question.watcher.where = f"{num_parallel} at a time on {count} of the cluster"
        yield lambda session: _run(session, question, study, surveyed)


def _run(session: Session, question: Question, study: str, surveyed: Survey) -> None:
    """Run a session to its end; an interrupted trial gets no row."""
    options, gpus = question.options, surveyed.trial.gpus

    def trial_limit() -> int:
        fit = sum(node.slots(surveyed.trial) for node in cluster_nodes())
        can_grow = options.ray_address != "local"
        known = session.num_running + session.queue.num_queued if can_grow else 0
        wanted = trials_to_request(fit, known)
        return int(min(wanted, options.max_concurrent or math.inf))

    with _tune_environment(options.ray_address), _scratch() as scratch:
        trainable = tune.with_parameters(
            train,
            loader=[ray.put(session.loader)],
            settings=worker_settings(
                study,
                options,
                gpus,
                session.loader.stage_objective,
                question.space.plugins,
            ),
            folder=str(Path.cwd()),
        )
        tuner = tune.Tuner(
            tune.with_resources(trainable, _bundle(surveyed.trial)),
            tune_config=tune.TuneConfig(
                search_alg=_SessionSearcher(session, trial_limit),
                scheduler=_SessionScheduler(session),
                num_samples=-1,
                reuse_actors=True,
                # By default, Tune names the folder by the trial's config.
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=scratch,
                verbose=0,
                callbacks=[_TrialEndCallback(session, gpus)],
                failure_config=tune.FailureConfig(max_failures=0),
            ),
        )
        try:
            tuner.fit()
        except (tune.TuneError, ray.exceptions.RayError) as error:
            # If a hook raises an error, Ray raises a TuneError that keeps only its text; the error
            # itself is the context.
            if isinstance(error.__context__, BrokenPipeError):
                raise error.__context__ from None
            if session.fatal is None and not session.stop_reason:
                raise TuneSentclError(f"Ray gave up the search: {error}") from error
    if session.fatal is not None:
        raise session.fatal


def _bundle(trial: Bundle) -> tune.PlacementGroupFactory:
    resources = {"CPU": trial.cpus, "GPU": trial.gpus, "memory": trial.memory}
    if trial.accelerator is None:
        return tune.PlacementGroupFactory([resources])
    labels = [{ACCELERATOR: trial.accelerator}]
    return tune.PlacementGroupFactory([resources], bundle_label_selector=labels)


@contextmanager
def _tune_environment(address: str) -> Iterator[None]:
    """Keep Tune from sending the driver's AWS keys to its actors; send them the variable of MPS.

    Tune would put the keys into the actors' runtime environment, which Ray logs, lists and passes
    to workers on a command line. Each node has its own keys; the pre-flight checks that.

    Workers on this machine inherit the driver's environment. Without a runtime environment, Ray
    reuses workers that already run; with one, it starts new ones.
    """
    names, defaults = class_cache.ENV_VARS_TO_PROPAGATE, class_cache.DEFAULT_ENV_VARS
    before = set(names), dict(defaults)
    names.difference_update([name for name in names if name.startswith("AWS_")])
    names.add(mps.VARIABLE)
    if address == "local":
        names.clear()
        defaults.clear()
    try:
        yield
    finally:
        names.clear()
        names.update(before[0])
        defaults.update(before[1])


class _SessionSearcher(Searcher):
    """Gives Tune the trials of a session.

    `trial_limit()` returns how many trials to request from the session. Requested trials that do
    not fit wait for a free worker; an autoscaler then starts nodes for them.
    """

    def __init__(self, session: Session, trial_limit: Callable[[], int]) -> None:
        super().__init__()
        self._session, self._ask = session, trial_limit
        self._limit, self._counted = 0, -math.inf

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its searcher so that it can restore it. Here a repeated command reads the
        # study instead, so the session with its locks and files is not pickled.
        return {}

    def suggest(self, trial_id: str) -> Any:
        """The config of the next trial; None: ask again later; FINISHED: no more trials."""
        session = self._session
        if session.finished:
            return Searcher.FINISHED
        if session.num_running >= self._current_limit():
            return None
        assignment = session.next()
        if assignment is None:
            return Searcher.FINISHED if session.finished else None
        return params_of(assignment)

    def _current_limit(self) -> int:
        """`trial_limit()`, computed only every few seconds, because Tune asks in each step."""
        now = time.monotonic()
        if now > self._counted + _RECOUNT_S:
            self._limit, self._counted = self._ask(), now
        return self._limit

    def on_trial_complete(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: `_TrialEndCallback` reports ends, because it gets the text of errors."""

    def save(self, checkpoint_path: str) -> None:
        """Save nothing; see `__getstate__`."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing; see `__getstate__`."""


class _SessionScheduler(FIFOScheduler):
    """Passes results to the session, and stops the trials that the session stops.

    It also chooses the trial for a free worker. Tune would choose the trial that has waited
    longest, and discard the worker that is starting for it. If trials are shorter than a worker's
    start, one worker would then run all trials while others start again and again.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._session = session
        self._waiting: dict[Trial, float] = {}

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Note since when a trial has been waiting."""
        self._waiting[trial] = time.monotonic()

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Choose the newest waiting trial, or the oldest after it has waited `_STARTING_S`.

        A worker may be starting for an older trial. Trials that failed before come last.
        """
        self._waiting = {t: since for t, since in self._waiting.items() if t.status == t.PENDING}
        if not self._waiting:
            return None
        status = self._session.history.status
        others = [t for t in self._waiting if status(t.config["trial"]) != "failed"]
        waiting = others or list(self._waiting)
        overdue = time.monotonic() > self._waiting[waiting[0]] + _STARTING_S
        return waiting[0] if overdue else waiting[-1]

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its scheduler too; see `_SessionSearcher`.
        return {}

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Pass on an evaluation point, or an error that the worker caught; it precedes hooks."""
        name, continues = trial.config["trial"], True
        if "fatal" in result:
            self._session.abort(result["fatal"])
        elif "failure" in result:
            self._session.fail(name, result["failure"])
        elif "progress" in result:
            progress: Progress = result["progress"]
            # After its last report the worker ends by itself, so Tune need not stop it.
            continues = self._session.progress(name, progress) or progress.final or progress.paused
        return TrialScheduler.CONTINUE if continues else TrialScheduler.STOP


class _TrialEndCallback(tune.Callback):
    """Reports every trial that Tune has ended to the session."""

    def __init__(self, session: Session, gpus: float) -> None:
        self._session, self._gpus = session, gpus
        self._not_ended: dict[str, Trial] = {}
        self._seen = 0
        self._draining, self._looked_at = set[str](), -math.inf

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its callbacks too; see `_SessionSearcher`.
        return {}

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Report that a worker has begun a trial."""
        self._session.started(trial.config["trial"], self._gpus)

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Drop large values, because Tune keeps each trial's last result until the search ends."""
        for key in ("fatal", "failure", "progress"):
            result.pop(key, None)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Find ended trials; for some, such as a failed reset of an actor, Tune calls no hook."""
        # Tune only appends to `trials`, so only its new part is added; each trial is then checked
        # until it has ended.
        self._not_ended.update((trial.trial_id, trial) for trial in trials[self._seen :])
        self._seen = len(trials)
        if time.monotonic() > self._looked_at + _RECOUNT_S:
            # This is a union, because a node that was draining may be gone by now.
            self._draining |= draining()
            self._looked_at = time.monotonic()
        for trial in [t for t in self._not_ended.values() if t.is_finished()]:
            del self._not_ended[trial.trial_id]
            self._ended(trial)
        if self._session.fatal is not None or self._session.stop_reason:
            raise tune.TuneError("the session has ended")

    def _ended(self, trial: Trial) -> None:
        """Report a lost worker or node, unless the attempt itself has reported its end."""
        name, error = trial.config["trial"], _last_error(trial)
        if not self._session.runs(name, trial.config["files"][0]):
            return
        if error.error_type == CaptureError.__name__:
            self._session.capture_failed(name, error)
            return
        is_moved = error.error_type == NodeDrainingError.__name__
        if is_moved or not self._draining.isdisjoint(_NODE_ID.findall(error.error_text)):
            self._session.node_draining(name)
        else:
            self._session.worker_lost(name, error)


@contextmanager
def _scratch() -> Iterator[str]:
    """A folder for Tune's files, which hold configs; folders of killed drivers are deleted."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*_*"):
        pid = leftover.name.removeprefix(_SCRATCH).partition("_")[0]
        if pid.isdecimal() and not is_alive(int(pid)):
            shutil.rmtree(leftover, ignore_errors=True)
    prefix = f"{_SCRATCH}{os.getpid()}_"
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        yield folder


def _last_error(trial: Trial) -> Failure:
    """The error that ended a trial's worker, from the text file that Tune wrote.

    Tune also pickles the error, but a pickle can run code, so it is not read. Tune's `get_error`
    looks for the text in the storage folder, where Tune does not write it.
    """
    if not trial.error_file or not Path(trial.error_file).is_file():
        return Failure(_WORKER_LOST, "Ray lost the worker and does not say why", {})
    text = _DECORATION.sub("", Path(trial.error_file).read_text(encoding="utf-8")).strip()
    named = list(re.finditer(r"^(?:\w+\.)*(\w+): ", text, re.MULTILINE))
    if not named:
        return Failure(_WORKER_LOST, text[-4000:], {})
    last = named[-1]
    return Failure(last[1], with_frames(text[last.end() :], text[: last.start()]), {})
