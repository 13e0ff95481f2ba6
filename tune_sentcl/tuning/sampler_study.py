"""The Optuna study in memory: what the sampler has been told, and what it proposes next.

The history of the study on disk is the truth from which this one is rebuilt. The seeds of one
configuration are separate trials of the search and one trial of Optuna.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.history import History
from tune_sentcl.seeding import stream_seed
from tune_sentcl.space import Space
from tune_sentcl.tuning.configuration_groups import Group, Groups, Sampling
from tune_sentcl.tuning.rungs import Rungs
from tune_sentcl.tuning.sampler.optuna_journal import GridAxes, ReportedTrial
from tune_sentcl.tuning.sampler.past_scale import PAST_NAME, PastTrials, thinned
from tune_sentcl.tuning.sampler.sampling import (
    Placeholders,
    add_trials,
    build_sampler,
    frozen_trial,
    startup_trials,
)
from tune_sentcl.tuning.sampler.subspaces import Subspaces, ask, propose

_NAME = "configuration"
_WITH_RANK = (TrialState.COMPLETE, TrialState.PRUNED)
"""The states of the trials that TPE learns from."""


class SamplerStudy:
    """Reports configurations to the sampler and asks it for new ones.

    Law: a sampler that is rebuilt from the study on disk holds the same values as one that saw
    the trials end.
    """

    def __init__(self, space: Space, groups: Groups, sampling: Sampling, history: History) -> None:
        """Create the study; `resume` then adds what the study on disk holds.

        Args:
            space: The space that is searched.
            groups: The configurations of the search.
            sampling: Sampler, seeds and numbers.
            history: The trials of the study on disk.
        """
        self._space, self._groups, self._sampling = space, groups, sampling
        self._history = history
        self._grid_axes = GridAxes(space)
        self._study = optuna.create_study(
            directions=["maximize"] * len(history.objectives),
            sampler=build_sampler("random", 0, 0),
        )
        self._placeholders = Placeholders(self._study)
        self._past_trials = PastTrials(self._study, self._placeholders)
        # Grid points in the ranges are all that the sampler can learn from before its first draw.
        self._grid = {
            name
            for name, group in groups.items()
            if group.origin == "grid" and group.params is not None
        }
        self._num_reported = 0
        # What the sampler was told of configurations that may run with further seeds.
        self._open: dict[str, FrozenTrial] = {}

    def resume(self) -> None:
        """Report every configuration that has ended, those of other searches too."""
        trials = [self._past_trial(name, group) for name, group in self._groups.items()]
        for name, group in self._groups.other_groups.items():
            data = self._groups.data(group)
            group.results = {m: self._history.result(m, data) for m in group.trial_ids}
            trials.append(self._past_trial(name, group))
        added = [trial for trial in trials if trial is not None]
        add_trials(self._study, added)
        for trial in self._study.get_trials(deepcopy=False):
            self._keep_open(trial.user_attrs[_NAME], trial)
        self._placeholders.update_worst(added)
        failed = set(self._history.with_status("failed"))
        for name, group in [*self._groups.items(), *self._groups.other_groups.items()]:
            if not failed.isdisjoint(group.trial_ids):
                self._report_failed(name, group)

    def start_sampler(self) -> None:
        """Take the sampler of the search, with a seed by the number of earlier draws.

        A resumed sampler must not repeat the draws that it began with.
        """
        sampling = self._sampling
        seed = stream_seed(sampling.sampler_seed, "sampler", self._groups.sampled)
        self._study.sampler = build_sampler(sampling.sampler, seed % 2**32, len(self._grid))

    def add_past_trials(self, trials: Iterable[FrozenTrial]) -> int:
        """Tell the sampler trials of other studies (`thinned`); none of them counts as run.

        Returns:
            How many were kept, with those whose configuration this study holds.
        """
        kept = thinned(trials)
        added = [t for t in kept if not self._groups.holds(t.user_attrs[PAST_NAME])]
        self._past_trials.add(added)
        self._past_trials.rescale(trial for _, trial in self.reported())
        self._num_reported += sum(trial.state in _WITH_RANK for trial in added)
        return len(kept)

    def is_ready(self, running: Iterable[str]) -> bool:
        """Whether a draw need not wait for the grid.

        Args:
            running: Configurations of which trials run.
        """
        reported = self._num_reported + self._placeholders.num_with_value
        knows_enough = reported >= startup_trials(len(self._grid))
        return self._sampling.sampler != "tpe" or knows_enough or self._grid.isdisjoint(running)

    def propose(
        self,
        running: Collection[str],
        subspaces: Subspaces,
        is_new: Callable[[dict[str, Any]], bool],
        rungs: Rungs | None,
    ) -> tuple[optuna.Trial, dict[str, Any]] | None:
        """Ask the sampler for a configuration; None where the ranges hold no further one.

        Args:
            running: Configurations of which trials run; the sampler keeps away from them.
            subspaces: The points that are left.
            is_new: Whether params stand for a configuration that the study does not hold.
            rungs: Where trials were compared; None without early stopping.
        """
        for name in sorted(set(running)):
            group = self._groups[name]
            of_grid = group.optuna_trial is None and group.params is not None
            if of_grid and name not in self._placeholders and name not in self._open:
                trial = self._frozen(group, TrialState.RUNNING)
                if trial is not None:
                    self._placeholders.add(name, trial)
        with self._at_levels(rungs):
            return propose(self._study, self._space, subspaces, is_new)

    @contextmanager
    def _at_levels(self, rungs: Rungs | None) -> Iterator[None]:
        """Show the sampler each running or stopped trial as one that was stopped at its level.

        So it knows good trials while they run, and early ones that later ones beat rank below
        these. A finished trial keeps its value.
        """
        before = []
        levels = rungs.levels() if rungs is not None and self._ranks_stopped else {}
        for name, trial in self._told() if levels else ():
            level = levels.get(self._groups[name].trial_ids[0]) if name in self._groups else None
            if level is not None and trial.state in (TrialState.RUNNING, TrialState.PRUNED):
                before.append((trial, trial.state, trial.values, trial.intermediate_values))
                trial.state, trial.values = TrialState.PRUNED, None
                trial.intermediate_values = {level.rows: level.score}
        try:
            yield
        finally:
            for trial, state, values, stops in before:
                trial.state, trial.values, trial.intermediate_values = state, values, stops

    def ask(self, params: Mapping[str, Any]) -> tuple[optuna.Trial, dict[str, Any]]:
        """Begin a trial with given params, which the sampler does not choose."""
        return ask(self._study, self._space, params)

    def begin(self, name: str, optuna_trial: optuna.Trial) -> None:
        """Note the configuration that an Optuna trial stands for."""
        optuna_trial.set_user_attr(_NAME, name)
        self._past_trials.drop(name)

    def report(self, name: str) -> ReportedTrial | None:
        """Report a configuration once all its released seeds have ended.

        Returns:
            The configuration as reported; a grid trial that the ranges do not hold is returned
            too, though the sampler is not told of it. None before all released seeds have ended,
            and if the configuration may run with further seeds; a later report replaces this one.
        """
        group = self._groups[name]
        reported = self._past_trial(name, group)
        if reported is None:
            trial = self._trial_outside_ranges(name, group)
            return None if trial is None else (name, trial)
        self._placeholders.drop(name)
        optuna_trial, group.optuna_trial = group.optuna_trial, None
        if name in self._open:
            told = self._open.pop(name)
            told.state, told.values = reported.state, reported.values
            told.intermediate_values = reported.intermediate_values
        elif optuna_trial is None:
            self._study.add_trial(reported)
            told = self._study.get_trials(deepcopy=False)[-1]
        else:
            for rows, dev in reported.intermediate_values.items():
                optuna_trial.report(dev, rows)
            self._study.tell(optuna_trial, reported.values, state=reported.state)
            told = self._study.get_trials(deepcopy=False)[optuna_trial.number]
        self._keep_open(name, told)
        self._placeholders.update_worst([reported])
        self._past_trials.rescale(trial for _, trial in self.reported())
        if reported.state == TrialState.FAIL:
            self._report_failed(name, group)
        # Optuna gives its own pruned trial a value, which a later search would not have.
        return None if name in self._open else (name, reported)

    def _keep_open(self, name: str, told: FrozenTrial) -> None:
        if name in self._groups and self._groups[name].may_go_on:
            self._open[name] = told

    def still_open(self) -> Iterator[ReportedTrial]:
        """The configurations with fewer than all seeds, as they were reported."""
        yield from self._open.items()

    def reported(self) -> Iterator[ReportedTrial]:
        """All configurations of this study that the sampler was told of."""
        return (one for one in self._told() if one[1].state.is_finished())

    def _told(self) -> Iterator[ReportedTrial]:
        for trial in self._study.get_trials(deepcopy=False):
            if _NAME in trial.user_attrs:
                yield trial.user_attrs[_NAME], trial

    def mirrored_trials(self) -> Iterator[ReportedTrial]:
        """Every configuration of this search that will not change, for Optuna's journal."""
        yield from (one for one in self.reported() if one[0] not in self._open)
        for name, group in self._groups.items():
            trial = self._trial_outside_ranges(name, group)
            if trial is not None:
                yield name, trial

    def running_trial(self, name: str) -> FrozenTrial | None:
        """A configuration of which a trial runs, for Optuna's journal."""
        group = self._groups[name]
        if group.params is None:
            config = self._groups.config(name)
            return self._grid_axes.trial(config, TrialState.RUNNING, None, {}, {_NAME: name})
        return self._frozen(group, TrialState.RUNNING, user_attrs={_NAME: name})

    def _frozen(
        self,
        group: Group,
        state: TrialState,
        values: list[float] | None = None,
        user_attrs: Mapping[str, Any] | None = None,
    ) -> FrozenTrial | None:
        params = group.params or {}
        return frozen_trial(self._space, params, state, values, {}, user_attrs or {})

    def _report_failed(self, name: str, group: Group) -> None:
        """Report a configuration of which a seed failed, now or in an earlier run."""
        data, history = self._groups.data(group), self._history
        trial_ids = group.released_trials()
        before = {m: history.result(m, data) for m in trial_ids if m in history}
        results = {**before, **group.results}
        values = group.failed_values(results)
        if group.params is None or len(results) < len(trial_ids) or values is None:
            return
        if not values and self._ranks_stopped:
            # TPE ranks a stopped trial without a score below all others. With a value, even the
            # worst one, it would rank above every stopped trial.
            worst = self._frozen(group, TrialState.PRUNED)
            if worst is not None:
                self._placeholders.add(name, worst)
            return
        unknown = [0.0] * len(self._study.directions)
        trial = self._frozen(group, TrialState.COMPLETE, values or unknown)
        if trial is None:
            return
        if values:
            self._placeholders.add(name, trial)
            self._placeholders.update_worst([trial])
        else:
            self._placeholders.fail(name, trial)

    @property
    def _ranks_stopped(self) -> bool:
        """Whether the sampler ranks stopped trials by their intermediate values."""
        return self._sampling.sampler == "tpe" and len(self._study.directions) == 1

    def _past_trial(self, name: str, group: Group) -> FrozenTrial | None:
        """A configuration all of whose seeds have ended, as the sampler learns from it."""
        if not group.ended or group.params is None:
            return None  # the sampler cannot learn from params outside the ranges
        state, values = group.outcome()
        if group.origin == "sampler":
            group.config = None
        if name not in self._open:
            self._num_reported += state in _WITH_RANK
        stops = {} if state == TrialState.COMPLETE else self._intermediate_values(group)
        return frozen_trial(self._space, group.params, state, values, stops, {_NAME: name})

    def _trial_outside_ranges(self, name: str, group: Group) -> FrozenTrial | None:
        """A grid trial that the ranges do not hold, once all its seeds have ended."""
        if not group.ended or group.params is not None:
            return None
        state, values = group.outcome()
        stops = self._intermediate_values(group)
        config = self._groups.config(name)
        return self._grid_axes.trial(config, state, values, stops, {_NAME: name})

    def _intermediate_values(self, group: Group) -> dict[int, float]:
        """Optuna takes them for one objective only."""
        return group.intermediate_values() if len(self._study.directions) == 1 else {}
