"""The process of one tracker: reads events from its input, one JSON object per line.

The first line names the tracker and the study. Curves and scores come from the study. An error
ends the process, which prints it as a JSON object and nothing else.
"""

import json
import os
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tune_sentcl.config import flatten
from tune_sentcl.objective import MAX_OBJECTIVES, value_columns
from tune_sentcl.store.rows import RUN_COLUMNS
from tune_sentcl.store.study import Study
from tune_sentcl.watch.tracking.tracker import Tracker

_COSTS = tuple(name for name in RUN_COLUMNS if name.endswith(("_seconds", "_bytes")))
_OBJECTIVES = value_columns(MAX_OBJECTIVES)
_TEXTS = ("status", "origin", "host", "device", "notes", "error_type", "error_text", "git_commit")
_SCORE = ("task", "split", "metric", "aggregation", "protocol", "classifier_seed")


class EventHandler:
    """Passes events to a tracker, with the curves and scores of ended trials from the study."""

    def __init__(self, study: Study, tracker: Tracker) -> None:
        self._study, self._tracker = study, tracker
        self._logged: dict[str, set[int]] = {}

    def handle(self, event: Mapping[str, Any]) -> None:
        """Pass on an event: `begun`, `point` or `ended`."""
        trial_id = event["trial"]
        if event["did"] == "begun":
            self._begin(trial_id, event["configuration"], event["config"])
        elif event["did"] == "point":
            self._log(trial_id, event["curves"])
        else:
            self._end(trial_id, event["row"])

    def _begin(self, trial_id: str, configuration: str, config: Mapping[str, Any]) -> None:
        if trial_id in self._logged:  # a further attempt, which repeats the same points
            return
        params = {key: value for key, value in flatten(config) if value is not None}
        simple = {
            key: value if isinstance(value, str | int | float | bool) else str(value)
            for key, value in params.items()
        }
        self._tracker.begin(trial_id, configuration, simple)
        self._logged[trial_id] = set()

    def _log(self, trial_id: str, curves: Iterable[Mapping[str, Any]]) -> None:
        points: dict[int, dict[str, float]] = defaultdict(dict)
        for row in curves:
            points[row["step"]]["samples"] = row["samples"]
            if row["value"] is not None:
                points[row["step"]][row["metric"]] = row["value"]
        for step in sorted(points.keys() - self._logged[trial_id]):
            self._tracker.log(trial_id, step, points[step])
        self._logged[trial_id].update(points)

    def _end(self, trial_id: str, row: Mapping[str, Any]) -> None:
        self._begin(trial_id, row["configuration"], json.loads(row["config"]))
        self._log(trial_id, self._study.curves(among=[trial_id]).to_pylist())
        step = max(row["steps"] or 0, *self._logged.pop(trial_id), 0)
        values = {name: row[name] for name in _OBJECTIVES if row.get(name) is not None}
        if row["status"] == "finished":
            values |= self._scores(trial_id)
        values |= {f"cost/{name}": row[name] for name in _COSTS if row[name] is not None}
        texts = {name: str(row[name]) for name in _TEXTS if row[name] is not None}
        self._tracker.end(trial_id, step, values, texts)

    def _scores(self, trial_id: str) -> dict[str, float]:
        """A trial's scores of whole tasks, without those of subsets."""
        table = self._study.scores(among=[trial_id])
        return {
            "score/" + ".".join(str(row[k]) for k in _SCORE if row[k] is not None): row["value"]
            for row in table.to_pylist()
            if row["value"] is not None and row["subset"] is None
        }


def follow(lines: Iterable[str]) -> None:
    """Open the tracker that the first line names, and pass it the events of the other lines."""
    events = map(json.loads, lines)
    search = next(events)
    study = Study.read(search["study"])
    folder = study.files.folder or Path(tempfile.gettempdir())
    client = import_module(f"tune_sentcl.watch.tracking.{search['tracker']}").Client
    tracker: Tracker = client(search["space"], study.files.where, folder)
    handler = EventHandler(study, tracker)
    for event in events:
        handler.handle(event)
    tracker.close()


def main() -> None:
    """Read stdin to its end; the driver ends this process by closing it, not by a signal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the driver too
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)  # the clients print to stdout
        try:
            follow(sys.stdin)
        except Exception as error:  # noqa: BLE001 - a tracker's error ends its process alone
            message = (str(error).strip() or "no message").splitlines()[0]
            json.dump({"error": f"{type(error).__name__}: {message}"}, channel)
            channel.flush()
            os._exit(1)  # a client's threads and exit handlers may hang


if __name__ == "__main__":
    main()
