"""The queue of a search: grid, given and sampled configurations, further seeds, failed trials.

It is rebuilt from the study's history in each run.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, takewhile
from types import MappingProxyType
from typing import Any

import optuna

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import BadInputError
from tune_sentcl.history import Action, Assignment, History, Result, Status
from tune_sentcl.space import Space
from tune_sentcl.tuning.configuration_groups import Group, Groups, Sampling
from tune_sentcl.tuning.rung_spacing import whole_training
from tune_sentcl.tuning.rungs import Rungs
from tune_sentcl.tuning.sampler.optuna_journal import ReportedTrial
from tune_sentcl.tuning.sampler.subspaces import Params, Subspaces
from tune_sentcl.tuning.sampler_study import SamplerStudy
from tune_sentcl.tuning.seed_ladder import SeedLadder
from tune_sentcl.tuning.trial_ids import TrialNamer


class Proposals:
    """Hands out trials and takes their results.

    Laws: a trial is handed out once, and again only after `requeue`. Grid points come before
    sampled ones, these before further seeds of sampled ones (`seed_ladder`), and trials that
    failed in an earlier run come last; their ends may lead to further seeds. Proposals that are
    rebuilt from the study decide the same. No configuration is proposed twice. A second report of
    an end changes nothing. Apart from the sampler's own work, the cost of a sampled configuration
    does not grow with the study.

    Attributes:
        namer: Computes the ids of the trials.
        rungs: Where trials are compared; None without early stopping. The session sets it.
        groups: The configurations with the results of their trials.
        history: The study's trials.
        needs_retraining: Finished trials that lack a score and its weights. They stay as they are,
            because only a new training could give the score.
    """

    def __init__(
        self,
        space: Space,
        namer: TrialNamer,
        sampling: Sampling,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Plan the grid; `resume_from` then queues the trials that the study lacks.

        Args:
            space: The space that is searched.
            namer: Computes the ids of the trials.
            sampling: The sampler, its seed, and the number of sampled configurations.
            warn: Receives a message about each sampled configuration that cannot run.

        Raises:
            BadInputError: A grid point's inputs cannot be read.
        """
        self.space, self.sampling = space, sampling
        self.needs_retraining: list[str] = []
        self.rungs: Rungs | None = None
        self.namer, self._warn = namer, warn
        self.groups = Groups(space, namer, sampling)
        self._queue: deque[tuple[str, Action]] = deque()
        self._retries: deque[tuple[str, Action]] = deque()
        self._given: deque[Params] = deque()
        self._all_given: list[Params] = []
        self._running: set[str] = set()
        self._ladder = SeedLadder(self.groups, sampling)
        self._subspaces = Subspaces(space, sampling.sampler_seed)
        self._exhausted = sampling.sampler == "grid"
        self._retrain = False
        self.history = History(())
        self._read_errors: set[str] = set()
        self._skipped: list[ReportedTrial] = []
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        for config in space.configurations:
            self.groups.add(Group("grid", (), space.exact_params(config), config))

    def resume_from(
        self,
        history: History,
        *,
        retrain: bool = False,
        failed_again: Collection[str] = (),
        interrupted: Mapping[str, TrialConfig] = MappingProxyType({}),
        given: Iterable[Params] = (),
    ) -> None:
        """Take the study's trials and queue the missing ones; call it once, before `next`.

        Args:
            history: The study's trials; it changes as further trials end.
            retrain: Whether finished trials are trained again for scores that they lack, if their
                weights were not kept.
            failed_again: Finished trials whose last retraining or measuring failed.
            interrupted: Trials with a saved state and no row. Sampled ones are handed out before
                the sampler draws.
            given: Configurations that are proposed before the sampler draws, and count as sampled.
                Those that the study holds are left out. No rung stops them: early scores do not
                tell the best of configurations that are all good.
        """
        self.history, self._retrain = history, retrain
        for stored in history.configurations():
            was_stopped = any(history.status(m) == "pruned" for m in stored.trial_ids)
            self.groups.add_stored(stored, was_stopped=was_stopped)
        self.sampler_study = SamplerStudy(self.space, self.groups, self.sampling, history)
        for name, group in self.groups.items():
            # Seeds behind a missing one count when the search comes to them.
            held = takewhile(history.__contains__, group.trial_ids)
            self.groups.release(name, sum(1 for _ in held))
            self._queue_missing(name)
        self.sampler_study.resume()
        for trial_id, config in interrupted.items():
            params = self.groups.params_of(trial_id, config) if self._needs_sampling() else None
            if params is not None:
                self._queue_sampled(*self.sampler_study.ask(params))
        self._all_given = list(given)
        self._given.extend(
            p for p in self._all_given if self._needs_sampling() and self._is_new(p)
        )
        # A trial that may fail again comes last, behind those that are still to be sampled.
        failed = {*history.with_status("failed"), *failed_again}
        self._retries = deque(queued for queued in self._queue if queued[0] in failed)
        self._queue = deque(queued for queued in self._queue if queued[0] not in failed)
        self.sampler_study.start_sampler()

    def next(self, *, idle: bool = True) -> Assignment | None:
        """Hand out the next trial; None until a further trial has ended, or `finished`.

        Args:
            idle: Whether a worker is free for it now. If not, the sampler first waits for the
                results of the running grid.
        """
        while self._fill_queue(idle=idle) and (self._queue or self._retries):
            name, action = (self._queue or self._retries).popleft()
            # Its missing scores may have failed in another trial meanwhile, for the same reason.
            requested = self.groups.requested(name)
            if action == "measure" and self.history.action(name, requested) is None:
                reported = self.end(name, self.history.result(name, requested.data))
                self._skipped += [reported] if reported is not None else []
                continue
            self._running.add(name)
            return self.groups.assignment(name, action)
        return None

    def _fill_queue(self, *, idle: bool) -> bool:
        """Queue a further trial if none waits; return False to wait for the grid."""
        while not self._queue:  # the study may hold the queued trials already
            if self._needs_sampling():
                running = [self.groups.configuration_of(trial_id) for trial_id in self._running]
                found = self._next_given()
                if found is None and not (idle or self.sampler_study.is_ready(running)):
                    return False
                found = found or self.sampler_study.propose(
                    running, self._subspaces, self._is_new, self.rungs
                )
                if found is None:
                    self._exhausted = True
                else:
                    self._queue_sampled(*found)
            elif self._ladder.has_waiting():
                self._queue_and_report(self._ladder.release())
            else:
                break
        return True

    @property
    def finished(self) -> bool:
        """Whether every trial has ended and no more will come."""
        return not (self._needs_sampling() or self._has_waiting())

    def _has_waiting(self) -> bool:
        return bool(self._queue or self._retries or self._running or self._ladder.has_waiting())

    @property
    def total(self) -> int:
        """How many trials the search has, ended ones included; an estimate while it samples."""
        more = 0
        if self._needs_sampling():
            left = max(0, self._subspaces.points - self.groups.num_in_ranges)
            more = math.ceil(min(self._num_missing(), left, self._ladder.num_affordable))
        if more or self._has_waiting():
            more += self._ladder.num_expected(more)
        return len(self.groups) + more

    @property
    def done(self) -> int:
        """How many trials are neither queued nor running."""
        return len(self.groups) - len(self._queue) - len(self._retries) - len(self._running)

    @property
    def exhausted(self) -> bool:
        """Whether the ranges hold no configuration that has not been tried."""
        return self._exhausted and self.sampling.sampler != "grid" and self._num_missing() > 0

    def queued(self) -> list[Assignment]:
        """The queued trials, in order."""
        return [self.groups.assignment(*one) for one in chain(self._queue, self._retries)]

    @property
    def num_queued(self) -> int:
        """How many trials run before the sampler draws again."""
        return len(self._queue) + (0 if self._needs_sampling() else len(self._retries))

    @property
    def given(self) -> list[Params]:
        """The given configurations that are still to be proposed."""
        return list(self._given)[: int(min(self._num_missing(), len(self._given)))]

    def assignments(self) -> Iterator[Assignment]:
        """All trials so far, ended ones included."""
        return (self.groups.assignment(name, "train") for name in self.groups.trials())

    def waiting(self) -> set[str]:
        """Trials that are queued or running; the study keeps the files that they need."""
        return {*self._running, *(name for name, _ in chain(self._queue, self._retries))}

    def end(self, trial_id: str, result: Result) -> ReportedTrial | None:
        """Take a trial's result; return its configuration as reported, if all seeds have ended."""
        self._running.discard(trial_id)
        name = self.groups.configuration_of(trial_id)
        group = self.groups[name]
        if trial_id in group.results:
            return None
        self._take_result(group, trial_id, result)
        return self.sampler_study.report(name)

    def requeue(self, trial_id: str, action: Action) -> None:
        """Queue a trial again, before all others, after its worker was lost."""
        self._running.discard(trial_id)
        self._queue.appendleft((trial_id, action))

    def configuration(self, trial_id: str) -> str | None:
        """The configuration of a trial; None for a trial of another search."""
        return self.groups.configuration_of(trial_id) if trial_id in self.groups.trials() else None

    def skipped(self) -> list[ReportedTrial]:
        """Configurations reported since the last call without a further trial."""
        skipped, self._skipped = self._skipped, []
        return skipped

    def _queue_missing(self, name: str) -> None:
        """Queue the missing trials of a configuration, and take the results of the others."""
        group = self.groups[name]
        requested = self.groups.requested(group.trial_ids[0])
        for trial_id in group.released_trials():
            if trial_id in group.results:
                continue
            self.history.set_evaluation_data(trial_id, requested.data)
            action = self.history.action(trial_id, requested)
            if (
                action == "retrain"
                and not self._retrain
                and self.groups.config(name).method.takes_steps
            ):
                self.needs_retraining.append(trial_id)
                action = None
            if action is None:
                self._take_result(group, trial_id, self.history.result(trial_id, requested.data))
                continue
            self._queue.append((trial_id, action))
            earlier = self._cost(trial_id, was) if (was := self.history.status(trial_id)) else None
            self._ladder.begin(trial_id, is_trained=action != "train", earlier=earlier)

    def _take_result(self, group: Group, trial_id: str, result: Result) -> None:
        group.results[trial_id] = result
        self._ladder.end(trial_id, result.status, self._cost(trial_id, result.status))

    def _cost(self, trial_id: str, status: Status) -> float:
        """The cost of an ended trial, as a share of a whole training."""
        if status == "finished" or math.isinf(self.sampling.budget):
            return 1.0
        steps = self.history.steps(trial_id)
        return 1.0 if steps is None else min(1.0, steps / self.whole_steps(trial_id))

    def whole_steps(self, trial_id: str) -> int:
        """About how many steps a whole training of a trial makes."""
        config = self.groups.config(self.groups.configuration_of(trial_id))
        return whole_training(config, self.namer.loader)[1]

    def may_stop(self, trial_id: str) -> bool:
        """Whether a rung may stop a trial: the first seed of what the sampler itself drew."""
        group = self.groups.of_trial(trial_id)
        drawn = group.origin == "sampler" and group.params not in self._all_given
        return drawn and self.groups.is_first_seed(trial_id)

    def _num_missing(self) -> float:
        return max(0, self.sampling.sampled - self.groups.sampled)

    def _needs_sampling(self) -> bool:
        return self._num_missing() > 0 and not self._exhausted and self._ladder.can_sample

    def _next_given(self) -> tuple[optuna.Trial, Params] | None:
        """Begin the next given configuration that is still new; None without one."""
        while self._given:
            params = self._given.popleft()
            if self._is_new(params):
                return self.sampler_study.ask(params)
        return None

    def _queue_sampled(self, optuna_trial: optuna.Trial, params: dict[str, Any]) -> None:
        """Queue a configuration that the sampler has proposed."""
        group = Group("sampler", (), params, self.space.sampled(params), optuna_trial)
        self.groups.add(group)
        name = self.groups.configuration_of(group.trial_ids[0])
        self.sampler_study.begin(name, optuna_trial)
        self._queue_and_report(name)

    def _queue_and_report(self, name: str) -> None:
        """Queue what a configuration lacks, or report it if the study holds all of it."""
        self._queue_missing(name)
        reported = self.sampler_study.report(name)
        self._skipped += [reported] if reported is not None else []

    def _is_new(self, params: dict[str, Any]) -> bool:
        """Whether params stand for a new configuration whose inputs can be read."""
        try:
            return self.groups.is_new(params)
        except BadInputError as error:  # only trials with this data or encoder need it
            if str(error) not in self._read_errors:
                self._read_errors.add(str(error))
                self._warn(f"a sampled configuration is left out, it cannot be read: {error}")
            return False
