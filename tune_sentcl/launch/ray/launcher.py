"""The Ray launcher: Ray Tune runs the trials of a session; nothing else here knows Ray."""

import json
import math
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from tune_sentcl.config import Fingerprints, parse_config
from tune_sentcl.errors import StudyError, TuneSentclError
from tune_sentcl.launch.groups import Assignment
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.ray.cluster import cluster, quiet
from tune_sentcl.launch.ray.preflight import check_fit, check_reach, cluster_nodes
from tune_sentcl.launch.session import Session
from tune_sentcl.launch.slots import trials_at_a_time
from tune_sentcl.launch.worker import Attempt, Failure, WorkerSettings, worker_settings
from tune_sentcl.store.disk import alive
from tune_sentcl.trial import InputLoader, Progress

_RECOUNT_S = 5.0
_SCRATCH = "tune_sentcl_"
_LOST = "WorkerLostError"
_THREAD_S = 60  # until the thread of a trial that was stopped must have ended


def run_on_ray(session: Session, options: SearchOptions, study: str) -> None:
    """Run a session to its end on a Ray cluster.

    Raises:
        ResourceError: There is no such cluster, no node can ever run a trial, or nodes do not see
            the study's folder.
        TuneSentclError: The study could not be written; what had ended is kept.
        KeyboardInterrupt: Passed on; trials at hand are left without a row.
    """
    with (
        quiet(),
        cluster(options.ray_address),
        _scratch() as scratch,
    ):
        gpus = check_fit(options.cpus_per_trial, options.gpus_per_trial)
        check_reach(study)
        if len(cluster_nodes()) > 1:
            session.share()

        def most() -> int:
            return options.max_concurrent or trials_at_a_time(options, cluster_nodes()) + 1

        settings = worker_settings(study, options, gpus)
        trainable = tune.with_parameters(
            _train, loader=session.loader, settings=settings, folder=str(Path.cwd())
        )
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": options.cpus_per_trial, "gpu": gpus}),
            tune_config=tune.TuneConfig(
                search_alg=_SessionSearcher(session, most),
                scheduler=_Obeying(session),
                num_samples=-1,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: str(trial.trial_id),  # not by its config
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=scratch,
                verbose=0,
                callbacks=[_Ends(session, gpus)],
                failure_config=tune.FailureConfig(max_failures=0),
            ),
        )
        try:
            tuner.fit()
        except (tune.TuneError, ray.exceptions.RayError) as error:
            if session.fatal is None and not session.over:
                raise TuneSentclError(f"Ray gave up the search: {error}") from error
    if session.fatal is not None:
        raise session.fatal


def _train(
    params: dict[str, Any], *, loader: InputLoader, settings: WorkerSettings, folder: str
) -> None:
    """The trainable: each report is an evaluation point; nothing happens after the final one.

    A report without a number would be printed by Tune, hence the step.

    Raises:
        DeviceError: This process cannot compute any more; Tune throws it away for that.
    """
    with suppress(OSError):  # on another machine the driver's folder may not exist
        os.chdir(folder)  # so that relative paths mean what they mean to the driver
    # Tune asks for this when the next trial comes: to wait for the end of this one's thread.
    os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", str(_THREAD_S))
    attempt = Attempt(_assignment(params), loader, settings)
    try:
        with closing(attempt.points()) as points, _alarm(settings.seconds):
            for progress in points:
                tune.report({"step": progress.step, "progress": progress})
    except StudyError as error:
        tune.report({"step": -1, "fatal": error})
    except Exception as error:  # noqa: BLE001 - the border of a trial: its error becomes its row
        lost = attempt.lost_device(error)
        if lost is not None:
            raise lost from (None if lost is error else error)
        tune.report({"step": -1, "failure": attempt.failure(error)})


def _params(assignment: Assignment) -> dict[str, Any]:
    """An assignment as Tune keeps it for every trial: plain and small."""
    return {
        "trial": assignment.trial_id,
        "configuration": assignment.configuration,
        "config": assignment.config.model_dump_json(by_alias=True),
        "origin": assignment.origin,
        "fingerprints": asdict(assignment.fingerprints),
        "action": assignment.action,
    }


def _assignment(params: dict[str, Any]) -> Assignment:
    return Assignment(
        params["trial"],
        params["configuration"],
        parse_config(json.loads(params["config"]), "trial"),
        params["origin"],
        Fingerprints(**params["fingerprints"]),
        params["action"],
    )


