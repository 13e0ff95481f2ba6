"""The sources of sampled configurations: TPE, random points, older studies and priors."""

import itertools
import math
import random
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState

from tune_sentcl.config import evaluation_data, varied
from tune_sentcl.errors import Fault, SpaceError, StudyError
from tune_sentcl.history import Configuration, History
from tune_sentcl.objective import Objective
from tune_sentcl.seeding import stream_seed
from tune_sentcl.space import Params, Range, Space
from tune_sentcl.space.grids import UNION_NAMES
from tune_sentcl.store.files import distinct_studies, study_path
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.input_checks import other_versions
from tune_sentcl.tuning.options import SamplerName
from tune_sentcl.tuning.stages import CONFIGURATION_ERRORS

IsNew = Callable[[Params], bool]
LEAST_TOLD = 10
"""TPE draws at random until it was told this many configurations, Optuna's default."""
_MAX_ASKS = 4
"""After a first duplicate, a few more proposals are better than a random draw."""
_MOST_LISTED = 20_000
"""Ranges with more points are sampled as if they were continuous."""
_MAX_TAKEN = 1_000
"""Ranges that are not listed count as exhausted after this many known points in a row."""


class Sampler:
    """Proposes each configuration once, and learns a score of each.

    The sampler `tpe` is Optuna's multivariate TPE (Bergstra et al. 2011), used through ask and
    tell. A configuration that was proposed but not told counts as running, and the sampler avoids
    its neighbourhood. The sampler `random` learns nothing; its points are one sequence that
    depends only on the seed.

    Attributes:
        points: The number of points of the ranges; infinity if a range is continuous.
        asked: Optuna's trial of TPE's last proposal, until the configuration has a name.
    """

    def __init__(self, name: SamplerName, space: Space, seed: int, drawn: int) -> None:
        """Make a sampler.

        Args:
            name: The sampler's name; do not ask a sampler `grid` for proposals.
            space: The search space with the ranges.
            seed: The seed of its draws.
            drawn: How many earlier draws the study holds. TPE gets another random stream for each
                number. Random points start from the beginning, and known points are skipped.
        """
        self.space, self._random = space, random.Random(seed)
        self._branches = space.branches() if space.ranges else []
        self.points = sum(math.prod(map(_size, self._free(branch))) for branch in self._branches)
        self._sequence = self._listed() if self.points <= _MOST_LISTED else self._endless()
        self._most_taken = drawn + _MAX_TAKEN
        self.asked: optuna.Trial | None = None
        self._running: dict[str, optuna.Trial] = {}
        self._study = _tpe(seed, drawn) if name == "tpe" else None
        # For each range, the number of configurations told to TPE that have it.
        self._told: Counter[str] = Counter()

    def propose(self, is_new: IsNew) -> Params | None:
        """Propose a new point; None if the ranges hold no further point.

        A duplicate is told to TPE as failed: a second value would bias TPE towards the point. TPE
        is then asked for a point with a random method and optimizer, because it may prefer a
        method without further points. After `_MAX_ASKS` duplicates in a row, a random point is
        taken.
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
        """Take a point that another source has chosen, and tell TPE that it runs."""
        if self._study is not None:
            self.asked, params = self._ask(self._study, params)
        return params

    def begin(self, name: str) -> None:
        """Record the name of the last proposed point, by which `tell` finds it."""
        if self.asked is not None:
            self._running[name] = self.asked
            self.asked = None

    def tell(self, name: str, values: Mapping[str, Any], score: float) -> None:
        """Tell the score of a configuration, whether or not this sampler proposed it."""
        if self._study is None:
            return
        axes = distributions(self.space, values)
        if name in self._running:
            self._study.tell(self._running.pop(name), score)
        elif axes is not None:
            params = {r.key: r.param(values[r.key]) for r in self.space.ranges if r.key in axes}
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
        if not rare or max(self._told.values(), default=0) < LEAST_TOLD:
            # TPE draws at random for now, or every range has been told often enough.
            return trial, params
        study.tell(trial, state=TrialState.FAIL)
        study.enqueue_trial({**params, **{item.key: _draw(item, self._random) for item in rare}})
        trial = study.ask()
        return trial, suggest(trial, self.space)

    def _free(self, branch: Params) -> list[Range]:
        """The active ranges of a branch, without those that choose method and optimizer."""
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
        """Random points; each method is equally frequent, however many points it has."""
        while True:
            branch = self._random.choice(self._branches)
            drawn = {item.key: _draw(item, self._random) for item in self._free(branch)}
            yield {**branch, **drawn}


def _tpe(seed: int, drawn: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        # Optuna warns that `group` is experimental. Without `group`, TPE models conditional
        # hyperparameters independently of each other.
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
    # Rounding can put exp(log(x)) just outside the range.
    number = min(max(number, item.low), item.high)
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
    """Suggest a value for each range that is active for the suggested method and optimizer."""
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
    """The distributions of the active ranges; None if a value is missing or outside its range.

    TPE models a hyperparameter that some trials lack separately. All trials get the current
    ranges, wherever they were drawn, because TPE would use those of the first trial for all.
    """
    active = space.active_ranges(values)
    if not all(item.key in values and item.holds(values[item.key]) for item in active):
        return None
    return {item.key: distribution(item) for item in active}


K = TypeVar("K", bound=Hashable)

WORST = -1.0
"""The lowest standardized value."""

SIZE = 10
"""The most configurations of other studies with which a search starts."""

MOST_WHOLE = 3
"""The first of these train to the end at once; the others begin the first halving."""


def standardized(values: Mapping[K, float]) -> dict[K, float]:
    """Scale the values of one study so that its center becomes 0 and its best value 1.

    The center is the median, or the worst finite value if that is higher: a search that stops most
    configurations early has final scores only of the best. Values below -1 become -1.

    Args:
        values: The values; -inf stands for a configuration without a score.
    """
    finite = [value for value in values.values() if value > -math.inf]
    if not finite:
        return dict.fromkeys(values, WORST)
    center = max(statistics.median(values.values()), min(finite))
    unit = max(finite) - center or 1.0
    return {key: max(WORST, (value - center) / unit) for key, value in values.items()}


def portfolio(studies: Sequence[Mapping[K, float]], size: int) -> list[K]:
    """Choose greedily the configurations that together did best in several studies.

    For a set of configurations, take in each study the best standardized value. Each choice
    maximizes the mean of these values over the studies. Ties go to the configuration with the
    higher mean value of its own, then to the order of the studies. In a study that lacks a
    configuration, its value is the worst. A configuration below the center of every study is not
    chosen.

    Args:
        studies: For each study, the standardized value of each configuration.
        size: The most configurations to choose.
    """
    candidates = dict.fromkeys(key for study in studies for key in study if study[key] >= 0)
    best = [WORST] * len(studies)
    chosen: list[K] = []
    while candidates and len(chosen) < size:
        key = max(candidates, key=lambda key: _means(key, studies, best))
        best = [max(b, study.get(key, WORST)) for b, study in zip(best, studies, strict=True)]
        chosen.append(key)
        del candidates[key]
    return chosen


def _means(
    key: K, studies: Sequence[Mapping[K, float]], best: Sequence[float]
) -> tuple[float, float]:
    own = [study.get(key, WORST) for study in studies]
    return statistics.fmean(map(max, best, own)), statistics.fmean(own)


PastStudy = dict[tuple[tuple[str, Any], ...], float]
"""The standardized scores of a study's configurations, by their params."""


