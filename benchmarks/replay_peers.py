"""Other searches over a table: random ones with stages, Optuna, Ray Tune, a portfolio.

`PEERS` has a function for each name; another module may add its own. A name may end in numbers:
`random-halving:2:10` has its first rung at point 2 and keeps 1 in 10.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState
from replay_search import TableSpace, best_configuration, tell_params
from replay_table import Free, Job, Params, Searcher, Table, Task

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.tuning.sampling import distribution, suggest

Stage = tuple[int, int, int]
"""Configurations that go on, the seeds of each, and the point up to which they train."""
MakePeer = Callable[[Task, float, Sequence[Table], Sequence[int]], Searcher]
"""Makes a peer of a task, the budget, the older tables, and the numbers behind its name."""


class Peer:
    """What the peers share: free configurations, and the choice by the end of trainings."""

    def __init__(self, task: Task) -> None:
        self.task, self.free = task, Free(task.table)
        self.random = np.random.default_rng([task.seed, 2])
        self._ends: dict[str, list[float]] = {}

    def next(self) -> Job | None:
        """Train random configurations whole."""
        left = self.free.indices()
        if not len(left):
            return None
        return Job(self.free.take_one(int(self.random.choice(left))), 0, self.task.table.points)

    def point(self, job: Job, number: int, score: float) -> bool:
        """Keep the score of an end."""
        if number == self.task.table.points:
            self._ends.setdefault(self.task.names[job.configuration], []).append(score)
        return True

    def fail(self, job: Job) -> None:
        """Learn nothing."""

    def choice(self) -> int | None:
        """The best mean of those with the most seeds, as in `replay_search`."""
        return self.task.names.index(best_configuration(self._ends)) if self._ends else None


class Staged(Peer):
    """Random configurations that go through stages; each stage waits for the one before."""

    def __init__(self, task: Task, stages: Sequence[Stage]) -> None:
        super().__init__(task)
        self._stages = [(n, min(seeds, len(task.seeds)), last) for n, seeds, last in stages]
        self._latest: dict[int, dict[int, float]] = {}
        self._done: dict[tuple[int, int], int] = {}
        self._jobs: list[Job] = []
        self._running = 0

    def next(self) -> Job | None:
        """The next training of the stage."""
        while not self._jobs and not self._running and self._stages:
            size, seeds, last = self._stages.pop(0)
            wanted = ((one, seed) for one in self._best(size) for seed in range(seeds))
            self._jobs = [Job(*key, last) for key in wanted if self._done.get(key, 0) < last]
        if not self._jobs:
            return None
        self._running += 1
        return self._jobs.pop(0)

    def _best(self, size: int) -> list[int]:
        if not self._done:
            drawn = self.random.permutation(self.free.indices())
            return [int(one) for one in drawn[:size]]
        means = {one: np.mean(list(seeds.values())) for one, seeds in self._latest.items()}
        return sorted(means, key=lambda one: (-means[one], self.task.names[one]))[:size]

    def point(self, job: Job, number: int, score: float) -> bool:
        """Keep the latest score of each seed."""
        self._latest.setdefault(job.configuration, {})[job.seed] = score
        self._done[job.configuration, job.seed] = number
        self._running -= number == job.last
        return super().point(job, number, score)

    def fail(self, job: Job) -> None:
        """Drop the configuration."""
        self._running -= 1
        self._done[job.configuration, job.seed] = job.last
        self._latest.pop(job.configuration, None)


class OptunaPeer(Peer):
    """An Optuna study with a sampler and a pruner, asked and told as its users do."""

    def __init__(self, task: Task, sampler: Any, pruner: Any) -> None:
        super().__init__(task)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = TableSpace.of(task.table)
        self._study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
        self._trials: dict[int, optuna.Trial] = {}

    def next(self) -> Job | None:
        """Ask for a trial, and run the nearest free configuration."""
        while len(self.free.indices()):
            trial = self._study.ask()
            params = suggest(trial, self._space)
            if self.free.exists(params):
                index = self.free.take(params)
                tell_params(trial, self.task.table.params[index], self.task.table.ranges)
                self._trials[index] = trial
                return Job(index, 0, self.task.table.points)
            self._study.tell(trial, state=TrialState.FAIL)
        return None

    def point(self, job: Job, number: int, score: float) -> bool:
        """Report a point, and ask whether to prune."""
        super().point(job, number, score)
        trial = self._trials[job.configuration]
        if number == job.last:
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
        most = task.table.points
        self._scheduler: Any = ASHAScheduler(metric="score", mode="max", max_t=most)
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def next(self) -> Job | None:
        """Take the searcher's suggestion, and run the nearest free configuration."""
        while len(self.free.indices()):
            name = str(len(self._searcher._ot_trials))
            self._searcher.suggest(name)
            trial = self._searcher._ot_trials[name]
            if self.free.exists(trial.params):
                index = self.free.take(trial.params)
                tell_params(trial, self.task.table.params[index], self.task.table.ranges)
                self._searcher._ot_trials[self._name(index)] = trial
                self._scheduler.on_trial_add(None, SimpleNamespace(trial_id=self._name(index)))
                return Job(index, 0, self.task.table.points)
            self._searcher.on_trial_complete(name, error=True)
        return None

    def _name(self, index: int) -> str:
        return f"configuration {index}"

    def point(self, job: Job, number: int, score: float) -> bool:
        """Pass a result on as Tune's controller does."""
        super().point(job, number, score)
        name = self._name(job.configuration)
        result = {"training_iteration": number, "score": score}
        trial = SimpleNamespace(trial_id=name)
        goes = self._scheduler.on_trial_result(None, trial, result) == "CONTINUE"
        if goes and number < job.last:
            self._searcher.on_trial_result(name, result)
        else:
            self._scheduler.on_trial_complete(None, trial, result)
            self._searcher.on_trial_complete(name, result)
        return goes

    def fail(self, job: Job) -> None:
        """Tell an error."""
        self._searcher.on_trial_complete(self._name(job.configuration), error=True)


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
                return Job(self.free.take(params), 0, self.task.table.points)
        return super().next()


