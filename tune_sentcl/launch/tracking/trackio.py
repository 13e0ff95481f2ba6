"""Trackio's database, below `STUDY/trackio`."""

import contextvars
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tune_sentcl.launch.tracking.tracker import Begun, End, Project

REMOTE = None
_ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")  # beside the files here


class Trackio:
    """See `Tracker`."""

    def __init__(self, project: Project) -> None:
        """Import the client, which asks the hub for nothing unless told where to write there."""
        if project.folder is None:
            raise ValueError("Trackio's database needs a folder")
        os.environ["TRACKIO_DIR"] = str(project.folder / "trackio")
        if not any(map(os.environ.get, _ELSEWHERE)):
            os.environ["HF_HUB_OFFLINE"] = "1"
        import trackio

        self._trackio = trackio
        self._project = project.space.replace("/", "-")
        self._runs: dict[str, Any] = {}

    def begin(self, trial: Begun) -> None:
        """See `Tracker`."""
        for left in self._kept(trial.trial_id):
            left.delete()
        # A run of its own context: in one context a second run ends the first.
        self._runs[trial.trial_id] = contextvars.Context().run(
            self._trackio.init,
            self._project,
            name=trial.trial_id,
            group=trial.configuration,
            config=dict(trial.params),
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )

    def point(self, trial_id: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self._runs[trial_id].log(dict(values), step=step)

    def end(self, trial_id: str, end: End) -> None:
        """See `Tracker`."""
        run = self._runs.pop(trial_id)
        run.log({**end.numbers, **end.facts}, step=end.step)
        run.finish()
        if not self._kept(trial_id):  # the client only warns of what it cannot write
            raise OSError(f"its database in {os.environ['TRACKIO_DIR']} cannot be written")

    def close(self) -> None:
        """See `Tracker`."""
        for run in self._runs.values():
            run.log({"status": "interrupted"})
            run.finish()

    def _kept(self, trial_id: str) -> list[Any]:
        with suppress(ValueError):  # there is no such project yet
            return [r for r in self._trackio.Api().runs(self._project) if r.name == trial_id]
        return []


TRACKER = Trackio
