"""The trackers of `search --track NAME`: their protocol, and checks whether they can be used."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.plugins import EXTENSIONS
from tune_sentcl.store.files import StudyFiles

Params = Mapping[str, str | int | float | bool]
Values = Mapping[str, float]


class Tracker(Protocol):
    """Receives the trials of a search in one thread; an exception ends only this tracking."""

    def __init__(self, space: str, study: str, folder: Path) -> None:
        """Open the client for a space's name, a study's path or URL, and a folder for files."""
        ...

    def begin(self, trial_id: str, configuration: str, params: Params) -> None:
        """Start a trial's run, and delete a run of the trial from an earlier search.

        Args:
            trial_id: The trial.
            configuration: The id of its configuration.
            params: The configuration's values by dotted key.
        """
        ...

    def point(self, trial_id: str, step: int, values: Values) -> None:
        """Log a trial's metrics at an optimizer step (scores times 100); each step comes once."""
        ...

    def end(self, trial_id: str, step: int, values: Values, texts: Mapping[str, str]) -> None:
        """End the run of a trial.

        Args:
            trial_id: The trial.
            step: Its last optimizer step.
            values: Objectives, scores (`score/...`, times 100) and costs (`cost/...`).
            texts: `status` (finished, pruned, failed or interrupted) and other texts.
        """
        ...


def run_name(trial_id: str, study: str) -> str:
    """The name of a run on a server, where several studies may have the same trial."""
    return f"{trial_id}-{hashlib.sha256(study.encode()).hexdigest()[:8]}"


TRACKERS = {"mlflow": "MLFLOW_TRACKING_URI", "wandb": "WANDB_MODE=online", "tensorboard": ""}
"""For each tracker, the variable (with a value) that makes it write to a server.

Otherwise it writes into the study. The names are those of the packages.
"""


def open_tracker(name: str, space: str, study: str, folder: Path) -> Tracker:
    """Open a tracker of this package or of a plugin; see `Tracker`."""
    if name in TRACKERS:
        kind = import_module(f"tune_sentcl.watch.{name}_tracker").Client
    else:
        kind = EXTENSIONS["watcher", name].value
    tracker: Tracker = kind(space, study, folder)
    return tracker


def check_tracking(names: Sequence[str], study: str, *, on_cluster: bool = False) -> None:
    """Raise ConfigError with a fault for each tracker that cannot be used.

    Args:
        names: The trackers.
        study: The path or URL of the study.
        on_cluster: Whether the search runs on a cluster, whose packages and variables are others.
    """
    if faults := [fault for name in names for fault in _faults(name, study, on_cluster)]:
        raise ConfigError(faults)


def _faults(name: str, study: str, on_cluster: bool) -> Iterator[Fault]:
    if name not in TRACKERS:
        own = [one for kind, one in EXTENSIONS if kind == "watcher"]
        rule = f"must be one of {', '.join((*TRACKERS, *own))}"
        if name not in own:
            yield Fault(
                "--track",
                value=name,
                rule=rule,
                move="Choose one of them, or load its plugin by --plugin.",
            )
        return
    package = find_spec(name)
    if not on_cluster and (package is None or package.origin is None):
        # A folder of this name in the working directory is found as a package without an origin.
        move = f'Run: pip install "tune-sentcl[{name}]".'
        yield Fault("--track", value=name, rule="the tracker's client is not installed", move=move)
    variable = TRACKERS[name]
    key, _, wanted = variable.partition("=")
    value = os.environ.get(key, "")
    if variable and (on_cluster or (value and value == (wanted or value))):
        return
    if "://" in study and not study.startswith("file:"):
        rule = f"needs a study in a folder, to which the tracker writes its files, not {study}"
        move = (
            (f"Set {variable}, or use a study in a folder.")
            if variable
            else "Use a study in a folder."
        )
        yield Fault("--track", value=name, rule=rule, move=move)
    elif name == "mlflow":
        # Readers of MLflow's SQLite URLs quote these characters differently.
        folder = StudyFiles.at(study).where
        if odd := " or ".join(character for character in "?#%" if character in folder):
            rule = f"the tracker cannot write below a folder with {odd} in its name ({folder})"
            yield Fault(
                "--track", value=name, rule=rule, move=f"Rename the folder, or set {variable}."
            )
