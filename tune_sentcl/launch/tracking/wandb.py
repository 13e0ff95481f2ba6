"""Weights & Biases: runs in `STUDY/wandb`, for `wandb sync`, or online with WANDB_MODE=online.

What its client would find out by itself (git, the machine, the command, the source) stays out.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tune_sentcl.launch.tracking.tracker import Begun, End, Project

REMOTE = "WANDB_MODE=online"


class Wandb:
    """See `Tracker`."""

    def __init__(self, project: Project) -> None:
        """Import the client, which stays silent and sends nothing unless told to."""
        self._offline = os.environ.setdefault("WANDB_MODE", "offline") != "online"
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._wandb = wandb
        self._name = project.space.replace("/", "-")
        self._study = hashlib.sha256(project.study.encode()).hexdigest()[:8]
        self._folder = project.folder or Path(tempfile.gettempdir())
        self._runs: dict[str, Any] = {}

    def begin(self, trial: Begun) -> None:
        """See `Tracker`."""
        name = f"{trial.trial_id}-{self._study}"  # the same trial may be in several studies
        if self._offline:
            for left in (self._folder / "wandb").glob(f"offline-run-*-{name}"):
                shutil.rmtree(left, ignore_errors=True)
        self._runs[trial.trial_id] = self._wandb.init(
            project=self._name,
            id=name,
            name=trial.trial_id,
            group=trial.configuration,
            config=dict(trial.params),
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

    def point(self, trial_id: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self._runs[trial_id].log(dict(values), step=step)

    def end(self, trial_id: str, end: End) -> None:
        """See `Tracker`."""
        run = self._runs.pop(trial_id)
        run.summary.update({**end.numbers, **end.facts})
        run.finish(exit_code=int(end.status == "failed"))

    def close(self) -> None:
        """See `Tracker`."""
        for run in self._runs.values():
            run.summary.update({"status": "interrupted"})
            run.finish(exit_code=1)


TRACKER = Wandb
