"""Which trial comes next: the grid, what the sampler proposes, then what failed before.

Optuna is asked and told in memory; the study's history is the truth from which this state is
rebuilt. Seeds of one configuration are separate trials and one told value.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import BadInputError
from tune_sentcl.history import Action, Assignment, History, Origin, Result
from tune_sentcl.seeding import stream_seed
from tune_sentcl.space import Space
from tune_sentcl.tuning.configuration_groups import Group, Groups, Sampling
from tune_sentcl.tuning.optuna_journal import GridAxes, Told
from tune_sentcl.tuning.sampling import Placeholders, build_sampler, lesson, startup_trials, teach
from tune_sentcl.tuning.subspaces import Rooms, ask, propose
from tune_sentcl.tuning.trial_ids import Identifier

_NAME = "configuration"


class Proposals:
    """Hands out trials and learns from their ends.

    Laws: a trial is handed out at most once, but for `again`; grid points come before sampled
    ones, and trials that failed in an earlier run come last; no configuration is proposed twice;
    an end that was told already changes nothing; the cost of a proposal does not grow with the
    study but for the sampler's own.

    Attributes:
        identifier: Gives the trials their names.
        history: What is known of the study's trials.
        left: Trials that lack a score and would have to be trained again; they stay as they are.
    """

    def __init__(
        self,
        space: Space,
        identifier: Identifier,
        sampling: Sampling,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Plan the grid; `recall` then says what of it there is to do.

        Args:
            space: What is searched.
            identifier: Gives names.
            sampling: What follows the grid.
            note: Is told of sampled configurations that cannot be run.

        Raises:
            BadInputError: A grid point's inputs cannot be read.
        """
        self.space, self.sampling = space, sampling
        self.left: list[str] = []
        self.identifier, self._note = identifier, note
        self._groups = Groups(space, identifier, sampling.seeds)
        self._queue: deque[tuple[str, Action]] = deque()
        self._retries: deque[tuple[str, Action]] = deque()
        self._running: set[str] = set()
        self._rooms, self._grid = Rooms(space, sampling.sampler_seed), GridAxes(space)
        self._exhausted = sampling.sampler == "grid"
        self._learned, self._retrain = 0, False
        self.history = History(())
        self._unread: set[str] = set()
        self._skipped: list[Told] = []
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        for config in space.configurations:
            self._groups.add(Group("grid", (), space.point(config), config))
        self._lessons = {name for name in self._groups if self._groups[name].place is not None}

    def recall(
        self,
        history: History,
        *,
        retrain: bool = False,
        failed_again: Collection[str] = (),
        cut_off: Mapping[str, TrialConfig] = MappingProxyType({}),
    ) -> None:
        """Take over what a study holds, and queue what is missing; call it once, before `next`.

        Args:
            history: What is known; asked again as trials end.
            retrain: Whether finished trials are trained again for scores that they lack and whose
                weights were not kept.
            failed_again: Finished trials of which that has failed before.
            cut_off: Trials without a row that can go on from where they were; those that were
                sampled are handed out before anything is drawn.
        """
        self.history = history
        self._study = optuna.create_study(
            directions=["maximize"] * len(history.objectives),
            sampler=build_sampler("random", 0, 0),
        )
        self._placeholders = Placeholders(self._study)
        self._retrain = retrain
        for stored in history.configurations():
            self._groups.adopt(stored)
        for name in self._groups:
            self._look_up(name)
        lessons = [self._lesson(name, self._groups[name]) for name in self._groups]
        lessons += [self._elsewhere(name, group) for name, group in self._groups.others.items()]
        taught = [trial for trial in lessons if trial is not None]
        teach(self._study, taught)
        self._placeholders.see(taught)
        failed = set(history.having("failed"))
        for name, group in [*self._groups.items(), *self._groups.others.items()]:
            if not failed.isdisjoint(group.members):
                self._tell_failed(name, group)
        for trial_id, config in cut_off.items():
            place = self._groups.place_of(trial_id, config) if self._wants_more() else None
            if place is not None:
                self._take_up(*ask(self._study, self.space, place))
        # No trial waits behind one that may always fail, and so none that is yet to be sampled.
        failed.update(failed_again)
        self._retries = deque(queued for queued in self._queue if queued[0] in failed)
        self._queue = deque(queued for queued in self._queue if queued[0] not in failed)
        # A resumed sampler must not repeat the draws that it began with.
        seed = stream_seed(self.sampling.sampler_seed, "sampler", self._groups.sampled)
        self._study.sampler = build_sampler(
            self.sampling.sampler, seed % 2**32, len(self._lessons)
        )

    def learn(self, trials: Iterable[FrozenTrial]) -> None:
        """Tell the sampler what another study found; none of it counts as run here."""
        taught = [t for t in trials if not self._groups.holds(t.user_attrs.get(_NAME, ""))]
        for trial in taught:
            del trial.user_attrs[_NAME]  # by it we know what was run here
        teach(self._study, taught)
        self._placeholders.see(taught)
        self._learned += len(taught)

    def next(self, *, idle: bool = True) -> Assignment | None:
        """The next trial, or None: ask again after the next end, or, when `finished`, never.

        Args:
            idle: Whether a worker is free for it now. If not, the sampler is asked only when it
                has learned what the running grid will teach it.
        """
        while self._queue or self._retries or self._wants_more():
            if not self._queue and self._wants_more():
                if not (idle or self._has_learned()):
                    return None
                self._propose()
                continue  # what was proposed may be known already
            name, action = (self._queue or self._retries).popleft()
            # What it lacks may have failed for the same reason elsewhere in the meantime.
            if action == "measure" and self._action(name) is None:
                told = self.end(name, self.history.result(name, self._groups.asked(name).data))
                self._skipped += [told] if told is not None else []
                continue
            self._running.add(name)
            return self._groups.assignment(name, action)
        return None

    @property
    def finished(self) -> bool:
        """Whether every trial has ended and no more will come."""
        waits = self._queue or self._retries or self._running
        return not waits and not self._wants_more()

    @property
    def total(self) -> int:
        """Trials of the whole search, ended ones included."""
        if not self._wants_more():
            return len(self._groups)
        more = min(self._missing(), max(0, self._rooms.points - self._groups.placed))
        return len(self._groups) + int(more) * len(self.sampling.seeds)

    @property
    def done(self) -> int:
        """Trials that are neither queued nor under way."""
        return len(self._groups) - len(self._queue) - len(self._retries) - len(self._running)

    @property
    def exhausted(self) -> bool:
        """Whether the ranges hold no configuration that has not been tried."""
        return self._exhausted and self.sampling.sampler != "grid" and self._missing() > 0

    def queued(self) -> list[Assignment]:
        """The trials that are sure to run, in order."""
        return [self._groups.assignment(*one) for one in chain(self._queue, self._retries)]

    @property
    def known_left(self) -> int:
        """How many trials are still to run before the sampler is asked again."""
        return len(self._queue) + (0 if self._wants_more() else len(self._retries))

    def known(self) -> Iterator[Assignment]:
        """Every trial so far, ended ones too."""
        return (self._groups.assignment(name, "train") for name in self._groups.trials())

    def trials(self) -> Iterable[str]:
        """The names of all trials so far."""
        return self._groups.trials()

    def origins(self) -> dict[str, Origin]:
        """Who asks for each trial."""
        return {name: self._groups[self._groups.owner(name)].origin for name in self.trials()}

    def waiting(self) -> set[str]:
        """Trials that are queued or under way: what they need must stay."""
        return {*self._running, *(name for name, _ in chain(self._queue, self._retries))}

    def end(self, trial_id: str, result: Result) -> Told | None:
        """Note a trial's end.

        Returns:
            What the sampler was told, when this end completes a configuration.
        """
        self._running.discard(trial_id)
        name = self._groups.owner(trial_id)
        group = self._groups[name]
        if trial_id in group.results or len(group.results) == len(group.members):
            return None
        group.results[trial_id] = result
        return self._tell(name)

    def again(self, trial_id: str, action: Action) -> None:
        """Hand a trial out once more, before all others: its worker was lost."""
        self._running.discard(trial_id)
        self._queue.appendleft((trial_id, action))

    def configuration(self, trial_id: str) -> str | None:
        """The configuration of a trial; None of one that is none of this search's."""
        return self._groups.owner(trial_id) if trial_id in self._groups.trials() else None

    def objectives(self) -> dict[str, float]:
        """The first objective of each configuration all of whose trials have finished."""
        ended = ((name, self._groups[name]) for name in self._groups)
        whole = ((n, g.outcome()[1]) for n, g in ended if len(g.results) == len(g.members))
        return {name: values[0] for name, values in whole if values}

    def skipped(self) -> list[Told]:
        """What the sampler was told since the last call of trials that are not worth a try."""
        skipped, self._skipped = self._skipped, []
        return skipped

    def told(self) -> Iterator[Told]:
        """All that the sampler was told of this study."""
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state.is_finished() and _NAME in trial.user_attrs:
                yield trial.user_attrs[_NAME], trial

    def shown(self) -> Iterator[Told]:
        """Every configuration of this search that has ended, for a mirror."""
        yield from self.told()
        for name in self._groups:
            told = self._grid_trial(name, self._groups[name])
            if told is not None:
                yield name, told

    def begun(self, name: str) -> FrozenTrial | None:
        """A configuration of which a trial is handed out, for a mirror."""
        group = self._groups[name]
        state, attrs = TrialState.RUNNING, {_NAME: name}
        if group.place is None:
            return self._grid.trial(self._groups.config(name), state, None, {}, attrs)
        return lesson(self.space, group.place, state, None, {}, attrs)

    def lacking(self) -> list[str]:
        """The trials left as they are that have no value of an objective, nor a reason why."""
        return [n for n in self.left if self.history.unexplained(n, self._groups.asked(n))]

    def _look_up(self, name: str) -> None:
        """Queue what there is to do for a configuration, and take over what is known."""
        group = self._groups[name]
        asked = self._groups.asked(group.members[0])
        for member in group.members:
            self.history.mean(member, asked.data)
            action = self.history.action(member, asked)
            if (
                action == "retrain"
                and not self._retrain
                and self._groups.config(name).method.takes_steps
            ):
                self.left.append(member)
                action = None
            if action is not None:
                self._queue.append((member, action))
            else:  # what is still to be measured is told when it has been
                group.results[member] = self.history.result(member, asked.data)

    def _missing(self) -> int:
        return max(0, self.sampling.sampled - self._groups.sampled)

    def _wants_more(self) -> bool:
        return self._missing() > 0 and not self._exhausted

    def _has_learned(self) -> bool:
        """Whether the sampler has as many values as it wants, or no running grid point has one."""
        learning = self.sampling.sampler in ("tpe", "gp")
        told = self._learned + self._placeholders.told
        if not learning or told >= startup_trials(len(self._lessons)):
            return True
        return self._lessons.isdisjoint(map(self._groups.owner, self._running))

    def _propose(self) -> None:
        """Queue one new configuration, if there is one."""
        for name in sorted(set(map(self._groups.owner, self._running))):
            group = self._groups[name]
            if group.asked is None and group.place is not None and name not in self._placeholders:
                running = lesson(self.space, group.place, TrialState.RUNNING, None, {}, {})
                if running is not None:
                    self._placeholders.add(name, running)
        found = propose(self._study, self.space, self._rooms, self._is_new)
        if found is None:
            self._exhausted = True
        else:
            self._take_up(*found)

    def _take_up(self, asked: optuna.Trial, place: dict[str, Any]) -> None:
        """Queue a configuration that the sampler has asked for."""
        group = Group("sampler", (), place, self.space.sampled(place), asked)
        asked.set_user_attr(_NAME, self._groups.add(group))
        name = self._groups.owner(group.members[0])
        self._look_up(name)
        told = self._tell(name)
        self._skipped += [told] if told is not None else []

    def _is_new(self, place: dict[str, Any]) -> bool:
        """Whether a place is a configuration that has not been tried, and can be."""
        try:
            return self._groups.lacks(place)
        except BadInputError as error:  # its data or its encoder: no other trial needs to end
            if str(error) not in self._unread:
                self._unread.add(str(error))
                self._note(f"a sampled configuration is left out, it cannot be read: {error}")
            return False

    def _elsewhere(self, name: str, group: Group) -> FrozenTrial | None:
        """What the study holds beside the trials of this search, as the sampler learns from it."""
        data = self._groups.data(group)
        group.results = {m: self.history.result(m, data) for m in group.members}
        return self._lesson(name, group)

    def _tell_failed(self, name: str, group: Group) -> None:
        """Tell the sampler of a configuration of which a seed failed, now or in an earlier run."""
        data, known = self._groups.data(group), self.history
        before = {m: known.result(m, data) for m in group.members if m in known}
        results = {**before, **group.results}
        values = group.failed_values(results)
        if group.place is None or len(results) < len(group.members) or values is None:
            return
        unknown = [0.0] * len(self._study.directions)
        told = lesson(self.space, group.place, TrialState.COMPLETE, values or unknown, {}, {})
        if told is None:
            return
        if values:
            self._placeholders.add(name, told)
            self._placeholders.see([told])
        else:
            self._placeholders.fail(name, told)

    def _lesson(self, name: str, group: Group) -> FrozenTrial | None:
        """A configuration all of whose seeds have ended, as the sampler learns from it."""
        if len(group.results) < len(group.members) or group.place is None:
            return None  # outside the ranges it cannot learn
        state, values = group.outcome()
        if group.origin == "sampler":
            group.config = None
        curve = group.curve() if len(self._study.directions) == 1 else {}
        complete = state == TrialState.COMPLETE
        self._learned += complete or (
            state == TrialState.PRUNED and self.sampling.sampler == "tpe"
        )
        return lesson(self.space, group.place, state, values, curve, {_NAME: name})

    def _grid_trial(self, name: str, group: Group) -> FrozenTrial | None:
        """A grid trial that the ranges do not hold, once all its seeds have ended."""
        if len(group.results) < len(group.members) or group.place is not None:
            return None
        state, values = group.outcome()
        curve = group.curve() if len(self._study.directions) == 1 else {}
        config = self._groups.config(name)
        return self._grid.trial(config, state, values, curve, {_NAME: name})

    def _tell(self, name: str) -> Told | None:
        """Tell the sampler of a configuration, once all its seeds have ended."""
        group = self._groups[name]
        told = self._lesson(name, group)
        if told is None:
            shown = self._grid_trial(name, group)
            return None if shown is None else (name, shown)
        self._placeholders.drop(name)
        asked, group.asked = group.asked, None
        if asked is None:
            self._study.add_trial(told)
        else:
            for rows, dev in told.intermediate_values.items():
                asked.report(dev, rows)
            self._study.tell(asked, told.values, state=told.state)
        self._placeholders.see([told])
        if told.state == TrialState.FAIL:
            self._tell_failed(name, group)
        return name, told  # Optuna's own gives a pruned trial a value; a later search would not

    def _action(self, trial_id: str) -> Action | None:
        return self.history.action(trial_id, self._groups.asked(trial_id))
