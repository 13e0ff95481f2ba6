"""The queue of a search: the grid, sampled configurations by stage, and failed trials.

It is rebuilt from the study's history in each run, and decides the same again.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

from tune_sentcl.config import TrialConfig, shown
from tune_sentcl.errors import BadInputError, ConfigError, Fault, NonFiniteError, OutOfMemoryError
from tune_sentcl.history import Action, Assignment, Configuration, History, RequestedScores, Result
from tune_sentcl.space import Space
from tune_sentcl.tuning.halving import FAILED, Stages, stages_for
from tune_sentcl.tuning.sampler.sampling import RandomSampler, Sampler, build_sampler
from tune_sentcl.tuning.sampler.subspaces import Params
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.trial_ids import TrialNamer

CONFIGURATION_ERRORS = frozenset({NonFiniteError.__name__, OutOfMemoryError.__name__})
"""Errors that a trial's settings cause: a full device memory and a number that is not finite. Any
other error may be the machine's fault, and the sampler learns nothing from it.
"""


class Proposals:
    """Hands out trials and takes their results.

    Laws: a trial is handed out once for each of its stages, and again only after `requeue`. Grid
    points come first. Of sampled configurations those of the latest stage come first, because they
    take longest. Trials that failed in an earlier run come last. No configuration is proposed
    twice. A second report of an end changes nothing.

    Attributes:
        namer: Computes the ids of the trials.
        seeds: The seeds of every configuration, in the order in which stages add them.
        configurations: The configurations of this search by name, those of the grid first.
        stages: The stages of sampled configurations; None if the search samples none.
        history: The study's trials.
        running: Trials that were handed out and have not ended.
        needs_retraining: Finished trials that lack a score and its weights. They stay as they are,
            because only a new training could give the score.
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
        self.space, self.options, self.seeds = space, options, tuple(seeds)
        self.namer, self._warn = namer, warn
        self.configurations: dict[str, Configuration] = {}
        self.stages: Stages | None = None
        self.history = History(())
        self.needs_retraining: list[str] = []
        self._configs: dict[str, TrialConfig] = {}  # of the grid
        self._of_trial: dict[str, tuple[str, int]] = {}
        self._grid: list[str] = []
        self._staged: list[str] = []  # the sampled configurations that take part in the stages
        self._staged_names: set[str] = set()
        self._known: set[str] = set()  # configurations of the study
        self._queue: deque[tuple[str, Action]] = deque()
        self.running: set[str] = set()
        self._again: dict[str, Action] = {}  # trials with a row that are to run again
        self._late: set[str] = set()  # those that failed in an earlier run
        self._given: deque[Params] = deque()
        self._ends: list[dict[str, float | None]] = []  # of sampled configurations, by stage
        self._grid_ends: list[dict[str, float | None]] = []  # by the number of seeds
        self._going_on: list[list[str]] = []
        self._is_stale = True
        self._is_exhausted = False
        self._read_errors: set[str] = set()
        self._told: set[str] = set()
        self._sampler: Sampler = RandomSampler(space, 0)
        for config in space.configurations:
            self._add_to_grid(config)

    def resume_from(
        self,
        history: History,
        shares: Sequence[float],
        *,
        failed_again: Collection[str] = (),
        interrupted: Mapping[str, TrialConfig] = MappingProxyType({}),
        given: Iterable[Params] = (),
    ) -> None:
        """Take the study's trials and queue the missing ones; call it once, before `next`.

        Args:
            history: The study's trials; it changes as further trials end.
            shares: The shares of a whole training at the ends of stages.
            failed_again: Finished trials whose last retraining or measuring failed.
            interrupted: Trials with a saved state and no row. Sampled ones are proposed again
                before the sampler draws.
            given: Configurations that are proposed before the sampler draws, and count as sampled.
                Those that the study holds are left out.
        """
        self.history = history
        self._late = {*history.with_status("failed"), *failed_again}
        for stored in history.configurations():
            self._known.add(stored.name)
            self._take_stored(stored, shares)
        self._sampler = build_sampler(
            self.options.sampler, self.space, self.options.sampler_seed, len(self._staged)
        )
        for name, one in self.configurations.items():
            requested = self._requested(name)
            for seed in self.seeds:
                self._resume(one, seed, requested)
        if self.options.samples:
            self.stages = self._sized(shares)
            own = (self._params_of(trial, config) for trial, config in interrupted.items())
            self._given.extend([*filter(None, own), *given])
        self._ends = [{} for _ in (self.stages.sizes if self.stages else ())]
        self._grid_ends = [{} for _ in self.seeds]
        for name in self.configurations:
            self._note_ends(name)
        for name in self.configurations:
            self._tell(name)

    def next(self) -> Assignment | None:
        """Hand out the next trial; None until a further trial has ended, or `finished`."""
        while (found := self._next()) is not None:
            trial_id, action, until = found
            name, _ = self._of_trial[trial_id]
            # Its missing scores may have failed in another trial meanwhile, for the same reason.
            requested = self._requested(name)
            self.running.add(trial_id)
            if action == "measure" and self.history.action(trial_id, requested) is None:
                self.end(trial_id, self.history.result(trial_id, requested.data))
                continue
            return self._assignment(trial_id, action, until)
        return None

    def end(self, trial_id: str, result: Result) -> None:
        """Take the end of a trial, or of its stage."""
        if trial_id not in self.running:
            return
        self.running.remove(trial_id)
        self._again.pop(trial_id, None)
        self._late.discard(trial_id)
        name, seed = self._of_trial[trial_id]
        self.configurations[name].results[seed] = result
        self._note_ends(name)
        self._tell(name)

    def requeue(self, trial_id: str, action: Action) -> None:
        """Queue a trial again, before all others, after its worker was lost."""
        self.running.discard(trial_id)
        name, _ = self._of_trial[trial_id]
        if self.configurations[name].origin == "grid" or action != "train":
            self._queue.appendleft((trial_id, action))

    @property
    def finished(self) -> bool:
        """Whether every trial has ended and no more will come."""
        waits = self.running or self._queue or self._needs_sampling() or self._due()
        return not (waits or self._leftovers())

    @property
    def total(self) -> int:
        """How many runs the search has, ended ones included; a trial runs once for each stage."""
        if self.finished or self.stages is None:
            return len(self._runs())
        grid = sum(len(self.configurations[name].trials) for name in self._grid)
        first, *others = self.stages.sizes
        first = len(self._staged) if self._is_exhausted else max(first, len(self._staged))
        return max(len(self._runs()), grid + first + sum(others))

    @property
    def done(self) -> int:
        """How many of these have ended."""
        return sum(ended for _, _, ended in self._runs())

    @property
    def exhausted(self) -> bool:
        """Whether the ranges hold fewer configurations than the search asked for."""
        return self._is_exhausted

    @property
    def num_queued(self) -> int:
        """How many trials run before the sampler draws again."""
        return len(self._queue) + (0 if self._needs_sampling() else len(self._due()))

    @property
    def num_given(self) -> int:
        """How many given configurations are still to be proposed."""
        return len([params for params in self._given if self._is_new(params)])

    def queued(self) -> list[Assignment]:
        """The trials outside the stages that are to run."""
        queue = chain(self._queue, self._leftovers())
        return [self._assignment(trial_id, action, 1.0) for trial_id, action in queue]

    def expected(self) -> list[float]:
        """The runs of stages that are to come, as shares of a whole training."""
        if self.stages is None:
            return []
        costs, found = self.stages.costs, []
        for stage, (size, members) in enumerate(
            zip(self.stages.sizes, self._members(), strict=True)
        ):
            left = (
                max(size, len(members)) if self._needs_sampling() or self._due() else len(members)
            )
            ended = sum(name in self._ends[stage] for name in members)
            found += [costs[stage]] * (left - ended)
        return found

    def trials(self) -> Iterable[str]:
        """The ids of all trials that this search has run or runs now."""
        return dict.fromkeys(trial_id for trial_id, _, _ in self._runs())

    def assignments(self) -> Iterator[Assignment]:
        """All trials so far, ended ones included."""
        return (self._assignment(trial_id, "train", 1.0) for trial_id in self.trials())

    def waiting(self) -> set[str]:
        """Trials that are queued or running; the study keeps the files that they need."""
        queued = (*self._queue, *self._leftovers())
        return {*self.running, *(t for t, _ in queued), *(t for t, _ in self._due())}

    def configuration(self, trial_id: str) -> str | None:
        """The configuration of a trial; None for a trial of another search."""
        return self._of_trial[trial_id][0] if trial_id in self._of_trial else None

    def requested(self, trial_id: str) -> RequestedScores:
        """The scores that the search needs of a trial."""
        return self._requested(self._of_trial[trial_id][0])

    def config(self, name: str) -> TrialConfig:
        """The config of a configuration, with any seed."""
        known = self._configs.get(name)
        return known or self.space.sampled(self.space.params_of(self._values(name)) or {})

    def runs_again(self, trial_id: str) -> bool:
        """Whether a repetition of the command runs a failed trial again.

        It does not if its settings let a sampled configuration fail: that would cost the same.
        """
        name = self.configuration(trial_id)
        if name is None:
            return False
        caused = self.history.error_type(trial_id) in CONFIGURATION_ERRORS
        return self.configurations[name].origin == "grid" or not caused

    def config_of(self, trial_id: str) -> TrialConfig | None:
        """The config of a trial, with any seed; None for a trial of another search."""
        name = self.configuration(trial_id)
        return None if name is None else self.config(name)

    def pause_above(self, trial_id: str, until: float) -> float:
        """The least score at the end of a stage with which a trial may still go on."""
        if self.stages is None or until == 1:
            return -math.inf
        stage = self.stages.shares.index(until)
        best = sorted((e for e in self._ends[stage].values() if e is not None), reverse=True)
        size = self.stages.sizes[stage + 1]
        return best[size - 1] if len(best) >= size else -math.inf

    # --- the configurations

    def _add_to_grid(self, config: TrialConfig) -> None:
        values = config.dotted()
        name = self.namer.configuration(values)
        if name in self.configurations:
            self._merge_requested(name, config)
            return
        self._configs[name] = config
        self._grid.append(name)
        self._add(Configuration(name, "grid", values))

    def _add(self, one: Configuration) -> None:
        """Add a configuration with this search's seeds; it keeps its other ones."""
        ids = self.namer.trial_ids(one.values, self.seeds)
        one.trials = {**dict(zip(self.seeds, ids, strict=True)), **one.trials}
        self.configurations[one.name] = one
        self._of_trial.update((trial, (one.name, seed)) for seed, trial in one.trials.items())

    def _merge_requested(self, name: str, duplicate: TrialConfig) -> None:
        """Keep, of two grid points with one name, the one that asks for more scores."""
        first, second = (
            self.namer.resolve(config.dotted()).requested.measurements
            for config in (self._configs[name], duplicate)
        )
        if first < second:
            self._configs[name] = duplicate
            self.configurations[name].values = duplicate.dotted()
        elif not second <= first:
            rule = "two points of the grid train the same and are asked for different scores"
            move = "Ask both for the suites and protocols of either."
            suites = shown(duplicate.dotted()["evaluation.suites"])
            raise ConfigError(Fault(self.space.source, "evaluation", suites, rule, move))

    def _take_stored(self, stored: Configuration, shares: Sequence[float]) -> None:
        """Take the results of a configuration of the study; see `_staged`.

        A sampled one takes part in the stages unless it was trained whole without them. One with
        other data or another checkpoint than the space gives has another name, and is ignored.
        """
        name = stored.name
        if name in self.configurations:
            own = self.configurations[name]
            own.trials, own.results = {**own.trials, **stored.trials}, stored.results
            self._of_trial.update((trial, (name, seed)) for seed, trial in own.trials.items())
            return
        params = self.space.params_of(stored.values)
        if params is None or stored.origin != "sampler" or self._name(params) != name:
            return
        stored.values = self.space.sampled_values(params)
        self._add(stored)
        first = stored.results.get(self.seeds[0])
        has_finished = first is not None and first.status == "finished"
        has_score = shares[0] == 1 or (first is not None and shares[0] in first.stages)
        if has_score or not (has_finished and self.config(name).method.takes_steps):
            self._staged.append(name)
            self._staged_names.add(name)

    def _resume(self, one: Configuration, seed: int, requested: RequestedScores) -> None:
        """Queue a trial of the grid, and one of an earlier run that lacks scores."""
        trial_id, status = one.trials[seed], self.history.status(one.trials[seed])
        if status is None:
            if one.origin == "grid":
                self._queue.append((trial_id, "train"))
            return
        self.history.set_evaluation_data(trial_id, requested.data)
        one.results[seed] = self.history.result(trial_id, requested.data)
        action = self.history.action(trial_id, requested)
        is_sampled = one.origin == "sampler"
        is_refused = action == "retrain" and not self.options.retrain
        if is_refused and self.config(one.name).method.takes_steps:
            self.needs_retraining.append(trial_id)
            return
        if is_sampled and status == "failed":
            action = None if one.results[seed].error_type in CONFIGURATION_ERRORS else "train"
        if action is not None:
            self._again[trial_id] = action
            if trial_id not in self._late and not (is_sampled and action == "train"):
                self._queue.append((trial_id, action))

    def _leftovers(self) -> list[tuple[str, Action]]:
        """What failed in an earlier run and belongs to no stage: the grid, and measurements."""
        return [
            (trial_id, action)
            for trial_id, action in self._again.items()
            if trial_id in self._late
            and trial_id not in self.running
            and (action != "train" or self.configuration(trial_id) in self._configs)
        ]

    def _params_of(self, trial_id: str, config: TrialConfig) -> Params | None:
        """The params with which the search would draw a trial; None if it cannot draw it."""
        params = self.space.params(config)
        if params is None:
            return None
        try:
            ids = self.namer.trial_ids(self.space.sampled_values(params), self.seeds[:1])
            return params if trial_id in ids else None
        except BadInputError:  # its data or its encoder was removed
            return None

    def _values(self, name: str) -> Mapping[str, Any]:
        return self.configurations[name].values

    def _requested(self, name: str) -> RequestedScores:
        return self.namer.resolve(self._values(name)).requested

    def _name(self, params: Mapping[str, Any]) -> str:
        return self.namer.configuration(self.space.sampled_values(params))

    def _assignment(self, trial_id: str, action: Action, until: float) -> Assignment:
        name, seed = self._of_trial[trial_id]
        one, config = self.configurations[name], self.config(name)
        fingerprints = self.namer.resolve(one.values).inputs.fingerprints
        config = config.model_copy(update={"seed": seed})
        until = until if config.method.takes_steps else 1.0
        return Assignment(trial_id, name, config, one.origin, fingerprints, action, until=until)

    # --- the stages

    def _sized(self, shares: Sequence[float]) -> Stages:
        """The stages of the options' number of configurations, or of their budget."""
        options, num_seeds = self.options, len(self.seeds)

        def of(sampled: int) -> Stages:
            keeps_all = options.scheduler == "none"
            grid = len(self._grid)
            return Stages.of(sampled, shares, seeds=num_seeds, grid=grid, keeps_all=keeps_all)

        if options.budget is None:
            return of(options.trials)
        taken = sum(
            self.space.exact_params(config) is not None for config in self._configs.values()
        )
        return stages_for(options.budget, self._sampler.points - taken, of)

    def _note_ends(self, name: str) -> None:
        """Note how a configuration has ended its stages so far."""
        one, self._is_stale = self.configurations[name], True
        if one.origin == "grid":
            for count, ends in enumerate(self._grid_ends, 1):
                ends.update((name, end) for end in self._end(one, self.seeds[:count], 1.0))
        elif self.stages is not None and name in self._staged_names:
            for stage, ends in enumerate(self._ends):
                seeds = self.seeds[: self.stages.seeds(stage)]
                ends.update((name, end) for end in self._end(one, seeds, self.stages.share(stage)))

    def _end(
        self, one: Configuration, seeds: Sequence[int], share: float
    ) -> Iterator[float | None]:
        """How a configuration has ended a stage; nothing if it has not."""
        results = [one.results.get(seed) for seed in seeds]
        first = results[0]
        if share < 1 and first is not None and share in first.stages:
            yield first.stages[share]
            return
        if None in results or any(one.trials[seed] in self._again for seed in seeds):
            return
        ended = [result for result in results if result is not None]
        failed = [result.error_type for result in ended if result.status == "failed"]
        if failed:
            yield FAILED if CONFIGURATION_ERRORS.issuperset(failed) else None
        elif all(result.status == "finished" for result in ended):
            yield one.mean(seeds)

    def _members(self) -> list[list[str]]:
        """The configurations that certainly run each stage."""
        if self.stages is not None and self._is_stale:
            count = len(self._staged) if self._is_exhausted else None
            self._going_on = [
                self._staged,
                *self.stages.going_on(self._ends, self._grid_ends, proposed=count),
            ]
            self._is_stale = False
        return self._going_on

    def _runs(self) -> list[tuple[str, float, bool]]:
        """The runs so far: trial, the share to which it trains, and whether it has ended."""
        found = []
        for name in self._grid:
            one = self.configurations[name]
            for seed in self.seeds:
                waits = one.trials[seed] in self._again or seed not in one.results
                found.append((one.trials[seed], 1.0, not waits))
        for stage, names in enumerate(self._members()):
            (seed, share), ends = self._seed_and_share(stage), self._ends[stage]
            found += ((self.configurations[n].trials[seed], share, n in ends) for n in names)
        return found

    def _seed_and_share(self, stage: int) -> tuple[int, float]:
        if self.stages is None:
            raise ValueError("a search that samples nothing has no stages")
        return self.seeds[self.stages.seeds(stage) - 1], self.stages.share(stage)

    def _due(self) -> list[tuple[str, float]]:
        """The trials of sampled configurations that can run now, those of late stages first."""
        members = self._members()
        found: dict[str, float] = {}
        for stage in reversed(range(len(members))):
            seed, share = self._seed_and_share(stage)
            for name in members[stage]:
                trial_id = self.configurations[name].trials[seed]
                if name not in self._ends[stage] and trial_id not in self.running:
                    found[trial_id] = share
        late = {t: share for t, share in found.items() if t in self._late}
        return [*((t, share) for t, share in found.items() if t not in late), *late.items()]

    def _next(self) -> tuple[str, Action, float] | None:
        """The next trial, what to do with it, and the share to which it trains."""
        if self._queue:
            return (*self._queue.popleft(), 1.0)
        due = self._due()
        if due and due[0][0] not in self._late:
            return due[0][0], "train", due[0][1]
        if self._needs_sampling():
            name = self._propose()
            if name is not None:
                return self.configurations[name].trials[self.seeds[0]], "train", self._first_share
            self._is_exhausted = self._is_stale = True
            return self._next()
        if due:
            return due[0][0], "train", due[0][1]
        return next(((*one, 1.0) for one in self._leftovers()), None)

    @property
    def _first_share(self) -> float:
        return self.stages.shares[0] if self.stages else 1.0

    # --- the sampler

    def _needs_sampling(self) -> bool:
        if self.stages is None or self._is_exhausted or self.options.sampler == "grid":
            return False
        return len(self._staged) < self.stages.sizes[0]

    def _propose(self) -> str | None:
        """Add a configuration that the study does not hold; None where there is none left."""
        params = None
        while self._given and params is None:
            given = self._given.popleft()
            params = self._sampler.take(given) if self._is_new(given) else None
        params = params or self._sampler.propose(self._is_new)
        if params is None:
            return None
        params = self._found(params)
        values = self.space.sampled_values(params)
        one = Configuration(self.namer.configuration(values), "sampler", values)
        self._sampler.begin(one.name)
        self._add(one)
        self._staged.append(one.name)
        self._staged_names.add(one.name)
        return one.name

    def _found(self, params: Params) -> Params:
        """The params that run in place of proposed ones."""
        return params

    def _is_new(self, params: Params) -> bool:
        """Whether params stand for a new configuration whose inputs can be read."""
        try:
            name = self._name(params)
            return name not in self._known and name not in self.configurations
        except BadInputError as error:  # only trials with this data or encoder need it
            if str(error) not in self._read_errors:
                self._read_errors.add(str(error))
                self._warn(f"a sampled configuration is left out, it cannot be read: {error}")
            return False

    def _tell(self, name: str) -> None:
        """Tell the sampler how a configuration has ended the first stage, once."""
        if self.stages is None or name in self._told:
            return
        is_grid = self.configurations[name].origin == "grid"
        if is_grid and self._first_share < 1:
            return  # it has no score of that stage
        last = len(self.seeds) - 1 if self.stages.keeps_all else 0
        ends = [of.get(name) for of in (self._grid_ends if is_grid else self._ends)[: last + 1]]
        end = FAILED if FAILED in ends else ends[last]  # what fails gets no further seeds
        if end is not None:
            self._told.add(name)
            self._sampler.tell(name, self._values(name), end)
