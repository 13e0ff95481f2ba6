"""Other searches over a table that need packages of their own: Syne Tune, SMAC and NePS.

Importing this module adds them to `replay_peers.PEERS`; a package is imported when its search
begins. A suggestion runs as the nearest free configuration of the table. SMAC and NePS minimize,
so that they are told the negative score.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from replay_peers import PEERS, Peer
from replay_search import active_of
from replay_table import Job, Params, Searcher, Table, Task

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.space import Range


class Outside(Peer):
    """What these searches share: codes of knobs, and global generators as their own.

    A choice has its index as code, for no package takes choices of all types.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        random = np.random.RandomState(task.seed)
        self._draws: tuple[Any, Any] = (
            random.get_state(),
            torch.Generator().manual_seed(task.seed).get_state(),
        )
        self._asked: dict[int, Any] = {}

    def next(self) -> Job | None:
        """Ask for a training while there is a free configuration."""
        if not len(self.free.indices()):
            return None
        with self._own_draws():
            return self._ask()

    def point(self, job: Job, number: int, score: float) -> bool:
        """Tell a score."""
        super().point(job, number, score)
        with self._own_draws():
            return self._tell(job, number, score)

    def fail(self, job: Job) -> None:
        """Tell a failure."""
        with self._own_draws():
            self._tell_failure(job)

    @abstractmethod
    def _ask(self) -> Job | None: ...

    @abstractmethod
    def _tell(self, job: Job, number: int, score: float) -> bool: ...

    @abstractmethod
    def _tell_failure(self, job: Job) -> None: ...

    @contextmanager
    def _own_draws(self) -> Iterator[None]:
        """Let the package draw from global generators, whose states are this search's own."""
        before = _put(self._draws)
        try:
            yield
        finally:
            self._draws = _put(before)

    def _take_coded(self, codes: Params) -> int:
        """Take the nearest free configuration."""
        ranges = self.task.table.ranges
        return self._take({item.key: _decoded(item, codes[item.key]) for item in ranges})

    def _ran(self, codes: Params, index: int) -> Params:
        """The codes of the configuration that runs; a knob that it lacks keeps its code."""
        params = self.task.table.params[index]
        ran = {r.key: _coded(r, params[r.key]) for r in active_of(self.task.table, index)}
        return {**{item.key: codes[item.key] for item in self.task.table.ranges}, **ran}


def _put(states: tuple[Any, Any]) -> tuple[Any, Any]:
    """Put states of the global generators of NumPy and torch in place; return those before."""
    # The packages draw from these generators, and take no other.
    before = (np.random.get_state(), torch.get_rng_state())  # noqa: NPY002
    np.random.set_state(states[0])  # noqa: NPY002
    torch.set_rng_state(states[1])
    return before


def _coded(item: Range, value: Any) -> Any:
    return item.choices.index(value) if item.kind == "choice" else value


def _decoded(item: Range, code: Any) -> Any:
    if item.kind == "choice":
        return item.choices[int(code)]
    return int(code) if item.kind == "int" else float(code)


class SyneTune(Outside):
    """A scheduler of Syne Tune, called as its `Tuner` does.

    It is told the knobs that ran. It takes no notice of failures.
    """

    def __init__(self, task: Task, name: str) -> None:
        super().__init__(task)
        baselines = _package("syne_tune.optimizer.baselines", "syne-tune==0.16.*")
        logging.getLogger("syne_tune").setLevel(logging.ERROR)
        ranges = {item.key: _syne_tune_domain(item) for item in task.table.ranges}
        axis = {"metric": "score", "do_minimize": False, "time_attr": "point"}
        with self._own_draws():
            self._scheduler = getattr(baselines, name)(
                ranges, **axis, max_t=self.points, random_seed=task.seed
            )

    def _ask(self) -> Job | None:
        suggestion = self._scheduler.suggest()
        if suggestion is None:
            return None
        index = self._take_coded(suggestion.config)
        trial_class = import_module("syne_tune.backend.trial_status").Trial
        ran = self._ran(suggestion.config, index)
        self._asked[index] = trial_class(len(self._asked), ran, datetime.fromtimestamp(0))
        self._scheduler.on_trial_add(self._asked[index])
        return self._whole(index)

    def _tell(self, job: Job, number: int, score: float) -> bool:
        trial, result = self._asked[job.configuration], {"score": score, "point": number}
        if number == self.points:
            self._scheduler.on_trial_complete(trial, result)
            return False
        goes = bool(self._scheduler.on_trial_result(trial, result) == "CONTINUE")
        if not goes:
            self._scheduler.on_trial_remove(trial)
        return goes

    def _tell_failure(self, job: Job) -> None:
        self._scheduler.on_trial_error(self._asked[job.configuration])


