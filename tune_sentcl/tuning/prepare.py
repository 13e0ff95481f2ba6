"""Checks a search and reads its grid's inputs, before the study is opened."""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from optuna.trial import FrozenTrial

from tune_sentcl.config import TrialConfig, Values
from tune_sentcl.data.root import data_root
from tune_sentcl.errors import (
    CheckpointError,
    Fault,
    ObjectiveError,
    ResourceError,
    first_names,
)
from tune_sentcl.history import History
from tune_sentcl.judging.power import older_noise, shown
from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.space import Space
from tune_sentcl.store.manifest import SearchRecord, SeedPlan
from tune_sentcl.store.reading.study import Study
from tune_sentcl.store.study_urls import distinct_studies
from tune_sentcl.trial import InputLoader
from tune_sentcl.trial.inputs import auto_values_of
from tune_sentcl.tuning.configuration_groups import Sampling
from tune_sentcl.tuning.early_stopping_objective import check_versions, search_objectives
from tune_sentcl.tuning.first_rung import NUM_CURVES, FirstRung, first_rung
from tune_sentcl.tuning.input_checks import (
    check_first_batches,
    check_lengths,
    check_objectives,
    read_inputs,
    warnings,
)
from tune_sentcl.tuning.past_trials import past_studies
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.resources import this_machine
from tune_sentcl.tuning.rung_spacing import RungSpacing, rung_spacing
from tune_sentcl.tuning.rungs import Rungs
from tune_sentcl.tuning.sampler.portfolio import best_params, check_priors, prior_params
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.seed_ladder import SEED_REDUCTION
from tune_sentcl.tuning.session_study import SessionSettings
from tune_sentcl.tuning.trial_ids import TrialNamer
from tune_sentcl.tuning.worker import study_path
from tune_sentcl.watch.terminal import RichWatcher


@dataclass(frozen=True)
class PreparedSearch:
    """A checked search, whose study has not been opened yet.

    Attributes:
        space: The space that is searched.
        options: The options of the search.
        objectives: The scores that are maximized; the first ranks the checkpoints.
        proposals: Hands out the trials.
        loader: Reads the inputs of the trials.
        watcher: Receives the messages of the search.
        settings: Settings of the session.
        past_trials: Ended configurations of other studies, for the sampler.
        rung_spacing: The rows at which trials are compared; None without early stopping.
        confirmed: The configurations that fresh seeds compare, the winner first.
    """

    space: Space
    options: SearchOptions
    objectives: tuple[Objective, ...]
    proposals: Proposals
    loader: InputLoader
    watcher: RichWatcher
    settings: SessionSettings
    past_trials: list[FrozenTrial]
    rung_spacing: RungSpacing | None = None
    confirmed: tuple[str, ...] = ()

    def record(self) -> SearchRecord:
        """The search as the study records it."""
        return SearchRecord(
            objectives=tuple(map(str, self.objectives)),
            sampler=self.options.sampler,
            sampler_seed=self.options.sampler_seed,
            learned_from=self.options.learn_from,
            seed_plan=self._seed_plan(),
        )

    def _seed_plan(self) -> SeedPlan:
        groups = self.proposals.groups.items()
        grid = tuple(name for name, group in groups if group.origin == "grid")
        return SeedPlan(self.proposals.sampling.seeds, self.num_planned(len(grid)), grid)

    def shown(self, study: Study | None, recorded: SeedPlan | None = None) -> str:
        """Say which differences the seeds of the search can show; see `judging.power`.

        Args:
            study: The study so far; None without one.
            recorded: The plan of its first search; None takes that of this one.
        """
        older = [Study.read(study_path(one)) for one in self.options.learn_from]
        noise = older_noise([*older, *([study] if study else [])], self.objectives[0])
        own = self._seed_plan()
        plan = own if recorded is None or own.configurations is None else recorded
        return shown(plan, self.options.confirm, noise)

    def num_planned(self, grid: int = 0) -> int | None:
        """How many configurations run with all seeds; None if their scores decide that."""
        sampling = self.proposals.sampling
        if sampling.sampler == "grid" or not sampling.sampled:
            return grid
        if sampling.reduction is not None or math.isinf(sampling.sampled):
            return None
        return grid + int(sampling.sampled)

    def found_first_rung(self, recorded: SearchRecord | None) -> int | None:
        """The first rung that an earlier run has found with the present objectives."""
        if recorded is None or recorded.objectives != tuple(map(str, self.objectives)):
            return None  # curves of another score decided it
        return recorded.first_rung

    def rungs(self, history: History, first_rung: int | None = None) -> Rungs | None:
        """The rungs, filled with the evaluation points that the study holds.

        Args:
            history: The study's trials.
            first_rung: Of `found_first_rung`.
        """
        if self.rung_spacing is None:
            return None
        rungs = Rungs(self.rung_spacing)
        if first_rung is not None and not self.rung_spacing.is_known:
            rows = max(first_rung, self.rung_spacing.grace)  # points may come later now
            rungs.decide(FirstRung(rows, "an earlier run has found it"))
        for trial_id, rows, dev in history.points():
            known = self.proposals.configuration(trial_id) is not None
            if known and self.proposals.groups.is_first_seed(trial_id):
                rungs.add_point(trial_id, rows, dev)
        for trial_id in self.proposals.waiting():
            rungs.restart(trial_id)
        grid = [group for _, group in self.proposals.groups.items() if group.origin == "grid"]
        found = rungs.add_ends(
            group.trial_ids[0]
            for group in grid
            if history.status(group.trial_ids[0]) == "finished"
        )
        if found is not None:
            self.watcher.say(str(found))
        return rungs

    def resume_from(
        self,
        history: History,
        failed_again: Collection[str] = (),
        interrupted: Mapping[str, TrialConfig] = MappingProxyType({}),
    ) -> None:
        """Add the trials that a study holds to the proposals.

        Args:
            history: The study's trials.
            failed_again: As for `Proposals.resume_from`.
            interrupted: As for `Proposals.resume_from`.

        Raises:
            ObjectiveError: A trial lacks the value of an objective, and only a new training
                could give it.
            StudyError: The rows of an own task have changed since the trials were scored.
        """
        check_versions(self.space, self.loader, history)
        best, priors = best_params(self.past_trials), prior_params(self.space)
        self.proposals.resume_from(
            history,
            retrain=self.options.retrain,
            failed_again=failed_again,
            interrupted=interrupted,
            given=[*best, *(params for params in priors if params not in best)],
        )
        without_objective = [
            name
            for name in self.proposals.needs_retraining
            if history.lacks_objective(name, self.proposals.groups.requested(name))
        ]
        if without_objective:
            names = ", ".join(map(str, self.objectives))
            rule = (
                f"{len(without_objective)} finished trials have no such score and no weights to "
                f"measure ({first_names(without_objective)})"
            )
            move = "Give --retrain to train them again, or choose an objective that they have."
            raise ObjectiveError(Fault("--objective", "", names, rule, move))
        num_past = self.proposals.sampler_study.add_past_trials(self.past_trials)
        given = self.proposals.given
        num_best = sum(params in best for params in given)
        self._say_start(num_best, len(given) - num_best, num_past)

    def _say_start(self, num_best: int, num_priors: int, num_past: int) -> None:
        """Say with how many configurations the sampler starts, and from how many it learns."""
        studies = " and ".join(self.options.learn_from)
        parts = (
            (num_best, f"{num_best} configurations that did best in {studies}"),
            (num_priors, f"{num_priors} prior configurations"),
        )
        starts = " and ".join(text for count, text in parts if count)
        if starts:
            self.watcher.say(f"the sampler starts with {starts}")
        if num_past:
            self.watcher.say(f"the sampler learns from {num_past} configurations of {studies}")


