"""TensorBoard's event files, a folder a trial below `STUDY/tensorboard`.

Its HParams page counts the seeds of a configuration as one.
"""

import shutil
import time
from collections.abc import Mapping
from typing import Any

from tune_sentcl.launch.tracking.tracker import Begun, End, Project

REMOTE = None
_FLUSH_S = 5


class TensorBoard:
    """See `Tracker`."""

    def __init__(self, project: Project) -> None:
        """Import the client; TensorFlow is not needed."""
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary, self._writer = event_pb2, summary_pb2, EventFileWriter
        self._api, self._metadata, self._data = api_pb2, metadata, plugin_data_pb2
        self._hparams, self._scalar, self._text = summary_v2.hparams_pb, scalar_pb, text_pb
        if project.folder is None:
            raise ValueError("TensorBoard's files need a folder")
        self._folder = project.folder / "tensorboard"
        self._open: dict[str, Any] = {}

    def begin(self, trial: Begun) -> None:
        """See `Tracker`."""
        folder = self._folder / trial.trial_id
        shutil.rmtree(folder, ignore_errors=True)
        self._open[trial.trial_id] = self._writer(str(folder), flush_secs=_FLUSH_S)
        knobs = {key: value for key, value in trial.params.items() if key != "seed"}
        self._add(trial.trial_id, self._hparams(knobs, trial_id=trial.configuration), 0)

    def point(self, trial_id: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        for name, value in values.items():
            self._add(trial_id, self._scalar(name, value), step)

    def end(self, trial_id: str, end: End) -> None:
        """See `Tracker`."""
        self.point(trial_id, end.step, end.numbers)
        for name, fact in end.facts.items():
            self._add(trial_id, self._text(name, fact), end.step)
        status = {"finished": "STATUS_SUCCESS", "failed": "STATUS_FAILURE"}.get(end.status)
        self._finish(trial_id, status or "STATUS_UNKNOWN", end.step)

    def close(self) -> None:
        """See `Tracker`."""
        for trial_id in list(self._open):
            self._finish(trial_id, "STATUS_UNKNOWN", 0)

    def _finish(self, trial_id: str, status: str, step: int) -> None:
        # `plugins.hparams.summary`, which words this, needs TensorFlow.
        data = self._data.HParamsPluginData(
            session_end_info=self._data.SessionEndInfo(
                status=getattr(self._api, status), end_time_secs=time.time()
            )
        )
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


TRACKER = TensorBoard
