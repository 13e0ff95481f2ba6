"""One trial in a worker of Ray Tune."""

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
from tune_sentcl.errors import StudyError
from tune_sentcl.history import Assignment
from tune_sentcl.on_ray.draining import watch_draining
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.worker import Attempt, Failure, WorkerSettings

_THREAD_S = 60  # until the thread of a trial that was stopped must have ended


def train(
    params: dict[str, Any],
    *,
    loader: Sequence["ray.ObjectRef[InputLoader]"],
    settings: WorkerSettings,
    folder: str,
) -> None:
    """The trainable: each report is an evaluation point; nothing happens after the final one.

    A report without a number would be printed by Tune, hence the step.

    Args:
        params: From `params_of`.
        loader: Where Ray keeps what gives what the trial reads; alone in a list, so that Tune does
            not bring it anew for each trial.
        settings: What every trial of the search shares.
        folder: Where the driver was started.

    Raises:
        DeviceError: This process cannot compute any more; Tune throws it away for that.
        NodeDrainingError: This node is about to go; the trial's state is written.
    """
    with suppress(OSError):  # on another machine the driver's folder may not exist
        os.chdir(folder)  # so that relative paths mean what they mean to the driver
    # Tune asks for this when the next trial comes: to wait for the end of this one's thread.
    os.environ.setdefault("TUNE_FUNCTION_THREAD_TIMEOUT_S", str(_THREAD_S))
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
    """What Ray keeps there, brought here once for all trials of this process."""
    found: InputLoader = ray.get(loader)
    return found


def params_of(assignment: Assignment) -> dict[str, Any]:
    """An assignment as Tune keeps it for every trial: plain and small."""
    return {
        "trial": assignment.trial_id,
        "configuration": assignment.configuration,
        "config": assignment.config.model_dump_json(by_alias=True),
        "origin": assignment.origin,
        "fingerprints": asdict(assignment.fingerprints),
        "action": assignment.action,
        "files": [assignment.attempt_files, assignment.files_before],
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
