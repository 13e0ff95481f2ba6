"""The Ray launcher: Ray Tune runs the trials of a session; nothing else here knows Ray."""

import json
import math
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from tune_sentcl.config import parse_config
from tune_sentcl.errors import StudyError, TuneSentclError
from tune_sentcl.launch.options import SchedulerName, SearchOptions
from tune_sentcl.launch.ray.cluster import cluster, quiet
from tune_sentcl.launch.ray.preflight import check_fit, check_reach, cluster_nodes
from tune_sentcl.launch.session import Session
from tune_sentcl.launch.slots import trials_at_a_time
from tune_sentcl.launch.worker import Attempt, Failure, WorkerSettings
from tune_sentcl.store.disk import alive
from tune_sentcl.trial import InputLoader

_RECOUNT_S = 5.0
_SCRATCH = "tune_sentcl_"
_NEVER = 10**9  # ASHA stops everything at max_t, so it must lie above every trial's last point


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
        cluster(options.address),
        _scratch() as scratch,
    ):
        gpus = check_fit(options.cpus_per_trial, options.gpus_per_trial)
        check_reach(study)

        def most() -> int:
            return options.max_concurrent or trials_at_a_time(options, cluster_nodes()) + 1

        settings = WorkerSettings(study, options.keep > 0, options.cpus_per_trial, gpus)
        trainable = tune.with_parameters(
            _train, loader=session.loader, settings=settings, folder=str(Path.cwd())
        )
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": options.cpus_per_trial, "gpu": gpus}),
            tune_config=tune.TuneConfig(
                search_alg=_SessionSearcher(session, most),
                scheduler=_scheduler(options.scheduler),
                num_samples=-1,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: str(trial.trial_id),  # not by its config
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=scratch,
                verbose=0,
                callbacks=[_Ends(session)],
                failure_config=tune.FailureConfig(max_failures=0),
            ),
        )
        try:
            tuner.fit()
        except (tune.TuneError, ray.exceptions.RayError) as error:
            if session.fatal is None:
                raise TuneSentclError(f"Ray gave up the search: {error}") from error
    if session.fatal is not None:
        raise session.fatal


def _train(
    params: dict[str, Any], *, loader: InputLoader, settings: WorkerSettings, folder: str
) -> None:
    """The trainable: each report is an evaluation point; nothing happens after the final one."""
    with suppress(OSError):  # on another machine the driver's folder may not exist
        os.chdir(folder)  # so that relative paths mean what they mean to the driver
    config = parse_config(json.loads(params["config"]), "trial")
    attempt = Attempt(config, loader, settings, params["action"])
    try:
        with closing(attempt.points()) as points:
            for progress in points:
                tune.report({"dev": progress.dev, "final": progress.final, "progress": progress})
    except StudyError as error:
        tune.report({"final": True, "fatal": error})
    except Exception as error:  # noqa: BLE001 - the border of a trial: its error becomes its row
        # No "dev": a number here would count among those that the scheduler compares others with.
        tune.report({"final": True, "failure": attempt.failure(error)})


class _SessionSearcher(Searcher):
    """Lets Tune draw its trials from a session, never more than `most()` at a time.

    One beyond those that fit waits for the next free worker, and tells a cluster that can grow to
    do so. More would keep the sampler from learning of the running ones.
    """

    def __init__(self, session: Session, most: Callable[[], int]) -> None:
        super().__init__(metric="dev", mode="max")
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
        return {
            "trial": assignment.trial_id,
            "config": assignment.config.model_dump_json(by_alias=True),  # text: Tune keeps it
            "action": assignment.action,
        }

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


class _Ends(tune.Callback):
    """Passes points and ends of trials on to the session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __getstate__(self) -> dict[str, Any]:
        return {}  # as for the searcher

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """A point; the final one, or an error that the worker caught, ends the trial."""
        name = trial.config["trial"]
        # Taken out, for Tune keeps every trial's last result to the end of the search.
        found = {key: result.pop(key) for key in ("fatal", "failure", "progress") if key in result}
        if "fatal" in found:
            self._session.stop(found["fatal"])
        elif "failure" in found:
            self._session.fail(name, found["failure"])
        elif "progress" in found:
            self._session.progress(name, found["progress"])
        self._stop_if_fatal()

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Without a final point before it, the scheduler has stopped the trial."""
        self._session.prune(trial.config["trial"])
        self._stop_if_fatal()

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """The worker died, or Ray lost it."""
        self._session.fail(trial.config["trial"], _last_error(trial))
        self._stop_if_fatal()

    def _stop_if_fatal(self) -> None:
        if self._session.fatal is not None:
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
        return Failure("TuneError", "Ray lost the worker and does not say why", {})
    text = Path(trial.error_file).read_text(encoding="utf-8").strip()
    names = re.findall(r"^(?:\w+\.)*(\w+): ", text, re.MULTILINE)
    return Failure(names[-1] if names else "TuneError", text[-4000:], {})


def _scheduler(name: SchedulerName) -> TrialScheduler:
    if name == "none":
        return FIFOScheduler()
    return ASHAScheduler(
        time_attr="training_iteration",
        metric="dev",
        mode="max",
        grace_period=1,
        reduction_factor=3,
        max_t=_NEVER,
    )
