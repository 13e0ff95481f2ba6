"""The trackers of `search --track NAME`: a class per client, which has one run per trial."""

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.plugins import EXTENSIONS
from tune_sentcl.store.files import StudyFiles

Params = Mapping[str, str | int | float | bool]
Values = Mapping[str, float]


class Tracker(Protocol):
    """Receives the trials of a search in one thread; an exception ends its tracking alone.

    Attributes:
        remote: The variable, or variable and value, that makes the client write to a server
            instead of the study's folder; empty without one.
    """

    remote: ClassVar[str]

    def __init__(self, space: str, study: str, folder: Path) -> None:
        """Open the client for a space's name, a study's path or URL, and a folder for files."""
        ...

    def begin(self, trial_id: str, configuration: str, params: Params) -> None:
        """Start the run of a trial, and delete the run that an earlier search has left of it.

        Args:
            trial_id: The trial.
            configuration: The id that its seeds share.
            params: Its knobs, by dotted key.
        """
        ...

    def point(self, trial_id: str, step: int, values: Values) -> None:
        """Log metrics of a trial at an optimizer step, scores times 100; each step comes once."""
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


def _run_id(trial_id: str, study: str) -> str:
    """A name of a run on a server, where the same trial may be in several studies."""
    return f"{trial_id}-{hashlib.sha256(study.encode()).hexdigest()[:8]}"


