"""MLflow's runs: in `STUDY/mlflow.db`, or where MLFLOW_TRACKING_URI says."""

import os
import time
from collections.abc import Mapping
from typing import Any

from tune_sentcl.launch.tracking.tracker import Begun, End, Project

REMOTE = "MLFLOW_TRACKING_URI"
_STATUSES = {"finished": "FINISHED", "pruned": "KILLED", "failed": "FAILED"}
_PARAMS, _METRICS = 100, 1000  # that MLflow takes at once
_LONGEST = 500  # of what it keeps as text, on every one of its stores


class Mlflow:
    """See `Tracker`; the whole package is not needed, `mlflow-skinny` has the client."""

    def __init__(self, project: Project) -> None:
        """Open the experiment that is named after the space."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param, RunTag

        self._metric, self._param, self._tag = Metric, Param, RunTag
        self._study = project.study
        uri, artifacts = os.environ.get(REMOTE), None
        if not uri:
            if project.folder is None:
                raise ValueError(f"MLflow's database needs a folder, or {REMOTE}")
            uri = f"sqlite:///{project.folder / 'mlflow.db'}"
            artifacts = (project.folder / "mlflow").as_uri()
        self._client = MlflowClient(tracking_uri=uri)
        known = self._client.get_experiment_by_name(project.space)
        self._experiment = (
            known.experiment_id
            if known
            else self._client.create_experiment(project.space, artifact_location=artifacts)
        )
        self._runs: dict[str, str] = {}

    def begin(self, trial: Begun) -> None:
        """See `Tracker`."""
        tags = {"trial": trial.trial_id, "study": self._study}
        wanted = " and ".join(f"tags.{name} = '{_quoted(text)}'" for name, text in tags.items())
        for left in self._client.search_runs([self._experiment], wanted):
            self._client.delete_run(left.info.run_id)
        tags["configuration"] = trial.configuration
        run = self._client.create_run(self._experiment, run_name=trial.trial_id, tags=tags)
        self._runs[trial.trial_id] = run.info.run_id
        params = [self._param(key, str(value)[:_LONGEST]) for key, value in trial.params.items()]
        for start in range(0, len(params), _PARAMS):
            self._log(trial.trial_id, params=params[start : start + _PARAMS])

    def point(self, trial_id: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        now = round(1000 * time.time())
        metrics = [self._metric(name, value, now, step) for name, value in values.items()]
        for start in range(0, len(metrics), _METRICS):
            self._log(trial_id, metrics=metrics[start : start + _METRICS])

    def end(self, trial_id: str, end: End) -> None:
        """See `Tracker`."""
        self.point(trial_id, end.step, end.numbers)
        self._log(trial_id, tags=[self._tag(k, v[:_LONGEST]) for k, v in end.facts.items()])
        self._client.set_terminated(self._runs.pop(trial_id), _STATUSES[end.status])

    def close(self) -> None:
        """See `Tracker`."""
        for run in self._runs.values():
            self._client.set_tag(run, "status", "interrupted")
            self._client.set_terminated(run, "KILLED")

    def _log(self, trial_id: str, **what: Any) -> None:
        self._client.log_batch(self._runs[trial_id], **what)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


TRACKER = Mlflow