def _syne_tune_domain(item: Range) -> Any:
    domains = import_module("syne_tune.config_space")
    if item.kind == "choice":
        return domains.choice(list(range(len(item.choices))))
    name = {"int": "randint", "float": "uniform"}[item.kind]
    return getattr(domains, f"log{name}" if item.log else name)(item.low, item.high)


class Smac(Outside):
    """A facade of SMAC, asked and told whole trainings of one seed.

    It is told the knobs that ran; what it suggested counts as running until the end. A failure is
    told as the worst score so far, for SMAC's own cost of one, infinity, has no logarithm.
    """

    facade = "HyperparameterOptimizationFacade"

    def __init__(self, task: Task, budget: float) -> None:
        super().__init__(task)
        self._smac = _package("smac", "smac==2.*")
        self._spaces = import_module("ConfigSpace")
        logging.getLogger("smac").setLevel(logging.ERROR)
        self._space = self._spaces.ConfigurationSpace(seed=task.seed)
        self._space.add([self._hyperparameter(item) for item in task.table.ranges])
        self._costs: list[float] = []
        with TemporaryDirectory() as folder, self._own_draws():
            scenario = self._smac.Scenario(
                self._space,
                output_directory=Path(folder),
                deterministic=True,
                seed=task.seed % 2**31,
                **self._limits(budget),
            )
            facade = getattr(self._smac, self.facade)
            self._search = facade(scenario, logging_level=False, overwrite=True)

    def _limits(self, budget: float) -> Params:
        return {"n_trials": max(1, round(budget))}

    def _hyperparameter(self, item: Range) -> Any:
        if item.kind == "choice":
            codes = range(len(item.choices))
            return self._spaces.CategoricalHyperparameter(item.key, list(codes))
        kinds = {"int": "UniformIntegerHyperparameter", "float": "UniformFloatHyperparameter"}
        made = getattr(self._spaces, kinds[item.kind])
        return made(item.key, item.low, item.high, log=item.log)

    def _ask(self) -> Job | None:
        try:
            info = self._search.ask()
        except StopIteration:  # SMAC finds no configuration that is new
            return None
        return self._job(info)

    def _job(self, info: Any) -> Job:
        codes = dict(info.config)
        index = self._take_coded(codes)
        values = {key: self._legal(key, v) for key, v in self._ran(codes, index).items()}
        ran = self._spaces.Configuration(self._space, values=values)
        self._asked[index] = self._smac.runhistory.TrialInfo(ran, seed=info.seed)
        return self._whole(index)

    def _legal(self, key: str, value: Any) -> Any:
        """The value within the limits of its hyperparameter, whose digits ConfigSpace rounds."""
        limits = self._space[key]
        is_float = isinstance(limits, self._spaces.UniformFloatHyperparameter)
        return min(max(value, limits.lower), limits.upper) if is_float else value

    def _tell(self, job: Job, number: int, score: float) -> bool:
        if number == job.last:
            self._costs.append(-score)
            self._tell_cost(job, -score)
        return number < job.last

    def _tell_failure(self, job: Job) -> None:
        self._tell_cost(job, max(self._costs, default=0.0))

    def _tell_cost(self, job: Job, cost: float) -> None:
        value = self._smac.runhistory.TrialValue(cost=cost)
        self._search.tell(self._asked[job.configuration], value, save=False)


