"""The samplers of a search: Optuna's TPE, and random points."""

import itertools
import math
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState

from tune_sentcl.seeding import stream_seed
from tune_sentcl.space import Range, Space
from tune_sentcl.tuning.options import SamplerName

Params = dict[str, Any]
"""One value for each active range, by dotted key."""

IsNew = Callable[[Params], bool]
LEAST_TOLD = 10
"""The fewest told configurations from which TPE draws values of a range, Optuna's default."""
_MAX_ASKS = 4
"""A few more asks find better points than a random draw after the first duplicate."""
_MOST_LISTED = 20_000
"""Ranges with more points are sampled as if they were continuous."""
_MAX_TAKEN = 1_000
"""Known points in a row after which ranges that are not listed count as exhausted."""


class Sampler:
    """Proposes configurations, each once, and learns one number of each.

    The sampler `tpe` is Optuna's multivariate TPE (Bergstra et al. 2011), asked and told as its
    users do. A configuration that was proposed and has not been told counts as running: the
    sampler keeps away from it. The sampler `random` learns nothing, and its points are one
    sequence that depends on the seed alone.

    Attributes:
        points: The points of the ranges; infinity if one is continuous.
        asked: The trial of TPE's last proposal, until it has a name.
    """

    def __init__(self, name: SamplerName, space: Space, seed: int, drawn: int) -> None:
        """Make a sampler.

        Args:
            name: Its name; `grid` proposes nothing, and is never asked.
            space: The ranges.
            seed: The seed of its draws.
            drawn: How many earlier draws the study holds. TPE must not repeat those that it began
                with. Random points begin anew, and those that the study holds are passed.
        """
        self.space, self._random = space, random.Random(seed)
        self._branches = space.branches() if space.ranges else []
        self.points = sum(math.prod(map(_size, self._free(branch))) for branch in self._branches)
        self._sequence = self._listed() if self.points <= _MOST_LISTED else self._endless()
        self._most_taken = drawn + _MAX_TAKEN
        self.asked: optuna.Trial | None = None
        self._running: dict[str, optuna.Trial] = {}
        self._study = _tpe(seed, drawn) if name == "tpe" else None
        self._told: Counter[str] = Counter()  # by range, in how many configurations it is active

    def propose(self, is_new: IsNew) -> Params | None:
        """Propose a new point; None if the ranges hold no further one.

        A duplicate is reported as failed, from which TPE does not learn: its value, reported
        twice, would bias the sampler towards it. TPE is then asked for a point of a random method
        and optimizer, because it may prefer a method without further points. After `_MAX_ASKS`
        duplicates in a row a random point is taken.
        """
        study, branch = self._study, Params()
        for _ in range(_MAX_ASKS if self._branches else 0):
            if study is None:
                break
            trial, params = self._ask(study, branch)
            if is_new(params):
                self.asked = trial
                return params
            study.tell(trial, state=TrialState.FAIL)
            branch = self._random.choice(self._branches)
        most = None if self.points <= _MOST_LISTED else self._most_taken
        point = next(filter(is_new, itertools.islice(self._sequence, most)), None)
        return None if point is None else self.take(point)

    def take(self, params: Params) -> Params:
        """Take a point that the sampler does not choose."""
        if self._study is not None:
            self.asked, params = self._ask(self._study, params)
        return params

    def begin(self, name: str) -> None:
        """Name the configuration that stands for the point of the last proposal."""
        if self.asked is not None:
            self._running[name] = self.asked
            self.asked = None

    def tell(self, name: str, values: Mapping[str, Any], score: float) -> None:
        """Tell the score of a configuration, which need not be one that was proposed here."""
        if self._study is None:
            return
        axes = distributions(self.space, values)
        if name in self._running:
            self._study.tell(self._running.pop(name), score)
        elif axes is not None:
            params = {key: values[key] for key in axes}
            past = optuna.trial.create_trial(value=score, params=params, distributions=axes)
            self._study.add_trial(past)
        self._told.update(list(axes or ()))

    def _ask(self, study: optuna.Study, fixed: Params) -> tuple[optuna.Trial, Params]:
        if fixed:
            study.enqueue_trial(fixed)
        trial = study.ask()
        params = suggest(trial, self.space)
        free = [item for item in self.space.ranges if item.key in params.keys() - fixed.keys()]
        rare = [item for item in free if self._told[item.key] < LEAST_TOLD]
        if not rare or max(self._told.values(), default=0) < LEAST_TOLD:  # TPE draws at random
            return trial, params
        study.tell(trial, state=TrialState.FAIL)
        study.enqueue_trial({**params, **{item.key: _draw(item, self._random) for item in rare}})
        trial = study.ask()
        return trial, suggest(trial, self.space)

    def _free(self, branch: Params) -> list[Range]:
        """The ranges of a method and an optimizer, without these two."""
        return [item for item in self.space.active_ranges(branch) if item.key not in branch]

    def _listed(self) -> Iterator[Params]:
        """Every point once, in random order."""
        points = []
        for branch in self._branches:
            free = self._free(branch)
            for values in itertools.product(*map(_values, free)):
                points.append({**branch, **dict(zip([r.key for r in free], values, strict=True))})
        self._random.shuffle(points)
        yield from points

    def _endless(self) -> Iterator[Params]:
        """Random points; a method with few points comes as often as one with many."""
        while True:
            branch = self._random.choice(self._branches)
            drawn = {item.key: _draw(item, self._random) for item in self._free(branch)}
            yield {**branch, **drawn}


