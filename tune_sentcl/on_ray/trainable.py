"""The trainable: one trial in a Ray Tune worker."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import ray
from ray import tune

from tune_sentcl.config import Fingerprints, parse_config
from tune_sentcl.errors import PluginError, StudyError
from tune_sentcl.history import Assignment
from tune_sentcl.on_ray.cluster import watch_draining
from tune_sentcl.plugins import activate
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.worker import Attempt, Failure, WorkerSettings

_THREAD_S = 60  # the thread of a stopped trial must end within this many seconds


def train(
    params: dict[str, Any],
    *,
    loader: Sequence["ray.ObjectRef[InputLoader]"],
    settings: WorkerSettings,
    folder: str,
) -> None:
    """The trainable: each report is an evaluation point; the final report ends the trial.

    `params` comes from `params_of`. `loader` is a reference inside a list, so Tune does not fetch
    it again for each trial. `folder` is the driver's working directory. Each report has a step,
    because Tune prints a report that has no number.

    Raises:
        DeviceError: This process cannot use its GPU any more; Tune then ends the process.
        NodeDrainingError: This node is about to be removed; the trial's state was written.
    """
    with suppress(OSError):
        # The driver's folder may not exist on this node.
        os.chdir(folder)  # relative paths start in the driver's folder
    # Before the next trial, Tune waits this many seconds until the thread of the last trial has
    # ended.
    os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", str(_THREAD_S))
    try:
        # This comes first, because a plugin may define the config's method.
        activate(settings.plugins)
    except PluginError as error:
        tune.report({"step": -1, "failure": Failure(type(error).__name__, str(error), {})})
        return
    with watch_draining() as is_draining:
        attempt = Attempt(_assignment(params), _get_loader(*loader), settings, is_draining)
        try:
            with closing(attempt.reports()) as reports, _alarm(settings.seconds):
                for report in reports:
                    if isinstance(report, Failure):
                        tune.report({"step": -1, "failure": report})
                    else:
                        tune.report({"step": report.step, "progress": report})
        except StudyError as error:
            tune.report({"step": -1, "fatal": error})


@lru_cache(maxsize=1)
def _get_loader(loader: "ray.ObjectRef[InputLoader]") -> InputLoader:
    """Fetch the loader once for all trials of this process."""
    inputs: InputLoader = ray.get(loader)
    return inputs


def params_of(assignment: Assignment) -> dict[str, Any]:
    """Turn an assignment into Tune's config of a trial, with small, plain values."""
    return {
        "trial": assignment.trial_id,
        "configuration": assignment.configuration,
        "config": assignment.config.model_dump_json(by_alias=True),
        "origin": assignment.origin,
        "fingerprints": asdict(assignment.fingerprints),
        "action": assignment.action,
        "files": [assignment.attempt_files, assignment.files_before],
        "stage": [assignment.until, assignment.pause_above, assignment.graphs],
    }


def _assignment(params: dict[str, Any]) -> Assignment:
    return Assignment(
        params["trial"],
        params["configuration"],
        parse_config(json.loads(params["config"]), "trial"),
        params["origin"],
        Fingerprints(**params["fingerprints"]),
        params["action"],
        *params["files"],
        *params["stage"],
    )


@contextmanager
def _alarm(seconds: float | None) -> Iterator[None]:
    """Let the system kill this process if a trial does not notice its own timeout.

    A call that hangs in a library or on a network disk does not check the clock.
    """
    if seconds is None:
        yield
        return
    # The alarm rings later than the trial's own check of its time, which should end the trial.
    signal.setitimer(signal.ITIMER_REAL, 1.1 * seconds + 5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
