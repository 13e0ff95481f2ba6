"""Which trial comes next: grid points first and exactly once, then what the sampler proposes.

Optuna is asked and told in memory; the study's tables are the truth from which this state is
rebuilt. Seeds of one configuration are separate trials and one told value.
"""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import optuna
from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.config import TrialConfig
from tune_sentcl.launch.sampling import (
    SamplerName,
    build_sampler,
    count_points,
    distributions,
    startup_trials,
    suggest,
)
from tune_sentcl.space import Space
from tune_sentcl.trial.inputs import InputLoader

Origin = Literal["grid", "sampler"]
_REPEATS_BEFORE_RANDOM = 10
_REPEATS_BEFORE_END = 300


@dataclass(frozen=True)
class Assignment:
    """One trial to run."""

    trial_id: str
    configuration: str
    config: TrialConfig
    origin: Origin


@dataclass(frozen=True)
class Result:
    """How a trial ended.

    Attributes:
        status: As in the trials table.
        values: One number an objective, where it finished.
        step: The last step with a dev value, where it was pruned.
        dev: That value.
    """

    status: Literal["finished", "pruned", "failed"]
    values: tuple[float, ...] = ()
    step: int = 0
    dev: float | None = None


@dataclass
class _Group:
    """One configuration, and what its seeds have come to."""

    config: TrialConfig
    origin: Origin
    members: tuple[str, ...]
    results: dict[str, Result] = field(default_factory=dict)
    asked: optuna.Trial | None = None

    def ended(self) -> bool:
        return all(member in self.results for member in self.members)

    def told(self) -> tuple[TrialState, list[float] | None]:
        """What the sampler learns: FAIL before PRUNED before the mean over seeds."""
        results = [self.results[member] for member in self.members]
        if any(r.status == "failed" for r in results):
            return TrialState.FAIL, None
        if any(r.status == "pruned" for r in results):
            return TrialState.PRUNED, None
        return TrialState.COMPLETE, [
            statistics.fmean(column) for column in zip(*(r.values for r in results), strict=True)
        ]


