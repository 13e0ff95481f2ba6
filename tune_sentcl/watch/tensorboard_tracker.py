"""`--track tensorboard`: event files in `STUDY/tensorboard`, a folder per trial, with HParams."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tune_sentcl.watch.trackers import Params, Tracker, Values


class Client(Tracker):
    """Logs to TensorBoard, one `SummaryWriter` per trial."""

    def __init__(self, space: str, study: str, folder: Path) -> None:
        del space, study
        self._folder = folder / "tensorboard"
        self._runs: dict[str, tuple[Params, Any]] = {}

    def begin(self, trial_id: str, configuration: str, params: Params) -> None:
        """See `Tracker`."""
        from torch.utils.tensorboard import SummaryWriter

        folder = self._folder / trial_id
        shutil.rmtree(folder, ignore_errors=True)
        writer: Any = SummaryWriter(str(folder), flush_secs=5)
        self._runs[trial_id] = {**params, "configuration": configuration}, writer

    def point(self, trial_id: str, step: int, values: Values) -> None:
        """See `Tracker`."""
        for name, value in values.items():
            self._runs[trial_id][1].add_scalar(name, value, step)

    def end(self, trial_id: str, step: int, values: Values, texts: Mapping[str, str]) -> None:
        """See `Tracker`."""
        params, writer = self._runs.pop(trial_id)
        for name, text in texts.items():
            writer.add_text(name, text, step)
        writer.add_hparams(params, dict(values), run_name=".", global_step=step)
        writer.close()
