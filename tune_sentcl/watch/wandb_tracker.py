"""`--track wandb`: runs in `STUDY/wandb` for `wandb sync`, or online with WANDB_MODE=online."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tune_sentcl.watch.trackers import Params, Tracker, Values, run_name

_OFF = (
    "disable_code",
    "disable_git",
    "disable_job_creation",
    "silent",
    "x_disable_meta",
    "x_disable_stats",
)
"""Settings that keep the client from sending the command, the source and the machine's load."""


class Client(Tracker):
    """Logs to Weights & Biases, one run per trial; several runs may be open at a time."""

    def __init__(self, space: str, study: str, folder: Path) -> None:
        self._offline = os.environ.setdefault("WANDB_MODE", "offline") != "online"
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._project = space.replace("/", "-")
        self._folder, self._study = folder, study
        self._runs: dict[str, Any] = {}

    def begin(self, trial_id: str, configuration: str, params: Params) -> None:
        """See `Tracker`."""
        import wandb

        name = run_name(trial_id, self._study)
        if self._offline:
            for old in (self._folder / "wandb").glob(f"offline-run-*-{name}"):
                shutil.rmtree(old, ignore_errors=True)
        self._runs[trial_id] = wandb.init(
            project=self._project,
            id=name,
            name=trial_id,
            group=configuration,
            config=dict(params),
            dir=str(self._folder),
            resume=None if self._offline else "allow",
            reinit="create_new",
            settings=wandb.Settings(**dict.fromkeys(_OFF, True), console="off", save_code=False),
        )

    def point(self, trial_id: str, step: int, values: Values) -> None:
        """See `Tracker`."""
        self._runs[trial_id].log(dict(values), step=step)

    def end(self, trial_id: str, step: int, values: Values, texts: Mapping[str, str]) -> None:
        """See `Tracker`."""
        del step
        run = self._runs.pop(trial_id)
        run.summary.update({**values, **texts})
        run.finish(exit_code=int(texts["status"] in ("failed", "interrupted")))
