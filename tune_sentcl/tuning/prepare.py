"""Checks a search and reads its grid's inputs, before the study is opened."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from tune_sentcl.config import TrialConfig, Values
from tune_sentcl.data.root import data_root
from tune_sentcl.errors import (
    CheckpointError,
    ConfigError,
    Fault,
    ObjectiveError,
    first_names,
)
from tune_sentcl.history import History
from tune_sentcl.judging.evidence import shown
from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.results.standings import older_noise
from tune_sentcl.space import Space
from tune_sentcl.store.files import StudyFiles, distinct_studies, study_path
from tune_sentcl.store.manifest import SearchRecord, SeedPlan
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.trial.inputs import auto_values_of
from tune_sentcl.tuning.early_stopping_objective import (
    check_evaluation_data,
    check_versions,
    search_objectives,
)
from tune_sentcl.tuning.input_checks import (
    check_first_batches,
    check_lengths,
    check_objectives,
    read_inputs,
    row_notes,
    warnings,
)
from tune_sentcl.tuning.past_trials import changed_code, interrupted_trials, past_studies
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.sampler.portfolio import (
    MOST_WHOLE,
    best_params,
    check_priors,
    prior_params,
)
from tune_sentcl.tuning.sampler.sampling import Params
from tune_sentcl.tuning.search_configurations import TrialNamer
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.session_study import SessionSettings
from tune_sentcl.tuning.stages import first_shares
from tune_sentcl.tuning.timing import TrialTimer, shortest_training
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
        given: The configurations that are proposed before the sampler draws.
        whole: Those of `given` that take part in no halving and run whole.
        timer: Times the trials on this machine.
        shares: The shares of a whole training at the ends of stages.
        confirmed: The configurations that fresh seeds compare, the winner first.
    """

    space: Space
    options: SearchOptions
    objectives: tuple[Objective, ...]
    proposals: Proposals
    loader: InputLoader
    watcher: RichWatcher
    settings: SessionSettings
    given: list[Params]
    whole: list[Params]
    timer: TrialTimer
    shares: tuple[float, ...] = (1.0,)
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
        grid = tuple(self.proposals.configurations.grid)
        return SeedPlan(self.proposals.seeds, self.num_planned(len(grid)), grid)

    def shown(self, study: Study | None, recorded: SeedPlan | None = None) -> str:
        """Say which differences the seeds of the search can show; see `judging.evidence`.

        Args:
            study: The study so far; None without one.
            recorded: The plan of its first search; None takes that of this one.
        """
        older = [Study.read(study_path(other)) for other in self.options.learn_from]
        noise = older_noise([*older, *([study] if study else [])], self.objectives[0])
        own = self._seed_plan()
        plan = own if recorded is None or own.configurations is None else recorded
        return shown(plan, self.options.confirm, noise)

    @property
    def _has_priors(self) -> bool:
        return any(item.prior is not None for item in self.space.ranges)

    def num_planned(self, grid: int = 0) -> int | None:
        """How many configurations run with all seeds; None if their scores decide that."""
        if not self.options.samples:
            return grid
        if not self.options.is_whole:
            return None
        stages = self.proposals.stages  # None until the study is read
        return grid + (self.options.trials if stages is None else stages.finalists)

    def check_halvings(self, recorded: SearchRecord | None) -> None:
        """Refuse a search that cannot go on with the study's halvings.

        Raises:
            ConfigError: It begins with another seed, ranks stages by another score, or runs all
                configurations whole.
        """
        if recorded is None or not recorded.halvings or not self.options.samples:
            return
        first, objective = recorded.halvings[0].first_seed, recorded.halvings[0].objective
        if first != self.proposals.seeds[0]:
            rule = f"must begin with {first}, the seed of the study's stages"
            given = ",".join(map(str, self.proposals.seeds))
            raise ConfigError(Fault("--seeds", "", given, rule, "Put it first, or start a study."))
        if objective != str(self.loader.early_stopping_objective):
            rule = f"ranks stages by it, and those of the study are ranked by {objective}"
            given = str(self.loader.early_stopping_objective)
            move = "Name that one first, or start another study."
            raise ConfigError(Fault("--objective", "", given, rule, move))
        if self.options.is_whole:
            rule = "cannot go on with a study that was sampled with --scheduler halving"
            raise ConfigError(Fault("--scheduler", "", "none", rule, "Start another study."))

    def resumed(self, study: Study | None) -> tuple["PreparedSearch", History, SearchRecord]:
        """Size the stages and add the trials of the study; raises as `resume_from`.

        Returns:
            The search, the history, and the study's last search or a new one.
        """
        recorded = study.manifest.search if study else None
        history, interrupted = History(self.objectives), {}
        if study is not None:
            compared = self.loader.early_stopping_objective
            history = History.read(
                study, self.objectives, ["method.name"], early_stopping_objective=compared
            )
            for text in changed_code(history):
                self.watcher.say(text)
            interrupted = interrupted_trials(study, history)
        record = recorded or replace(self.record(), seed_plan=None)
        self.resume_from(history, record, interrupted)
        return self, history, record

    def resume_from(
        self,
        history: History,
        recorded: SearchRecord | None = None,
        interrupted: Mapping[str, TrialConfig] = MappingProxyType({}),
    ) -> None:
        """Add the trials that a study holds to the proposals.

        Args:
            history: The study's trials.
            recorded: The study's last search; None without one.
            interrupted: As for `Proposals.resume_from`.

        Raises:
            ConfigError: The search begins with another seed than the study.
            ObjectiveError: A trial lacks the value of an objective, and only a new training
                could give it.
            StudyError: The trials were scored on other evaluation data, or the rows of an own
                task have changed since.
        """
        check_evaluation_data(self.space, history)
        check_versions(self.space, self.loader, history)
        self.check_halvings(recorded)
        self.proposals.resume_from(
            history,
            (1.0,) if self.options.is_whole else self.shares,
            recorded,
            interrupted=interrupted,
            given=self.given,
            whole=self.whole,
        )
        without_objective = [
            name for name in self.proposals.needs_retraining if history.lacks_objective(name)
        ]
        if without_objective:
            names = ", ".join(map(str, self.objectives))
            rule = (
                f"{len(without_objective)} finished trials have no such score and no weights to "
                f"measure ({first_names(without_objective)})"
            )
            move = "Give --retrain to train them again, or choose an objective that they have."
            raise ObjectiveError(Fault("--objective", "", names, rule, move))
        if self.proposals.stages is not None and (count := self.proposals.num_given):
            studies = " and ".join(self.options.learn_from)
            best = f"the best of {studies}" if studies else "priors of the space"
            best += " and priors of the space" * (bool(studies) and self._has_priors)
            self.watcher.say(f"the first {count} sampled configurations are {best}")


