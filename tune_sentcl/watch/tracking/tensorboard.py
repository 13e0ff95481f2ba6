"""TensorBoard event files in `STUDY/tensorboard`, a folder per trial; HParams groups seeds."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tune_sentcl.watch.tracking.tracker import Value

_FLUSH_S = 5


class Client:
    """See `Tracker`; TensorFlow is not needed."""

    def __init__(self, space: str, study: str, folder: Path) -> None:
        """See `Tracker`."""
        del space, study
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary, self._writer = event_pb2, summary_pb2, EventFileWriter
        self._api, self._metadata, self._data = api_pb2, metadata, plugin_data_pb2
        self._hparams, self._scalar, self._text = summary_v2.hparams_pb, scalar_pb, text_pb
        self._folder = folder / "tensorboard"
        self._open: dict[str, Any] = {}

    def begin(self, trial_id: str, configuration: str, params: Mapping[str, Value]) -> None:
        """See `Tracker`."""
        folder = self._folder / trial_id
        shutil.rmtree(folder, ignore_errors=True)
        self._open[trial_id] = self._writer(str(folder), flush_secs=_FLUSH_S)
        knobs = {key: value for key, value in params.items() if key != "seed"}
        self._add(trial_id, self._hparams(knobs, trial_id=configuration), 0)

    def log(self, trial_id: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        for name, value in values.items():
            self._add(trial_id, self._scalar(name, value), step)

    def end(
        self, trial_id: str, step: int, values: Mapping[str, float], texts: Mapping[str, str]
    ) -> None:
        """See `Tracker`."""
        self.log(trial_id, step, values)
        for name, text in texts.items():
            self._add(trial_id, self._text(name, text), step)
        status = {"finished": "STATUS_SUCCESS", "failed": "STATUS_FAILURE"}.get(texts["status"])
        self._finish(trial_id, status or "STATUS_UNKNOWN", step)

    def close(self) -> None:
        """See `Tracker`."""
        for trial_id in list(self._open):
            self._finish(trial_id, "STATUS_UNKNOWN", 0)

    def _finish(self, trial_id: str, status: str, step: int) -> None:
        # Like `plugins.hparams.summary.session_end_pb`, which needs TensorFlow.
        ended = self._data.SessionEndInfo(
            status=getattr(self._api, status), end_time_secs=time.time()
        )
        data = self._data.HParamsPluginData(session_end_info=ended)
        summary = self._summary.Summary()
        summary.value.add(
            tag=self._metadata.SESSION_END_INFO_TAG,
            metadata=self._metadata.create_summary_metadata(data),
            tensor=self._metadata.NULL_TENSOR,
        )
        self._add(trial_id, summary, step)
        self._open.pop(trial_id).close()

    def _add(self, trial_id: str, summary: Any, step: int) -> None:
        event = self._event.Event(wall_time=time.time(), step=step, summary=summary)
        self._open[trial_id].add_event(event)