@contextmanager
def _alarm(seconds: float | None) -> Iterator[None]:
    """Have the system end this process where a trial does not see by itself that its time is over.

    A call that hangs, in a library or on a network disk, never comes back to look at a clock.
    """
    if seconds is None:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, 1.1 * seconds + 5)  # first it may see it by itself
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _SessionSearcher(Searcher):
    """Lets Tune draw its trials from a session, never more than `most()` at a time.

    One beyond those that fit waits for the next free worker, and tells a cluster that can grow to
    do so. More would keep the sampler from learning of the running ones.
    """

    def __init__(self, session: Session, most: Callable[[], int]) -> None:
        super().__init__()
        self._session, self._most = session, most
        self._limit, self._counted = 0, -math.inf

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its searcher to be able to restore it. We never restore one: a repeated
        # command reads the study. So nothing of the session, with its locks and files, is pickled.
        return {}

    def suggest(self, trial_id: str) -> Any:
        """The config of the next trial; None: later; FINISHED: never."""
        session = self._session
        if session.finished:
            return Searcher.FINISHED
        if session.running >= self._room():
            return None
        assignment = session.next()
        if assignment is None:
            return Searcher.FINISHED if session.finished else None
        return _params(assignment)

    def _room(self) -> int:
        """`most()`, asked every few seconds: Tune comes here at each of its turns."""
        now = time.monotonic()
        if now > self._counted + _RECOUNT_S:
            self._limit, self._counted = self._most(), now
        return self._limit

    def on_trial_complete(self, *args: Any, **kwargs: Any) -> None:
        """Ends are taken by the callback, which hears of errors with their text."""

    def save(self, checkpoint_path: str) -> None:
        """Keep nothing; see `__getstate__`."""

    def restore(self, checkpoint_path: str) -> None:
        """Keep nothing; see `__getstate__`."""


class _Obeying(FIFOScheduler):
    """Passes results on to the session, and lets Tune stop what the session stops."""

    def __init__(self, session: Session) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._session = session

    def __getstate__(self) -> dict[str, Any]:
        return {}  # as for the searcher

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Take a point, or an error that the worker caught; Tune comes here first."""
        name, going = trial.config["trial"], True
        if "fatal" in result:
            self._session.stop(result["fatal"])
        elif "failure" in result:
            self._session.fail(name, result["failure"])
        elif "progress" in result:
            progress: Progress = result["progress"]
            # After the final one the worker ends by itself.
            going = self._session.progress(name, progress) or progress.final
        return TrialScheduler.CONTINUE if going else TrialScheduler.STOP


class _Ends(tune.Callback):
    """Sees that every trial that Tune has given up has ended for the session too."""

    def __init__(self, session: Session, gpus: float) -> None:
        self._session, self._gpus = session, gpus
        self._open: dict[str, Trial] = {}
        self._seen = 0

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
        self._open.update((trial.trial_id, trial) for trial in trials[self._seen :])
        self._seen = len(trials)
        for trial in [t for t in self._open.values() if t.is_finished()]:
            del self._open[trial.trial_id]
            self._session.lost(trial.config["trial"], _last_error(trial))
        if self._session.fatal is not None or self._session.over:
            raise tune.TuneError("the session has ended")


@contextmanager
def _scratch() -> Iterator[str]:
    """A folder for Tune's own files, which hold configs; what killed drivers left goes first."""
    for left in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*_*"):
        pid = left.name.removeprefix(_SCRATCH).partition("_")[0]
        if pid.isdecimal() and not alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_SCRATCH}{os.getpid()}_") as folder:
        yield folder


def _last_error(trial: Trial) -> Failure:
    """What ended a trial's worker, from the text that Tune wrote beside the driver's files.

    Its pickle of the error stays unread, as every pickle does; `get_error` looks for the text in
    the storage folder, where it never comes.
    """
    if not trial.error_file or not Path(trial.error_file).is_file():
        return Failure(_LOST, "Ray lost the worker and does not say why", {})
    text = Path(trial.error_file).read_text(encoding="utf-8").strip()
    names = re.findall(r"^(?:\w+\.)*(\w+): ", text, re.MULTILINE)
    return Failure(names[-1] if names else _LOST, text[-4000:], {})
