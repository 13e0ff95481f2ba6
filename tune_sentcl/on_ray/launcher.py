"""The Ray launcher: Ray Tune runs the trials of a session; nothing else here knows Ray."""

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

from tune_sentcl.errors import NodeDrainingError, TuneSentclError, with_frames
from tune_sentcl.on_ray.cluster import cluster, quiet_ray_logging
from tune_sentcl.on_ray.draining import DrainingNodes
from tune_sentcl.on_ray.preflight import ACCELERATOR, Survey
from tune_sentcl.on_ray.survey import cluster_nodes, survey
from tune_sentcl.on_ray.trainable import params_of, train
from tune_sentcl.signals import shutdown_signals
from tune_sentcl.store.disk import is_alive
from tune_sentcl.trial import Progress
from tune_sentcl.tuning.prepare import PreparedSearch
from tune_sentcl.tuning.resources import Bundle
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Failure, worker_settings

_RECOUNT_S = 5.0
_STARTING_S = 60.0  # that a worker may take to start, before a free one takes its trial
_SCRATCH = "tune_sentcl_tune_"
_WORKER_LOST = "WorkerLostError"
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


@contextmanager
def on_ray(prepared: PreparedSearch, study: str) -> Iterator[Callable[[Session], None]]:
    """A Ray cluster that has been found fit for a search; what comes runs a session there.

    Args:
        prepared: The search.
        study: Its study, which need not be there; nothing is written.

    Raises:
        ResourceError: There is no such cluster, or trials cannot be run there: every reason why.
    """
    with quiet_ray_logging(), cluster(prepared.options.ray_address):
        surveyed = survey(prepared, study)
        surveyed.check()
        for text in surveyed.warnings:
            prepared.watcher.say(text)
        if not prepared.watcher.where:
            nodes = cluster_nodes()
            fit = sum(node.slots(surveyed.trial) for node in nodes)
            num_parallel = min(fit, prepared.options.max_concurrent or fit)
            count = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
            prepared.watcher.where = f"{num_parallel} at a time on {count} of the cluster"
        yield lambda session: _run(session, prepared.options, study, surveyed)


