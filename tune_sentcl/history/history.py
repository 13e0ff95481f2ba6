"""The one reading of a study that everybody asks."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.history.ranking import judged_data
from tune_sentcl.history.trial_records import (
    KEYS,
    MEASUREMENT,
    NOTHING,
    OF_TASKS,
    Action,
    Asked,
    Known,
    Loss,
    Result,
    Status,
    Stored,
    among,
    by_trial,
    data_of,
    meant_on,
    rows_of,
    with_measured,
)
from tune_sentcl.objective import (
    MAX_OBJECTIVES,
    Objective,
    mean,
    objective_columns,
)
from tune_sentcl.objective import compared_by as stand_in
from tune_sentcl.score import Measurement, Score
from tune_sentcl.store.reading.study import StudyTables
from tune_sentcl.store.rows import FACTS, FRESH, stored_facts

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
        self._trials: dict[str, Known] = {}
        self._facts: dict[str, dict[str, Any]] = {}
        self._rows = pa.table({name: pa.array([], pa.string()) for name in _CONFIGURED})
        self._points = pa.table({name: pa.array([], pa.string()) for name in _POINT})
        self._shared: dict[frozenset[Measurement], frozenset[Measurement]] = {}
        self._hopeless: set[tuple[Measurement, str]] = set()

    @classmethod
    def read(
        cls,
        study: StudyTables,
        objectives: Sequence[Objective],
        columns: Sequence[str] | None = (),
        *,
        points: bool = False,
        compared_by: Objective | None = None,
    ) -> Self:
        """Read each table once.

        Args:
            study: The study.
            objectives: What a search maximizes.
            columns: Further ones of the trials, for `table`; None: all.
            points: Whether to read the evaluation points of all trials, not of pruned ones alone.
            compared_by: By what trials were compared while they ran; None: what the first
                objective says.

        Raises:
            StudyError: A file is damaged, or the disk refused.
        """
        history = cls(objectives)
        history.weights = study.checkpoints()
        own = (*_ROW, *_DATA, *FACTS, "attempt_files")
        wanted = None if columns is None else list(dict.fromkeys((*own, *columns)))
        history.table = rows = study.trials(wanted)
        history._take_trials(rows)
        files = dict(
            zip(*(rows[n].to_pylist() for n in ("trial_id", "attempt_files")), strict=True)
        )
        finished = {name: files[name] for name in history.having("finished")}
        columns = ["trial_id", *KEYS, "metric", "value", "reason", "version"]
        history._take_scores(study.scores(columns, OF_TASKS, finished))
        shown = files if points else {name: files[name] for name in history.having("pruned")}
        if shown:
            compared = compared_by or stand_in(history.objectives[0])
            curve = pc.field("metric") == compared.curve
            history._take_points(study.curves(_POINT, curve, shown))
        return history

    def __len__(self) -> int:
        """How many trials have a row."""
        return len(self._trials)

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._trials

    def status(self, trial_id: str) -> Status | None:
        """How a trial ended last; None where it has no row."""
        known = self._trials.get(trial_id)
        return known.status if known else None

    def error_type(self, trial_id: str) -> str | None:
        """The class of the error with which a trial failed last; None where it did not fail."""
        known = self._trials.get(trial_id)
        return known.error_type if known else None

    def attempts(self, trial_id: str) -> int:
        """How often a trial has been trained to an end."""
        known = self._trials.get(trial_id)
        return known.attempt if known else 0

    def values(self, trial_id: str, data: str) -> tuple[float | None, ...]:
        """A finished trial's objectives, times 100, measured on such data."""
        known = self._trials.get(trial_id)
        numbers = known.numbers if known and known.status == "finished" else {}
        return tuple(
            mean(v for (sets, number, _), v in numbers.items() if (sets, number) == (data, index))
            for index in range(len(self.objectives))
        )

    def lost(self, trial_id: str, data: str, number: int = 0) -> Loss | None:
        """How a trial has ended without a score that it was run for.

        Args:
            trial_id: It has a row.
            data: Whose sets count.
            number: Which of the objectives.

        Returns:
            None where it has the score, and where nobody asked for that.
        """
        known = self._trials[trial_id]
        if known.status != "finished":
            return "pruned" if known.status == "pruned" else "failed"
        if self.values(trial_id, data)[number] is not None:
            return None
        endless = any((sets, place) == (data, number) for sets, place, _ in known.numbers)
        objective = self.objectives[number]
        refused = any(m.data == data and objective.rests_on(m) for m in known.failed)
        return "failed" if endless or refused else None

    def rank(self, trial_id: str) -> float:
        """What a trial's weights are worth: its first objective, on the data that is meant."""
        known = self._trials.get(trial_id)
        value = self.values(trial_id, known.data)[0] if known else None
        return -np.inf if value is None else value

    def best(self) -> float | None:
        """The best first objective that the study held when it was read, on the sets that count.

        Trials on fresh seeds, which confirm what was chosen, are left out.
        """
        columns = (self.table[name].to_pylist() for name in ("trial_id", "origin"))
        chosen = [name for name, origin in zip(*columns, strict=True) if origin != FRESH]
        found = [(self._trials[name].data, self.rank(name)) for name in chosen]
        data = judged_data((on, value > -np.inf) for on, value in found)
        return max((v for on, v in found if on == data and v > -np.inf), default=None)

    def mean(self, trial_id: str, data: str) -> None:
        """Note on whose sets a search means a trial's numbers; else those of its row count."""
        if trial_id in self._trials:
            self._trials[trial_id].data = data

    def result(self, trial_id: str, data: str) -> Result:
        """How a trial that has a row ended."""
        known = self._trials[trial_id]
        if known.status == "pruned":
            rows, dev = known.stopped or (0, None)
            return Result("pruned", rows=rows, dev=dev)
        return Result(known.status, self.values(trial_id, data), error_type=known.error_type)

    def unexplained(self, trial_id: str, asked: Asked) -> bool:
        """Whether a finished trial lacks an objective, and nothing says why."""
        failed = self._trials[trial_id].failed
        values = self.values(trial_id, asked.data)
        return any(
            value is None and not any(m.data == asked.data and o.rests_on(m) for m in failed)
            for o, value in zip(self.objectives, values, strict=True)
        )

    def facts(self, trial_id: str) -> dict[str, Any]:
        """What is written of a finished trial whose weights were there, as `TrialRow` takes it."""
        return self._facts.get(trial_id, {})

    def action(self, trial_id: str, asked: Asked) -> Action | None:
        """What there is to do for a trial, so that all is known that is asked.

        A score that could not be taken is tried again from kept weights, and by no further trial
        of this run once it has failed for the same reason again. It is never trained for, unless
        an objective rests on it.
        """
        known = self._trials.get(trial_id)
        if known is None or known.status == "failed":
            return "train"
        lacking = asked.measurements - known.held if known.status == "finished" else frozenset()
        if trial_id in self.weights:
            hopeless = all((m, known.failed.get(m)) in self._hopeless for m in lacking)
            return None if hopeless else "measure"
        rested = {m for m in lacking if any(o.rests_on(m) for o in self.objectives)}
        return "retrain" if (lacking - known.failed.keys()) | rested else None

    def with_objectives(self, trials: pa.Table) -> pa.Table:
        """Give a trials table the values that its rows have of the present objectives.

        A study whose search was steered by another score before then says one thing throughout.
        """
        names = trials["trial_id"].to_pylist()
        meant = [self._trials[name].data for name in names]
        values = [self.values(name, data) for name, data in zip(names, meant, strict=True)]
        if meant != data_of(trials):
            trials = meant_on(trials, meant)
        for number in range(MAX_OBJECTIVES):
            there = number < len(self.objectives)
            found = pa.array([v[number] if there else None for v in values], pa.float64())
            name = str(self.objectives[number]) if there else None
            named = pa.array([name] * len(names), pa.string())
            for key, array in zip(objective_columns(number + 1), (named, found), strict=True):
                trials = trials.set_column(trials.column_names.index(key), key, array)
        return trials

    def configurations(self) -> Iterator[Stored]:
        """What a search chose by, each configuration once; the rows are forgotten then.

        Trials on fresh seeds, which confirm what was chosen, are left out.
        """
        table, self._rows = self._rows, self._rows.slice(0, 0)
        found: dict[str, Stored] = {}
        for batch in table.to_batches(max_chunksize=1000):
            columns = (batch[name].to_pylist() for name in _CONFIGURED)
            for name, trial_id, origin, config in zip(*columns, strict=True):
                if origin == FRESH:
                    continue
                before = found.setdefault(name, Stored(name, config, [], []))
                before.trial_ids.append(trial_id)
                before.origins.append(origin)
        yield from found.values()

    def end(
        self, trial_id: str, status: Status, attempt: int, scores: Iterable[Score] = ()
    ) -> None:
        """Note how a trial has ended; a finished one stays so, with scores added."""
        known = self._trials.get(trial_id)
        if known is None or known.status != "finished":
            known = self._trials[trial_id] = Known(status, attempt)
        elif status == "finished":
            known.attempt = attempt
        scores = list(scores)
        held = {score.measurement for score in scores if score.value is not None}
        known.held = self._share(known.held | held)
        failed = {s.measurement: s.reason or "" for s in scores if s.value is None}
        # What fails for a reason that is known already has been tried again in vain.
        self._hopeless.update(set(failed.items()) & set(known.failed.items()))
        rest = {**known.failed, **failed}
        known.failed = {m: reason for m, reason in rest.items() if m not in known.held} or NOTHING
        for number, objective in enumerate(self.objectives):
            for score in scores:
                if score.value is not None and objective.picks(score):
                    # A number stays, as it does in the study.
                    key = (score.data, number, score.classifier_seed)
                    known.numbers.setdefault(key, score.value)

    def stop(self, trial_id: str, rows: int, dev: float | None) -> None:
        """Note where a pruned trial stood when it was stopped."""
        if dev is not None:
            self._trials[trial_id].stopped = (rows, dev)

    def fail(self, trial_id: str, error_type: str | None) -> None:
        """Note the class of the error with which a failed trial ended."""
        self._trials[trial_id].error_type = error_type

    def points(self) -> Iterator[tuple[str, int, float]]:
        """The evaluation points that were read: trial, rows seen and score, each trial's in order.

        They are forgotten then.
        """
        table, self._points = self._points, self._points.slice(0, 0)
        for batch in table.to_batches(max_chunksize=10_000):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def having(self, status: Status) -> list[str]:
        """The trials that ended so last."""
        return [name for name, known in self._trials.items() if known.status == status]

    def _share(self, held: frozenset[Measurement]) -> frozenset[Measurement]:
        return self._shared.setdefault(held, held)

    def _take_trials(self, table: pa.Table) -> None:
        wanted = ("trial_id", "status", "attempt", "error_type")
        for name, status, attempt, error in zip(
            *(table[column].to_pylist() for column in wanted), strict=True
        ):
            self._trials[name] = Known(status, attempt or 1, error_type=error)
        for name, data in zip(table["trial_id"].to_pylist(), data_of(table), strict=True):
            self._trials[name].data = data
        self._rows = table.select(list(_CONFIGURED))
        finished = table.filter(pc.field("status") == "finished")
        kept = finished.filter(among(self.weights))
        for row in kept.select(["trial_id", *FACTS]).to_pylist():
            self._facts[row["trial_id"]] = stored_facts(row)

    def _take_scores(self, table: pa.Table) -> None:
        self.tasks.update(pc.unique(table["task"]).to_pylist())
        table = with_measured(table)
        named = table.filter(pc.field("version").is_valid() & pc.field("value").is_valid())
        for row in named.group_by(["task", "split", "version"]).aggregate([]).to_pylist():
            self.versions.setdefault((row["task"], row["split"]), set()).add(row["version"])
        failed = table.filter(pc.field("value").is_null())
        for row in failed.select(["trial_id", *MEASUREMENT, "reason"]).to_pylist():
            known = self._trials[row["trial_id"]]
            reason = row["reason"] or ""
            known.failed = {
                **known.failed,
                Measurement(*(row[key] for key in MEASUREMENT)): reason,
            }
        found = table.filter(pc.field("value").is_valid())
        for name, held in by_trial(found):
            self._trials[name].held = self._share(held)
        for number, objective in enumerate(self.objectives):
            rows = rows_of(objective, found).select(
                ["trial_id", "data", "classifier_seed", "value"]
            )
            for name, data, seed, value in zip(*(c.to_pylist() for c in rows), strict=True):
                self._trials[name].numbers[data, number, seed] = value

    def _take_points(self, table: pa.Table) -> None:
        self._points = table.sort_by("samples")
        pruned = self._points.filter(among(self.having("pruned")))
        for name, rows, value in zip(*(column.to_pylist() for column in pruned), strict=True):
            self._trials[name].stopped = (rows, value)
