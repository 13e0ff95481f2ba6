"""MLflow runs in `STUDY/mlflow.db`, or at MLFLOW_TRACKING_URI."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tune_sentcl.watch.tracking.tracker import Value

_STATUSES = {"finished": "FINISHED", "pruned": "KILLED", "failed": "FAILED"}
_AT_ONCE = {"params": 100, "metrics": 1000, "tags": 100}  # MLflow's limits per request
_LONGEST = 500  # characters of a text, a limit that holds in all of MLflow's stores


class Client:
    """See `Tracker`; the package `mlflow-skinny` is enough."""

    def __init__(self, space: str, study: str, folder: Path) -> None:
        """See `Tracker`; the experiment has the space's name."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        from mlflow import MlflowClient, entities

        self._entities, self._study = entities, study
        remote = os.environ.get("MLFLOW_TRACKING_URI")
        artifacts = None if remote else (folder / "mlflow").as_uri()
        self._client = MlflowClient(tracking_uri=remote or f"sqlite:///{folder / 'mlflow.db'}")
        experiment = self._client.get_experiment_by_name(space)
        self._experiment = (
            experiment.experiment_id
            if experiment
            else self._client.create_experiment(space, artifact_location=artifacts)
        )
        self._runs: dict[str, str] = {}

    def begin(self, trial_id: str, configuration: str, params: Mapping[str, Value]) -> None:
        """See `Tracker`."""
        tags = {"trial": trial_id, "study": self._study}
        wanted = " and ".join(f"tags.{name} = '{_quoted(text)}'" for name, text in tags.items())
        for left in self._client.search_runs([self._experiment], wanted):
            self._client.delete_run(left.info.run_id)
        tags["configuration"] = configuration
        run = self._client.create_run(self._experiment, run_name=trial_id, tags=tags)
        self._runs[trial_id] = run.info.run_id
        param = self._entities.Param
        self._log(trial_id, "params", [param(k, str(v)[:_LONGEST]) for k, v in params.items()])

    def log(self, trial_id: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        now, metric = round(1000 * time.time()), self._entities.Metric
        self._log(trial_id, "metrics", [metric(k, v, now, step) for k, v in values.items()])

    def end(
        self, trial_id: str, step: int, values: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        """See `Tracker`."""
        self.log(trial_id, step, values)
        tag = self._entities.RunTag
        self._log(trial_id, "tags", [tag(k, v[:_LONGEST]) for k, v in texts.items()])
        self._client.set_terminated(self._runs.pop(trial_id), _STATUSES[texts["status"]])

    def close(self) -> None:
        """See `Tracker`."""
        for run in self._runs.values():
            self._client.set_tag(run, "status", "interrupted")
            self._client.set_terminated(run, "KILLED")

    def _log(self, trial_id: str, kind: str, items: Sequence[Any]) -> None:
        for start in range(0, len(items), _AT_ONCE[kind]):
            some = items[start : start + _AT_ONCE[kind]]
            self._client.log_batch(self._runs[trial_id], **{kind: some})


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
