"""The queue of a search: the grid, then sampled configurations, then trials that failed before.

It is rebuilt from the study's history in each run.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

import optuna

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import BadInputError
from tune_sentcl.history import Action, Assignment, History, Origin, Result
from tune_sentcl.space import Space
from tune_sentcl.tuning.configuration_groups import Group, Groups, Sampling
from tune_sentcl.tuning.optuna_journal import ReportedTrial
from tune_sentcl.tuning.sampler_study import SamplerStudy
from tune_sentcl.tuning.subspaces import Subspaces
from tune_sentcl.tuning.trial_ids import TrialNamer


class Proposals:
    """Hands out trials and takes their results.

    Laws: a trial is handed out once, and again only after `requeue`. Grid points come before
    sampled ones, and trials that failed in an earlier run come last. No configuration is proposed
    twice. A second report of an end changes nothing. Apart from the sampler's own work, the cost
    of a proposal does not grow with the study.

    Attributes:
        namer: Computes the ids of the trials.
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
        self.namer, self._warn = namer, warn
        self._groups = Groups(space, namer, sampling.seeds)
        self._queue: deque[tuple[str, Action]] = deque()
        self._retries: deque[tuple[str, Action]] = deque()
        self._running: set[str] = set()
        self._subspaces = Subspaces(space, sampling.sampler_seed)
        self._exhausted = sampling.sampler == "grid"
        self._retrain = False
        self.history = History(())
        self._read_errors: set[str] = set()
        self._skipped: list[ReportedTrial] = []
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        for config in space.configurations:
            self._groups.add(Group("grid", (), space.exact_params(config), config))

    def resume_from(
        self,
        history: History,
        *,
        retrain: bool = False,
        failed_again: Collection[str] = (),
        interrupted: Mapping[str, TrialConfig] = MappingProxyType({}),
    ) -> None:
        """Take the study's trials and queue the missing ones; call it once, before `next`.

        Args:
            history: The study's trials; it changes as further trials end.
            retrain: Whether finished trials are trained again for scores that they lack, if their
                weights were not kept.
            failed_again: Finished trials whose last retraining or measuring failed.
            interrupted: Trials with a saved state and no row. Sampled ones are handed out before
                the sampler draws.
        """
        self.history, self._retrain = history, retrain
        for stored in history.configurations():
            self._groups.add_stored(stored)
        self.sampler_study = SamplerStudy(self.space, self._groups, self.sampling, history)
        for name in self._groups:
            self._queue_missing(name)
        self.sampler_study.resume()
        for trial_id, config in interrupted.items():
            params = self._groups.params_of(trial_id, config) if self._needs_sampling() else None
            if params is not None:
                self._queue_sampled(*self.sampler_study.ask(params))
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
        while self._queue or self._retries or self._needs_sampling():
            if not self._queue and self._needs_sampling():
                running = [self._groups.configuration_of(trial_id) for trial_id in self._running]
                if not (idle or self.sampler_study.is_ready(running)):
                    return None
                found = self.sampler_study.propose(running, self._subspaces, self._is_new)
                if found is None:
                    self._exhausted = True
                else:
                    self._queue_sampled(*found)
                continue  # the study may hold the proposed trials already
            name, action = (self._queue or self._retries).popleft()
            # Its missing scores may have failed in another trial meanwhile, for the same reason.
            if action == "measure" and self._action(name) is None:
                reported = self.end(
                    name, self.history.result(name, self._groups.requested(name).data)
                )
                self._skipped += [reported] if reported is not None else []
                continue
            self._running.add(name)
            return self._groups.assignment(name, action)
        return None

    @property
    def finished(self) -> bool:
        """Whether every trial has ended and no more will come."""
        waits = self._queue or self._retries or self._running
        return not waits and not self._needs_sampling()

    @property
    def total(self) -> int:
        """How many trials the search has, ended ones included."""
        if not self._needs_sampling():
            return len(self._groups)
        more = min(
            self._num_missing(), max(0, self._subspaces.points - self._groups.num_in_ranges)
        )
        return len(self._groups) + int(more) * len(self.sampling.seeds)

    @property
    def done(self) -> int:
        """How many trials are neither queued nor running."""
        return len(self._groups) - len(self._queue) - len(self._retries) - len(self._running)

    @property
    def exhausted(self) -> bool:
        """Whether the ranges hold no configuration that has not been tried."""
        return self._exhausted and self.sampling.sampler != "grid" and self._num_missing() > 0

    def queued(self) -> list[Assignment]:
        """The queued trials, in order."""
        return [self._groups.assignment(*one) for one in chain(self._queue, self._retries)]

    @property
    def num_queued(self) -> int:
        """How many trials run before the sampler draws again."""
        return len(self._queue) + (0 if self._needs_sampling() else len(self._retries))

    def assignments(self) -> Iterator[Assignment]:
        """All trials so far, ended ones included."""
        return (self._groups.assignment(name, "train") for name in self._groups.trials())

    def trials(self) -> Iterable[str]:
        """The ids of all trials so far."""
        return self._groups.trials()

    def origins(self) -> dict[str, Origin]:
        """The origin of each trial."""
        return {
            name: self._groups[self._groups.configuration_of(name)].origin
            for name in self.trials()
        }

    def waiting(self) -> set[str]:
        """Trials that are queued or running; the study keeps the files that they need."""
        return {*self._running, *(name for name, _ in chain(self._queue, self._retries))}

    def end(self, trial_id: str, result: Result) -> ReportedTrial | None:
        """Take the result of a trial that has ended.

        Returns:
            The configuration as reported to the sampler, if all its seeds have ended now.
        """
        self._running.discard(trial_id)
        name = self._groups.configuration_of(trial_id)
        group = self._groups[name]
        if trial_id in group.results or len(group.results) == len(group.trial_ids):
            return None
        group.results[trial_id] = result
        return self.sampler_study.report(name)

    def requeue(self, trial_id: str, action: Action) -> None:
        """Queue a trial again, before all others, after its worker was lost."""
        self._running.discard(trial_id)
        self._queue.appendleft((trial_id, action))

    def configuration(self, trial_id: str) -> str | None:
        """The configuration of a trial; None for a trial of another search."""
        return (
            self._groups.configuration_of(trial_id) if trial_id in self._groups.trials() else None
        )

    def objectives(self) -> dict[str, float]:
        """The first objective of each configuration whose trials have all finished."""
        ended = ((name, self._groups[name]) for name in self._groups)
        whole = ((n, g.outcome()[1]) for n, g in ended if len(g.results) == len(g.trial_ids))
        return {name: values[0] for name, values in whole if values}

    def objectives_by_seed(self) -> dict[str, list[float]]:
        """The values of which `objectives` has the means."""
        results = {name: self._groups[name].results.values() for name in self.objectives()}
        return {
            n: [v for r in found for v in r.values[:1] if v is not None]
            for n, found in results.items()
        }

    def skipped(self) -> list[ReportedTrial]:
        """Configurations reported since the last call without a further trial."""
        skipped, self._skipped = self._skipped, []
        return skipped

    def without_objective(self) -> list[str]:
        """Trials in `needs_retraining` that lack an objective for no recorded reason."""
        return [
            n
            for n in self.needs_retraining
            if self.history.lacks_objective(n, self._groups.requested(n))
        ]

    def _queue_missing(self, name: str) -> None:
        """Queue the missing trials of a configuration, and take the results of the others."""
        group = self._groups[name]
        requested = self._groups.requested(group.trial_ids[0])
        for trial_id in group.trial_ids:
            self.history.set_evaluation_data(trial_id, requested.data)
            action = self.history.action(trial_id, requested)
            if (
                action == "retrain"
                and not self._retrain
                and self._groups.config(name).method.takes_steps
            ):
                self.needs_retraining.append(trial_id)
                action = None
            if action is not None:
                self._queue.append((trial_id, action))
            else:
                group.results[trial_id] = self.history.result(trial_id, requested.data)

    def _num_missing(self) -> int:
        return max(0, self.sampling.sampled - self._groups.sampled)

    def _needs_sampling(self) -> bool:
        return self._num_missing() > 0 and not self._exhausted

    def _queue_sampled(self, optuna_trial: optuna.Trial, params: dict[str, Any]) -> None:
        """Queue a configuration that the sampler has proposed."""
        group = Group("sampler", (), params, self.space.sampled(params), optuna_trial)
        self._groups.add(group)
        name = self._groups.configuration_of(group.trial_ids[0])
        self.sampler_study.begin(name, optuna_trial)
        self._queue_missing(name)
        reported = self.sampler_study.report(name)
        self._skipped += [reported] if reported is not None else []

    def _is_new(self, params: dict[str, Any]) -> bool:
        """Whether params stand for a new configuration whose inputs can be read."""
        try:
            return self._groups.is_new(params)
        except BadInputError as error:  # only trials with this data or encoder need it
            if str(error) not in self._read_errors:
                self._read_errors.add(str(error))
                self._warn(f"a sampled configuration is left out, it cannot be read: {error}")
            return False

    def _action(self, trial_id: str) -> Action | None:
        return self.history.action(trial_id, self._groups.requested(trial_id))
