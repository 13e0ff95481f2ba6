"""The protocol of a tracker, and the check that a tracker can be used."""

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.store.files import StudyFiles

REMOTE = {
    "mlflow": "MLFLOW_TRACKING_URI",
    "wandb": "WANDB_MODE=online",
    "tensorboard": None,
    "trackio": None,
}
"""The trackers, each with the variable (or variable and value), if any, that makes it write to a
server instead of the study's folder."""
Value = str | int | float | bool


class Tracker(Protocol):
    """One project's client.

    Each trial has one run, with the result of its last attempt. An exception ends the tracking,
    and not the search.
    """

    def __init__(self, space: str, study: str, folder: Path) -> None:
        """Import the client and open its store.

        Args:
            space: The name of the space and the experiment.
            study: The study's path or URL.
            folder: The folder for the tracker's files.
        """
        ...

    def begin(self, trial_id: str, configuration: str, params: Mapping[str, Value]) -> None:
        """Start the run of a trial; delete its runs of earlier searches."""
        ...

    def log(self, trial_id: str, step: int, values: Mapping[str, float]) -> None:
        """Log a point of the curves of a started trial, once per step."""
        ...

    def end(
        self, trial_id: str, step: int, values: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        """End the run of a trial.

        Args:
            trial_id: The trial.
            step: Its last optimizer step.
            values: Objectives, scores (`score/...`, times 100) and costs (`cost/...`).
            texts: `status` (finished, pruned or failed) and other texts.
        """
        ...

    def close(self) -> None:
        """End the tracking, and mark runs that have not ended as interrupted."""
        ...


def check_tracking(names: Sequence[str], study: str, *, on_cluster: bool = False) -> None:
    """Raise ConfigError with a fault for each tracker that cannot be used.

    Args:
        names: The trackers.
        study: The path or URL of the study.
        on_cluster: Whether the search runs on a cluster, with other packages and variables.
    """
    faults = [fault for name in names for fault in _faults(name, study, on_cluster)]
    if faults:
        raise ConfigError(faults)


def _faults(name: str, study: str, on_cluster: bool) -> Iterator[Fault]:
    if name not in REMOTE:
        yield Fault("--track", "", name, f"must be one of {', '.join(REMOTE)}", "Choose one.")
        return
    found = find_spec(name)
    if not on_cluster and (found is None or found.origin is None):  # a folder without a package
        move = f'Run: pip install "tune-sentcl[{name}]".'
        yield Fault("--track", "", name, "its client is not installed", move)
    variable = REMOTE[name]
    if variable and (on_cluster or _is_set(variable)):
        return
    if "://" in study and not study.startswith("file:"):
        rule = f"needs a study in a folder, because it writes its files there: {study}"
        move = f"Set {variable}, or name a folder." if variable else "Name a folder."
        yield Fault("--track", "", name, rule, move)
    elif name == "mlflow":  # its SQLite URLs are quoted differently by different readers
        folder = StudyFiles.at(study).where
        if odd := " or ".join(character for character in "?#%" if character in folder):
            rule = f"cannot write below a folder with {odd} in its name ({folder})"
            yield Fault("--track", "", name, rule, f"Rename it, or set {variable}.")


def _is_set(variable: str) -> bool:
    name, _, wanted = variable.partition("=")
    value = os.environ.get(name, "")
    return bool(value) and value == (wanted or value)