def prepare(
    space: Space,
    data: str | Path | None,
    seeds: Sequence[int] | None,
    options: SearchOptions,
    study: str | None = None,
    origin: Literal["single"] | None = None,
    watcher: RichWatcher | None = None,
) -> PreparedSearch:
    """Load what the grid and the sampler need, and check it; writes nothing.

    `first_checks` has checked what needs no torch. `study` is the path of the study, whose mined
    negatives are taken. Without a watcher, messages go to stderr.

    Raises:
        BadInputError: An option or an input is wrong.
    """
    check_priors(space)
    options = replace(options, learn_from=distinct_studies(options.learn_from))
    loader, watcher = InputLoader(data_root(data)), watcher or RichWatcher()
    loader.study = None if study is None else StudyFiles.at(study)
    space = space.with_auto_values(_auto_values(space, loader))
    loader.objectives = parse_objectives(
        options.objectives, allow_test=options.allow_test_objective
    )
    objectives, loader.early_stopping_objective = search_objectives(
        space,
        loader,
        named=bool(options.objectives),
        single_trial=origin == "single",
        halves=options.samples and not options.is_whole,
    )
    own_seeds = tuple(dict.fromkeys(seeds or space.seeds))
    proposals = Proposals(space, TrialNamer(loader), options, own_seeds, watcher.say)
    sampled = options.samples
    read = read_inputs(space, proposals.namer)
    check_lengths(space, loader, sampled=sampled)
    num_batches = check_first_batches(read)
    check_objectives(read, objectives)
    for text in row_notes(space, loader, sampled=sampled, allow_overlap=options.allow_overlap):
        watcher.say(text)
    for text in warnings(space, read, num_batches, sampled=sampled):
        watcher.say(text)
    settings = SessionSettings(space.name, options.keep, origin, options.confirm > 0)
    best = best_params(past_studies(options.learn_from, space, objectives, loader))
    priors = [params for params in prior_params(space) if params not in best]
    given, whole = [*best, *priors], [*best[:MOST_WHOLE], *priors[:1]]
    shares = first_shares(*shortest_training(space, loader)) if sampled else (1.0,)
    timer = TrialTimer(loader, options)
    return PreparedSearch(
        space,
        options,
        objectives,
        proposals,
        loader,
        watcher,
        settings,
        given,
        whole,
        timer,
        shares,
    )


def _auto_values(space: Space, loader: InputLoader) -> dict[str, Values]:
    """The settings that the files of the encoders state, by encoder."""
    names = {config.encoder.checkpoint for config in space.configurations}
    for item in space.ranges:
        if item.key == "encoder.checkpoint":
            names.update(item.choices)
    settings = {}
    for name in sorted(names):
        with suppress(CheckpointError):  # the trial that needs it reports it
            settings[name] = auto_values_of(loader.checkpoint(name))
    return settings