class SmacHyperband(Smac):
    """SMAC's facade for several budgets: Hyperband, whose trainings go on where they stopped.

    It is told its suggestions in place of the knobs that ran, for its stages wait for these.
    """

    facade = "MultiFidelityFacade"

    def __init__(self, task: Task, budget: float) -> None:
        super().__init__(task, budget)
        self._index: dict[Any, int] = {}

    def _limits(self, budget: float) -> Params:
        """Budgets, and about five trials for a whole training: 69 cost one cycle of 13."""
        trials = max(1, round(5 * budget))
        return {"n_trials": trials, "min_budget": 1, "max_budget": self.points}

    def _job(self, info: Any) -> Job:
        if info.config not in self._index:
            self._index[info.config] = self._take_coded(dict(info.config))
        index = self._index[info.config]
        self._asked[index] = info
        return Job(index, 0, max(1, round(info.budget)))


class Neps(Outside):
    """An optimizer of NePS over brackets, asked and told; its trials get the knobs that ran."""

    def __init__(self, task: Task, name: str) -> None:
        super().__init__(task)
        neps = _package("neps", "neural-pipeline-search==0.17.*")
        logging.getLogger("neps").setLevel(logging.ERROR)
        if self.points == 1:
            rule = "needs tables with several evaluation points"
            raise ConfigError(
                Fault("--policy", value=f"neps-{name}", rule=rule, move="Name others.")
            )
        parameters = import_module("neps.space")
        space = {item.key: _neps_parameter(parameters, item) for item in task.table.ranges}
        space["fidelity"] = parameters.HPOInteger(1, self.points, is_fidelity=True)
        optimizer = getattr(neps.algorithms, name)(parameters.SearchSpace(space))
        self._neps = neps.AskAndTell(optimizer)
        self._index: dict[str, int] = {}

    def _ask(self) -> Job | None:
        trial = self._neps.ask()
        name = trial.id.split("_rung_")[0]
        if name not in self._index:
            self._index[name] = self._take_coded(trial.config)
        index = self._index[name]
        trial.config = {**trial.config, **self._ran(trial.config, index)}
        self._asked[index] = trial
        return Job(index, 0, int(trial.config["fidelity"]))

    def _tell(self, job: Job, number: int, score: float) -> bool:
        if number == job.last:
            self._neps.tell(self._asked[job.configuration], -score)
        return number < job.last

    def _tell_failure(self, job: Job) -> None:
        self._neps.tell(self._asked[job.configuration], ArithmeticError("not a number"))


def _neps_parameter(parameters: Any, item: Range) -> Any:
    if item.kind == "choice":
        return parameters.HPOCategorical(list(range(len(item.choices))))
    made = {"int": parameters.HPOInteger, "float": parameters.HPOFloat}[item.kind]
    return made(item.low, item.high, log=item.log)


def _package(module: str, requirement: str) -> Any:
    """Import a module of a package that is no dependency.

    Raises:
        ConfigError: The package, or one that it needs, is missing.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package, rule = module.split(".")[0], f"needs a package that is missing ({error})"
        move = f'Install it: pip install "{requirement}".'
        raise ConfigError(Fault("--policy", value=package, rule=rule, move=move)) from None


def _add(name: str, make: Callable[[Task, float], Searcher]) -> None:
    def peer(task: Task, budget: float, learn: Sequence[Table]) -> Searcher:
        return make(task, budget)

    PEERS[name] = peer


_add("syne-tune-asha-cqr", lambda task, budget: SyneTune(task, "ASHACQR"))
_add("syne-tune-bohb", lambda task, budget: SyneTune(task, "BOHB"))
_add("smac", Smac)
_add("smac-hyperband", SmacHyperband)
_add("neps-hyperband", lambda task, budget: Neps(task, "hyperband"))
_add("neps-priorband", lambda task, budget: Neps(task, "priorband"))
