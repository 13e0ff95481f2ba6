"""The one reading of a study that everybody asks."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.history.ranking import ranked_data
from tune_sentcl.history.trial_records import (
    KEYS,
    MEASUREMENT,
    NO_FAILURES,
    WHOLE_TASKS,
    Action,
    LostReason,
    RequestedScores,
    Result,
    Status,
    StoredConfiguration,
    TrialRecord,
    evaluation_data_of_rows,
    measurements_by_trial,
    objective_rows,
    of_trials,
    with_evaluation_data,
    with_measured_metric,
)
from tune_sentcl.objective import (
    MAX_OBJECTIVES,
    Objective,
    mean,
    objective_columns,
)
from tune_sentcl.objective import early_stopping_objective as default_early_stopping_objective
from tune_sentcl.score import Measurement, Score
from tune_sentcl.store.reading.study import StudyTables
from tune_sentcl.store.rows import CONFIRM_ORIGIN, RUN_COLUMNS, stored_run_columns

_ROW = ("trial_id", "configuration", "origin", "status", "attempt", "config", "error_type")
_DATA = ("evaluation.data", "data.source")
_POINT = ("trial_id", "samples", "value")
_CONFIGURED = ("configuration", "trial_id", "origin", "config")


class History:
    """One reading of a study, seen through the objectives of a search.

    Attributes:
        objectives: What `Result.values` holds, in this order.
        weights: The trials whose weights are kept.
        table: The trials as they were read, for who wants more of them than this class tells.
        tasks: Those that finished trials have scores of, or reasons of missing ones.
        versions: By task and split, on which versions trials were scored.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        """The history of a study that holds nothing; see `read`."""
        self.objectives = tuple(objectives)
        self.weights: set[str] = set()
        self.table = pa.table({name: pa.array([], pa.string()) for name in _CONFIGURED})
        self.tasks: set[str] = set()
        self.versions: dict[tuple[str, str], set[str]] = {}
        self._trials: dict[str, TrialRecord] = {}
        self._run_columns: dict[str, dict[str, Any]] = {}
        self._rows = pa.table({name: pa.array([], pa.string()) for name in _CONFIGURED})
        self._points = pa.table({name: pa.array([], pa.string()) for name in _POINT})
        self._interned: dict[frozenset[Measurement], frozenset[Measurement]] = {}
        self._failed_twice: set[tuple[Measurement, str]] = set()

    @classmethod
    def read(
        cls,
        study: StudyTables,
        objectives: Sequence[Objective],
        columns: Sequence[str] | None = (),
        *,
        points: bool = False,
        early_stopping_objective: Objective | None = None,
    ) -> Self:
        """Read each table once.

        Args:
            study: The study.
            objectives: What a search maximizes.
            columns: Further ones of the trials, for `table`; None: all.
            points: Whether to read the evaluation points of all trials, not of pruned ones alone.
            early_stopping_objective: By what trials were compared while they ran; None: what the
                first objective says.

        Raises:
            StudyError: A file is damaged, or the disk refused.
        """
        history = cls(objectives)
        history.weights = study.checkpoints()
        required = (*_ROW, *_DATA, *RUN_COLUMNS, "attempt_files")
        wanted = None if columns is None else list(dict.fromkeys((*required, *columns)))
        history.table = rows = study.trials(wanted)
        history._read_trials(rows)
        files = dict(
            zip(*(rows[n].to_pylist() for n in ("trial_id", "attempt_files")), strict=True)
        )
        finished = {name: files[name] for name in history.with_status("finished")}
        columns = ["trial_id", *KEYS, "metric", "value", "reason", "version"]
        history._read_scores(study.scores(columns, WHOLE_TASKS, finished))
        curve_files = (
            files if points else {name: files[name] for name in history.with_status("pruned")}
        )
        if curve_files:
            compared = early_stopping_objective or default_early_stopping_objective(
                history.objectives[0]
            )
            curve = pc.field("metric") == compared.curve
            history._read_points(study.curves(_POINT, curve, curve_files))
        return history

    def __len__(self) -> int:
        """How many trials have a row."""
        return len(self._trials)

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._trials

    def status(self, trial_id: str) -> Status | None:
        """How a trial ended last; None where it has no row."""
        record = self._trials.get(trial_id)
        return record.status if record else None

    def error_type(self, trial_id: str) -> str | None:
        """The class of the error with which a trial failed last; None where it did not fail."""
        record = self._trials.get(trial_id)
        return record.error_type if record else None

    def attempts(self, trial_id: str) -> int:
        """How often a trial has been trained to an end."""
        record = self._trials.get(trial_id)
        return record.attempt if record else 0

    def values(self, trial_id: str, data: str) -> tuple[float | None, ...]:
        """A finished trial's objectives, times 100, measured on such data."""
        record = self._trials.get(trial_id)
        numbers = record.objective_values if record and record.status == "finished" else {}
        return tuple(
            mean(v for (sets, number, _), v in numbers.items() if (sets, number) == (data, index))
            for index in range(len(self.objectives))
        )

    def lost_reason(self, trial_id: str, data: str, number: int = 0) -> LostReason | None:
        """How a trial has ended without a score that it was run for.

        Args:
            trial_id: It has a row.
            data: Whose sets count.
            number: Which of the objectives.

        Returns:
            None where it has the score, and where nobody asked for that.
        """
        record = self._trials[trial_id]
        if record.status != "finished":
            return "pruned" if record.status == "pruned" else "failed"
        if self.values(trial_id, data)[number] is not None:
            return None
        not_finite = any(
            (sets, index) == (data, number) for sets, index, _ in record.objective_values
        )
        objective = self.objectives[number]
        failed = any(m.data == data and objective.rests_on(m) for m in record.failures)
        return "failed" if not_finite or failed else None

    def checkpoint_score(self, trial_id: str) -> float:
        """What a trial's weights are worth: its first objective, on the data that is meant."""
        record = self._trials.get(trial_id)
        value = self.values(trial_id, record.data)[0] if record else None
        return -np.inf if value is None else value

    def best(self) -> float | None:
        """The best first objective that the study held when it was read, on the sets that count.

        Trials on fresh seeds, which confirm what was chosen, are left out.
        """
        columns = (self.table[name].to_pylist() for name in ("trial_id", "origin"))
        chosen = [name for name, origin in zip(*columns, strict=True) if origin != CONFIRM_ORIGIN]
        found = [(self._trials[name].data, self.checkpoint_score(name)) for name in chosen]
        data = ranked_data((on, value > -np.inf) for on, value in found)
        return max((v for on, v in found if on == data and v > -np.inf), default=None)

    def set_evaluation_data(self, trial_id: str, data: str) -> None:
        """Note on whose sets a search means a trial's numbers; else those of its row count."""
        if trial_id in self._trials:
            self._trials[trial_id].data = data

    def result(self, trial_id: str, data: str) -> Result:
        """How a trial that has a row ended."""
        record = self._trials[trial_id]
        if record.status == "pruned":
            rows, dev = record.pruned_at or (0, None)
            return Result("pruned", rows=rows, dev=dev)
        return Result(record.status, self.values(trial_id, data), error_type=record.error_type)

    def lacks_objective(self, trial_id: str, requested: RequestedScores) -> bool:
        """Whether a finished trial lacks an objective, and nothing says why."""
        failed = self._trials[trial_id].failures
        values = self.values(trial_id, requested.data)
        return any(
            value is None and not any(m.data == requested.data and o.rests_on(m) for m in failed)
            for o, value in zip(self.objectives, values, strict=True)
        )

    def run_columns(self, trial_id: str) -> dict[str, Any]:
        """What is written of a finished trial whose weights were there, as `TrialRow` takes it."""
        return self._run_columns.get(trial_id, {})

    def action(self, trial_id: str, requested: RequestedScores) -> Action | None:
        """What there is to do for a trial, so that all is known that is asked.

        A score that could not be taken is tried again from kept weights, and by no further trial
        of this run once it has failed for the same reason again. It is never trained for, unless
        an objective rests on it.
        """
        record = self._trials.get(trial_id)
        if record is None or record.status == "failed":
            return "train"
        lacking = (
            requested.measurements - record.measured
            if record.status == "finished"
            else frozenset()
        )
        if trial_id in self.weights:
            failed_twice = all((m, record.failures.get(m)) in self._failed_twice for m in lacking)
            return None if failed_twice else "measure"
        rested = {m for m in lacking if any(o.rests_on(m) for o in self.objectives)}
        return "retrain" if (lacking - record.failures.keys()) | rested else None

    def with_objectives(self, trials: pa.Table) -> pa.Table:
        """Give a trials table the values that its rows have of the present objectives.

        A study whose search was steered by another score before then says one thing throughout.
        """
        names = trials["trial_id"].to_pylist()
        evaluation_data = [self._trials[name].data for name in names]
        values = [
            self.values(name, data) for name, data in zip(names, evaluation_data, strict=True)
        ]
        if evaluation_data != evaluation_data_of_rows(trials):
            trials = with_evaluation_data(trials, evaluation_data)
        for number in range(MAX_OBJECTIVES):
            is_present = number < len(self.objectives)
            found = pa.array([v[number] if is_present else None for v in values], pa.float64())
            name = str(self.objectives[number]) if is_present else None
            named = pa.array([name] * len(names), pa.string())
            for key, array in zip(objective_columns(number + 1), (named, found), strict=True):
                trials = trials.set_column(trials.column_names.index(key), key, array)
        return trials

    def configurations(self) -> Iterator[StoredConfiguration]:
        """What a search chose by, each configuration once; the rows are forgotten then.

        Trials on fresh seeds, which confirm what was chosen, are left out.
        """
        table, self._rows = self._rows, self._rows.slice(0, 0)
        found: dict[str, StoredConfiguration] = {}
        for batch in table.to_batches(max_chunksize=1000):
            columns = (batch[name].to_pylist() for name in _CONFIGURED)
            for name, trial_id, origin, config in zip(*columns, strict=True):
                if origin == CONFIRM_ORIGIN:
                    continue
                before = found.setdefault(name, StoredConfiguration(name, config, [], []))
                before.trial_ids.append(trial_id)
                before.origins.append(origin)
        yield from found.values()

    def record_end(
        self, trial_id: str, status: Status, attempt: int, scores: Iterable[Score] = ()
    ) -> None:
        """Note how a trial has ended; a finished one stays so, with scores added."""
        record = self._trials.get(trial_id)
        if record is None or record.status != "finished":
            record = self._trials[trial_id] = TrialRecord(status, attempt)
        elif status == "finished":
            record.attempt = attempt
        scores = list(scores)
        measured = {score.measurement for score in scores if score.value is not None}
        record.measured = self._intern(record.measured | measured)
        failed = {s.measurement: s.reason or "" for s in scores if s.value is None}
        # What fails for a reason that is known already has been tried again in vain.
        self._failed_twice.update(set(failed.items()) & set(record.failures.items()))
        rest = {**record.failures, **failed}
        record.failures = {
            m: reason for m, reason in rest.items() if m not in record.measured
        } or NO_FAILURES
        for number, objective in enumerate(self.objectives):
            for score in scores:
                if score.value is not None and objective.picks(score):
                    # A number stays, as it does in the study.
                    key = (score.data, number, score.classifier_seed)
                    record.objective_values.setdefault(key, score.value)

    def record_pruned(self, trial_id: str, rows: int, dev: float | None) -> None:
        """Note where a pruned trial stood when it was stopped."""
        if dev is not None:
            self._trials[trial_id].pruned_at = (rows, dev)

    def record_error(self, trial_id: str, error_type: str | None) -> None:
        """Note the class of the error with which a failed trial ended."""
        self._trials[trial_id].error_type = error_type

    def points(self) -> Iterator[tuple[str, int, float]]:
        """The evaluation points that were read: trial, rows seen and score, each trial's in order.

        They are forgotten then.
        """
        table, self._points = self._points, self._points.slice(0, 0)
        for batch in table.to_batches(max_chunksize=10_000):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def with_status(self, status: Status) -> list[str]:
        """The trials that ended so last."""
        return [name for name, record in self._trials.items() if record.status == status]

    def _intern(self, measured: frozenset[Measurement]) -> frozenset[Measurement]:
        return self._interned.setdefault(measured, measured)

    def _read_trials(self, table: pa.Table) -> None:
        wanted = ("trial_id", "status", "attempt", "error_type")
        for name, status, attempt, error in zip(
            *(table[column].to_pylist() for column in wanted), strict=True
        ):
            self._trials[name] = TrialRecord(status, attempt or 1, error_type=error)
        for name, data in zip(
            table["trial_id"].to_pylist(), evaluation_data_of_rows(table), strict=True
        ):
            self._trials[name].data = data
        self._rows = table.select(list(_CONFIGURED))
        finished = table.filter(pc.field("status") == "finished")
        kept = finished.filter(of_trials(self.weights))
        for row in kept.select(["trial_id", *RUN_COLUMNS]).to_pylist():
            self._run_columns[row["trial_id"]] = stored_run_columns(row)

    def _read_scores(self, table: pa.Table) -> None:
        self.tasks.update(pc.unique(table["task"]).to_pylist())
        table = with_measured_metric(table)
        named = table.filter(pc.field("version").is_valid() & pc.field("value").is_valid())
        for row in named.group_by(["task", "split", "version"]).aggregate([]).to_pylist():
            self.versions.setdefault((row["task"], row["split"]), set()).add(row["version"])
        failed = table.filter(pc.field("value").is_null())
        for row in failed.select(["trial_id", *MEASUREMENT, "reason"]).to_pylist():
            record = self._trials[row["trial_id"]]
            reason = row["reason"] or ""
            record.failures = {
                **record.failures,
                Measurement(*(row[key] for key in MEASUREMENT)): reason,
            }
        found = table.filter(pc.field("value").is_valid())
        for name, measured in measurements_by_trial(found):
            self._trials[name].measured = self._intern(measured)
        for number, objective in enumerate(self.objectives):
            rows = objective_rows(objective, found).select(
                ["trial_id", "data", "classifier_seed", "value"]
            )
            for name, data, seed, value in zip(*(c.to_pylist() for c in rows), strict=True):
                self._trials[name].objective_values[data, number, seed] = value

    def _read_points(self, table: pa.Table) -> None:
        self._points = table.sort_by("samples")
        pruned = self._points.filter(of_trials(self.with_status("pruned")))
        for name, rows, value in zip(*(column.to_pylist() for column in pruned), strict=True):
            self._trials[name].pruned_at = (rows, value)
