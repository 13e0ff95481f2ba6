"""The configurations of a search: their trials by seed, and the results of these."""

import itertools
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.trial import TrialState

from tune_sentcl.config import TrialConfig, evaluation_data_of, flatten, shown
from tune_sentcl.errors import BadInputError, ConfigError, Fault, NonFiniteError, OutOfMemoryError
from tune_sentcl.history import (
    Action,
    Assignment,
    Origin,
    RequestedScores,
    Result,
    StoredConfiguration,
)
from tune_sentcl.space import Space
from tune_sentcl.tuning.sampler.sampling import SamplerName
from tune_sentcl.tuning.trial_ids import TrialNamer

CONFIGURATION_ERRORS = frozenset({NonFiniteError.__name__, OutOfMemoryError.__name__})
"""Errors that a trial's settings cause: a full device memory and a number that is not finite. Any
other error may be the machine's fault, and the sampler learns nothing from it.
"""


@dataclass(frozen=True)
class Sampling:
    """How a search samples configurations beyond its grid.

    Attributes:
        seeds: Seeds of every configuration.
        sampled: Configurations that the study shall hold beyond the grid; infinity: no limit.
        sampler: The sampler that proposes them.
        sampler_seed: Seed of its draws.
        budget: Compute for sampled configurations, in whole trainings; infinity: no limit.
        reduction: Of the sampled configurations that have finished equally many seeds, the best
            1 in `reduction` run with a further seed; None: all configurations run with all seeds.
    """

    seeds: tuple[int, ...] = (0,)
    sampled: float = 0
    sampler: SamplerName = "tpe"
    sampler_seed: int = 0
    budget: float = math.inf
    reduction: int | None = None


@dataclass(slots=True)
class Group:
    """One configuration with the results of its seeds.

    A sampled config can be rebuilt from its params, so `config` is kept for running ones only.
    That saves memory with thousands of sampled configurations.

    Attributes:
        released: How many of the seeds, from the first on, may run.
    """

    origin: Origin
    trial_ids: tuple[str, ...]  # one per seed; `Groups.add` fills them in
    params: dict[str, Any] | None
    config: TrialConfig | None = None
    optuna_trial: optuna.Trial | None = None
    results: dict[str, Result] = field(default_factory=dict)
    released: int = 0

    @property
    def ended(self) -> bool:
        """Whether all released trials have ended."""
        return self.has_ended(self.released)

    def has_ended(self, seeds: int) -> bool:
        """Whether the released ones of the first `seeds` trials have ended."""
        return all(trial_id in self.results for trial_id in self.released_trials()[:seeds])

    @property
    def may_go_on(self) -> bool:
        """Whether it may run with a further seed later."""
        finished = all(result.status == "finished" for result in self.results.values())
        return finished and len(self.results) < len(self.trial_ids)

    def released_trials(self) -> tuple[str, ...]:
        """The trials that may run, in the order of their seeds."""
        return self.trial_ids[: self.released]

    def outcome(self) -> tuple[TrialState, list[float] | None]:
        """State and means for the sampler.

        FAIL if a seed failed, PRUNED if one was stopped. Else COMPLETE with the means of the seeds
        that have ended. To Optuna's TPE every PRUNED configuration is worse than every COMPLETE
        one, and grid configurations have all seeds whatever their scores are.
        """
        statuses = {result.status for result in self.results.values()}
        if "failed" in statuses:
            return TrialState.FAIL, None
        if "pruned" in statuses:
            return TrialState.PRUNED, None
        means = self.means(len(self.trial_ids))
        return (TrialState.FAIL if means is None else TrialState.COMPLETE), means

    def means(self, seeds: int) -> list[float] | None:
        """The mean of each objective over the first finished seeds; None if a value is missing."""
        first = [self.results[m] for m in self.trial_ids[:seeds] if m in self.results]
        columns = zip(*(r.values for r in first if r.status == "finished"), strict=True)
        means = [mean_if_complete(column) for column in columns]
        return None if None in means else [value for value in means if value is not None] or None

    def first_objective(self) -> list[float]:
        """The first objective of each finished seed."""
        values = [r.values[0] for r in self.results.values() if r.status == "finished"]
        return [value for value in values if value is not None]

    def num_finished_first(self) -> int:
        """How many seeds have finished, counted from the first one up to a missing one."""
        results = map(self.results.get, self.trial_ids)
        done = itertools.takewhile(lambda r: r is not None and r.status == "finished", results)
        return sum(1 for _ in done)

    def failed_values(self, results: Mapping[str, Result]) -> list[float] | None:
        """The values from which the sampler learns a configuration with a failed seed.

        A seed with one of `CONFIGURATION_ERRORS` is left out if other seeds finished: their means
        per objective are returned. If no seed finished, the configuration is worse than all
        others, and the list is empty. None means that the sampler learns nothing: no seed has such
        an error, or an objective lacks a value. A seed that is queued again has the result of its
        earlier run.
        """
        if not any(r.error_type in CONFIGURATION_ERRORS for r in results.values()):
            return None
        seeds = [r.values for r in results.values() if r.status == "finished"]
        means = [mean_if_complete(column) for column in zip(*seeds, strict=True)]
        return None if None in means else [value for value in means if value is not None]

    def intermediate_values(self) -> dict[int, float]:
        """Scores of stopped seeds by the rows seen; TPE ranks stopped configurations by them.

        Seeds that were stopped after equally many rows give their mean score.
        """
        stops: dict[int, list[float]] = {}
        for result in self.results.values():
            if result.dev is not None:
                stops.setdefault(result.rows, []).append(result.dev)
        return {rows: statistics.fmean(scores) for rows, scores in stops.items()}