def _tpe(seed: int, drawn: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        # `group` is experimental. Without it TPE models conditional knobs independently.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=stream_seed(seed, "sampler", drawn) % 2**32,
            n_startup_trials=LEAST_TOLD,
            multivariate=True,
            group=True,
            constant_liar=True,
        )
    return optuna.create_study(direction="maximize", sampler=sampler)


def _values(item: Range) -> Any:
    return item.choices if item.kind == "choice" else range(int(item.low), int(item.high) + 1)


def _size(item: Range) -> float:
    return math.inf if item.kind == "float" else len(_values(item))


def _draw(item: Range, generator: random.Random) -> Any:
    if item.kind == "choice":
        return generator.choice(item.choices)
    ends = (math.log(item.low), math.log(item.high)) if item.log else (item.low, item.high)
    number = math.exp(generator.uniform(*ends)) if item.log else generator.uniform(*ends)
    number = min(max(number, item.low), item.high)  # exp(log(x)) may differ from x by rounding
    return number if item.kind == "float" else round(number)


def distribution(item: Range) -> BaseDistribution:
    """The Optuna distribution of a range."""
    match item.kind:
        case "choice":
            return CategoricalDistribution(item.choices)
        case "int":
            return IntDistribution(int(item.low), int(item.high), log=item.log)
        case "float":
            return FloatDistribution(item.low, item.high, log=item.log)


def suggest(trial: optuna.Trial, space: Space) -> Params:
    """Draw one value for each range that is active for the drawn method and optimizer."""
    values: Params = {}
    for item in space.ranges:
        if item in space.active_ranges(values):
            values[item.key] = _suggest_one(trial, item)
    return values


def _suggest_one(trial: optuna.Trial, item: Range) -> Any:
    match item.kind:
        case "choice":
            return trial.suggest_categorical(item.key, item.choices)
        case "int":
            return trial.suggest_int(item.key, int(item.low), int(item.high), log=item.log)
        case "float":
            return trial.suggest_float(item.key, item.low, item.high, log=item.log)


def distributions(space: Space, values: Mapping[str, Any]) -> dict[str, BaseDistribution] | None:
    """The distributions of the active ranges; None if a knob is missing or outside its range.

    TPE would model a knob that some trials lack apart from the others. A trial gets the present
    ranges as distributions, wherever it was drawn: where these differ between trials, TPE takes
    the first trial's.
    """
    active = space.active_ranges(values)
    if not all(item.key in values and item.holds(values[item.key]) for item in active):
        return None
    return {item.key: distribution(item) for item in active}
