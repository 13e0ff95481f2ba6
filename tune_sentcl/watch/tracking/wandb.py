"""Weights & Biases: runs in `STUDY/wandb`, for `wandb sync`, or online with WANDB_MODE=online.

The client is set not to collect git state, machine, command or source.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tune_sentcl.watch.tracking.tracker import Value


class Client:
    """See `Tracker`."""

    def __init__(self, space: str, study: str, folder: Path) -> None:
        """See `Tracker`; the client sends nothing unless WANDB_MODE says so."""
        self._offline = os.environ.setdefault("WANDB_MODE", "offline") != "online"
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._wandb, self._project, self._folder = wandb, space.replace("/", "-"), folder
        self._study = hashlib.sha256(study.encode()).hexdigest()[:8]
        self._runs: dict[str, Any] = {}

    def begin(self, trial_id: str, configuration: str, params: Mapping[str, Value]) -> None:
        """See `Tracker`."""
        name = f"{trial_id}-{self._study}"  # the same trial may be in several studies
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
                console="off",
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                save_code=False,
                silent=True,
                x_disable_meta=True,
                x_disable_stats=True,
            ),
        )

    def log(self, trial_id: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self._runs[trial_id].log(dict(values), step=step)

    def end(
        self, trial_id: str, step: int, values: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        """See `Tracker`."""
        del step
        run = self._runs.pop(trial_id)
        run.summary.update({**values, **texts})
        run.finish(exit_code=int(texts["status"] == "failed"))

    def close(self) -> None:
        """See `Tracker`."""
        for run in self._runs.values():
            run.summary.update({"status": "interrupted"})
            run.finish(exit_code=1)