def _run(session: Session, options: SearchOptions, study: str, surveyed: Survey) -> None:
    """Run a session to its end.

    Raises:
        TuneSentclError: The study could not be written; what had ended is kept.
        KeyboardInterrupt: Passed on; trials at hand are left without a row.
    """
    if len(cluster_nodes()) > 1:
        session.share()

    gpus = surveyed.trial.gpus

    def trial_limits() -> tuple[int, int]:
        nodes, most = cluster_nodes(), options.max_concurrent or math.inf
        max_parallel = int(min(surveyed.max_parallel(nodes), most))
        wanted = surveyed.num_to_request(nodes, session.num_running, session.num_queued)
        return int(min(wanted, most)), max_parallel

    with _tune_environment(options.ray_address), _scratch() as scratch:
        trainable = tune.with_parameters(
            train,
            loader=[ray.put(session.loader)],
            settings=worker_settings(
                study, options, gpus, session.loader.early_stopping_objective
            ),
            folder=str(Path.cwd()),
        )
        tuner = tune.Tuner(
            tune.with_resources(trainable, _bundle(surveyed.trial)),
            tune_config=tune.TuneConfig(
                search_alg=_SessionSearcher(session, trial_limits),
                scheduler=_SessionScheduler(session),
                num_samples=-1,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: str(trial.trial_id),  # not by its config
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
            if session.fatal is None and not session.stop_reason:
                raise TuneSentclError(f"Ray gave up the search: {error}") from error
    if session.fatal is not None:
        raise session.fatal


def _bundle(trial: Bundle) -> tune.PlacementGroupFactory:
    """What a trial takes, as Tune asks Ray for it."""
    resources = {"CPU": trial.cpus, "GPU": trial.gpus, "memory": trial.memory}
    if trial.accelerator is None:
        return tune.PlacementGroupFactory([resources])
    labels = [{ACCELERATOR: trial.accelerator}]
    return tune.PlacementGroupFactory([resources], bundle_label_selector=labels)


@contextmanager
def _tune_environment(address: str) -> Iterator[None]:
    """Have Tune send no keys of the driver to its actors.

    It would, in their runtime environment, which Ray logs, lists and hands to workers on a command
    line. Each node has keys of its own: that is looked at before a search begins.

    Workers on this machine have the driver's environment anyway. With none of their own, Ray gives
    trials the workers that are up already; else it starts others.
    """
    names, defaults = class_cache.ENV_VARS_TO_PROPAGATE, class_cache.DEFAULT_ENV_VARS
    before = set(names), dict(defaults)
    names.difference_update([name for name in names if name.startswith("AWS_")])
    if address == "local":
        names.clear()
        defaults.clear()
    try:
        yield
    finally:
        names.update(before[0])
        defaults.update(before[1])


class _SessionSearcher(Searcher):
    """Lets Tune draw its trials from a session.

    `trial_limits()` says how many may be under way, and how many run side by side.

    Those beyond what fits wait for the next free worker, and tell a cluster that can grow to.
    """

    def __init__(self, session: Session, trial_limits: Callable[[], tuple[int, int]]) -> None:
        super().__init__()
        self._session, self._ask = session, trial_limits
        self._limits, self._counted = (0, 0), -math.inf

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its searcher to be able to restore it. We never restore one: a repeated
        # command reads the study. So nothing of the session, with its locks and files, is pickled.
        return {}

    def suggest(self, trial_id: str) -> Any:
        """The config of the next trial; None: later; FINISHED: never."""
        session = self._session
        if session.finished:
            return Searcher.FINISHED
        most, max_parallel = self._current_limits()
        if session.num_running >= most:
            return None
        assignment = session.next(idle=session.num_running < max_parallel)
        if assignment is None:
            return Searcher.FINISHED if session.finished else None
        return params_of(assignment)

    def _current_limits(self) -> tuple[int, int]:
        """`trial_limits()`, asked every few seconds: Tune comes here at each of its turns."""
        now = time.monotonic()
        if now > self._counted + _RECOUNT_S:
            self._limits, self._counted = self._ask(), now
        return self._limits

    def on_trial_complete(self, *args: Any, **kwargs: Any) -> None:
        """Ends are taken by the callback, which hears of errors with their text."""

    def save(self, checkpoint_path: str) -> None:
        """Keep nothing; see `__getstate__`."""

    def restore(self, checkpoint_path: str) -> None:
        """Keep nothing; see `__getstate__`."""


class _SessionScheduler(FIFOScheduler):
    """Passes results on to the session, and lets Tune stop what the session stops.

    It also says which trial a free worker takes. Tune would give it the one that has waited
    longest, and throw away the worker that is starting for that one: where trials are shorter than
    a start, one worker then runs them all, beside others that start for ever.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._session = session
        self._waiting: dict[Trial, float] = {}

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """A trial waits from now on."""
        self._waiting[trial] = time.monotonic()

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The last that came, for which no worker is starting, unless one has waited too long.

        Those that have failed before come behind all others.
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
        return {}  # as for the searcher

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Take a point, or an error that the worker caught; Tune comes here first."""
        name, continues = trial.config["trial"], True
        if "fatal" in result:
            self._session.abort(result["fatal"])
        elif "failure" in result:
            self._session.fail(name, result["failure"])
        elif "progress" in result:
            progress: Progress = result["progress"]
            # After the final one the worker ends by itself.
            continues = self._session.progress(name, progress) or progress.final
        return TrialScheduler.CONTINUE if continues else TrialScheduler.STOP


class _TrialEndCallback(tune.Callback):
    """Sees that every trial that Tune has given up has ended for the session too."""

    def __init__(self, session: Session, gpus: float) -> None:
        self._session, self._gpus = session, gpus
        self._not_ended: dict[str, Trial] = {}
        self._seen = 0
        self._draining_nodes, self._looked_at = DrainingNodes(), -math.inf

    def __getstate__(self) -> dict[str, Any]:
        return {}  # as for the searcher

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A worker has taken it up."""
        self._session.started(trial.config["trial"], self._gpus)

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Tune keeps every trial's last result to the end of the search: nothing large stays."""
        for key in ("fatal", "failure", "progress"):
            result.pop(key, None)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Look for ends: of some Tune tells nobody, such as of a worker that did not reset."""
        # Tune only ever appends; an end is looked for in those that are not known to have ended.
        self._not_ended.update((trial.trial_id, trial) for trial in trials[self._seen :])
        self._seen = len(trials)
        if time.monotonic() > self._looked_at + _RECOUNT_S:
            self._draining_nodes.look()
            self._looked_at = time.monotonic()
        for trial in [t for t in self._not_ended.values() if t.is_finished()]:
            del self._not_ended[trial.trial_id]
            self._ended(trial)
        if self._session.fatal is not None or self._session.stop_reason:
            raise tune.TuneError("the session has ended")

    def _ended(self, trial: Trial) -> None:
        """A worker has ended; the session knows of those that have come to an end of their own."""
        name, error = trial.config["trial"], _last_error(trial)
        is_moved = error.error_type == NodeDrainingError.__name__
        if is_moved or (trial.error_file and self._draining_nodes.caused(error.error_text)):
            self._session.node_draining(name)
        else:
            self._session.worker_lost(name, error)


@contextmanager
def _scratch() -> Iterator[str]:
    """A folder for Tune's own files, which hold configs; what killed drivers left goes first."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*_*"):
        pid = leftover.name.removeprefix(_SCRATCH).partition("_")[0]
        if pid.isdecimal() and not is_alive(int(pid)):
            shutil.rmtree(leftover, ignore_errors=True)
    prefix = f"{_SCRATCH}{os.getpid()}_"
    with (
        tempfile.TemporaryDirectory(prefix=prefix) as folder,
        shutdown_signals.deleted_on_exit(Path(folder)),
    ):
        yield folder


def _last_error(trial: Trial) -> Failure:
    """What ended a trial's worker, from the text that Tune wrote beside the driver's files.

    Its pickle of the error stays unread, as every pickle does; `get_error` looks for the text in
    the storage folder, where it never comes.
    """
    if not trial.error_file or not Path(trial.error_file).is_file():
        return Failure(_WORKER_LOST, "Ray lost the worker and does not say why", {})
    text = _COLOR.sub("", Path(trial.error_file).read_text(encoding="utf-8")).strip()
    named = list(re.finditer(r"^(?:\w+\.)*(\w+): ", text, re.MULTILINE))
    if not named:
        return Failure(_WORKER_LOST, text[-4000:], {})
    last = named[-1]
    return Failure(last[1], with_frames(text[last.end() :], text[: last.start()]), {})
