"""The state of a search's stages: how configurations ended them, and which trials run next."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tune_sentcl.config import draws
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.history import Configuration
from tune_sentcl.store.manifest import HalvingRecord, SearchRecord
from tune_sentcl.tuning.configurations import SearchConfigurations
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import Question
from tune_sentcl.tuning.stages import (
    CONFIGURATION_ERRORS,
    FAILED,
    Halving,
    Stages,
    ranks,
    stages_for,
    stages_of_samples,
)


@dataclass(frozen=True)
class Run:
    """One trial up to the end of one stage.

    Attributes:
        trial_id: The trial.
        until: The share of a whole training to which it trains.
        has_ended: Whether the run has ended.
        order: Runs with lower numbers begin first.
    """

    trial_id: str
    until: float
    has_ended: bool
    order: tuple[int, ...]


class Staging:
    """The ends of each stage, and the runs that follow from them.

    Attributes:
        stages: The stages.
        parts: For each part of a halving that has begun, the names of its configurations in the
            order in which they were sampled.
        whole: The names of the sampled configurations that train to the end without a halving.
        is_exhausted: Whether a part has fewer configurations than planned, because the ranges hold
            no more.
    """

    def __init__(
        self, stages: Stages, configurations: SearchConfigurations, again: Collection[str]
    ) -> None:
        """Begin without configurations.

        Args:
            stages: The stages.
            configurations: The configurations of the search; they may grow.
            again: Trials whose results do not count, because they run again; the set may change.
        """
        self.stages, self._configurations, self._again = stages, configurations, again
        self.parts: list[dict[str, None]] = []
        self.whole: dict[str, None] = {}
        self.is_exhausted = False
        self._is_complete = True  # whether the last part gets no further configurations
        self._seeds = configurations.seeds
        # Configurations that were sampled, but compete as those of the grid do.
        self._joining: set[str] = set()
        # For each part, the number of its halving and its number within that halving.
        self._places = [
            (h, p) for h, each in enumerate(stages.halvings) for p in range(len(each.parts))
        ]
        self._ends: list[list[dict[str, float | None]]] = [
            [{} for _ in halving.sizes] for halving in stages.halvings
        ]
        self._whole_ends: list[dict[str, float | None]] = [{} for _ in self._seeds]
        self._grid_ends: list[dict[str, float | None]] = [{} for _ in self._seeds]
        # None: the runs are to be derived from the ends, together with the next three attributes.
        self._runs: list[Run] | None = None
        self._members: list[list[list[str]]] = []  # names by halving and by stage
        self._seed_members: list[list[str]] = []
        self._open: dict[str, float] = {}

    @property
    def sampled(self) -> dict[str, None]:
        """The names of the sampled configurations so far."""
        return {name: None for names in (self.whole, *self.parts) for name in names}

    @property
    def needs_sampling(self) -> bool:
        """Whether the last begun part lacks configurations."""
        return not self._is_complete and len(self.parts[-1]) < self.size(len(self.parts) - 1)

    @property
    def has_unbegun(self) -> bool:
        """Whether a part of a halving has not begun."""
        return len(self.parts) < len(self._places)

    @property
    def can_begin(self) -> bool:
        """Whether the next part can begin, because two stages of all earlier parts have ended."""
        if not self.parts or self.needs_sampling:
            return not self.parts
        self.runs()
        both = zip(self._members, self._ends, strict=True)
        early = (zip(members[:2], ends, strict=False) for members, ends in both)
        return all(name in ends for stages in early for names, ends in stages for name in names)

    def size(self, part: int) -> int:
        """How many configurations a part has."""
        halving, number = self._places[part]
        return self.stages.halvings[halving].parts[number]

    def begin(self, names: Iterable[str], *, complete: bool = True) -> None:
        """Begin the next part.

        Args:
            names: Its configurations.
            complete: Whether the part gets no further configurations.
        """
        self.parts.append({})
        self._is_complete, self._runs = complete, None
        for name in names:
            self.add(name)
        size = self.size(len(self.parts) - 1)
        self.is_exhausted |= complete and len(self.parts[-1]) < size

    def add(self, name: str) -> None:
        """Add a sampled configuration to the last part."""
        self.parts[-1][name] = None
        self.note(self._configurations[name])

    def add_whole(self, name: str) -> None:
        """Add a sampled configuration that trains to the end without a halving."""
        self.whole[name] = None
        self.note(self._configurations[name])

    def close(self) -> None:
        """Note that the ranges hold no further configuration."""
        self.is_exhausted = self._is_complete = True
        self._runs = None

    def has_ended(self, configuration: Configuration) -> bool:
        """Whether a configuration has ended its last stage; with `keeps_all`, every seed."""
        seeds = self._seeds if self.stages.keeps_all else self._seeds[:1]
        return any(True for _ in self._end(configuration, seeds, 1.0))

    def note(self, configuration: Configuration) -> None:
        """Note how a configuration has ended its stages so far."""
        self._runs, name = None, configuration.name
        joins = self._joins_later(configuration)
        if joins and name in self.sampled:
            self._joining.add(name)
        for count, (own, rival) in enumerate(
            zip(self._whole_ends, self._grid_ends, strict=True), 1
        ):
            for end in self._end(configuration, self._seeds[:count], 1.0):
                own[name] = None if joins else end
                if joins:
                    rival[name] = end
        for (number, _), names in zip(self._places, self.parts, strict=False):
            if name in names:
                shares = self.stages.halvings[number].shares
                for share, ends in zip(shares, self._ends[number], strict=True):
                    ended = self._end(configuration, self._seeds[:1], share)
                    ends.update((name, None if joins else end) for end in ended)

    def _joins_later(self, configuration: Configuration) -> bool:
        """Whether a configuration competes only at the stages of seeds.

        The grid does, and so do configurations without training steps, because their scores are
        those of whole trainings.
        """
        return configuration.origin == "grid" or not (
            self.stages.keeps_all or draws(configuration.values)
        )

    def ranks(self) -> dict[str, float]:
        """The ranks of earlier configurations, which are told to the sampler of the next part."""
        return ranks(self._ends)

    def score_to_tell(self, configuration: Configuration) -> float | None:
        """The score of whole trainings to tell to the sampler; None if there is no score yet.

        With `keeps_all`, it is the mean over all seeds.
        """
        joins = self._joins_later(configuration)
        by_seeds = self._grid_ends if joins else self._whole_ends
        last = len(self._seeds) if self.stages.keeps_all else 1
        ends = [of_stage.get(configuration.name) for of_stage in by_seeds[:last]]
        return FAILED if FAILED in ends else ends[-1]  # after a failed seed no further seed runs

    def runs(self) -> list[Run]:
        """The runs that certainly belong to the stages."""
        if self._runs is None:
            self._runs = sorted(self._all_runs(), key=lambda run: run.order)
            open_runs = (run for run in reversed(self._runs) if not run.has_ended)
            # If a trial has several open runs, the first of them is due; it comes last here, so it
            # replaces the others.
            by_trial = {run.trial_id: run for run in open_runs}
            in_order = sorted(by_trial.values(), key=lambda run: run.order)
            self._open = {run.trial_id: run.until for run in in_order}
        return self._runs

    def due(self, running: Collection[str]) -> dict[str, float]:
        """The trials that can run now, with the shares to which they train, late stages first."""
        self.runs()
        return {trial: share for trial, share in self._open.items() if trial not in running}

    def _all_runs(self) -> Iterator[Run]:
        """Yield the runs; those of late stages come first, because they take longest."""
        self._members, finalists, count = [], list(self.whole), len(self.whole)
        for number, halving in enumerate(self.stages.halvings):
            begun = zip(self._places, self.parts, strict=False)
            drawn = [list(names) for (of, _), names in begun if of == number]
            # The last part may still get configurations, so it is incomplete while some must be
            # sampled.
            complete = not self.needs_sampling
            members, last = halving.members(self._ends[number], drawn, complete=complete)
            self._members.append(members)
            count += last
            finalists += members[-1]
            for stage, (share, of_stage) in enumerate(zip(halving.shares, members, strict=True)):
                ends, left = self._ends[number][stage], len(halving.shares) - stage
                for place, name in enumerate(of_stage):
                    yield self._run(name, 0, share, name in ends, (left, number, place))
        for place, name in enumerate(self.whole):
            yield self._run(name, 0, 1.0, name in self._whole_ends[0], (1, 0, place))
        self._seed_members = self.stages.with_seeds(
            self._whole_ends,
            finalists,
            count,
            self._grid_ends,
            self.stages.grid + len(self._joining),
        )
        for number, names in enumerate(self._seed_members, 1):
            ends = self._whole_ends[number]
            for place, name in enumerate(names):
                yield self._run(name, number, 1.0, name in ends, (0, -number, place))

    def _run(
        self, name: str, seed: int, until: float, has_ended: bool, order: tuple[int, ...]
    ) -> Run:
        configuration = self._configurations[name]
        trial_id = configuration.trials.get(self._seeds[seed])
        return Run(trial_id or configuration.trials[self._seeds[0]], until, has_ended, order)

    def expected(self, *, complete: bool) -> list[float]:
        """The runs that are left, as shares of a whole training.

        Args:
            complete: Whether no run is due and nothing will be sampled, so no stage grows any
                more.
        """
        self.runs()
        stages: list[tuple[int, float, Sequence[str], Mapping[str, Any]]] = [
            (len(self.whole), 1.0, list(self.whole), self._whole_ends[0])
        ]
        for number, halving in enumerate(self.stages.halvings):
            members = self._members[number]
            stages += zip(halving.sizes, halving.costs, members, self._ends[number], strict=True)
        seeds = zip(self.stages.seed_sizes, self._seed_members, self._whole_ends[1:], strict=False)
        stages += [(size, 1.0, names, ends) for size, names, ends in seeds]
        runs = []
        for size, cost, names, ends in stages:
            planned = len(names) if complete else max(size, len(names))
            runs += [cost] * (planned - sum(name in ends for name in names))
        return runs

    def pause_above(self, name: str, until: float) -> float:
        """The least score at the end of a stage with which a configuration may still go on."""
        self.runs()
        part = next(n for n, names in enumerate(self.parts) if name in names)
        number, of_halving = self._places[part]
        halving = self.stages.halvings[number]
        stage = halving.shares.index(until)
        size, is_own = halving.going_on(stage, of_halving)
        ends, members = self._ends[number][stage], self._members[number][stage]
        rivals = [name for name in members if name in self.parts[part] or not is_own]
        scores = (ends.get(rival) for rival in rivals)
        best = sorted((end for end in scores if end is not None), reverse=True)
        return best[size - 1] if len(best) >= size else -math.inf

    def _end(
        self, configuration: Configuration, seeds: Sequence[int], share: float
    ) -> Iterator[float | None]:
        """Yield how a configuration has ended a stage; yield nothing if it has not ended it."""
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


def recorded_stages(record: SearchRecord, seeds: int, grid: int) -> Stages:
    """The stages of a study's halvings, for this number of seeds and of grid configurations."""
    halvings = tuple(Halving(each.shares, each.parts, each.further) for each in record.halvings)
    return Stages(halvings, seeds, len(record.whole), grid)