def best_params(studies: Sequence[PastStudy]) -> list[Params]:
    """The `portfolio` of other studies, as params."""
    return [dict(key) for key in portfolio(studies, SIZE)]


def prior_params(space: Space) -> list[Params]:
    """The configurations of a search space's priors: one per method and optimizer with all priors.

    A prior of `method.name` or `optimizer.name` excludes the other methods or optimizers.
    """
    complete = []
    for branch in space.branches():
        active = space.active_ranges(branch)
        priors = {item.key: item.prior for item in active if item.prior is not None}
        params = {**priors, **branch}
        if priors and priors.items() <= params.items() and len(params) == len(active):
            complete.append(params)
    return complete


def check_priors(space: Space) -> None:
    """Refuse a prior if every method lacks another prior, because a search would ignore it.

    Raises:
        SpaceError: A prior lacks the priors of other ranges.
    """
    lacking: dict[str, list[str]] = {}
    for active in map(space.active_ranges, space.branches()):
        without = [r.key for r in active if r.prior is None and r.key not in UNION_NAMES]
        for item in active:
            if item.prior is not None:
                lacking[item.key] = min(lacking.get(item.key, without), without, key=len)
    rule = "requires a prior for each other range of its method"
    faults = [
        Fault(
            f"{space.source} [search.ranges]",
            key=f"{key}.prior",
            rule=rule,
            move=f"Give {names}.prior.",
        )
        for key, without in lacking.items()
        if (names := ".prior and ".join(without))
    ]
    if faults:
        raise SpaceError(faults)


