"""Tables of trials that were really run, and the clock that replays them.

A table is a Parquet file with one row a configuration, seed and evaluation point: `configuration`,
`seed`, `point`, `score` (higher is better; null: not a number), `knob.*`, and `rows`, the training
rows at the point, if they differ from `point`. Point 0 lies before the training. The last point is
the end. A study's folder is read as a table too.
"""

import heapq
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tune_sentcl.config import flatten, varied
from tune_sentcl.errors import DataError, Fault
from tune_sentcl.history import CONFIRM_ORIGIN
from tune_sentcl.objective import early_stopping_objective, parse_objectives
from tune_sentcl.space import Range
from tune_sentcl.space.grids import UNION_NAMES
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.reading.study import Study

_T = TypeVar("_T")
Params = dict[str, Any]
UNREPORTED = math.inf
"""The score of a point at which a trial was not evaluated."""
_COLUMNS = ("configuration", "seed", "point", "score")
_KNOB = "knob."
_FRACTIONS = 10  # of a training: the points of a study whose trials were evaluated at other rows


@dataclass(frozen=True)
class Table:
    """The trials of one task.

    Attributes:
        path: The file or study.
        params: The knobs of each configuration, without those that its method lacks.
        rows: Training rows by configuration and point.
        scores: Scores by configuration, seed and point; NaN is a failure.
    """

    path: str
    params: tuple[Params, ...]
    rows: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.params)

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return Path(self.path).name.removesuffix(".parquet")

    @property
    def points(self) -> int:
        """Evaluation points of a whole training."""
        return self.scores.shape[2]

    @property
    def seeds(self) -> int:
        """Seeds of each configuration."""
        return self.scores.shape[1]

    @cached_property
    def kinds(self) -> list[Params]:
        """The kind of each configuration."""
        return list(map(kind_of, self.params))

    @cached_property
    def of_kind(self) -> dict[str, np.ndarray]:
        """Which configurations have a kind, by the kind as text."""
        kinds = np.array(list(map(str, self.kinds)))
        return {str(kind): kinds == kind for kind in np.unique(kinds)}

    @cached_property
    def places(self) -> np.ndarray:
        """The place of each configuration."""
        return np.array(list(map(self.place, self.params)))

    def place(self, params: Params) -> list[float]:
        """A point of the unit cube, in the scales of the ranges; NaN for a knob that is absent."""
        return [
            _unit(item, params[item.key]) if item.key in params else math.nan
            for item in self.ranges
        ]

    @cached_property
    def index(self) -> dict[tuple[Any, ...], int]:
        """The index of each configuration by its `key`."""
        return {self.key(one): index for index, one in enumerate(self.params)}

    def key(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of the ranges' knobs."""
        return tuple(values.get(item.key) for item in self.ranges)

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges that hold all configurations; a knob with one value has none."""
        keys = dict.fromkeys([*UNION_NAMES, *(key for one in self.params for key in one)])
        values = {key: [one[key] for one in self.params if key in one] for key in keys}
        return tuple(_range(k, found) for k, found in values.items() if len(set(found)) > 1)

    def active_ranges(self, kind: Mapping[str, Any]) -> list[Range]:
        """The ranges of a method and optimizer; without these, the ranges that all have."""
        names = kind_of(kind)
        if str(names) not in self._active:
            rows = zip(self.params, self.kinds, strict=True)
            alike = [params for params, its in rows if names.items() <= its.items()]
            active = [item for item in self.ranges if all(item.key in one for one in alike)]
            self._active[str(names)] = active
        return self._active[str(names)]

    @cached_property
    def _active(self) -> dict[str, list[Range]]:
        return {}

    def truth(self, seeds: Sequence[int]) -> np.ndarray:
        """The mean score of each configuration's end; -inf if a seed failed."""
        means = self.scores[:, list(seeds), -1].mean(axis=1)
        return np.where(np.isnan(means), -np.inf, means)


def kind_of(params: Params) -> Params:
    """The method and optimizer of a configuration, as far as these are knobs."""
    return {key: params[key] for key in UNION_NAMES if key in params}


def _range(key: str, values: Sequence[Any]) -> Range:
    if any(isinstance(value, bool | str) for value in values):
        return Range(key, "choice", choices=tuple(dict.fromkeys(values)))
    found = np.unique(np.array(values, float))
    kind = "int" if all(isinstance(value, int) for value in values) else "float"
    low, high = min(values), max(values)
    log = low > 0 and high >= 10 * low and _unevenness(np.log(found)) < _unevenness(found)
    return Range(key, kind, low, high, log)


def _unevenness(values: np.ndarray) -> float:
    """The largest distance of sorted values from even ones; of beta2, the logarithm has more."""
    scaled = (values - values[0]) / (values[-1] - values[0])
    return float(np.abs(scaled - np.linspace(0, 1, len(values))).max())


class Free:
    """The configurations of a table that a search has not taken."""

    def __init__(self, table: Table) -> None:
        self.table, self._left = table, np.ones(len(table), bool)
        self._is_choice = np.array([item.kind == "choice" for item in table.ranges])

    def exists(self, params: Params) -> bool:
        """Whether a configuration of the params' method and optimizer is left."""
        return bool((self._left & self._alike(params)).any())

    def take(self, params: Params) -> int:
        """Take the nearest free configuration; numbers count in the scale of their ranges."""
        apart = self.table.places - self.table.place(params)
        apart[:, self._is_choice] = apart[:, self._is_choice] != 0
        distance = np.nansum(apart**2, axis=1)
        distance[~(self._left & self._alike(params))] = np.inf
        return self.take_one(int(distance.argmin()))

    def take_one(self, index: int) -> int:
        """Take a configuration."""
        self._left[index] = False
        return index

    def indices(self) -> np.ndarray:
        """The free configurations."""
        return np.flatnonzero(self._left)

    def _alike(self, params: Params) -> np.ndarray | bool:
        return self.table.of_kind.get(str(kind_of(params)), False)


def _unit(item: Range, value: Any) -> float:
    if item.kind == "choice":
        return float(item.choices.index(value))
    low, high, here = (
        map(math.log, (item.low, item.high, value)) if item.log else (item.low, item.high, value)
    )
    return (here - low) / (high - low)


@dataclass(frozen=True)
class Task:
    """A table as one run sees it.

    Attributes:
        table: The table.
        seeds: The table's seeds that the run sees, in the order in which it asks for them.
        truth: The score of each configuration that a choice is judged by.
        seed: The seed of the run's own random draws.
    """

    table: Table
    seeds: tuple[int, ...]
    truth: np.ndarray
    seed: int

    @cached_property
    def names(self) -> list[str]:
        """A name for each configuration, in random order: ties are broken by name."""
        order = np.random.default_rng([self.seed, 1]).permutation(len(self.table))
        return [f"{place:06d}" for place in order]

    @cached_property
    def span(self) -> float:
        """The distance from the table's median to its best; of a failed median, from the worst."""
        median = np.median(self.truth)
        low = median if np.isfinite(median) else self.truth[np.isfinite(self.truth)].min()
        return float(self.truth.max() - low)

    def regret(self, choice: int | None) -> float:
        """0 for the best configuration, 1 for the median, for a worse one, and for none."""
        if choice is None or not np.isfinite(self.truth[choice]):
            return 1.0
        lost = float(self.truth.max() - self.truth[choice])
        return min(lost / self.span if self.span else 1.0, 1.0) if lost else 0.0


def task_of(table: Table, seed: int, *, held_out: bool = False) -> Task:
    """A table with its seeds in random order.

    Args:
        table: The table.
        seed: The seed of the run.
        held_out: Whether half of the seeds, rounded down, are kept from the run and judge it.
    """
    order = np.random.default_rng([seed, 0]).permutation(table.seeds).tolist()
    first = table.seeds - max(1, table.seeds // 2)
    seen, judging = (order[:first], order[first:]) if held_out else (order, order)
    return Task(table, tuple(seen), table.truth(judging), seed)


@dataclass(frozen=True)
class Job:
    """A training that a search asks for, up to a point; it goes on from where it stopped.

    Attributes:
        configuration: The index of the configuration.
        seed: The place of the seed in `Task.seeds`.
        last: The point, counted from 1, at which it stops.
    """

    configuration: int
    seed: int
    last: int


class Searcher(Protocol):
    """A search over one task."""

    def next(self) -> Job | None:
        """The next training for a free worker; None: none before another one has ended."""
        ...

    def point(self, job: Job, number: int, score: float) -> bool:
        """Take the score of a point, counted from 1; return whether the training goes on."""
        ...

    def fail(self, job: Job) -> None:
        """Take the end of a training whose score is not a number."""
        ...

    def choice(self) -> int | None:
        """The configuration that the search ranks first; None without a finished training."""
        ...


@dataclass
class Run:
    """What one search did.

    Attributes:
        choice: The configuration that it chose.
        seen: The configurations that reported a score.
        cost: Whole trainings.
        seconds: CPU time of the search's own work.
    """

    choice: int | None = None
    seen: set[int] = field(default_factory=set)
    cost: float = 0.0
    seconds: float = 0.0


def replay(task: Task, searcher: Searcher, budget: float, workers: int) -> Run:
    """Run a search on a simulated clock: each point takes one unit of time of a worker.

    A point is paid for when it begins, and none begins without budget for it.
    """
    points = task.table.points
    clock = _Clock(task, searcher, math.floor(budget * points + 1e-9))
    while True:
        while clock.left and len(clock.running) < workers and clock.start():
            pass
        if not clock.running:
            break
        clock.step()
    clock.run.choice = clock.timed(searcher.choice)
    clock.run.cost = clock.spent / points
    return clock.run


@dataclass
class _Clock:
    """The trainings that run; `left` points are not paid for."""

    task: Task
    searcher: Searcher
    left: int
    spent: int = 0
    now: int = 0
    run: Run = field(default_factory=Run)
    running: list[tuple[int, int, Job]] = field(default_factory=list)
    reached: dict[tuple[int, int], int] = field(default_factory=dict)

    def start(self) -> bool:
        """Ask for a training and begin it; whether there was one."""
        job = self.timed(self.searcher.next)
        if job is not None:
            self._begin(job)
        return job is not None

    def _begin(self, job: Job) -> None:
        self.left -= 1
        self.spent += 1
        heapq.heappush(self.running, (self.now + 1, self.spent, job))

    def step(self) -> None:
        """Report the next point, and begin the one behind it if the training goes on."""
        self.now, _, job = heapq.heappop(self.running)
        key = (job.configuration, job.seed)
        number = self.reached[key] = self.reached.get(key, 0) + 1
        seed = self.task.seeds[job.seed]
        score = float(self.task.table.scores[job.configuration, seed, number - 1])
        if self._goes_on(job, number, score) and number < job.last and self.left:
            self._begin(job)

    def _goes_on(self, job: Job, number: int, score: float) -> bool:
        if math.isnan(score):
            self.timed(partial(self.searcher.fail, job))
            return False
        if score == UNREPORTED:
            return True
        self.run.seen.add(job.configuration)
        return self.timed(partial(self.searcher.point, job, number, score))

    def timed(self, call: Callable[[], _T]) -> _T:
        """Call the search, and count its CPU time."""
        start = time.thread_time()
        found = call()
        self.run.seconds += time.thread_time() - start
        return found


def read_table(path: str) -> Table:
    """Read a table from a Parquet file or from a study's folder.

    Raises:
        DataError: The file is no table.
        StudyError: The study is damaged.
    """
    if (Path(path) / MANIFEST).exists():
        return _of_study(path)
    try:
        found = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise _fault(path, "", f"must be a Parquet file or a study ({reason})") from None
    missing = [name for name in _COLUMNS if name not in found.column_names]
    knobs = [name for name in found.column_names if name.startswith(_KNOB)]
    if missing or not knobs:
        raise _fault(path, ", ".join(missing) or f"{_KNOB}*", "must be a column")
    found = found.filter(pc.field("point") > 0).sort_by(
        [(name, "ascending") for name in _COLUMNS[:3]]
    )
    if not len(found):
        raise _fault(path, "", "has no point of a training")
    shape = tuple(pc.count_distinct(found[name]).as_py() for name in _COLUMNS[:3])
    if math.prod(shape) != len(found) or len(
        found.group_by(list(_COLUMNS[:3])).aggregate([])
    ) != len(found):
        raise _fault(path, "", "must have one row for each configuration, seed and point")
    scores = found["score"].to_numpy().astype(float).reshape(shape)
    rows = (
        found["rows" if "rows" in found.column_names else "point"].to_numpy().reshape(shape)[:, 0]
    )
    firsts = found.take(np.arange(shape[0]) * shape[1] * shape[2])
    params = [
        {key.removeprefix(_KNOB): value for key, value in row.items() if value is not None}
        for row in firsts.select(knobs).to_pylist()
    ]
    return _checked(path, Table(path, tuple(params), rows, scores))


def _fault(path: str, key: str, rule: str) -> DataError:
    return DataError(Fault(path, key, "", rule, "See benchmarks/replay_table.py."))


def _checked(path: str, table: Table) -> Table:
    if not table.ranges:
        raise _fault(path, f"{_KNOB}*", "must differ between configurations")
    if len({json.dumps(one, sort_keys=True) for one in table.params}) < len(table):
        raise _fault(path, f"{_KNOB}*", "must not be the same for two configurations")
    for kind in {str(kind): kind for kind in table.kinds}.values():
        active = {item.key for item in table.active_ranges(kind)}
        ranged = {item.key for item in table.ranges}
        for one, its in zip(table.params, table.kinds, strict=True):
            if its == kind and (extra := (one.keys() & ranged) - active):
                rule = "must be null for all configurations of a method, or for none"
                raise _fault(path, f"{_KNOB}{min(extra)}", rule)
    if not np.isfinite(truth := table.truth(range(table.seeds))).any() or np.ptp(truth) == 0:
        raise _fault(path, "score", "must differ between ends of trainings")
    return table


def _of_study(path: str) -> Table:
    """The configurations of a study whose seeds have all finished or failed."""
    study = Study.read(path)
    columns = [
        "trial_id",
        "configuration",
        "seed",
        "origin",
        "status",
        "config",
        "objective",
        "objective_name",
    ]
    trials = [row for row in study.trials(columns).to_pylist() if row["origin"] != CONFIRM_ORIGIN]
    ended = [row for row in trials if row["status"] in ("finished", "failed")]
    seeds = sorted({row["seed"] for row in trials})
    names = [row["objective_name"] for row in ended if row["objective"] is not None]
    by_name: dict[str, dict[int, Params]] = {}
    for row in ended:
        by_name.setdefault(row["configuration"], {})[row["seed"]] = row
    whole = [rows for rows in by_name.values() if len(rows) == len(seeds)]
    if not names or not whole:
        raise _fault(path, "", "has no configuration whose seeds have all ended, with a score")
    curve = early_stopping_objective(parse_objectives((names[0],), allow_test=True)[0]).curve
    curves: dict[str, dict[int, float]] = {}
    found = study.curves(["trial_id", "samples", "value"], pc.field("metric") == curve)
    for trial, seen, value in zip(*(column.to_pylist() for column in found.columns), strict=True):
        curves.setdefault(trial, {})[seen] = value
    configs = [dict(flatten(json.loads(rows[seeds[0]]["config"]))) for rows in whole]
    params = [
        {key: _plain(config[key]) for key in varied(configs) if config.get(key) is not None}
        for config in configs
    ]
    cells = [[rows[seed] for seed in seeds] for rows in whole]
    return _checked(path, Table(path, tuple(params), *_curves(cells, curves)))


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else str(value)


def _curves(
    cells: Sequence[Sequence[Params]], curves: Mapping[str, Mapping[int, float]]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and scores by point; trials that were evaluated at other rows get common points."""
    flat = [row for line in cells for row in line]
    lengths = {
        max(curves.get(row["trial_id"], {1: 0.0})) for row in flat if row["status"] == "finished"
    }
    grids = {
        tuple(sorted(curves.get(row["trial_id"], {1: 0.0})))
        for row in flat
        if row["status"] == "finished"
    }
    longest = max(lengths)
    if len(grids) == 1:
        parts = [seen / longest for seen in next(iter(grids))]
    else:
        parts = [number / _FRACTIONS for number in range(1, _FRACTIONS + 1)]
    rows = np.array(
        [[round(part * _length(line, curves, longest)) for part in parts] for line in cells]
    )
    scores = [
        [list(_resampled(row, curves.get(row["trial_id"], {}), wanted)) for row in line]
        for line, wanted in zip(cells, rows.tolist(), strict=True)
    ]
    return rows, np.array(scores, float)


def _length(
    line: Sequence[Params], curves: Mapping[str, Mapping[int, float]], longest: int
) -> int:
    found = [
        max(curves.get(row["trial_id"], {1: 0.0})) for row in line if row["status"] == "finished"
    ]
    return max(found, default=longest)


def _resampled(row: Params, curve: Mapping[int, float], wanted: Sequence[int]) -> Iterator[float]:
    """The score at the last point at or before each number of rows; the objective at the end."""
    end = math.nan if row["objective"] is None else row["objective"]
    for rows in wanted[:-1]:
        before = [seen for seen in curve if seen <= rows]
        failed = row["status"] == "failed" and (not curve or rows > max(curve))
        yield math.nan if failed else curve[max(before)] if before else UNREPORTED
    yield end