def with_halvings(
    record: SearchRecord, question: Question, grid: int, most: float, whole: int
) -> tuple[SearchRecord, int]:
    """Add a halving that the options pay for beyond the recorded halvings.

    In a study without halvings, the new halving is drawn in two halves. In a study with halvings,
    the new one covers the difference and is drawn at once.

    Args:
        record: The study's last search.
        question: The search.
        grid: How many configurations the grid has.
        most: How many configurations beyond the grid the ranges hold.
        whole: How many sampled configurations should train to the end at once.

    Returns:
        The record, and for how many of `whole` there is room.

    Raises:
        ConfigError: The budget pays for no configuration.
    """
    options, seeds = question.options, question.seeds
    before = recorded_stages(record, len(seeds), grid)
    held = before.whole + sum(halving.sizes[0] for halving in before.halvings)
    parts = 1 if record.halvings else 2
    shares = record.halvings[0].shares if record.halvings else question.shares

    def with_whole(count: int) -> Stages:
        after = replace(before, whole=before.whole + count)
        if options.budget is None:
            left = int(min(options.samples, most)) - held - count
            return stages_of_samples(left, shares, after, parts=parts)
        # If a later command adds seeds, their trainings cost a part of the budget.
        more = options.budget - max(record.budget, before.cost) - (after.cost - before.cost)
        return stages_for(more, most - held - count, shares, after, parts=parts)

    # If the options do not pay for everything, fewer configurations train whole, so that the
    # halving can run.
    tried = ((count, with_whole(count)) for count in range(whole, -1, -1))
    paid = (one for one in tried if len(one[1].halvings) > len(before.halvings))
    count, after = next(paid, (0, before))
    if after == before:
        if not record.halvings:
            raise _too_small(options, replace(before, halvings=(Halving.of(1, shares),)))
        return record, 0
    objective = str(question.loader.stage_objective)
    added = tuple(
        HalvingRecord(
            each.cost, each.sizes, each.shares, each.parts, each.further, seeds[0], objective
        )
        for each in after.halvings[len(before.halvings) :]
    )
    budget = max(record.budget, options.budget or after.cost)
    return replace(record, budget=budget, halvings=(*record.halvings, *added)), count


