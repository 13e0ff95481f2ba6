"""The process of one tracker: reads what happens on its input, a JSON object a line.

The first line says which tracker and which search. What a trial's curves and scores are is read in
the study. An error ends the process and is its only output, as a JSON object.
"""

import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tune_sentcl.config import flatten
from tune_sentcl.launch.tracking.named import tracker_module
from tune_sentcl.launch.tracking.tracker import Begun, End, Project, Tracker, Value
from tune_sentcl.objective import MAX_OBJECTIVES, objective_columns
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.rows import FACTS
from tune_sentcl.store.study import Study

_COSTS = tuple(name for name in FACTS if name.endswith(("_seconds", "_bytes")))
_FACTS = ("status", "origin", "host", "device", "notes", "error_type", "error_text", "git_commit")
_SCORE = ("task", "split", "metric", "aggregation", "protocol", "classifier_seed")
Row = Mapping[str, Any]


class Feed:
    """Tells a tracker what the driver says and the study holds."""

    def __init__(self, study: Study, tracker: Tracker) -> None:
        """Begin with no trial."""
        self._study, self._tracker = study, tracker
        self._attempts: dict[str, str] = {}
        self._told: dict[str, set[int]] = {}

    def take(self, event: Row) -> None:
        """Pass on what has happened: `begun`, `point` or `ended`, as `Tracking` words it."""
        trial_id = event["trial"]
        if event["did"] == "begun":
            self._begin(trial_id, event["configuration"], event["config"])
            self._attempts[trial_id] = event["files"]
        elif event["did"] == "point":
            self._points(trial_id)
        else:
            self._end(trial_id, event["row"])

    def _begin(self, trial_id: str, configuration: str, config: Row) -> None:
        if trial_id in self._told:  # another worker goes on with it, and tells its points again
            return
        params = {key: _value(value) for key, value in flatten(config) if value is not None}
        self._tracker.begin(Begun(trial_id, configuration, params))
        self._told[trial_id] = set()

    def _points(self, trial_id: str) -> None:
        table = self._study.curves(among={trial_id: self._attempts[trial_id]})
        told = self._told[trial_id]
        for step, values in _by_step(table):
            if step not in told:
                told.add(step)
                self._tracker.point(trial_id, step, values)

    def _end(self, trial_id: str, row: Row) -> None:
        self._begin(trial_id, row["configuration"], json.loads(row["config"]))
        self._attempts[trial_id] = row["attempt_files"]
        self._points(trial_id)
        steps = max(row["steps"] or 0, *self._told.pop(trial_id), 0)
        finished = row["status"] == "finished"
        scores = self._scores(trial_id) if finished else {}
        costs = {f"cost/{name}": row[name] for name in _COSTS if row[name] is not None}
        names = (objective_columns(number)[1] for number in range(1, MAX_OBJECTIVES + 1))
        objectives = {name: row[name] for name in names if row.get(name) is not None}
        facts = {name: str(row[name]) for name in _FACTS if row[name] is not None}
        numbers = {**objectives, **scores, **costs}
        self._tracker.end(trial_id, End(row["status"], steps, numbers, facts))

    def _scores(self, trial_id: str) -> dict[str, float]:
        """The numbers of whole tasks."""
        table = self._study.scores(among={trial_id: self._attempts[trial_id]})
        return {
            "score/" + ".".join(str(row[key]) for key in _SCORE if row[key] is not None): row[
                "value"
            ]
            for row in table.to_pylist()
            if row["value"] is not None and row["subset"] is None
        }


def _by_step(table: pa.Table) -> Iterator[tuple[int, dict[str, float]]]:
    points: dict[int, dict[str, float]] = defaultdict(dict)
    for row in table.to_pylist():
        if row["value"] is not None:
            points[row["step"]][row["metric"]] = row["value"]
        points[row["step"]]["samples"] = row["samples"]
    return iter(sorted(points.items()))


def _value(value: Any) -> Value:
    return value if isinstance(value, str | int | float | bool) else str(value)


def follow(lines: Iterable[str]) -> None:
    """Tell the tracker that the first line names what the others say."""
    events = map(json.loads, lines)
    search = next(events)
    study = Study.read(search["study"])
    folder: Path | None = study.files.folder
    project = Project(search["space"], mask_text(study.files.where), folder)
    tracker: Tracker = tracker_module(search["tracker"]).TRACKER(project)
    feed = Feed(study, tracker)
    for event in events:
        feed.take(event)
    tracker.close()


def main() -> None:
    """Follow what stands on the standard input, with a word on its end alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the driver too
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)  # clients print
        try:
            follow(sys.stdin)
        except Exception as error:  # noqa: BLE001 - the border of a tracker
            said = (str(error).strip() or "no reason told").splitlines()[0]
            json.dump({"error": mask_text(f"{type(error).__name__}: {said}")}, channel)
            channel.flush()
            os._exit(1)  # a client's threads and exit handlers may hang


if __name__ == "__main__":
    main()
