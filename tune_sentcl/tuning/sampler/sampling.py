"""The samplers of a search: Optuna's TPE, and random points."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

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
from tune_sentcl.tuning.sampler.subspaces import Params, Subspaces
from tune_sentcl.tuning.search_options import SamplerName

IsNew = Callable[[Params], bool]
_MAX_ASKS = 4
"""A few more asks find better points than a random draw after the first duplicate."""


class Sampler(Protocol):
    """Proposes configurations and learns one number of each."""

    points: float
    """The points of the ranges; infinity if one is continuous."""

    def propose(self, is_new: IsNew) -> Params | None:
        """Propose a new point; None if the ranges hold no further one."""
        ...

    def take(self, params: Params) -> Params:
        """Take a point that the sampler does not choose."""
        ...

    def begin(self, name: str) -> None:
        """Name the configuration that stands for the point of the last proposal."""
        ...

    def tell(self, name: str, values: Mapping[str, Any], score: float) -> None:
        """Tell the score of a configuration, which need not be one that was proposed here."""
        ...


def build_sampler(name: SamplerName, space: Space, seed: int, drawn: int) -> Sampler:
    """Make a sampler.

    Args:
        name: Its name; `grid` proposes nothing, and is never asked.
        space: The ranges.
        seed: The seed of its draws.
        drawn: How many earlier draws the study holds. TPE must not repeat those that it began
            with. Random points are one sequence, of which those that the study holds are passed.
    """
    if name == "tpe":
        return TpeSampler(space, seed, drawn)
    return RandomSampler(space, seed)


class RandomSampler:
    """Random points, each of a finite range once. They depend on the seed alone."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space, self._subspaces = space, Subspaces(space, seed)
        self.points = self._subspaces.points

    def propose(self, is_new: IsNew) -> Params | None:
        """The next point of the sequence that is new."""
        tries = 0
        while (key := self._subspaces.random_open_key()) is not None:
            params = self._subspaces.draw(key, lambda params: False)
            if params is not None and is_new(params):
                return params
            tries += params is not None
            if tries > _MOST_KNOWN:  # continuous ranges whose points all stand for known ones
                return None
        return None

    def take(self, params: Params) -> Params:
        """Take it."""
        return params

    def begin(self, name: str) -> None:
        """Do nothing."""

    def tell(self, name: str, values: Mapping[str, Any], score: float) -> None:
        """Learn nothing."""


_MOST_KNOWN = 100_000
"""Known points in a row after which ranges count as exhausted."""


class TpeSampler:
    """Optuna's multivariate TPE (Bergstra et al. 2011), asked and told as its users do.

    A configuration that was proposed and has not been told counts as running: the sampler keeps
    away from it.

    Attributes:
        asked: The trial of the last proposal, until it has a name.
    """

    def __init__(self, space: Space, seed: int, drawn: int) -> None:
        self.space, self._subspaces = space, Subspaces(space, seed)
        self.points = self._subspaces.points
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            # `group` is experimental. Without it TPE models conditional knobs independently.
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=stream_seed(seed, "sampler", drawn) % 2**32,
                multivariate=True,
                group=True,
                constant_liar=True,
            )
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self.asked: optuna.Trial | None = None
        self._running: dict[str, optuna.Trial] = {}

    def propose(self, is_new: IsNew) -> Params | None:
        """Ask for a new point; None if every subspace is exhausted.

        A duplicate is reported as failed, from which TPE does not learn: its value, reported
        twice, would bias the sampler towards it. After `_MAX_ASKS` duplicates in a row the
        subspace gives an open point itself. If the subspace is exhausted, another one is drawn at
        random, and the sampler chooses the other knobs there. Without this fixed choice, a sampler
        that prefers the exhausted subspace would only yield random points.
        """
        subspaces = self._subspaces
        keys = subspaces.open_keys()
        fixed: Mapping[str, Any] = dict(keys[0]) if len(keys) == 1 else {}
        repeats = 0
        while not subspaces.exhausted:
            params = self._ask(fixed)
            if is_new(params):
                return params
            self._drop()
            repeats += 1
            key = subspaces.subspace_of(params)
            if key in subspaces.open_keys():
                if repeats < _MAX_ASKS:
                    continue
                point = subspaces.draw(key, lambda params: not is_new(params))
                if point is not None:
                    return self._ask(point)
            fixed, repeats = dict(subspaces.random_open_key() or ()), 0
        return None

    def take(self, params: Params) -> Params:
        """Begin a trial with these params."""
        return self._ask(params)

    def begin(self, name: str) -> None:
        """Note the configuration of the last trial."""
        if self.asked is not None:
            self._running[name] = self.asked
            self.asked = None

    def tell(self, name: str, values: Mapping[str, Any], score: float) -> None:
        """Tell a score as that of a complete trial."""
        trial = self._running.pop(name, None)
        if trial is not None:
            self._study.tell(trial, score)
            return
        found = distributions(self.space, values)
        if found is not None:
            params = {key: values[key] for key in found}
            past = optuna.trial.create_trial(value=score, params=params, distributions=found)
            self._study.add_trial(past)

    def _ask(self, fixed: Mapping[str, Any]) -> Params:
        if fixed:
            self._study.enqueue_trial(dict(fixed))
        self.asked = self._study.ask()
        return suggest(self.asked, self.space)

    def _drop(self) -> None:
        if self.asked is not None:
            self._study.tell(self.asked, state=TrialState.FAIL)
            self.asked = None


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
