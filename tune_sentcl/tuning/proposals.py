"""The queue of a search: the grid, sampled configurations by stage, and failed trials.

It is rebuilt from the study's history in each run, and decides the same again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import ConfigError, Fault, StudyError
from tune_sentcl.history import Action, Assignment, Configuration, History, Result
from tune_sentcl.score import Measurement
from tune_sentcl.space import Space
from tune_sentcl.store.manifest import HalvingRecord, SearchRecord
from tune_sentcl.tuning.sampler.sampling import Params, Sampler
from tune_sentcl.tuning.search_configurations import SearchConfigurations, TrialNamer
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.stages import Halving, Stages, stages_for, stages_of_samples
from tune_sentcl.tuning.staging import CONFIGURATION_ERRORS, Staging


class Proposals:
    """Hands out trials and takes their results.

    Laws: a trial is handed out once for each of its stages, and again only after `requeue`. Grid
    points come first. Of sampled configurations those of the latest stage come first, because they
    take longest. Trials that failed in an earlier run come last. No configuration is proposed
    twice. A second report of an end changes nothing.

    Attributes:
        options: The options of the search.
        configurations: The configurations of this search.
        history: The study's trials.
        running: Trials that were handed out and have not ended.
        needs_retraining: Finished trials that lack a score and its weights. They stay as they are,
            because only a new training could give the score.
        record: What the study must hold of the halvings before the next trial is handed out.
        num_given: How many given configurations this search adds.
    """

    def __init__(
        self,
        space: Space,
        namer: TrialNamer,
        options: SearchOptions,
        seeds: Sequence[int],
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Plan the grid; `resume_from` then queues the trials that the study lacks.

        Args:
            space: The space that is searched.
            namer: Computes the ids of the trials.
            options: The options of the search.
            seeds: The seeds of every configuration.
            warn: Receives a message about each sampled configuration that cannot run.

        Raises:
            BadInputError: A grid point's inputs cannot be read.
        """
        self.options, self.namer, self.seeds = options, namer, tuple(seeds)
        self.configurations = self._configurations_of(space, warn)
        self.history = History(())
        self.running: set[str] = set()
        self.needs_retraining: list[str] = []
        self._staging: Staging | None = None  # without one nothing is sampled
        self._queue: deque[tuple[str, Action]] = deque()
        self._again: dict[str, Action] = {}  # trials with a row that are to run again
        self._late: set[str] = set()  # those that failed in an earlier run
        self._given: deque[Params] = deque()
        self._told: set[str] = set()
        self._has_halvings = False
        self._sampler = Sampler("grid", space, 0, 0)
        self.record = SearchRecord((), options.sampler, options.sampler_seed)
        self.num_given = 0

    def _configurations_of(
        self, space: Space, warn: Callable[[str], None]
    ) -> SearchConfigurations:
        return SearchConfigurations(space, self.namer, self.seeds, warn)

    def resume_from(
        self,
        history: History,
        shares: Sequence[float],
        record: SearchRecord | None = None,
        *,
        interrupted: Mapping[str, TrialConfig] = MappingProxyType({}),
        given: Sequence[Params] = (),
        whole: Sequence[Params] = (),
    ) -> None:
        """Take the study's trials and queue the missing ones; call it once, before `next`.

        Args:
            history: The study's trials; it changes as further trials end.
            shares: The shares of a whole training at the ends of stages.
            record: The study's last search.
            interrupted: Trials with a saved state and no row. Without halvings, sampled ones are
                proposed again before the sampler draws.
            given: Configurations that are proposed before the sampler draws, and count as sampled.
                Those that the study holds are left out.
            whole: Those of `given` that take part in no halving and run whole.

        Raises:
            ConfigError: The budget pays for no configuration.
            StudyError: The study's configurations were sampled by another rule.
        """
        self.history, configurations = history, self.configurations
        self.record = record or self.record
        self._late = {*history.with_status("failed"), *self.record.failed_again}
        sampled = list(filter(configurations.take_stored, history.configurations()))
        for configuration in configurations.values():
            requested = configurations.requested(configuration.name)
            for seed in configurations.seeds_of(configuration):
                self._resume(configuration, seed, requested)
        if not self.options.samples:
            return
        options, space = self.options, configurations.space
        self._sampler = Sampler(options.sampler, space, options.sampler_seed, len(sampled))
        most = max(1, self._sampler.points - configurations.num_in_ranges)
        given = [params for params in given if self._is_new(params)]
        self._has_halvings = len(shares) > 1
        if self._has_halvings:
            whole = [params for params in whole if params in given]
            before = self.record
            count = self._add_halvings(shares, most, len(whole))
            given = [params for params in given if params not in whole[:count]]
            run_whole = map(self._to_run, whole[:count])
            self.record = replace(self.record, whole=(*self.record.whole, *run_whole))
            self._staging = Staging(
                recorded_stages(self.record, self.seeds, len(configurations.grid)),
                configurations,
                self._again,
            )
            self._take_recorded(sampled)
            added = len(self.record.halvings) > len(before.halvings)
            self._given.extend(given if added else ())
            self.num_given = count + len(self._given)
        else:
            stages = whole_stages(options, self.seeds, len(configurations.grid), most)
            self._staging = Staging(stages, configurations, self._again)
            self._staging.begin((), complete=False)
            self._take_stored(sampled)
            own = (configurations.params_of(name, config) for name, config in interrupted.items())
            self._given.extend([*filter(None, own), *given])
            left = stages.halvings[0].sizes[0] - len(self._staging.sampled)
            self.num_given = min(max(0, left), len(given))
        for name in configurations.grid:
            self._staging.note(configurations[name])
        for name in (*configurations.grid, *self._staging.sampled):
            self._tell(configurations[name])

    def _add_halvings(self, shares: Sequence[float], most: float, whole: int) -> int:
        """Add to the recorded halvings those that the options pay for beyond them.

        A study without halvings gets two, one with some gets another one for the difference.

        Args:
            shares: The shares of a training at the ends of stages of a study without halvings.
            most: How many configurations beyond the grid the ranges hold.
            whole: How many sampled configurations should run whole at once.

        Returns:
            How many of those there is room for.

        Raises:
            ConfigError: The budget pays for no configuration.
        """
        record, options, grid = self.record, self.options, len(self.configurations.grid)
        before = recorded_stages(record, self.seeds, grid)
        held = before.whole + sum(halving.sizes[0] for halving in before.halvings)
        halves = 1 if record.halvings else 2
        shares = record.halvings[0].shares if record.halvings else shares

        def with_whole(count: int) -> Stages:
            after = replace(before, whole=before.whole + count)
            if options.budget is None:
                left = int(min(options.trials, most)) - held - count
                return stages_of_samples(left, shares, after, halves)
            more = options.budget - record.budget - (after.cost - before.cost)
            return stages_for(more, most - held - count, shares, after, halves=halves)

        # A halving comes first where the options do not pay for all of them.
        tried = ((count, with_whole(count)) for count in range(whole, -1, -1))
        paid = (one for one in tried if len(one[1].halvings) > len(before.halvings))
        whole, after = next(paid, (0, before))
        if after == before and not record.halvings:
            raise ConfigError(
                _too_small(options, replace(before, halvings=(Halving.of(1, shares),)))
            )
        objective = str(self.namer.loader.early_stopping_objective)
        added = [
            HalvingRecord(round(each.cost, 6), each.sizes, each.shares, self.seeds[0], objective)
            for each in after.halvings[len(before.halvings) :]
        ]
        if added:
            budget = max(record.budget, options.budget or after.cost)
            self.record = replace(record, budget=budget, halvings=(*record.halvings, *added))
        return whole

    def _take_recorded(self, sampled: Iterable[Configuration]) -> None:
        """Add the recorded configurations of halvings that have begun.

        Raises:
            StudyError: The study holds other sampled configurations.
        """
        staging, add = self._staging, self.configurations.add_recorded
        if staging is None:
            return
        for params in self.record.whole:
            if name := add(params):
                staging.add_whole(name)
        for halving in self.record.halvings:
            if halving.sampled is not None:
                staging.begin(filter(None, map(add, halving.sampled)))
        known = staging.sampled
        if others := [each.name for each in sampled if each.name not in known]:
            count = f"{len(others)} configurations"
            rule = f"holds {count} that an older rule or --scheduler none sampled"
            move = "Read, judge or export it, and sample in a new study (--learn-from this one)."
            raise StudyError(Fault("--study", "", "", rule, move))

    def _take_stored(self, sampled: Sequence[Configuration]) -> None:
        """Add the study's sampled configurations: those that have ended, others while they fit."""
        staging = self._staging
        if staging is None:
            return
        ended = [each.name for each in sampled if staging.has_ended(each)]
        for name in ended:
            staging.add(name)
        for configuration in sampled:
            if configuration.name not in staging.sampled and staging.needs_sampling:
                staging.add(configuration.name)

    def next(self) -> Assignment | None:
        """Hand out the next trial; None until a further trial has ended, or `finished`."""
        while (run := self._next()) is not None:
            trial_id, action, until = run
            # Its missing scores may have failed in another trial meanwhile, for the same reason.
            requested = self.requested(trial_id)
            self.running.add(trial_id)
            if action == "measure" and self.history.action(trial_id, requested) is None:
                self.end(trial_id, self.history.result(trial_id))
                continue
            return self.configurations.assignment(trial_id, action, until)
        return None

    def end(self, trial_id: str, result: Result) -> None:
        """Take the end of a trial, or of its stage."""
        known = self.configurations.of_trial(trial_id)
        if trial_id not in self.running or known is None:
            return
        self.running.remove(trial_id)
        self._again.pop(trial_id, None)
        self._late.discard(trial_id)
        configuration, seed = known
        configuration.results[seed] = result
        if self._staging is not None:
            self._staging.note(configuration)
            self._tell(configuration)

    def requeue(self, trial_id: str, action: Action) -> None:
        """Queue a trial again, before all others, after its worker was lost."""
        self.running.discard(trial_id)
        if action != "train" or self._is_of_grid(trial_id):
            self._queue.appendleft((trial_id, action))

    @property
    def stages(self) -> Stages | None:
        """The stages of sampled configurations; None if the search samples none."""
        return self._staging.stages if self._staging else None

    @property
    def finished(self) -> bool:
        """Whether every trial has ended and no more will come."""
        waits = self.running or self._queue or self._needs_sampling() or self._due()
        return not (waits or self._leftovers() or (self._staging and self._staging.has_unbegun))

    @property
    def total(self) -> int:
        """How many runs the search has, ended ones included; a trial runs once for each stage."""
        return self.done + len(self.expected()) + list(self._grid_runs().values()).count(False)

    @property
    def done(self) -> int:
        """How many of these have ended."""
        staged = self._staging.runs() if self._staging else ()
        return sum(self._grid_runs().values()) + sum(run.has_ended for run in staged)

    @property
    def exhausted(self) -> bool:
        """Whether the ranges hold fewer configurations than the search asked for."""
        if self._staging is None:
            return False
        planned = sum(halving.sizes[0] for halving in self._staging.stages.halvings)
        return self._staging.is_exhausted or self.options.trials > planned + len(
            self._staging.whole
        )

    @property
    def num_queued(self) -> int:
        """How many trials run before the sampler draws again."""
        return len(self._queue) + (0 if self._needs_sampling() else len(self._due()))

    def queued(self) -> list[Assignment]:
        """The trials outside the stages that are to run."""
        queue = chain(self._queue, self._leftovers())
        return [self.configurations.assignment(*run) for run in queue]

    def expected(self) -> list[float]:
        """The runs of stages that are to come, as shares of a whole training."""
        if self._staging is None:
            return []
        grows = self._needs_sampling() or self._staging.has_unbegun
        is_complete = not (grows or self._due() or self.running)
        return self._staging.expected(complete=is_complete)

    def trials(self) -> Iterable[str]:
        """The ids of all trials that this search has run, runs now or knows to run."""
        staged = (run.trial_id for run in self._staging.runs()) if self._staging else ()
        return dict.fromkeys([*self._grid_runs(), *staged])

    def assignments(self) -> Iterator[Assignment]:
        """All trials so far, ended ones included."""
        return (self.configurations.assignment(trial, "train") for trial in self.trials())

    def waiting(self) -> set[str]:
        """Trials that are queued or running; the study keeps the files that they need."""
        queued = (trial for trial, _ in chain(self._queue, self._leftovers()))
        return {*self.running, *queued, *self._due()}

    def requested(self, trial_id: str) -> frozenset[Measurement]:
        """The scores that the search needs of one of its trials."""
        known = self.configurations.of_trial(trial_id)
        if known is None:
            raise KeyError(trial_id)
        return self.configurations.requested(known[0].name)

    def runs_again(self, trial_id: str) -> bool:
        """Whether a repetition of the command runs a failed trial again.

        It does not if its settings let a sampled configuration fail: that would cost the same.
        """
        if self.configurations.of_trial(trial_id) is None:
            return False
        caused = self.history.error_type(trial_id) in CONFIGURATION_ERRORS
        return self._is_of_grid(trial_id) or not caused

    def has_ended(self, name: str) -> bool:
        """Whether a configuration certainly runs no further trial in this search.

        A paused one may go on as long as the search runs.
        """
        configuration = self.configurations[name]
        seeds, results = self.configurations.seeds_of(configuration), configuration.results
        statuses = {results[seed].status for seed in seeds if seed in results}
        is_whole = all(seed in results for seed in seeds)
        if configuration.origin == "sampler":
            is_whole = "failed" in statuses or (is_whole and "pruned" not in statuses)
        return is_whole and self._again.keys().isdisjoint(configuration.trials.values())

    def pause_above(self, name: str, until: float) -> float | None:
        """The least score at the end of a stage with which a trial may go on; None: no stage."""
        return self._staging.pause_above(name, until) if self._staging and until < 1 else None

    def _resume(
        self, configuration: Configuration, seed: int, requested: frozenset[Measurement]
    ) -> None:
        """Queue a trial of the grid, and one of an earlier run that lacks scores."""
        trial_id, is_sampled = configuration.trials[seed], configuration.origin == "sampler"
        status = self.history.status(trial_id)
        if status is None:
            if configuration.origin == "grid":
                self._queue.append((trial_id, "train"))
            return
        result = configuration.results[seed] = self.history.result(trial_id)
        action = self.history.action(trial_id, requested)
        is_refused = action == "retrain" and not self.options.retrain
        if is_refused and self.configurations.config(configuration.name).method.takes_steps:
            self.needs_retraining.append(trial_id)
            return
        if is_sampled and status == "failed":
            action = None if result.error_type in CONFIGURATION_ERRORS else "train"
        if action is not None:
            self._again[trial_id] = action
            if trial_id not in self._late and not (is_sampled and action == "train"):
                self._queue.append((trial_id, action))

    def _is_of_grid(self, trial_id: str) -> bool:
        known = self.configurations.of_trial(trial_id)
        return known is not None and known[0].origin == "grid"

    def _grid_runs(self) -> dict[str, bool]:
        """The trials of the grid, and whether each has ended."""
        runs = {}
        for point in (self.configurations[name] for name in self.configurations.grid):
            for seed in self.configurations.seeds_of(point):
                trial_id = point.trials[seed]
                runs[trial_id] = seed in point.results and trial_id not in self._again
        return runs

    def _leftovers(self) -> list[tuple[str, Action]]:
        """The trials outside the stages that failed in an earlier run and are to run again."""
        return [
            (trial_id, action)
            for trial_id, action in self._again.items()
            if trial_id in self._late
            and trial_id not in self.running
            and (action != "train" or self._is_of_grid(trial_id))
        ]

    def _due(self) -> dict[str, float]:
        """The trials of stages that can run now; those that failed in an earlier run come last."""
        due = self._staging.due(self.running) if self._staging else {}
        return dict(sorted(due.items(), key=lambda run: run[0] in self._late))

    def _next(self) -> tuple[str, Action, float] | None:
        """The next trial, what to do with it, and the share to which it trains."""
        if self._queue:
            return (*self._queue.popleft(), 1.0)
        trial_id, until = next(iter(self._due().items()), ("", 0.0))
        if trial_id and trial_id not in self._late:
            return trial_id, "train", until
        if self._needs_sampling():
            self._propose()
            return self._next()
        if self._staging and self._staging.has_unbegun and self._staging.can_begin:
            self._begin_halving(self._staging)
            return self._next()
        if trial_id:
            return trial_id, "train", until
        return next(((*run, 1.0) for run in self._leftovers()), None)

    def _needs_sampling(self) -> bool:
        return self._staging is not None and self._staging.needs_sampling

    def _begin_halving(self, staging: Staging) -> None:
        """Sample the configurations of the next halving, and record them.

        The first halving draws at random. The sampler of each later one has been told how far each
        configuration before it got.
        """
        number, sampled = len(staging.halvings), list[Params]()
        name, seed = self.options.sampler if number else "random", self.options.sampler_seed
        space = self.configurations.space
        self._sampler = Sampler(name, space, seed, len(staging.sampled))
        for told, rank in staging.ranks().items():
            self._sampler.tell(told, self.configurations[told].values, rank)
        names: list[str] = []
        while len(names) < staging.stages.halvings[number].sizes[0]:
            found = self._sampled()
            if found is None:
                break
            names.append(found[0])
            sampled.append(found[1])
        staging.begin(names)
        halvings = list(self.record.halvings)
        halvings[number] = replace(halvings[number], sampled=tuple(sampled))
        self.record = replace(self.record, halvings=tuple(halvings))

    def _propose(self) -> None:
        """Add a configuration that the study does not hold; note if the ranges hold no more."""
        if self._staging is None:
            return
        found = self._sampled()
        if found is None:
            self._staging.close()
        else:
            self._staging.add(found[0])

    def _sampled(self) -> tuple[str, Params] | None:
        """A new configuration and its values of the ranges; None if the ranges hold no more."""
        params = None
        while self._given and params is None:
            given = self._given.popleft()
            params = self._sampler.take(given) if self._is_new(given) else None
        params = params or self._sampler.propose(self._is_new)
        if params is None:
            return None
        params = self._to_run(params)
        name = self.configurations.add_sampled(params)
        self._sampler.begin(name)
        return name, params

    def _to_run(self, params: Params) -> Params:
        """The params that run in place of proposed ones."""
        return params

    def _is_new(self, params: Params) -> bool:
        return self.configurations.is_new(params)

    def _tell(self, configuration: Configuration) -> None:
        """Without halvings, tell the sampler once how a configuration has ended."""
        if self._staging is None or self._has_halvings:
            return
        score = self._staging.score_to_tell(configuration)
        if score is not None and configuration.name not in self._told:
            self._told.add(configuration.name)
            self._sampler.tell(configuration.name, configuration.values, score)


def recorded_stages(record: SearchRecord, seeds: Sequence[int], grid: int) -> Stages:
    """The stages of a study's halvings."""
    halvings = tuple(Halving(each.shares, each.sizes) for each in record.halvings)
    return Stages(halvings, len(seeds), len(record.whole), grid)


def whole_stages(options: SearchOptions, seeds: Sequence[int], grid: int, most: float) -> Stages:
    """The stages of a search whose sampled configurations all train to the end.

    Raises:
        ConfigError: The budget pays for no configuration.
    """
    none = Stages((), len(seeds), grid=grid, keeps_all=options.is_whole)
    if options.budget is None:
        return stages_of_samples(int(min(options.trials, most)), (1.0,), none, 1)
    found = stages_for(options.budget, most, (1.0,), none, halves=1)
    if not found.halvings:
        raise ConfigError(_too_small(options, replace(none, halvings=(Halving.of(1, (1.0,)),))))
    return found


def _too_small(options: SearchOptions, least: Stages) -> Fault:
    rule = f"must be at least {least.cost:g}: one configuration with its seeds takes so much"
    given = f"{options.budget or 0:g}"
    return Fault("--budget", "", given, rule, "Give more, or fewer seeds.")
