"""Tables of trials that were really run, and the clock that replays them.

A table is a Parquet file with one row a configuration, seed and evaluation point: `configuration`,
`seed`, `point`, `score` (higher is better; null: not a number), `knob.*`, and `rows`, the training
rows at the point, if they differ from `point`. Point 0 lies before the training, and the last
point is the end. A study's folder is read as a table too.
"""

import heapq
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tune_sentcl.config import flatten, varied
from tune_sentcl.errors import DataError, Fault
from tune_sentcl.history import CONFIRM_ORIGIN
from tune_sentcl.objective import objective_named, parse_objectives
from tune_sentcl.space import Range
from tune_sentcl.space.grids import UNION_NAMES
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.study import Study

_T = TypeVar("_T")
Params = dict[str, Any]
UNREPORTED = math.inf
"""The score of a point at which a trial was not evaluated."""
_KEYS = ("configuration", "seed", "point")
_KNOB = "knob."
_FRACTIONS = 10  # of a training: the points of a study whose trials were evaluated at other rows


@dataclass(frozen=True)
class Table:
    """The trials of one task.

    Attributes:
        path: The file or study.
        params: The knobs of each configuration, without those that its method lacks, and without
            knobs that have one value in all configurations.
        rows: Training rows by configuration and point.
        scores: Scores by configuration, seed and point; NaN is a failure.
        sampled: Configurations of a study, with those that the table leaves out; 0 for a file.
    """

    path: str
    params: tuple[Params, ...]
    rows: np.ndarray
    scores: np.ndarray
    sampled: int = 0

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

    def truth(self, seeds: Sequence[int] | None = None) -> np.ndarray:
        """The mean score of each configuration's end over seeds; -inf if a seed failed."""
        means = self.scores[:, slice(None) if seeds is None else list(seeds), -1].mean(axis=1)
        return np.where(np.isnan(means), -np.inf, means)

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges that hold all configurations; a knob with one value has none."""
        keys = dict.fromkeys([*UNION_NAMES, *(key for one in self.params for key in one)])
        values = {key: [one[key] for one in self.params if key in one] for key in keys}
        return tuple(_range(k, found) for k, found in values.items() if len(set(found)) > 1)

    @cached_property
    def of_kind(self) -> dict[str, np.ndarray]:
        """Which configurations have a method and optimizer, by these as text."""
        kinds = np.array([str(kind_of(one)) for one in self.params])
        return {str(kind): kinds == kind for kind in np.unique(kinds)}

    @cached_property
    def kinds(self) -> list[Params]:
        """The methods and optimizers in the order of `of_kind`, as far as these are knobs."""
        return [kind_of(self.params[int(of.argmax())]) for of in self.of_kind.values()]

    @cached_property
    def _active(self) -> dict[str, list[Range]]:
        return {}

    def active_ranges(self, values: Mapping[str, Any]) -> list[Range]:
        """The ranges of a method and optimizer; without these, the ranges that all have."""
        kind = kind_of(values)
        if str(kind) not in self._active:
            alike = [one for one in self.params if kind.items() <= one.items()]
            active = [item for item in self.ranges if all(item.key in one for one in alike)]
            self._active[str(kind)] = active
        return self._active[str(kind)]

    @cached_property
    def index(self) -> dict[tuple[Any, ...], int]:
        """The index of each configuration by its `key`."""
        return {self.key(one): index for index, one in enumerate(self.params)}

    def key(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of the ranges' knobs."""
        return tuple(values.get(item.key) for item in self.ranges)

    @cached_property
    def places(self) -> np.ndarray:
        """The `place` of each configuration."""
        return np.array(list(map(self.place, self.params)))

    def place(self, params: Params) -> list[float]:
        """A point of the unit cube, in the scales of the ranges; NaN for a knob that is absent."""
        return [_unit(r, params[r.key]) if r.key in params else math.nan for r in self.ranges]


def kind_of(params: Mapping[str, Any]) -> Params:
    """The method and optimizer of a configuration, as far as these are knobs."""
    return {key: params[key] for key in UNION_NAMES if key in params}


def _range(key: str, values: Sequence[Any]) -> Range:
    if any(isinstance(value, bool | str) for value in values):
        return Range(key, "choice", choices=tuple(dict.fromkeys(values)))
    kind = "int" if all(isinstance(value, int) for value in values) else "float"
    low, high, found = min(values), max(values), np.array(values, float)
    log = low > 0 and high >= 10 * low and _unevenness(np.log(found)) < _unevenness(found)
    return Range(key, kind, low, high, log)


