"""Other searches over a table: random ones with stages, Optuna, Ray Tune, a portfolio.

`wrong-prior` is this search with the worst configuration of older tables as its prior.

`PEERS` has a function for each name; another module may add its own, as `replay_outside` adds
those of `OUTSIDE`. A name may end in numbers: `random-halving:2:10` has its first rung at point 2
and keeps 1 in 10.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState
from replay_search import DEFAULT, OwnSearch, TableSpace, parse_policy, tell_params
from replay_table import Free, Job, Params, Searcher, Table, Task

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.tuning.sampler import distribution, portfolio, standardized, suggest

Stage = tuple[int, int, int]
"""Configurations that go on, the seeds of each, and the point up to which they train."""


class Peer:
    """A random search, and what all peers share: free configurations and the choice."""

    def __init__(self, task: Task) -> None:
        self.task, self.free, self.points = task, Free(task.table), task.table.points
        self.random = np.random.default_rng([task.seed, 2])
        self._ends: dict[str, list[float]] = {}

    def next(self) -> Job | None:
        """A whole training of a random configuration."""
        left = self.free.indices()
        return (
            self._whole(self.free.take_one(int(self.random.choice(left)))) if len(left) else None
        )

    def _whole(self, index: int) -> Job:
        return Job(index, 0, self.points)

    def _take(self, params: Params) -> int:
        """Take the nearest free configuration; a random one if none has the method."""
        if self.free.exists(params):
            return self.free.take(params)
        return self.free.take_one(int(self.random.choice(self.free.indices())))

    def point(self, job: Job, number: int, score: float) -> bool:
        """Keep the score of an end."""
        if number == self.points:
            self._ends.setdefault(self.task.names[job.configuration], []).append(score)
        return True

    def fail(self, job: Job) -> None:
        """Learn nothing."""

    def choice(self) -> int | None:
        """The best mean of the configurations with the most seeds."""
        most = max(map(len, self._ends.values()), default=0)
        means = {name: np.mean(v) for name, v in self._ends.items() if len(v) == most}
        best = min(means, key=lambda name: (-means[name], name), default=None)
        return None if best is None else self.task.names.index(best)


class Staged(Peer):
    """Configurations that go through stages; each stage waits for the one before.

    A source proposes those of the first stage; it learns from their ends.
    """

    def __init__(self, task: Task, stages: Sequence[Stage], source: Peer | None = None) -> None:
        super().__init__(task)
        self._source = source or Peer(task)
        self._stages = [(n, min(seeds, len(task.seeds)), last) for n, seeds, last in stages]
        self._number, self._drawn = 0, 0
        self._latest: dict[int, dict[int, float]] = {}
        self._done: dict[tuple[int, int], int] = {}
        self._jobs: list[Job] = []
        self._running = 0

    def next(self) -> Job | None:
        """The next training of the stage."""
        size, seeds, last = self._stages[self._number]
        if not self._jobs and self._number == 0 and self._drawn < size:
            drawn = self._source.next()
            if drawn is not None:
                self._drawn += 1
                self._jobs = [Job(drawn.configuration, seed, last) for seed in range(seeds)]
        while not (self._jobs or self._running) and self._number + 1 < len(self._stages):
            self._number += 1
            size, seeds, last = self._stages[self._number]
            keys = ((one, seed) for one in self._best(size) for seed in range(seeds))
            self._jobs = [Job(*key, last) for key in keys if self._done.get(key, 0) < last]
        if not self._jobs:
            return None
        self._running += 1
        return self._jobs.pop(0)

    def _best(self, size: int) -> list[int]:
        means = {one: np.mean(list(seeds.values())) for one, seeds in self._latest.items()}
        return sorted(means, key=lambda one: (-means[one], self.task.names[one]))[:size]

    def point(self, job: Job, number: int, score: float) -> bool:
        """Keep the latest score of each seed."""
        self._latest.setdefault(job.configuration, {})[job.seed] = score
        self._done[job.configuration, job.seed] = number
        self._running -= number == job.last
        if self._number == 0 and job.seed == 0:
            self._source.point(job, number, score)
        return super().point(job, number, score)

    def fail(self, job: Job) -> None:
        """Drop the configuration."""
        self._running -= 1
        self._done[job.configuration, job.seed] = self.points
        self._latest.pop(job.configuration, None)
        if self._number == 0 and job.seed == 0:
            self._source.fail(job)


class OptunaPeer(Peer):
    """An Optuna study with a sampler and a pruner, asked and told as its users do."""

    def __init__(self, task: Task, sampler: Any, pruner: Any = None) -> None:
        super().__init__(task)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        pruner = pruner or optuna.pruners.NopPruner()
        self._space = TableSpace.of(task.table)
        self._study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
        self._trials: dict[int, optuna.Trial] = {}

    def next(self) -> Job | None:
        """Ask for a trial, and run the nearest free configuration."""
        if not len(self.free.indices()):
            return None
        trial = self._study.ask()
        index = self._take(suggest(trial, self._space))
        tell_params(trial, self.task.table, index)
        self._trials[index] = trial
        return self._whole(index)

    def point(self, job: Job, number: int, score: float) -> bool:
        """Report a point, and ask whether to prune."""
        super().point(job, number, score)
        trial = self._trials[job.configuration]
        if number == self.points:
            self._study.tell(trial, score)
            return False
        trial.report(score, number)
        if trial.should_prune():
            self._study.tell(trial, state=TrialState.PRUNED)
            return False
        return True

    def fail(self, job: Job) -> None:
        """Tell a failure."""
        self._study.tell(self._trials[job.configuration], state=TrialState.FAIL)


class RayPeer(Peer):
    """Ray Tune's searcher of Optuna and its asynchronous successive halving, without Ray."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from ray.tune.schedulers import ASHAScheduler
        from ray.tune.search.optuna import OptunaSearch

        ranges = {item.key: distribution(item) for item in task.table.ranges}
        self._searcher: Any = OptunaSearch(ranges, metric="score", mode="max", seed=task.seed)
        self._scheduler: Any = ASHAScheduler(metric="score", mode="max", max_t=self.points)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._names: dict[int, str] = {}

    def next(self) -> Job | None:
        """Take the searcher's suggestion, and run the nearest free configuration."""
        if not len(self.free.indices()):
            return None
        name = str(len(self._searcher._ot_trials))
        self._searcher.suggest(name)
        trial = self._searcher._ot_trials[name]
        index = self._take(trial.params)
        tell_params(trial, self.task.table, index)
        self._names[index] = name
        self._scheduler.on_trial_add(None, SimpleNamespace(trial_id=name))
        return self._whole(index)

    def point(self, job: Job, number: int, score: float) -> bool:
        """Pass a result on as Tune's controller does."""
        super().point(job, number, score)
        trial = SimpleNamespace(trial_id=self._names[job.configuration])
        result = {"training_iteration": number, "score": score}
        goes = number < self.points and (
            self._scheduler.on_trial_result(None, trial, result) == "CONTINUE"
        )
        if goes:
            self._searcher.on_trial_result(trial.trial_id, result)
        else:
            self._scheduler.on_trial_complete(None, trial, result)
            self._searcher.on_trial_complete(trial.trial_id, result)
        return goes

    def fail(self, job: Job) -> None:
        """Tell an error."""
        self._searcher.on_trial_complete(self._names[job.configuration], error=True)


