"""The trackers by their names, and whether one can be had."""

import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.provenance import mask_text

TrackerName = Literal["mlflow", "wandb", "tensorboard", "trackio"]
NAMES: tuple[TrackerName, ...] = get_args(TrackerName)


def tracker_module(name: str) -> Any:
    """The module of a tracker, which does not import its client.

    It holds its class as `TRACKER`, and as `REMOTE` the variable, with the value if it takes only
    one, by which the client writes elsewhere than into the study's folder; None: it never does.
    """
    return import_module(f"tune_sentcl.launch.tracking.{name}")


def check_tracking(names: Sequence[str], study: str) -> None:
    """See that every tracker that is asked for can be had here.

    Args:
        names: The trackers.
        study: The path or URL of the study.

    Raises:
        ConfigError: Every one that cannot.
    """
    faults = [*_homeless(names, study), *_unquotable(names, study)]
    _raise([*_unknown(names), *_missing(names), *faults])


def check_tracking_there(names: Sequence[str], study: str) -> None:
    """See that every tracker that is asked for can be had on a cluster, as far as is known here.

    Args:
        names: The trackers.
        study: The path or URL of the study on the cluster.

    Raises:
        ConfigError: Every one that cannot.
    """
    never_remote = [name for name in names if name in NAMES and not tracker_module(name).REMOTE]
    _raise([*_unknown(names), *_homeless(never_remote, study)])


def is_remote(name: str) -> bool:
    """Whether the environment has a tracker write elsewhere than into the study's folder."""
    variable, _, wanted = (tracker_module(name).REMOTE or "").partition("=")
    value = os.environ.get(variable, "")
    return bool(value) and (not wanted or value == wanted)


def _raise(faults: Sequence[Fault]) -> None:
    if faults:
        raise ConfigError(faults)


def _unknown(names: Sequence[str]) -> Iterator[Fault]:
    for name in names:
        if name not in NAMES:
            rule = f"must be one of {', '.join(NAMES)}"
            yield Fault("--track", "", name, rule, "Choose one.")


def _missing(names: Sequence[str]) -> Iterator[Fault]:
    for name in names:
        found = find_spec(name) if name in NAMES else None
        if name in NAMES and (found is None or found.origin is None):  # a mere folder of its name
            move = f'Run: pip install "tune-sentcl[{name}]".'
            yield Fault("--track", "", name, "its client is not installed", move)


def _homeless(names: Sequence[str], study: str) -> Iterator[Fault]:
    if _is_folder(study):
        return
    for name in names:
        if name in NAMES and not is_remote(name):
            rule = f"keeps its files in the study's folder, and {mask_text(study)} is none"
            variable = tracker_module(name).REMOTE
            move = f"Set {variable}, or name a folder." if variable else "Name a folder."
            yield Fault("--track", "", name, rule, move)


def _unquotable(names: Sequence[str], study: str) -> Iterator[Fault]:
    """MLflow's database is named by a URL, and what reads it does not agree on quotes."""
    if "mlflow" not in names or is_remote("mlflow") or not _is_folder(study):
        return
    folder = StudyFiles.at(study).where
    odd = [character for character in "?#%" if character in folder]
    if odd:
        rule = (
            f"cannot write below a folder whose name has {' or '.join(odd)} ({mask_text(folder)})"
        )
        variable = tracker_module("mlflow").REMOTE
        yield Fault("--track", "", "mlflow", rule, f"Rename it, or set {variable}.")


def _is_folder(study: str) -> bool:
    return "://" not in study or study.startswith("file:")