def _unevenness(values: np.ndarray) -> float:
    """The largest distance of distinct values from evenly spaced ones."""
    found = np.unique(values)
    scaled = (found - found[0]) / (found[-1] - found[0])
    return float(np.abs(scaled - np.linspace(0, 1, len(found))).max())


def _unit(item: Range, value: Any) -> float:
    if item.kind == "choice":
        return float(item.choices.index(value))
    low, high, here = (math.log(n) if item.log else n for n in (item.low, item.high, value))
    return (here - low) / (high - low)


def _from_one(params: Sequence[Params]) -> tuple[Params, ...]:
    """Replace knobs like Adam's betas by their distance from 1, if its logarithm is more even.

    A sampler draws evenly from ranges, and would reach few of the configurations otherwise.
    """
    names: dict[str, str] = {}
    for key in {key for one in params for key in one}:
        values = {one[key] for one in params if key in one}
        if all(isinstance(value, float) and 0 < value < 1 for value in values):
            found = np.array(list(values))
            far = np.log(1 - found)
            if np.ptp(far) > math.log(10) and _unevenness(far) < min(
                _unevenness(found), _unevenness(np.log(found))
            ):
                names[key] = f"1 - {key}"
    return tuple(
        {names.get(k, k): 1 - v if k in names else v for k, v in one.items()} for one in params
    )


class Free:
    """The configurations of a table that a search has not taken."""

    def __init__(self, table: Table) -> None:
        self._table, self._left = table, np.ones(len(table), bool)
        self._is_choice = np.array([item.kind == "choice" for item in table.ranges])

    def exists(self, params: Params) -> bool:
        """Whether a configuration of the params' method and optimizer is left."""
        return bool(self._alike(params).any())

    def take(self, params: Params) -> int:
        """Take the nearest free configuration; numbers count in the scale of their ranges."""
        apart = self._table.places - self._table.place(params)
        apart[:, self._is_choice] = apart[:, self._is_choice] != 0
        distance = np.where(self._alike(params), np.nansum(apart**2, axis=1), np.inf)
        return self.take_one(int(distance.argmin()))

    def take_one(self, index: int) -> int:
        """Take a configuration."""
        self._left[index] = False
        return index

    def indices(self) -> np.ndarray:
        """The free configurations."""
        return np.flatnonzero(self._left)

    def _alike(self, params: Params) -> np.ndarray:
        return self._left & self._table.of_kind.get(str(kind_of(params)), np.False_)


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
        median, finite = np.median(self.truth), self.truth[np.isfinite(self.truth)]
        return float(finite.max() - (median if np.isfinite(median) else finite.min()))

    def regret(self, choice: int | None) -> float:
        """0 for the best configuration, 1 for the median, for a worse one, and for none."""
        if choice is None or not np.isfinite(self.truth[choice]):
            return 1.0
        lost = float(self.truth.max() - self.truth[choice])
        return min(lost, self.span) / self.span if self.span else float(lost > 0)