class Portfolio(Peer):
    """Whole trainings of configurations that were good in older tables, then random ones."""

    def __init__(self, task: Task, order: Sequence[Params]) -> None:
        super().__init__(task)
        self._order = list(order)

    def next(self) -> Job | None:
        """Train the free configuration that is nearest to the next of the portfolio."""
        while self._order:
            params = self._order.pop(0)
            if self.free.exists(params):
                return self._whole(self.free.take(params))
        return super().next()


_portfolios: dict[tuple[tuple[str, ...], int], list[Params]] = {}


def portfolio_of(tables: Sequence[Table], size: int) -> list[Params]:
    """The portfolio of older tables, as a search chooses that of older studies."""
    key = (tuple(table.path for table in tables), size)
    if key not in _portfolios:
        _portfolios[key] = [dict(one) for one in portfolio(_standardized(tables), size)]
    return _portfolios[key]


def worst_of(tables: Sequence[Table]) -> Params:
    """The worst configuration of older tables that trains in all of them."""
    studies = _standardized(tables)
    common = set.intersection(*(set(study) for study in studies))
    failed = {
        tuple(one.items())
        for table in tables
        for one, truth in zip(table.params, table.truth().tolist(), strict=True)
        if truth == -math.inf
    }
    means = {key: np.mean([study[key] for study in studies]) for key in common - failed}
    return dict(min(means, key=lambda key: (means[key], str(key))))


def _standardized(tables: Sequence[Table]) -> list[dict[tuple[tuple[str, Any], ...], float]]:
    if not tables:
        rule, move = "must be given for this policy", "Name tables of other tasks."
        raise ConfigError(Fault("--learn", rule=rule, move=move))
    pairs = [zip(table.params, table.truth().tolist(), strict=True) for table in tables]
    return [standardized({tuple(p.items()): truth for p, truth in found}) for found in pairs]


