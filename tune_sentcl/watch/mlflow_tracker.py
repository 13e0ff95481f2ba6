"""`--track mlflow`: runs in `STUDY/mlflow.db`, or on the server of MLFLOW_TRACKING_URI."""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tune_sentcl.watch.trackers import Params, Tracker, Values, run_name

_STATUSES = {"finished": "FINISHED", "failed": "FAILED"}
_LONGEST = 500  # all of MLflow's stores accept a text of this many characters


class Client(Tracker):
    """Logs to MLflow; the package `mlflow-skinny` is enough."""

    def __init__(self, space: str, study: str, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        from mlflow import MlflowClient, entities

        # At INFO, both log that they create the database's tables.
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self._entities, self._study = entities, study
        server = os.environ.get("MLFLOW_TRACKING_URI")
        self._client = MlflowClient(tracking_uri=server or f"sqlite:///{folder / 'mlflow.db'}")
        if known := self._client.get_experiment_by_name(space):
            self._experiment = known.experiment_id
        else:
            files = None if server else (folder / "mlflow").as_uri()
            self._experiment = self._client.create_experiment(space, artifact_location=files)
        self._runs: dict[str, str] = {}

    def begin(self, trial_id: str, configuration: str, params: Params) -> None:
        """See `Tracker`."""
        name = run_name(trial_id, self._study)
        for old in self._client.search_runs([self._experiment], f"tags.trial = '{name}'"):
            self._client.delete_run(old.info.run_id)
        tags = {"trial": name, "study": self._study, "configuration": configuration}
        run = self._client.create_run(self._experiment, run_name=trial_id, tags=tags)
        self._runs[trial_id] = run.info.run_id
        self._log(trial_id, params=_texts(self._entities.Param, params))

    def point(self, trial_id: str, step: int, values: Values) -> None:
        """See `Tracker`."""
        now = round(1000 * time.time())
        metrics = [self._entities.Metric(name, v, now, step) for name, v in values.items()]
        self._log(trial_id, metrics=metrics)

    def end(self, trial_id: str, step: int, values: Values, texts: Mapping[str, str]) -> None:
        """See `Tracker`."""
        self.point(trial_id, step, values)
        self._log(trial_id, tags=_texts(self._entities.RunTag, texts))
        status = _STATUSES.get(texts["status"], "KILLED")
        self._client.set_terminated(self._runs.pop(trial_id), status)

    def _log(self, trial_id: str, **batch: Any) -> None:
        self._client.log_batch(self._runs[trial_id], **batch)


def _texts(kind: Any, values: Mapping[str, Any]) -> list[Any]:
    return [kind(key, str(value)[:_LONGEST]) for key, value in values.items()]