def task_of(table: Table, seed: int, *, held_out: bool = False) -> Task:
    """A table with its seeds in random order.

    Args:
        table: The table.
        seed: The seed of the run.
        held_out: Whether half of the table's seeds are kept from the run and judge it.
    """
    count = table.scores.shape[1]
    order = np.random.default_rng([seed, 0]).permutation(count).tolist()
    first = count - max(1, count // 2)
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
        time: From the first to the last point, in whole trainings of one worker.
        seconds: CPU time of the search's own work.
    """

    choice: int | None = None
    seen: set[int] = field(default_factory=set)
    cost: float = 0.0
    time: float = 0.0
    seconds: float = 0.0


def replay(task: Task, searcher: Searcher, budget: float, workers: int) -> Run:
    """Run a search on a simulated clock: each point takes one unit of time of a worker.

    A point is paid for when it begins. It begins only if the budget also covers the rest of the
    running trainings that are nearer to their ends: the last ones to begin are cut first.
    """
    clock = _Clock(task, searcher, math.floor(budget * task.table.points + 1e-9))
    while True:
        while len(clock.running) < workers and clock.covers(math.inf) and clock.start():
            pass
        if not clock.running:
            break
        clock.step()
    clock.run.choice = clock.timed(searcher.choice)
    clock.run.cost = clock.spent / task.table.points
    clock.run.time = clock.now / task.table.points
    return clock.run


@dataclass
class _Clock:
    """The running trainings with the time and the number of the point that each has begun.

    `left` points are not paid for.
    """

    task: Task
    searcher: Searcher
    left: int
    spent: int = 0
    now: int = 0
    run: Run = field(default_factory=Run)
    running: list[tuple[int, int, Job, int]] = field(default_factory=list)
    reached: dict[tuple[int, int], int] = field(default_factory=dict)

    def covers(self, rest: float) -> bool:
        """Whether there is budget for a training that lacks `rest` points."""
        others = (job.last - number for _, _, job, number in self.running)
        return self.left > sum(other for other in others if other < rest)

    def start(self) -> bool:
        """Ask for a training and begin it; whether there was one."""
        job = self.timed(self.searcher.next)
        if job is not None:
            self._begin(job)
        return job is not None

    def _begin(self, job: Job) -> None:
        self.left -= 1
        self.spent += 1
        number = self.reached.get((job.configuration, job.seed), 0) + 1
        heapq.heappush(self.running, (self.now + 1, self.spent, job, number))

    def step(self) -> None:
        """Report the next point, and begin the one behind it if the training goes on."""
        self.now, _, job, number = heapq.heappop(self.running)
        self.reached[job.configuration, job.seed] = number
        seed = self.task.seeds[job.seed]
        score = float(self.task.table.scores[job.configuration, seed, number - 1])
        rest = job.last - number
        if self._goes_on(job, number, score) and rest and self.covers(rest):
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
    table = (_of_study if (Path(path) / MANIFEST).exists() else _of_parquet)(path)
    if not table.ranges:
        raise _fault(path, f"{_KNOB}*", "must differ between configurations")
    ranged = {item.key for item in table.ranges}
    params = tuple({k: v for k, v in one.items() if k in ranged} for one in table.params)
    table = replace(table, params=params)
    if len(table.index) < len(table):
        raise _fault(path, f"{_KNOB}*", "must not be the same for two configurations")
    for one in params:
        if extra := one.keys() - {item.key for item in table.active_ranges(one)}:
            rule = "must be null for all configurations of a method, or for none"
            raise _fault(path, f"{_KNOB}{min(extra)}", rule)
    if len(set(table.truth())) == 1:
        raise _fault(path, "score", "must differ between the ends of trainings")
    return table


def _fault(path: str, key: str, rule: str) -> DataError:
    return DataError(Fault(path, key=key, rule=rule, move="See benchmarks/replay_table.py."))


def _of_parquet(path: str) -> Table:
    try:
        return _of_rows(path, pq.read_table(path))
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise _fault(path, "", f"must be a Parquet file or a study ({reason})") from None


def _of_rows(path: str, found: pa.Table) -> Table:
    if missing := [name for name in (*_KEYS, "score") if name not in found.column_names]:
        raise _fault(path, ", ".join(missing), "must be a column")
    if any(found[key].null_count for key in _KEYS):
        raise _fault(path, ", ".join(_KEYS), "must not be null")
    found = found.filter(pc.field("point") != 0).sort_by([(key, "ascending") for key in _KEYS])
    scores = found["score"].cast(pa.float64()).to_numpy()
    if np.isinf(scores).any():
        raise _fault(path, "score", "must be finite or null")
    shape = tuple(pc.count_distinct(found[key]).as_py() for key in _KEYS)
    distinct = len(found.group_by(list(_KEYS)).aggregate([]))
    if not len(found) == math.prod(shape) == distinct > 0:
        raise _fault(path, "", "must have one row for each configuration, seed and point above 0")
    points = _whole(path, found, "point").reshape(shape)
    rows = _whole(path, found, "rows").reshape(shape) if "rows" in found.column_names else points
    _check_rows(path, rows)
    names = [name for name in found.column_names if name.startswith(_KNOB)]
    firsts = found.select(names).take(np.arange(shape[0]) * (shape[1] * shape[2]))
    knobs = {name.removeprefix(_KNOB): firsts[name].to_pylist() for name in names}
    for key, values in knobs.items():
        _check_knob(path, key, values)
        if len(found.group_by(["configuration", f"{_KNOB}{key}"]).aggregate([])) > shape[0]:
            rule = "must be the same for all seeds and points of a configuration"
            raise _fault(path, f"{_KNOB}{key}", rule)
    params = [
        {key: value for key, value in zip(knobs, row, strict=True) if value is not None}
        for row in zip(*knobs.values(), strict=True)
    ]
    return Table(path, _from_one(params), rows[:, 0], scores.reshape(shape))


def _whole(path: str, found: pa.Table, key: str) -> np.ndarray:
    rule = "must be whole numbers of at least 1"
    try:
        numbers = found[key].cast(pa.int64())
    except pa.ArrowException:
        raise _fault(path, key, rule) from None
    if numbers.null_count or pc.min(numbers).as_py() < 1:
        raise _fault(path, key, rule)
    return cast(np.ndarray, numbers.to_numpy())


def _check_rows(path: str, rows: np.ndarray) -> None:
    if (np.diff(rows) < 0).any():
        raise _fault(path, "rows", "must not fall from one point to the next")
    if (rows != rows[:, :1]).any():
        raise _fault(path, "rows", "must be the same for all seeds of a configuration")


def _check_knob(path: str, key: str, values: Sequence[Any]) -> None:
    plain = set(map(type, values)) <= {bool, int, float, str, type(None)}
    if not plain or not all(math.isfinite(v) for v in set(values) if isinstance(v, float)):
        raise _fault(path, f"{_KNOB}{key}", "must be finite numbers, strings or booleans, or null")
    if key == "seed":
        raise _fault(path, f"{_KNOB}{key}", "must be left out: a table has the column seed")


_COLUMNS = ("trial_id", "configuration", "seed", "origin", "status", "config")
_OBJECTIVE = ("objective", "objective_name")


def _of_study(path: str) -> Table:
    """The configurations of a study whose seeds have all finished or failed."""
    study = Study.read(path)
    trials = study.trials([*_COLUMNS, *_OBJECTIVE]).to_pylist()
    trials = [trial for trial in trials if trial["origin"] != CONFIRM_ORIGIN]
    seeds = sorted({trial["seed"] for trial in trials})
    by_name: dict[str, dict[int, Params]] = {}
    for trial in trials:
        if trial["status"] in ("finished", "failed"):
            by_name.setdefault(trial["configuration"], {})[trial["seed"]] = trial
    lines = [[line[s] for s in seeds] for line in by_name.values() if len(line) == len(seeds)]
    finished = [trial for line in lines for trial in line if trial["objective"] is not None]
    if not finished:
        raise _fault(path, "", "has no configuration whose seeds have all ended, with a score")
    objective = parse_objectives((finished[0]["objective_name"],), allow_test=True)[0]
    search = study.manifest.search
    ranked_by = objective_named(search.stage_objective) if search else objective
    points = pc.field("metric") == ranked_by.curve
    curves: dict[str, dict[int, float]] = {trial["trial_id"]: {} for trial in trials}
    for row in study.curves(["trial_id", "samples", "value"], points).to_pylist():
        if row["trial_id"] in curves:  # confirm trials have curves too
            curves[row["trial_id"]][row["samples"]] = row["value"]
    configs = [dict(flatten(json.loads(line[0]["config"]))) for line in lines]
    params = [
        {key: _plain(config[key]) for key in varied(configs) if config.get(key) is not None}
        for config in configs
    ]
    grids = {tuple(sorted(curves[trial["trial_id"]])) or (1,) for trial in finished}
    most = max(grid[-1] for grid in grids)
    grid = next(iter(grids)) if len(grids) == 1 else range(1, _FRACTIONS + 1)
    rows, scores = [], []
    for line in lines:
        ends = [max(curves[t["trial_id"]], default=1) for t in line if t["status"] == "finished"]
        rows.append([round(point / grid[-1] * max(ends, default=most)) for point in grid])
        scores.append([_resampled(trial, curves[trial["trial_id"]], rows[-1]) for trial in line])
    sampled = len({trial["configuration"] for trial in trials})
    return Table(path, _from_one(params), np.array(rows), np.array(scores, float), sampled)


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else str(value)


def _resampled(trial: Params, curve: Mapping[int, float], wanted: Sequence[int]) -> list[float]:
    """The score at the last point at or before each number of rows; the objective at the end."""
    found = []
    for rows in wanted[:-1]:
        before = [seen for seen in curve if seen <= rows]
        failed = trial["status"] == "failed" and rows > max(curve, default=0)
        found.append(math.nan if failed else curve[max(before)] if before else UNREPORTED)
    return [*found, math.nan if trial["objective"] is None else trial["objective"]]
