"""The state of a search's stages: who has ended each of them, and which trials run next."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from tune_sentcl.config import draws
from tune_sentcl.errors import NonFiniteError, OutOfMemoryError
from tune_sentcl.history import Configuration
from tune_sentcl.tuning.halving import FAILED, Stages, stages_for
from tune_sentcl.tuning.search_configurations import SearchConfigurations
from tune_sentcl.tuning.search_options import SearchOptions

CONFIGURATION_ERRORS = frozenset({NonFiniteError.__name__, OutOfMemoryError.__name__})
"""Errors that a trial's settings cause: a full device memory and a number that is not finite. Any
other error may be the machine's fault, and the sampler learns nothing from it.
"""


def stages_of(
    options: SearchOptions,
    shares: Sequence[float],
    configurations: SearchConfigurations,
    points: float,
) -> Stages:
    """The stages of the options' number of configurations, or of their budget.

    Args:
        options: The options of the search.
        shares: The shares of a whole training at the ends of stages.
        configurations: The grid.
        points: How many configurations the ranges hold, those of the grid included.

    Raises:
        ConfigError: The budget pays for no configuration.
    """

    def of(sampled: int) -> Stages:
        return Stages.of(
            sampled,
            shares,
            seeds=len(configurations.seeds),
            grid=len(configurations.grid),
            keeps_all=options.is_whole,
        )

    most = max(1, points - configurations.num_in_ranges)
    if options.budget is None:
        return of(int(min(options.trials, most)))
    return stages_for(options.budget, most, of)


class Staging:
    """The ends of each stage, and the runs that they call for.

    Attributes:
        stages: The stages.
        sampled: The names of the sampled configurations that take part, as they were proposed.
        is_exhausted: Whether there will be no further proposal.
    """

    def __init__(
        self, stages: Stages, configurations: SearchConfigurations, again: Collection[str]
    ) -> None:
        """Begin without configurations.

        Args:
            stages: The stages.
            configurations: Those of the search; they may grow.
            again: Trials whose results do not count, because they are to run again; it may change.
        """
        self.stages, self._configurations, self._again = stages, configurations, again
        self.sampled: dict[str, None] = {}
        self.is_exhausted = False
        self._joining = 0  # sampled ones that compete as the grid does
        self._seeds = configurations.seeds
        self._ends: list[dict[str, float | None]] = [{} for _ in stages.sizes]
        self._grid_ends: list[dict[str, float | None]] = [{} for _ in self._seeds]
        self._members: list[list[str]] | None = None  # and what follows from them:
        self._runs: list[tuple[str, float, bool]] = []
        self._open: dict[str, float] = {}

    @property
    def needs_sampling(self) -> bool:
        """Whether the first stage lacks configurations."""
        return len(self.sampled) < self.stages.sizes[0] and not self.is_exhausted

    def add(self, name: str) -> None:
        """Add a sampled configuration to the first stage."""
        self.sampled[name] = None
        self._joining += self._joins_later(self._configurations[name])
        self.note(self._configurations[name])

    def close(self) -> None:
        """Note that there will be no further proposal."""
        self.is_exhausted, self._members = True, None

    def note(self, configuration: Configuration) -> None:
        """Note how a configuration has ended its stages so far."""
        self._members = None
        joins = self._joins_later(configuration)
        if joins:
            for count, ends in enumerate(self._grid_ends, 1):
                end_of_seeds = self._end(configuration, self._seeds[:count], 1.0)
                ends.update((configuration.name, end) for end in end_of_seeds)
        for stage, ends in enumerate(self._ends if configuration.name in self.sampled else ()):
            seeds = self._seeds[: self.stages.seeds(stage)]
            ends_of_stage = self._end(configuration, seeds, self.stages.share(stage))
            ends.update((configuration.name, None if joins else end) for end in ends_of_stage)

    def _joins_later(self, configuration: Configuration) -> bool:
        """Whether a configuration has no place among the sampled ones behind the first stage.

        The grid has none, nor what takes no steps, because its score is that of a whole training.
        Both compete at the stages of seeds.
        """
        return configuration.origin == "grid" or not (
            self.stages.keeps_all or draws(configuration.values)
        )

    def take_stored(self, sampled: Iterable[Configuration]) -> None:
        """Add the configurations of a study that belong to the first stage.

        A configuration that was trained whole without a score there does not belong to it. Beyond
        the size of the stage, only configurations that have ended it are added; without halving,
        those that have ended all stages.
        """
        seeds = self._seeds if self.stages.keeps_all else self._seeds[:1]
        share, others = self.stages.shares[0], []
        for configuration in sampled:
            if not any(True for _ in self._end(configuration, seeds, share)):
                others.append(configuration.name)
                continue
            first = configuration.results[self._seeds[0]]
            is_scored = share == 1 or share in first.stages or not draws(configuration.values)
            if is_scored or first.status != "finished":
                self.add(configuration.name)
        for name in others:
            if self.needs_sampling:
                self.add(name)

    def score_to_tell(self, configuration: Configuration) -> float | None:
        """The score that the sampler is told of a configuration; None before its first stage ends.

        Without halving that is the mean over all seeds. The grid has no score of a stage of rows.
        """
        last = len(self._seeds) if self.stages.keeps_all else 1
        joins = self._joins_later(configuration)
        if joins and self.stages.shares[0] < 1:
            return None
        by_stage = self._grid_ends if joins else self._ends
        ends = [of_stage.get(configuration.name) for of_stage in by_stage[:last]]
        return FAILED if FAILED in ends else ends[-1]  # what fails gets no further seeds

    def members(self) -> list[list[str]]:
        """The configurations that certainly run each stage."""
        if self._members is None:
            count = None if self.needs_sampling else len(self.sampled)
            stages = replace(self.stages, grid=self.stages.grid + self._joining)
            further = stages.going_on(self._ends, self._grid_ends, proposed=count)
            self._members = [list(self.sampled), *further]
            self._runs = list(self._all_runs(self._members))
            self._open = {t: share for t, share, ended in reversed(self._runs) if not ended}
        return self._members

    def runs(self) -> list[tuple[str, float, bool]]:
        """The runs of all stages: trial, the share to which it trains, whether it has ended."""
        self.members()
        return self._runs

    def due(self, running: Collection[str]) -> dict[str, float]:
        """The trials that can run now with the shares to which they train; late stages first."""
        self.members()
        return {trial: share for trial, share in self._open.items() if trial not in running}

    def _all_runs(self, members: Sequence[Sequence[str]]) -> Iterator[tuple[str, float, bool]]:
        for stage, names in enumerate(members):
            seed, share = self._seeds[self.stages.seeds(stage) - 1], self.stages.share(stage)
            for name in names:
                configuration = self._configurations[name]
                trial_id = configuration.trials.get(seed) or configuration.trials[self._seeds[0]]
                yield trial_id, share, name in self._ends[stage]

    def expected(self, *, complete: bool) -> list[float]:
        """The runs that are to come, as shares of a whole training.

        Args:
            complete: Whether nothing is due or to be sampled, so that no stage grows any more.
        """
        runs = []
        stages = zip(self.stages.sizes, self.stages.costs, self.members(), strict=True)
        for stage, (size, cost, members) in enumerate(stages):
            planned = len(members) if complete else max(size, len(members))
            runs += [cost] * (planned - sum(name in self._ends[stage] for name in members))
        return runs

    def pause_above(self, until: float) -> float:
        """The least score at the end of a stage with which a configuration may still go on."""
        stage = self.stages.shares.index(until)
        ended = (self._ends[stage].get(name) for name in self.members()[stage])
        best = sorted((end for end in ended if end is not None), reverse=True)
        size = self.stages.sizes[stage + 1]
        return best[size - 1] if len(best) >= size else -math.inf

    def _end(
        self, configuration: Configuration, seeds: Sequence[int], share: float
    ) -> Iterator[float | None]:
        """How a configuration has ended a stage; nothing if it has not."""
        seeds = seeds[: len(self._configurations.seeds_of(configuration))]
        results = [configuration.results.get(seed) for seed in seeds]
        first = results[0]
        if share < 1 and first is not None and share in first.stages:
            yield first.stages[share]
            return
        if None in results or any(configuration.trials[seed] in self._again for seed in seeds):
            return
        ended = [result for result in results if result is not None]
        failed = [result.error_type for result in ended if result.status == "failed"]
        if failed:
            yield FAILED if CONFIGURATION_ERRORS.issuperset(failed) else None
        elif all(result.status == "finished" for result in ended):
            yield configuration.mean(seeds)
