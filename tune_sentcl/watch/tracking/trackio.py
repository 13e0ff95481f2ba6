"""Trackio's database in `STUDY/trackio`."""

import contextvars
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tune_sentcl.watch.tracking.tracker import Value

_ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")  # trackio also writes there


class Client:
    """See `Tracker`."""

    def __init__(self, space: str, study: str, folder: Path) -> None:
        """See `Tracker`; the client calls the hub only if a variable asks it to write there."""
        del study
        os.environ["TRACKIO_DIR"] = str(folder / "trackio")
        if not any(map(os.environ.get, _ELSEWHERE)):
            os.environ["HF_HUB_OFFLINE"] = "1"
        import trackio

        self._trackio, self._project = trackio, space.replace("/", "-")
        self._runs: dict[str, Any] = {}

    def begin(self, trial_id: str, configuration: str, params: Mapping[str, Value]) -> None:
        """See `Tracker`."""
        for left in self._kept(trial_id):
            left.delete()
        # Each run gets its own context, because a second run in a context ends the first.
        self._runs[trial_id] = contextvars.Context().run(
            self._trackio.init,
            self._project,
            name=trial_id,
            group=configuration,
            config=dict(params),
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )

    def log(self, trial_id: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self._runs[trial_id].log(dict(values), step=step)

    def end(
        self, trial_id: str, step: int, values: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        """See `Tracker`."""
        run = self._runs.pop(trial_id)
        run.log({**values, **texts}, step=step)
        run.finish()
        if not self._kept(trial_id):  # the client only warns if it cannot write
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