def past_studies(
    studies: Sequence[str], space: Space, objectives: Sequence[Objective], loader: InputLoader
) -> list[PastStudy]:
    """Read the configurations of other studies that lie in the ranges of a search space.

    If a study varied a hyperparameter of method or optimizer that the search space fixes, its
    value must be the same. Everything else may differ, such as encoder and data.

    A configuration counts by the mean of its first objective on the evaluation data of this
    search, standardized within its study. A configuration counts as the worst if a seed was
    stopped, or failed through its hyperparameters. After any other failure the configuration is
    left out.

    Raises:
        StudyError: A study has no finished configuration with these objectives in the ranges, or
            an objective was scored on other rows there.
    """
    past: list[PastStudy] = []
    faults: list[Fault] = []
    for study in map(study_path, distinct_studies(studies)):
        in_ranges = list(_in_ranges(study, space, objectives, loader))
        scores: dict[tuple[tuple[str, Any], ...], list[float]] = {}
        for params, configuration in in_ranges:
            if (score := _score(configuration, len(objectives))) is not None:
                scores.setdefault(tuple(sorted(params.items())), []).append(score)
        means = {key: statistics.fmean(values) for key, values in scores.items()}
        if max(means.values(), default=-math.inf) > -math.inf:
            past.append(standardized(means))
            continue
        rule = f"has no configuration in the ranges of {space.name}"
        if in_ranges:
            rule += f" that has finished and has {' and '.join(map(str, objectives))}"
        move = "Leave that study out, or name a study of the same search space and objective."
        faults.append(Fault("--learn-from", value=study, rule=rule, move=move))
    if faults:
        raise StudyError(faults)
    return past


def _in_ranges(
    path: str, space: Space, objectives: Sequence[Objective], loader: InputLoader
) -> Iterator[tuple[Params, Configuration]]:
    """Yield the configurations of a study that lie in the ranges, with their params."""
    history = History.read(Study.read(path), objectives)
    _check_versions(path, space, loader, history)
    read = list(history.configurations())
    ranged = {item.key for item in space.ranges}
    others = [key for key in varied([past.values for past in read]) if key not in ranged]
    others = [key for key in others if key.startswith(("method.", "optimizer."))]
    for past in read:
        params = space.params_of(past.values)
        if params is None:
            continue
        sampled = space.sampled_values(params)
        known = [k for k in others if k in past.values and k in sampled]
        if all(past.values[k] == sampled[k] for k in known):
            yield params, past


def _score(past: Configuration, objectives: int) -> float | None:
    """The mean of the first objective; -inf if it counts as the worst, None to leave it out."""
    failed = {result.error_type for result in past.results.values() if result.status == "failed"}
    if failed:
        return -math.inf if failed <= CONFIGURATION_ERRORS else None
    # A seed whose trial was stopped has no score, so the mean is None.
    means = [past.mean(past.results, number) for number in range(objectives)]
    return -math.inf if None in means else means[0]


def _check_versions(path: str, space: Space, loader: InputLoader, history: History) -> None:
    """Raise StudyError if a study was scored on other rows, whose scores are not comparable."""
    faults: dict[Fault, None] = {}
    wanted = evaluation_data(space.configurations[0])
    if history.data not in (None, wanted):
        rule = f"was scored on {history.data} evaluation data, but this search uses {wanted} data"
        faults[Fault("--learn-from", value=path, rule=rule, move="Leave that study out.")] = None
    for task, split, others in other_versions(space, loader, history):
        for objective in history.objectives:
            if (objective.task, objective.split) == (task.name, split):
                rule = f"has {objective} of version {others}, but the rows here have version "
                rule += f"{task.version}"
                move = "Leave that study out, or restore its rows."
                faults[Fault("--learn-from", value=path, rule=rule, move=move)] = None
    if faults:
        raise StudyError(faults)