class Groups:
    """The configurations of a search by name, and their trials.

    Attributes:
        other_groups: Other configurations of the study that lie in the ranges: grid points of
            earlier commands. The sampler learns from them and does not propose them again.
        sampled: Configurations that the sampler has proposed.
        num_in_ranges: Configurations that lie in the ranges.
        further_seeds: Released trials of sampled configurations beyond their first seeds.
    """

    def __init__(self, space: Space, namer: TrialNamer, sampling: Sampling) -> None:
        self._space, self._identifier, self._seeds = space, namer, sampling.seeds
        self._all_seeds = sampling.reduction is None
        self._groups: dict[str, Group] = {}
        self._configuration_of: dict[str, str] = {}
        self.other_groups: dict[str, Group] = {}
        self._stored: dict[str, list[str]] = {}
        self.sampled = self.num_in_ranges = self.further_seeds = 0

    def __len__(self) -> int:
        """The number of released trials."""
        return len(self._configuration_of)

    def __iter__(self) -> Iterator[str]:
        """The names of the configurations in the order in which they were added."""
        return iter(self._groups)

    def items(self) -> Iterable[tuple[str, Group]]:
        """Configurations by name, in the order in which they were added."""
        return self._groups.items()

    def __getitem__(self, name: str) -> Group:
        return self._groups[name]

    def trials(self) -> Iterable[str]:
        """The ids of all released trials."""
        return self._configuration_of

    def configuration_of(self, trial_id: str) -> str:
        """The name of a trial's configuration."""
        return self._configuration_of[trial_id]

    def known(self) -> Iterator[str]:
        """The names of the configurations, and then of others that the study held at first."""
        yield from self._groups
        yield from (name for name in self._stored if name not in self._groups)

    def all_trials(self, name: str) -> tuple[str, ...]:
        """A configuration's trials, and then those of other seeds that the study held at first."""
        own = self._groups[name].trial_ids if name in self._groups else ()
        return (
            *own,
            *(trial_id for trial_id in self._stored.get(name, ()) if trial_id not in own),
        )

    def of_trial(self, trial_id: str) -> Group:
        """The configuration of a trial."""
        return self._groups[self._configuration_of[trial_id]]

    def is_first_seed(self, trial_id: str) -> bool:
        """Whether a trial runs its configuration's first seed, which rungs compare."""
        return trial_id == self.of_trial(trial_id).trial_ids[0]

    def add(self, group: Group, *, was_stopped: bool = False) -> str | None:
        """Add a configuration, one that was stopped with its first seed; return a new name."""
        values = self._values(group)
        name = self._identifier.configuration(values)
        if name in self._groups:
            self._merge_requested(self._groups[name], group)
            return None
        group.trial_ids = tuple(self._identifier.trial_ids(values, self._seeds))
        self._groups[name] = group
        whole = (self._all_seeds and not was_stopped) or group.origin == "grid"
        self.release(name, len(group.trial_ids) if whole else 1)
        self.sampled += group.origin == "sampler"
        self.num_in_ranges += group.params is not None
        return name

    def release(self, name: str, seeds: int) -> None:
        """Let the first `seeds` seeds of a configuration run; it keeps those that it has."""
        group = self._groups[name]
        before, group.released = group.released, max(seeds, group.released)
        if group.origin == "sampler":
            self.further_seeds += group.released - max(before, 1)
        self._configuration_of.update(dict.fromkeys(group.released_trials(), name))

    def _merge_requested(self, existing: Group, duplicate: Group) -> None:
        """Keep, of two grid points with one name, the one that asks for more scores."""
        first, second = (
            self._identifier.resolve(self._values(group)).requested.measurements
            for group in (existing, duplicate)
        )
        if first < second:
            existing.config = duplicate.config
        elif not second <= first:
            config = duplicate.config or self._space.sampled(duplicate.params or {})
            rule = "two points of the grid train the same and are asked for different scores"
            move = "Ask both for the suites and protocols of either."
            where = self._space.source
            raise ConfigError(
                Fault(where, "evaluation", shown(config.dotted()["evaluation.suites"]), rule, move)
            )

    def add_stored(self, stored: StoredConfiguration, *, was_stopped: bool) -> None:
        """Add a configuration of the study, if it lies in the present ranges.

        One with other data or another checkpoint has another name and is ignored.
        """
        self._stored[stored.name] = stored.trial_ids
        params = self._space.params_of(dict(flatten(json.loads(stored.config))))
        if params is None or stored.name in self._groups or self._name(params) != stored.name:
            return
        if "sampler" in stored.origins:
            self.add(Group("sampler", (), params), was_stopped=was_stopped)
        else:
            ids = tuple(stored.trial_ids)
            self.other_groups[stored.name] = Group("grid", ids, params, released=len(ids))
            self.num_in_ranges += 1

    def params_of(self, trial_id: str, config: TrialConfig) -> dict[str, Any] | None:
        """The params with which the search would draw a trial; None if it cannot draw it.

        A trial of a configuration that exists already is not drawn again.
        """
        params = self._space.params(config)
        if params is None:
            return None
        try:
            ids = self._identifier.trial_ids(self._space.sampled_values(params), self._seeds)
            return params if trial_id in ids and self.is_new(params) else None
        except BadInputError:  # its data or its encoder was removed
            return None

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def holds(self, name: str) -> bool:
        """Whether this search or another search of the study has a configuration."""
        return name in self._groups or name in self.other_groups

    def is_new(self, params: Mapping[str, Any]) -> bool:
        """Whether a point of the ranges stands for a configuration that does not exist yet."""
        return not self.holds(self._name(params))

    def values(self, name: str) -> Mapping[str, Any]:
        """The dotted values of a configuration."""
        return self._values(self._groups[name])

    def data(self, group: Group) -> str:
        """The evaluation data of a group's trials, such as `root` or `toy`."""
        return evaluation_data_of(self._values(group))

    def requested(self, trial_id: str) -> RequestedScores:
        """The scores that the search needs of a trial."""
        values = self._values(self._groups[self._configuration_of[trial_id]])
        return self._identifier.resolve(values).requested

    def config(self, name: str) -> TrialConfig:
        """The config of a configuration, with one of its seeds."""
        group = self._groups[name]
        return group.config or self._space.sampled(group.params or {})

    def assignment(self, trial_id: str, action: Action) -> Assignment:
        """The assignment that runs a trial."""
        name = self._configuration_of[trial_id]
        group = self._groups[name]
        seed = self._seeds[group.trial_ids.index(trial_id)]
        config = self.config(name).model_copy(update={"seed": seed})
        fingerprints = self._identifier.resolve(self._values(group)).inputs.fingerprints
        return Assignment(trial_id, name, config, group.origin, fingerprints, action)

    def _name(self, params: Mapping[str, Any]) -> str:
        return self._identifier.configuration(self._space.sampled_values(params))

    def _values(self, group: Group) -> Mapping[str, Any]:
        if group.config is not None:
            return group.config.dotted()
        return self._space.sampled_values(group.params or {})


def mean_if_complete(values: Sequence[float | None]) -> float | None:
    """The mean; None if a value is missing."""
    found = [value for value in values if value is not None]
    return statistics.fmean(found) if found and len(found) == len(values) else None