def prepare(
    space: Space,
    data: str | Path | None,
    seeds: Sequence[int] | None,
    options: SearchOptions,
    origin: Literal["single"] | None = None,
) -> PreparedSearch:
    """Check the options and load what the grid and the sampler need; writes nothing.

    Raises:
        BadInputError: An option or an input is wrong.
    """
    options.check(space)
    check_priors(space)
    options = replace(options, learn_from=distinct_studies(options.learn_from))
    loader, watcher = InputLoader(data_root(data)), RichWatcher()
    space = space.with_auto_values(_auto_values(space, loader))
    loader.objectives = parse_objectives(
        options.objectives, allow_test=options.allow_test_objective
    )
    objectives, loader.early_stopping_objective = search_objectives(
        space, loader, named=bool(options.objectives), single_trial=origin == "single"
    )
    _check_this_machine(options)
    # In one order: rungs compare first seeds, and a repeated command must find the same ones.
    sampling = sampling_of(options, tuple(sorted(set(seeds or space.seeds))))
    proposals = Proposals(space, TrialNamer(loader), sampling, watcher.say)
    sampled = options.samples
    read = read_inputs(space, proposals.namer)
    check_lengths(space, loader, sampled=sampled)
    num_batches = check_first_batches(read)
    check_objectives(read, objectives)
    for text in warnings(space, read, loader, num_batches, sampled=sampled):
        watcher.say(text)
    settings = SessionSettings(space.name, options.keep, origin, options.confirm > 0)
    past = past_studies(options.learn_from, space, objectives, loader)
    rungs = rung_spacing(space, options, loader)
    if rungs is not None and not rungs.is_known and len(past.curves) >= NUM_CURVES:
        first = first_rung(past.curves, rungs.grace)
        rungs = replace(rungs, grace=first.rows, is_known=True)
        watcher.say(str(first))
    return PreparedSearch(
        space, options, objectives, proposals, loader, watcher, settings, past.trials, rungs
    )


def sampling_of(options: SearchOptions, seeds: tuple[int, ...]) -> Sampling:
    """Make the settings of sampling from the options."""
    endless = options.budget is not None and not options.trials
    return Sampling(
        seeds=seeds,
        sampled=math.inf if endless else options.trials,
        sampler=options.sampler,
        sampler_seed=options.sampler_seed,
        budget=math.inf if options.budget is None else options.budget,
        reduction=None if options.scheduler == "none" else SEED_REDUCTION,
    )


def _check_this_machine(options: SearchOptions) -> None:
    """Refuse options that this machine cannot meet, before a local cluster or a study exists."""
    if options.launcher == "ray" and options.ray_address != "local":
        return
    machine = this_machine()
    asked = (
        ("--cpus-per-trial", options.cpus_per_trial, machine.cpus, f"{machine.cpus:g} cores"),
        ("--gpus-per-trial", options.gpus_per_trial or 0, machine.gpus, f"{machine.gpus:g} GPUs"),
    )
    move = "Ask for less, or name a cluster (--address)."
    faults = [
        Fault(option, "", f"{wanted:g}", f"must fit this machine, which has {has}", move)
        for option, wanted, available, has in asked
        if wanted > available
    ]
    if faults:
        raise ResourceError(faults)


def _auto_values(space: Space, loader: InputLoader) -> dict[str, Values]:
    """The settings that the files of the encoders state, by encoder."""
    names = {config.encoder.checkpoint for config in space.configurations}
    for item in space.ranges:
        if item.key == "encoder.checkpoint":
            names.update(item.choices)
    found = {}
    for name in sorted(names):
        with suppress(CheckpointError):  # the trial that needs it reports it
            found[name] = auto_values_of(loader.checkpoint(name))
    return found