class _MLflow(Tracker):
    """Runs in `STUDY/mlflow.db`; the package `mlflow-skinny` is enough."""

    remote = "MLFLOW_TRACKING_URI"
    _STATUSES: ClassVar = {"finished": "FINISHED", "failed": "FAILED"}
    _LONGEST = 500  # characters of a text, a limit that holds in all of MLflow's stores

    def __init__(self, space: str, study: str, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        from mlflow import MlflowClient, entities

        for name in ("mlflow", "alembic"):  # they report the new database's tables
            logging.getLogger(name).setLevel(logging.ERROR)
        self._entities, self._study = entities, study
        server = os.environ.get(self.remote)
        self._client = MlflowClient(tracking_uri=server or f"sqlite:///{folder / 'mlflow.db'}")
        if known := self._client.get_experiment_by_name(space):
            self._experiment = known.experiment_id
        else:
            files = None if server else (folder / "mlflow").as_uri()
            self._experiment = self._client.create_experiment(space, artifact_location=files)
        self._runs: dict[str, str] = {}

    def begin(self, trial_id: str, configuration: str, params: Params) -> None:
        name = _run_id(trial_id, self._study)
        for left in self._client.search_runs([self._experiment], f"tags.trial = '{name}'"):
            self._client.delete_run(left.info.run_id)
        tags = {"trial": name, "study": self._study, "configuration": configuration}
        run = self._client.create_run(self._experiment, run_name=trial_id, tags=tags)
        self._runs[trial_id] = run.info.run_id
        texts = {key: str(value)[: self._LONGEST] for key, value in params.items()}
        known = [self._entities.Param(key, text) for key, text in texts.items()]
        self._client.log_batch(run.info.run_id, params=known)

    def point(self, trial_id: str, step: int, values: Values) -> None:
        now, metric = round(1000 * time.time()), self._entities.Metric
        metrics = [metric(key, value, now, step) for key, value in values.items()]
        self._client.log_batch(self._runs[trial_id], metrics=metrics)

    def end(self, trial_id: str, step: int, values: Values, texts: Mapping[str, str]) -> None:
        self.point(trial_id, step, values)
        run = self._runs.pop(trial_id)
        tags = [self._entities.RunTag(k, v[: self._LONGEST]) for k, v in texts.items()]
        self._client.log_batch(run, tags=tags)
        self._client.set_terminated(run, self._STATUSES.get(texts["status"], "KILLED"))


class _TensorBoard(Tracker):
    """Event files in `STUDY/tensorboard`, a folder per trial, with HParams."""

    remote = ""

    def __init__(self, space: str, study: str, folder: Path) -> None:
        del space, study
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        self._writer: Any = SummaryWriter
        self._hparams: Any = hparams
        self._folder = folder / "tensorboard"
        self._runs: dict[str, tuple[Params, Any]] = {}

    def begin(self, trial_id: str, configuration: str, params: Params) -> None:
        folder = self._folder / trial_id
        shutil.rmtree(folder, ignore_errors=True)
        writer = self._writer(str(folder), flush_secs=5)
        self._runs[trial_id] = {**params, "configuration": configuration}, writer

    def point(self, trial_id: str, step: int, values: Values) -> None:
        for name, value in values.items():
            self._runs[trial_id][1].add_scalar(name, value, step)

    def end(self, trial_id: str, step: int, values: Values, texts: Mapping[str, str]) -> None:
        self.point(trial_id, step, values)
        params, writer = self._runs.pop(trial_id)
        for name, text in texts.items():
            writer.add_text(name, text, step)
        for summary in self._hparams(params, dict(values)):
            writer.file_writer.add_summary(summary)
        writer.close()


class _WandB(Tracker):
    """Runs in `STUDY/wandb`, for `wandb sync`, or online; no git state, command or source."""

    remote = "WANDB_MODE=online"
    _OFF = (
        "disable_code",
        "disable_git",
        "disable_job_creation",
        "silent",
        "x_disable_meta",
        "x_disable_stats",
    )

    def __init__(self, space: str, study: str, folder: Path) -> None:
        self._offline = os.environ.setdefault("WANDB_MODE", "offline") != "online"
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._wandb, self._project = wandb, space.replace("/", "-")
        self._folder, self._study = folder, study
        self._runs: dict[str, Any] = {}

    def begin(self, trial_id: str, configuration: str, params: Params) -> None:
        name = _run_id(trial_id, self._study)
        if self._offline:
            for left in (self._folder / "wandb").glob(f"offline-run-*-{name}"):
                shutil.rmtree(left, ignore_errors=True)
        self._runs[trial_id] = self._wandb.init(
            project=self._project,
            id=name,
            name=trial_id,
            group=configuration,
            config=dict(params),
            dir=str(self._folder),
            resume=None if self._offline else "allow",
            reinit="create_new",
            settings=self._wandb.Settings(
                **dict.fromkeys(self._OFF, True), console="off", save_code=False
            ),
        )

    def point(self, trial_id: str, step: int, values: Values) -> None:
        self._runs[trial_id].log(dict(values), step=step)

    def end(self, trial_id: str, step: int, values: Values, texts: Mapping[str, str]) -> None:
        del step
        run = self._runs.pop(trial_id)
        run.summary.update({**values, **texts})
        run.finish(exit_code=int(texts["status"] in ("failed", "interrupted")))


TRACKERS: dict[str, type[Tracker]] = {
    "mlflow": _MLflow,
    "wandb": _WandB,
    "tensorboard": _TensorBoard,
}
"""The classes by the names of `--track`, which are those of the packages."""


def check_tracking(names: Sequence[str], study: str, *, on_cluster: bool = False) -> None:
    """Raise ConfigError with a fault for each tracker that cannot be used.

    Args:
        names: The trackers.
        study: The path or URL of the study.
        on_cluster: Whether the search runs on a cluster, with other packages and variables.
    """
    if faults := [fault for name in names for fault in _faults(name, study, on_cluster)]:
        raise ConfigError(faults)


def _faults(name: str, study: str, on_cluster: bool) -> Iterator[Fault]:
    if name not in TRACKERS:
        own = [one for kind, one in EXTENSIONS if kind == "watcher"]
        rule = f"must be one of {', '.join((*TRACKERS, *own))}"
        if name not in own:
            yield Fault("--track", "", name, rule, "Choose one, or give its --plugin.")
        return
    package = find_spec(name)
    if not on_cluster and (package is None or package.origin is None):  # an empty folder
        move = f'Run: pip install "tune-sentcl[{name}]".'
        yield Fault("--track", "", name, "its client is not installed", move)
    variable = TRACKERS[name].remote
    key, _, wanted = variable.partition("=")
    value = os.environ.get(key, "")
    if variable and (on_cluster or (value and value == (wanted or value))):
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