def halving_stages(points: int, budget: float, first: int = 1, keep: int = 3) -> list[Stage]:
    """The rungs of synchronous successive halving that use a budget of whole trainings."""
    rungs = [point for k in range(points) if (point := first * keep**k) < points] + [points]
    steps = np.diff([0, *rungs])

    def sizes(size: int) -> list[int]:
        return [max(1, size // keep**rung) for rung in range(len(rungs))]

    size = 1
    while sizes(size + 1) @ steps <= budget * points + 1e-9:
        size += 1
    return [(n, 1, last) for n, last in zip(sizes(size), rungs, strict=True)]


def _one_point_stages(points: int, budget: float) -> list[Stage]:
    """Half of the budget for one point of each configuration, half for the best ones' ends."""
    limit = int(budget * points + 1e-9)
    whole = max(1, limit // 2 // max(1, points - 1))
    return [(max(1, limit - whole * (points - 1)), 1, 1), (whole, 1, points)]


def _race_stages(points: int, budget: float) -> list[Stage]:
    """More seeds for the best: of 60 trainings 42 by 1, then 9 by 2, 5 by 3 and 2 by 5."""
    shares = ((42, 1), (9, 2), (5, 3), (2, 5))
    return [(max(1, round(n * budget / 60)), seeds, points) for n, seeds in shares]


def _seeds_stages(points: int, budget: float) -> list[Stage]:
    return [(math.ceil(budget / 3), 3, points)]


def _staged(stages: Callable[..., list[Stage]], sampler: Any = None) -> Callable[..., Searcher]:
    def make(task: Task, budget: float, learn: Sequence[Table], *numbers: int) -> Searcher:
        source = None if sampler is None else OptunaPeer(task, sampler(seed=task.seed))
        return Staged(task, stages(task.table.points, budget, *numbers), source)

    return make


def _halving_pruner(points: int, first: int = 1, keep: int = 4) -> Any:
    return optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=keep)


def _hyperband_pruner(points: int, first: int = 1, keep: int = 3) -> Any:
    return optuna.pruners.HyperbandPruner(first, points, reduction_factor=keep)


def _optuna(sampler: Any, pruner: Callable[..., Any]) -> Callable[..., Searcher]:
    def make(task: Task, budget: float, learn: Sequence[Table], *numbers: int) -> Searcher:
        return OptunaPeer(task, sampler(seed=task.seed), pruner(task.table.points, *numbers))

    return make


PEERS: dict[str, Callable[..., Searcher]] = {
    "random": lambda task, budget, learn: Peer(task),
    "random-seeds3": _staged(_seeds_stages),
    "random-halving": _staged(halving_stages),
    "random-race": _staged(_race_stages),
    "one-point": _staged(_one_point_stages),
    "ray-asha": lambda task, budget, learn: RayPeer(task),
    "wrong-prior": lambda task, budget, learn: OwnSearch(
        task, parse_policy(DEFAULT), budget, priors=[worst_of(learn)]
    ),
    "portfolio": lambda task, budget, learn: Portfolio(task, portfolio_of(learn, int(budget) + 1)),
}
"""The peers by name: functions of the task, the budget, the older tables and numbers."""
OUTSIDE = (
    *("syne-tune-asha-cqr", "syne-tune-bohb"),
    *("smac", "smac-hyperband"),
    *("neps-hyperband", "neps-priorband"),
)
"""The peers of `replay_outside`, which is loaded for these names alone: they need packages."""
_SAMPLERS = {
    "optuna-tpe": partial(optuna.samplers.TPESampler, multivariate=False),
    "optuna-tpe-multivariate": partial(optuna.samplers.TPESampler, multivariate=True),
    "optuna-gp": optuna.samplers.GPSampler,
}
for _name, _sampler in _SAMPLERS.items():
    PEERS[_name] = _optuna(_sampler, lambda points: None)
    PEERS[f"{_name}-halving"] = _optuna(_sampler, _halving_pruner)
    PEERS[f"{_name}-hyperband"] = _optuna(_sampler, _hyperband_pruner)
    PEERS[f"{_name}-race"] = _staged(_race_stages, _sampler)
_RUNGS = ("-halving", "-hyperband")
_NUMBERED = {"random-halving", *(f"{name}{rungs}" for name in _SAMPLERS for rungs in _RUNGS)}
_LEAST = (1, 2)  # the first rung, and the reduction


def peer(text: str) -> Callable[[Task, float, Sequence[Table]], Searcher]:
    """The peer of a policy, which may end in numbers.

    Raises:
        ConfigError: There is no such peer, or it takes no such numbers.
    """
    name, *numbers = text.split(":")
    if name in OUTSIDE:
        import_module("replay_outside")
    if name not in PEERS:
        rule = "must be options of search, `default`, or a peer"
        names = ", ".join(dict.fromkeys([*PEERS, *OUTSIDE]))
        raise ConfigError(Fault("--policy", value=text, rule=rule, move=f"Peers: {names}."))
    least = _LEAST if name in _NUMBERED else ()
    pairs = zip(numbers, least, strict=False)
    if len(numbers) > len(least) or not all(n.isdecimal() and int(n) >= low for n, low in pairs):
        numbered = "takes a first rung of at least 1, then a reduction of at least 2"
        rule = numbered if least else "takes no numbers"
        raise ConfigError(Fault("--policy", value=text, rule=rule, move="Correct it."))
    return lambda task, budget, learn: PEERS[name](task, budget, learn, *map(int, numbers))