def portfolio(tables: Sequence[Table], size: int) -> list[Params]:
    """The configurations that together leave the least mean regret in older tables.

    They are taken one after another; only configurations that all tables have count.
    """
    if not tables:
        rule, move = "must be given for a portfolio", "Name tables of other tasks."
        raise ConfigError(Fault("--learn", "", "", rule, move))
    indices = [{str(one): index for index, one in enumerate(table.params)} for table in tables]
    common = [name for name in indices[0] if all(name in of for of in indices)]
    tasks = [Task(table, (), table.truth(range(table.seeds)), 0) for table in tables]
    regrets = np.array(
        [
            [task.regret(of[name]) for name in common]
            for task, of in zip(tasks, indices, strict=True)
        ]
    )
    left, chosen = np.ones(len(tables)), list[int]()
    for _ in range(min(size, len(common))):
        # Of configurations that leave the same regret, the one with the least mean of its own.
        gained = np.minimum(left[:, None], regrets).mean(axis=0) + 1e-6 * regrets.mean(axis=0)
        gained[chosen] = np.inf
        chosen.append(int(gained.argmin()))
        left = np.minimum(left, regrets[:, chosen[-1]])
    return [tables[0].params[indices[0][common[index]]] for index in chosen]


def halving_stages(points: int, budget: float, first: int, keep: int) -> list[Stage]:
    """Rungs of synchronous successive halving that use a budget of whole trainings."""
    rungs = [first]
    while rungs[-1] * keep < points:
        rungs.append(rungs[-1] * keep)
    rungs = [*rungs, points] if rungs[-1] < points else [points]
    steps = [last - before for last, before in zip(rungs, [0, *rungs], strict=False)]
    limit, size = math.floor(budget * points + 1e-9), 1

    def sizes(size: int) -> list[int]:
        return [max(1, size // keep**rung) for rung in range(len(rungs))]

    def cost(size: int) -> int:
        return sum(n * step for n, step in zip(sizes(size), steps, strict=True))

    while cost(size + 1) <= limit:
        size += 1
    return [(n, 1, last) for n, last in zip(sizes(size), rungs, strict=True)]


def _one_point_stages(points: int, budget: float) -> list[Stage]:
    """Half of the budget for one point of each configuration, half for the best ones' ends."""
    limit = math.floor(budget * points + 1e-9)
    whole = max(1, limit // 2 // max(1, points - 1))
    return [(limit - whole * (points - 1), 1, 1), (whole, 1, points)]


def _race_stages(points: int, budget: float) -> list[Stage]:
    """More seeds for the best: of 60 trainings 42 by 1, then 9 by 2, 5 by 3 and 2 by 5."""
    shares = ((42, 1), (9, 2), (5, 3), (2, 5))
    return [(max(1, round(n * budget / 60)), seeds, points) for n, seeds in shares]


def _samplers() -> Iterator[tuple[str, Callable[[int], Any]]]:
    yield "optuna-tpe", lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=False)
    yield (
        "optuna-tpe-multivariate",
        lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True),
    )
    yield "optuna-gp", lambda seed: optuna.samplers.GPSampler(seed=seed)


def _halving_pruner(points: int, first: int = 1, keep: int = 4) -> Any:
    return optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=keep)