class Proposals:
    """Hands out trials and learns from their ends.

    Laws: a trial is handed out at most once; grid points come before sampled ones; no
    configuration is proposed twice; an end that was told already changes nothing.
    """

    def __init__(
        self,
        space: Space,
        loader: InputLoader,
        *,
        seeds: Sequence[int],
        sampled: int,
        sampler: SamplerName,
        objectives: int,
    ) -> None:
        """Plan the grid; `sampled` more follow, counting those of earlier runs."""
        self.space, self.seeds = space, tuple(seeds)
        self._loader = loader
        self._sampler, self._sampled = sampler, sampled
        self._groups: dict[str, _Group] = {}
        self._owner: dict[str, str] = {}
        self._queue: deque[Assignment] = deque()
        self.assignments: list[Assignment] = []  # every trial so far, in order, ended ones too
        self._running: set[str] = set()
        self._exhausted = sampler == "grid"
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(
            directions=["maximize"] * objectives, sampler=build_sampler("random", 0, 0)
        )
        for config in space.configurations:
            self._add(config, "grid")
        # What the sampler can learn from: the grid as far as it lies within the ranges.
        self._lessons = {n for n, g in self._groups.items() if space.point(g.config) is not None}

    def adopt(self, sampled: Mapping[str, TrialConfig]) -> None:
        """Take over what samplers proposed in earlier runs, as far as the ranges still hold it.

        Args:
            sampled: Configurations by their id. One that other data or another checkpoint gave
                rise to has another id under the present inputs, and is left out.
        """
        for name, config in sampled.items():
            place = self.space.place(config)
            if place is not None:
                again = self.space.sampled(place)
                if self._loader.load(again).configuration_id(again) == name:
                    self._add(again, "sampler")

    def restore(self, results: Mapping[str, Result]) -> None:
        """Take over the ends of trials, by trial_id; trials without one are handed out."""
        self._queue = deque(a for a in self._queue if a.trial_id not in results)
        for group in self._groups.values():
            group.results = {m: results[m] for m in group.members if m in results}
            if group.ended():
                self._tell(group)
        # A resumed sampler must not repeat the draws that it began with.
        done = sum(group.origin == "sampler" for group in self._groups.values())
        self._study.sampler = build_sampler(self._sampler, done, len(self._lessons))

    def next(self) -> Assignment | None:
        """The next trial, or None: ask again after the next end, or, when `finished`, never."""
        if not self._queue and self._may_sample():
            self._propose()
        if not self._queue:
            return None
        assignment = self._queue.popleft()
        self._running.add(assignment.trial_id)
        return assignment

    @property
    def finished(self) -> bool:
        """Whether every trial has ended and no more will come."""
        return not self._queue and not self._running and not self._wants_more()

    @property
    def total(self) -> int:
        """Trials of the whole search, ended ones included."""
        held = sum(len(group.members) for group in self._groups.values())
        return held + (self._missing() * len(self.seeds) if self._wants_more() else 0)

    @property
    def queued(self) -> list[Assignment]:
        """The trials that are sure to run, in order."""
        return list(self._queue)

    @property
    def exhausted(self) -> bool:
        """Whether the ranges hold no configuration that has not been tried."""
        return self._exhausted and self._sampler != "grid" and self._missing() > 0

    def end(self, trial_id: str, result: Result) -> FrozenTrial | None:
        """Note a trial's end.

        Returns:
            What the sampler was told, when this end completes a configuration.
        """
        self._running.discard(trial_id)
        group = self._groups[self._owner[trial_id]]
        if trial_id in group.results:
            return None
        group.results[trial_id] = result
        return self._tell(group) if group.ended() else None

    def told(self) -> list[FrozenTrial]:
        """All that the sampler knows, for a mirror."""
        return [t for t in self._study.get_trials(deepcopy=False) if t.state.is_finished()]

    def _add(self, config: TrialConfig, origin: Origin, asked: optuna.Trial | None = None) -> bool:
        inputs = self._loader.load(config)
        name = inputs.configuration_id(config)
        if name in self._groups:
            return False
        seeded = [config.model_copy(update={"seed": seed}) for seed in self.seeds]
        new = [Assignment(inputs.trial_id(c), name, c, origin) for c in seeded]
        self._groups[name] = _Group(config, origin, tuple(a.trial_id for a in new), asked=asked)
        self._owner.update((a.trial_id, name) for a in new)
        self._queue.extend(new)
        self.assignments.extend(new)
        return True

    def _missing(self) -> int:
        held = sum(group.origin == "sampler" for group in self._groups.values())
        return max(0, self._sampled - held)

    def _wants_more(self) -> bool:
        return self._missing() > 0 and not self._exhausted

    def _may_sample(self) -> bool:
        """Whether to ask the sampler now, or to wait for what the running trials teach it."""
        if not self._wants_more():
            return False
        told = sum(
            t.state in (TrialState.COMPLETE, TrialState.PRUNED)
            for t in self._study.get_trials(deepcopy=False)
        )
        learning = self._sampler == "tpe" and told < startup_trials(len(self._lessons))
        return not learning or self._lessons.isdisjoint(self._owner[t] for t in self._running)

    def _propose(self) -> None:
        """Ask until a configuration is new; known ones are answered at once from their ends."""
        sampler = self._study.sampler
        for attempt in range(_REPEATS_BEFORE_END):
            if attempt == _REPEATS_BEFORE_RANDOM:
                self._study.sampler = build_sampler("random", len(self._study.trials), 0)
            asked = self._study.ask()
            config = self.space.sampled(suggest(asked, self.space))
            if self._add(config, "sampler", asked):
                break
            self._answer(asked, config)
            if self._held() >= count_points(self.space):
                self._exhausted = True
                break
        else:
            self._exhausted = True
        self._study.sampler = sampler

    def _held(self) -> int:
        return sum(self.space.point(g.config) is not None for g in self._groups.values())

    def _answer(self, asked: optuna.Trial, config: TrialConfig) -> None:
        group = self._groups[self._loader.load(config).configuration_id(config)]
        state, values = group.told() if group.ended() else (TrialState.FAIL, None)
        if state == TrialState.COMPLETE:
            self._study.tell(asked, values)
        else:
            self._study.tell(asked, state=TrialState.FAIL)

    def _tell(self, group: _Group) -> FrozenTrial | None:
        """Tell the sampler; configurations outside the ranges it cannot learn from."""
        state, values = group.told()
        point = self.space.point(group.config)
        if point is None:
            return None
        curve = {r.step: r.dev for r in group.results.values() if r.dev is not None}
        if len(self._study.directions) > 1:
            curve = {}
        if group.asked is None:
            frozen = optuna.trial.create_trial(
                state=state,
                values=values,
                params=point,
                distributions=distributions(self.space, point),
                intermediate_values=curve,
            )
            self._study.add_trial(frozen)
            return frozen
        for step, dev in curve.items():
            group.asked.report(dev, step)
        # skip_if_finished: an end may be reported twice, and the second must change nothing.
        return self._study.tell(group.asked, values, state=state, skip_if_finished=True)