def whole_stages(options: SearchOptions, seeds: int, grid: int, most: float) -> Stages:
    """The stages of a search whose sampled configurations all train to the end.

    Raises:
        ConfigError: The budget pays for no configuration.
    """
    none = Stages((), seeds, grid=grid, keeps_all=options.is_whole)
    if options.budget is None:
        return stages_of_samples(int(min(options.samples, most)), (1.0,), none, parts=1)
    found = stages_for(options.budget, most, (1.0,), none, parts=1)
    if not found.halvings:
        raise _too_small(options, replace(none, halvings=(Halving.of(1, (1.0,)),)))
    return found


def _too_small(options: SearchOptions, least: Stages) -> ConfigError:
    rule = f"must be at least {least.cost:g}, the cost of one configuration with its seeds"
    given = f"{options.budget or 0:g}"
    return ConfigError(
        Fault("--budget", value=given, rule=rule, move="Raise --budget, or give fewer --seeds.")
    )


def check_halvings(record: SearchRecord | None, question: Question) -> None:
    """Refuse a search that cannot continue the study's halvings.

    Raises:
        ConfigError: The search has another first seed, stage objective or sampler, or trains all
            configurations to the end.
    """
    options, seeds = question.options, question.seeds
    objective = str(question.loader.stage_objective)
    if record is None or not record.halvings or not options.is_sampling:
        return
    recorded = record.halvings[0]
    if recorded.first_seed != seeds[0]:
        rule = f"must begin with {recorded.first_seed}, the seed of the study's stages"
        given = ",".join(map(str, seeds))
        raise ConfigError(
            Fault(
                "--seeds",
                value=given,
                rule=rule,
                move="Put this seed first, or start another study.",
            )
        )
    if recorded.objective != objective:
        rule = f"must be {recorded.objective}, which ranks trials at the ends of stages"
        move = "Name that score, or start another study."
        raise ConfigError(Fault("--stage-objective", value=objective, rule=rule, move=move))
    if record.sampler != options.sampler:
        rule = f"must be {record.sampler}, with which the study was sampled"
        move = "Name that sampler, or start another study."
        raise ConfigError(Fault("--sampler", value=options.sampler, rule=rule, move=move))
    if options.is_whole:
        rule = "cannot continue a study that was sampled with --scheduler halving"
        raise ConfigError(
            Fault("--scheduler", value="none", rule=rule, move="Start another study.")
        )