def _hyperband(points: int, first: int = 1, keep: int = 3) -> Any:
    return optuna.pruners.HyperbandPruner(first, points, reduction_factor=keep)


def _optuna(sampler: Callable[[int], Any], pruner: Callable[..., Any]) -> MakePeer:
    def make(
        task: Task, budget: float, learn: Sequence[Table], numbers: Sequence[int]
    ) -> Searcher:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return OptunaPeer(task, sampler(task.seed), pruner(task.table.points, *numbers))

    return make


def _whole(budget: float, points: int, seeds: int) -> list[Stage]:
    return [(math.ceil(budget / seeds), seeds, points)]


PEERS: dict[str, MakePeer] = {
    "random": lambda task, budget, learn, numbers: Peer(task),
    "random-seeds3": lambda task, budget, learn, numbers: Staged(
        task, _whole(budget, task.table.points, 3)
    ),
    "random-halving": lambda task, budget, learn, numbers: Staged(
        task,
        halving_stages(task.table.points, budget, *(numbers or (1,))[:1], *(numbers[1:] or (3,))),
    ),
    "random-race": lambda task, budget, learn, numbers: Staged(
        task, _race_stages(task.table.points, budget)
    ),
    "one-point": lambda task, budget, learn, numbers: Staged(
        task, _one_point_stages(task.table.points, budget)
    ),
    "ray-asha": lambda task, budget, learn, numbers: RayPeer(task),
    "portfolio": lambda task, budget, learn, numbers: Portfolio(
        task, portfolio(learn, math.ceil(budget))
    ),
}
"""The peers by name."""
for _name, _sampler in _samplers():
    PEERS[_name] = _optuna(_sampler, lambda points: optuna.pruners.NopPruner())
    PEERS[f"{_name}-halving"] = _optuna(_sampler, _halving_pruner)
    PEERS[f"{_name}-hyperband"] = _optuna(_sampler, _hyperband)


def peer(text: str) -> tuple[MakePeer, list[int]]:
    """A peer and the numbers behind its name.

    Raises:
        ConfigError: There is no such peer.
    """
    name, *numbers = text.split(":")
    if name not in PEERS or not all(number.isdecimal() for number in numbers):
        rule = "must be options of search, `default`, or a peer"
        raise ConfigError(Fault("--policy", "", text, rule, f"Peers: {', '.join(PEERS)}."))
    return PEERS[name], list(map(int, numbers))
