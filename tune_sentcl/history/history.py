"""`History`: the status, scores and failures of every trial of a study."""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import DataName, evaluation_data_of, flatten
from tune_sentcl.history.configuration import Configuration
from tune_sentcl.history.trial_records import (
    KEYS,
    MEASUREMENT,
    NO_FAILURES,
    WHOLE_TASKS,
    LostReason,
    Result,
    Status,
    TrialRecord,
    measurements_by_trial,
    objective_rows,
    with_measured_metric,
)
from tune_sentcl.objective import MAX_OBJECTIVES, Objective, mean, objective_columns
from tune_sentcl.score import Measurement, Score
from tune_sentcl.store.parts import rows_of_trials
from tune_sentcl.store.rows import CONFIRM_ORIGIN, RUN_COLUMNS, stored_run_columns
from tune_sentcl.store.study import StudyTables

_ROW = ("trial_id", "configuration", "seed", "origin", "status", "attempt", "config")
_ENDS = ("error_type", "stages")
_DATA = ("evaluation.data", "data.source")
_CONFIGURED = ("configuration", "trial_id", "seed", "origin", "config")


class History:
    """The state of a study's trials for the objectives of a search.

    Attributes:
        objectives: The objectives, in the order of `Result.values`.
        data: The evaluation data of all trials; None without trials.
        weights: The trials whose weights are kept.
        table: The trials table as it was read, for columns that no method returns.
        versions: The scored versions by task and split.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        """Make the history of an empty study; see `read`."""
        self.objectives = tuple(objectives)
        self.data: DataName | None = None
        self.weights: set[str] = set()
        self.table = pa.table({name: pa.array([], pa.string()) for name in _CONFIGURED})
        self.versions: dict[tuple[str, str], set[str]] = {}
        self._trials: dict[str, TrialRecord] = {}
        self._run_columns: dict[str, dict[str, Any]] = {}
        self._rows = pa.table({name: pa.array([], pa.string()) for name in _CONFIGURED})
        self._interned: dict[frozenset[Measurement], frozenset[Measurement]] = {}

    @classmethod
    def read(
        cls,
        study: StudyTables,
        objectives: Sequence[Objective],
        columns: Sequence[str] | None = (),
        stage_objective: Objective | None = None,
    ) -> Self:
        """Read each table once.

        Args:
            study: The study.
            objectives: The objectives of a search.
            columns: Additional columns for `table`; None: all columns.
            stage_objective: The score at the ends of stages; None: the first of `objectives`.

        Raises:
            StudyError: A file is damaged or cannot be read.
        """
        history = cls(objectives)
        history.weights = study.checkpoints()
        required = (*_ROW, *_ENDS, *_DATA, *RUN_COLUMNS)
        wanted = None if columns is None else list(dict.fromkeys((*required, *columns)))
        history.table = rows = study.trials(wanted)
        compared = stage_objective or objectives[0]
        history._read_trials(rows, str(compared))
        finished = history.with_status("finished")
        columns = ["trial_id", *KEYS, "metric", "value", "reason", "version"]
        history._read_scores(study.scores(columns, WHOLE_TASKS, finished))
        return history

    def __len__(self) -> int:
        """The number of trials that have a row."""
        return len(self._trials)

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._trials

    def status(self, trial_id: str) -> Status | None:
        """The status of a trial's last end; None without a row."""
        record = self._trials.get(trial_id)
        return record.status if record else None

    def error_type(self, trial_id: str) -> str | None:
        """The class of a failed trial's last error; None for other trials."""
        record = self._trials.get(trial_id)
        return record.error_type if record else None

    def attempts(self, trial_id: str) -> int:
        """How often a trial's training has ended."""
        record = self._trials.get(trial_id)
        return record.attempt if record else 0

    def values(self, trial_id: str) -> tuple[float | None, ...]:
        """A finished trial's objectives, times 100."""
        record = self._trials.get(trial_id)
        values = record.objective_values if record and record.status == "finished" else {}
        numbers = range(len(self.objectives))
        return tuple(mean(v for (m, _), v in values.items() if m == n) for n in numbers)

    def lost_reason(self, trial_id: str, number: int = 0) -> LostReason | None:
        """Why a trial with a row has no value of an objective.

        Args:
            trial_id: The trial.
            number: The index of the objective.

        Returns:
            None if the trial has the value, or has never tried to measure it.
        """
        record = self._trials[trial_id]
        if record.status != "finished":
            return "pruned" if record.status == "pruned" else "failed"
        if self.values(trial_id)[number] is not None:
            return None
        not_finite = any(key == number for key, _ in record.objective_values)
        objective = self.objectives[number]
        failed = any(map(objective.rests_on, record.failures))
        return "failed" if not_finite or failed else None

    def checkpoint_score(self, trial_id: str) -> float:
        """A trial's first objective, by which its weights are ranked; -inf without a value."""
        value = self.values(trial_id)[0]
        return -np.inf if value is None else value

    def best(self, without: Container[str] = ()) -> float | None:
        """The best first objective when the study was read, not counting confirmation seeds."""
        columns = (self.table[name].to_pylist() for name in ("trial_id", "origin"))
        chosen = [
            name
            for name, origin in zip(*columns, strict=True)
            if origin != CONFIRM_ORIGIN and name not in without
        ]
        best = max(map(self.checkpoint_score, chosen), default=-np.inf)
        return best if best > -np.inf else None

    def result(self, trial_id: str) -> Result:
        """The result of a trial with a row."""
        record = self._trials[trial_id]
        values = self.values(trial_id)
        lost = tuple(
            self.lost_reason(trial_id, number) if value is None else None
            for number, value in enumerate(values)
        )
        return Result(record.status, values, record.stages, record.error_type, lost)

    def lacks(self, trial_id: str, wanted: frozenset[Measurement]) -> bool:
        """Whether a trial lacks some of these measurements."""
        return not wanted <= self._trials[trial_id].measured

    def lacks_objective(self, trial_id: str) -> bool:
        """Whether a finished trial has no value of an objective, and no reason for that."""
        failed = self._trials[trial_id].failures
        return any(
            value is None and not any(map(objective.rests_on, failed))
            for objective, value in zip(self.objectives, self.values(trial_id), strict=True)
        )

    def run_columns(self, trial_id: str) -> dict[str, Any]:
        """A finished trial's columns on its run, as arguments of `TrialRow`; else empty."""
        return self._run_columns.get(trial_id, {})

    def with_objectives(self, trials: pa.Table) -> pa.Table:
        """Set the objective columns of a trials table to this search's objectives.

        Earlier searches may have written other objectives into these columns.
        """
        names = trials["trial_id"].to_pylist()
        values = [self.values(name) for name in names]
        for number in range(MAX_OBJECTIVES):
            is_present = number < len(self.objectives)
            scores = pa.array([v[number] if is_present else None for v in values], pa.float64())
            name = str(self.objectives[number]) if is_present else None
            named = pa.array([name] * len(names), pa.string())
            for key, array in zip(objective_columns(number + 1), (named, scores), strict=True):
                trials = trials.set_column(trials.column_names.index(key), key, array)
        return trials

    def configurations(self) -> Iterator[Configuration]:
        """Yield configurations without confirmation seeds; it frees the rows, so call it once."""
        table, self._rows = self._rows, self._rows.slice(0, 0)
        by_name: dict[str, Configuration] = {}
        for batch in table.to_batches(max_chunksize=1000):
            columns = (batch[name].to_pylist() for name in _CONFIGURED)
            for name, trial_id, seed, origin, config in zip(*columns, strict=True):
                if origin == CONFIRM_ORIGIN:
                    continue
                if name not in by_name:
                    values = dict(flatten(json.loads(config)))
                    by_name[name] = Configuration(name, "grid", values)
                configuration = by_name[name]
                if origin == "sampler":
                    configuration.origin = "sampler"
                configuration.trials[seed] = trial_id
                configuration.results[seed] = self.result(trial_id)
        yield from by_name.values()

    def record_end(
        self, trial_id: str, status: Status, attempt: int, scores: Iterable[Score] = ()
    ) -> None:
        """Record a trial's end; a finished trial stays finished and gets further scores."""
        record = self._trials.get(trial_id)
        if record is None or record.status != "finished":
            before = {} if record is None else record.stages
            record = self._trials[trial_id] = TrialRecord(status, attempt, stages=before)
        elif status == "finished":
            record.attempt = attempt
        scores = list(scores)
        measured = record.measured | {s.measurement for s in scores if s.value is not None}
        record.measured = self._interned.setdefault(measured, measured)
        failed = {s.measurement: s.reason or "" for s in scores if s.value is None}
        failures = {**record.failures, **failed}
        failures = {m: reason for m, reason in failures.items() if m not in measured}
        record.failures = failures or NO_FAILURES
        for number, objective in enumerate(self.objectives):
            for score in scores:
                if score.value is not None and objective.picks(score):
                    # An existing value stays, because `StudyDriver.commit` also keeps it.
                    key = (number, score.classifier_seed)
                    record.objective_values.setdefault(key, score.value)

    def record_stage(self, trial_id: str, share: float, score: float) -> None:
        """Record a trial's score at the end of a stage; an earlier record of the stage stays."""
        self._trials[trial_id].stages.setdefault(share, score)

    def stages(self, trial_id: str) -> Mapping[float, float]:
        """A trial's scores at the ends of stages, by the share of a whole training."""
        record = self._trials.get(trial_id)
        return record.stages if record else {}

    def record_error(self, trial_id: str, error_type: str | None) -> None:
        """Record the class of a failed trial's error."""
        self._trials[trial_id].error_type = error_type

    def with_status(self, status: Status) -> list[str]:
        """The trials with a status."""
        return [name for name, record in self._trials.items() if record.status == status]

    def unscored(self) -> list[str]:
        """The finished trials that have neither a score nor a reason why a score is missing."""
        records = ((name, self._trials[name]) for name in self.with_status("finished"))
        return [name for name, one in records if not (one.measured or one.failures)]

    def _read_trials(self, table: pa.Table, compared: str) -> None:
        names = ("trial_id", "status", "attempt", "error_type", "stages")
        columns = [table[name].to_pylist() for name in names]
        for row in table.slice(0, 1).select(_DATA).to_pylist():
            self.data = evaluation_data_of(row)
        for name, status, attempt, error, ends in zip(*columns, strict=True):
            stages = {e["share"]: e["value"] for e in ends or () if e["objective"] == compared}
            record = TrialRecord(status, attempt or 1, stages=stages, error_type=error)
            self._trials[name] = record
        self._rows = table.select(list(_CONFIGURED))
        finished = table.filter(pc.field("status") == "finished")
        kept = rows_of_trials(finished, self.weights)
        for row in kept.select(["trial_id", *RUN_COLUMNS]).to_pylist():
            self._run_columns[row["trial_id"]] = stored_run_columns(row)

    def _read_scores(self, table: pa.Table) -> None:
        table = with_measured_metric(table)
        named = table.filter(pc.field("version").is_valid() & pc.field("value").is_valid())
        for row in named.group_by(["task", "split", "version"]).aggregate([]).to_pylist():
            self.versions.setdefault((row["task"], row["split"]), set()).add(row["version"])
        failed = table.filter(pc.field("value").is_null())
        for row in failed.select(["trial_id", *MEASUREMENT, "reason"]).to_pylist():
            record = self._trials[row["trial_id"]]
            measurement = Measurement(*(row[key] for key in MEASUREMENT))
            record.failures = {**record.failures, measurement: row["reason"] or ""}
        scored = table.filter(pc.field("value").is_valid())
        for name, measured in measurements_by_trial(scored):
            self._trials[name].measured = self._interned.setdefault(measured, measured)
        for number, objective in enumerate(self.objectives):
            rows = objective_rows(objective, scored)
            columns = (rows[n].to_pylist() for n in ("trial_id", "classifier_seed", "value"))
            for name, seed, value in zip(*columns, strict=True):
                self._trials[name].objective_values[number, seed] = value
