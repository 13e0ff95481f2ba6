"""A search before its study is looked at: checked, and its grid's inputs loaded."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from optuna.trial import FrozenTrial

from tune_sentcl.config import UNSAID, TrialConfig, Values, parse_dotted
from tune_sentcl.data.root import data_root
from tune_sentcl.data.tasks.own_task import RetrievalTask
from tune_sentcl.errors import (
    BadInputError,
    CheckpointError,
    ConfigError,
    Fault,
    ObjectiveError,
    ResourceError,
    TuneSentclError,
)
from tune_sentcl.history import History
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.objective import (
    DEFAULT,
    Objective,
    default_among,
    metric_cutoff,
    parse_objectives,
)
from tune_sentcl.space import Space
from tune_sentcl.store.manifest import SearchRecord
from tune_sentcl.store.study_urls import distinct_studies
from tune_sentcl.train import check_batches
from tune_sentcl.trial import InputLoader
from tune_sentcl.trial.inputs import stated_by
from tune_sentcl.tuning.configuration_groups import Sampling
from tune_sentcl.tuning.early_stopping_objective import check_versions, search_objectives
from tune_sentcl.tuning.input_checks import check_lengths, say_unusual
from tune_sentcl.tuning.past_trials import past_trials_of
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.resources import this_machine
from tune_sentcl.tuning.rungs import Rungs, Spacing, spacing
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.session import SessionSettings
from tune_sentcl.tuning.trial_ids import Identifier, ResolvedInputs
from tune_sentcl.watch.terminal import RichWatcher


@dataclass(frozen=True)
class Prepared:
    """A search before its study is looked at.

    Attributes:
        space: What is searched.
        options: How.
        objectives: What is maximized; the first ranks the checkpoints.
        proposals: Which trial comes next.
        loader: What the trials read.
        watcher: Who is told how it goes on.
        settings: For the session.
        past_trials: What the sampler is told of other studies.
        spacing: Where trials are compared and may be stopped; None: nowhere.
    """

    space: Space
    options: SearchOptions
    objectives: tuple[Objective, ...]
    proposals: Proposals
    loader: InputLoader
    watcher: RichWatcher
    settings: SessionSettings
    past_trials: list[FrozenTrial]
    spacing: Spacing | None = None

    def record(self) -> SearchRecord:
        """What the study remembers of the search."""
        return SearchRecord(
            objectives=tuple(map(str, self.objectives)),
            sampler=self.options.sampler,
            sampler_seed=self.options.sampler_seed,
            learned_from=self.options.learn_from,
        )

    def rungs(self, history: History) -> Rungs | None:
        """The rungs with what the study holds of this search's trials."""
        if self.spacing is None:
            return None
        rungs = Rungs(self.spacing)
        for trial_id, rows, dev in history.points():
            configuration = self.proposals.configuration(trial_id)
            if configuration is not None:
                rungs.take(configuration, trial_id, rows, dev)
        for trial_id in self.proposals.waiting():
            rungs.anew(trial_id)
        return rungs

    def resume_from(
        self,
        history: History,
        failed_again: Collection[str] = (),
        interrupted: Mapping[str, TrialConfig] = MappingProxyType({}),
    ) -> None:
        """Take over what a study holds.

        Args:
            history: What is known of its trials.
            failed_again: As for `Proposals.resume_from`.
            interrupted: Likewise.

        Raises:
            ObjectiveError: A trial has no value of an objective, and none can be had but by
                training it again.
            StudyError: A task of the user's own is not what the trials were scored on.
        """
        check_versions(self.space, self.loader, history)
        retrain = self.options.retrain
        self.proposals.resume_from(
            history, retrain=retrain, failed_again=failed_again, interrupted=interrupted
        )
        without_objective = self.proposals.without_objective()
        if without_objective:
            names = ", ".join(map(str, self.objectives))
            rule = (
                f"{len(without_objective)} finished trials have no such score and no "
                "weights to measure "
                f"({named(without_objective)})"
            )
            move = "Give --retrain to train them again, or choose an objective that they have."
            raise ObjectiveError(Fault("--objective", "", names, rule, move))
        self.proposals.add_past_trials(self.past_trials)
        if self.past_trials:
            studies = " and ".join(self.options.learn_from)
            count = f"{len(self.past_trials)} configurations, none of which is run here"
            self.watcher.say(f"the sampler learns from {studies} ({count})")


def prepare(
    space: Space,
    data: str | Path | None,
    seeds: Sequence[int] | None,
    options: SearchOptions,
    origin: Literal["single"] | None = None,
) -> Prepared:
    """Check the options and load what the grid and the sampler need; writes nothing.

    Raises:
        BadInputError: Something asked for cannot be.
    """
    objectives_asked = parse_objectives(
        options.objectives, allow_test=options.allow_test_objective
    )
    options.check(space)
    options = replace(options, learn_from=distinct_studies(options.learn_from))
    loader, watcher = InputLoader(data_root(data)), RichWatcher()
    space = space.stating(_stated(space, loader))
    loader.objectives = objectives_asked
    objectives, loader.compared_by = search_objectives(
        space,
        options.objectives,
        loader,
        allow_test=options.allow_test_objective,
        single_trial=origin == "single",
    )
    _check_this_machine(options)
    sampling = Sampling(
        seeds=tuple(dict.fromkeys(seeds)) if seeds else space.seeds,
        sampled=options.trials,
        sampler=options.sampler,
        sampler_seed=options.sampler_seed,
    )
    proposals = Proposals(space, Identifier(loader), sampling, watcher.say)
    check_lengths(space, loader, sampled=options.trials > 0)
    _check_batches(space, loader)
    _check_measured(space, proposals.identifier, objectives)
    _say_unread(space, loader, watcher.say)
    _say_prefixes(space, loader, watcher.say)
    _say_stated(space, loader, watcher.say)
    _say_whole_rankings(space, loader, watcher.say)
    say_unusual(space, loader, watcher.say, sampled=options.trials > 0)
    if options.trials:
        _say_unreadable(space, loader, watcher.say)
    settings = SessionSettings(space.name, options.keep, origin, options.confirm > 0)
    past_trials = past_trials_of(options.learn_from, space, objectives, loader)
    rungs = spacing(space, options, loader)
    return Prepared(
        space, options, objectives, proposals, loader, watcher, settings, past_trials, rungs
    )


def _check_this_machine(options: SearchOptions) -> None:
    """Refuse at once what this machine cannot hold, before a local cluster or a study is made."""
    if options.launcher == "ray" and options.ray_address != "local":
        return
    here = this_machine()
    asked = (
        ("--cpus-per-trial", options.cpus_per_trial, here.cpus, "cores"),
        ("--gpus-per-trial", options.gpus_per_trial or 0, here.gpus, "GPUs"),
    )
    move = "Ask for less, or name a cluster (--address)."
    faults = [
        Fault(
            option, "", f"{wanted:g}", f"must fit this machine, which has {there:g} {what}", move
        )
        for option, wanted, there, what in asked
        if wanted > there
    ]
    if faults:
        raise ResourceError(faults)


def _check_measured(space: Space, identifier: Identifier, objectives: Sequence[Objective]) -> None:
    """See that the sets at hand can give every objective.

    Raises:
        ObjectiveError: One rests on a set that cannot be read, or that there is not.
    """
    faults: dict[Fault, None] = {}
    for config in space.configurations:
        resolved = identifier.resolve(config.dotted())
        for objective in objectives:
            if _is_given(objective, resolved):
                continue
            unread = [u.error for u in resolved.inputs.sets.unread if u.task == objective.task]
            why = f" ({unread[0]})" if unread else ""
            if objective.is_own:
                measured = resolved.inputs.sets.objectives
                there = [str(one) for one in measured if one.task == objective.task]
                why = f"; there are {', '.join(there)}"
                if any(
                    metric_cutoff(one.metric) for one in measured if one.task == objective.task
                ):
                    why += ", and these metrics at any other cut-off"
            rule = f"no set at hand gives it{why}"
            other = default_among(resolved.inputs.sets.objectives) or DEFAULT
            move = f"Mend that, or choose another objective, such as {other}."
            faults[Fault("--objective", "", str(objective), rule, move)] = None
    if faults:
        raise ObjectiveError(faults)


def _is_given(objective: Objective, resolved: ResolvedInputs) -> bool:
    if objective.is_own:
        return objective in resolved.inputs.sets.objectives
    return any(map(objective.rests_on, resolved.requested.measurements))


def _say_unread(space: Space, loader: InputLoader, say: Callable[[str], None]) -> None:
    """Say once which tasks no trial will have scores of."""
    unread: dict[str, TuneSentclError] = {}
    for config in space.configurations:
        for missing in loader.load(config).sets.unread:
            unread.setdefault(missing.task, missing.error)  # as a whole, and as its beginning
    for task, error in unread.items():
        say(f"{task} is not measured: {error}")


def _say_prefixes(space: Space, loader: InputLoader, say: Callable[[str], None]) -> None:
    """Say once which encoders were made for prefixes that a trial does without."""
    unused_prefixes: dict[str, Prefixes] = {}
    for config in space.configurations:
        stated = loader.load(config).checkpoint.prefixes
        if stated != Prefixes() and Prefixes.of(config.encoder) == Prefixes():
            unused_prefixes[config.encoder.checkpoint] = stated
    for name, stated in unused_prefixes.items():
        say(
            f"{name} puts {stated.query!r} before queries and {stated.text!r} before other "
            "sentences, by its own files; encoder.query_prefix and encoder.text_prefix do so here"
        )


def _stated(space: Space, loader: InputLoader) -> dict[str, Values]:
    """What the files of the encoders say that trials may start from."""
    names = {config.encoder.checkpoint for config in space.configurations}
    for item in space.ranges:
        if item.key == "encoder.checkpoint":
            names.update(item.choices)
    found = {}
    for name in sorted(names):
        with suppress(CheckpointError):  # a trial that needs it says so
            found[name] = stated_by(loader.checkpoint(name))
    return found


def _say_stated(space: Space, loader: InputLoader, say: Callable[[str], None]) -> None:
    """Say once where trials use an encoder otherwise than its own files say."""
    asked: dict[str, set[tuple[str, int | str]]] = {}
    for config in space.configurations:
        encoder = config.encoder
        asked.setdefault(encoder.checkpoint, set()).add((encoder.pooling, encoder.max_length))
    for name, uses in asked.items():
        checkpoint = loader.checkpoint(name)
        stated = checkpoint.pooling, checkpoint.max_length
        parts = [
            f"{key} = {said} (here {' or '.join(sorted({str(use[place]) for use in uses}))})"
            for place, (key, said) in enumerate(zip(UNSAID, stated, strict=True))
            if said is not None and {use[place] for use in uses} != {said}
        ]
        if parts:
            say(f"the files of {name} say {' and '.join(parts)}; auto takes what they say")


def _say_whole_rankings(space: Space, loader: InputLoader, say: Callable[[str], None]) -> None:
    """Say once which recall counts every document, and so tells no encoder from another."""
    said: dict[str, None] = {}
    for task in (task for config in space.configurations for task in loader.sets(config).own):
        if isinstance(task, RetrievalTask):
            count = len(task.documents)
            cuts = [cut for metric in task.metrics if (cut := metric_cutoff(metric))]
            whole = [f"recall@{k}" for name, k in cuts if name == "recall" and k >= count]
            if whole:
                names = " and ".join(whole)
                said[
                    f"{task.name} has {count} documents: {names} is the same for all encoders"
                ] = None
    for text in said:
        say(f"{text}; a smaller cut-off is a metric too, such as recall@5")


def _say_unreadable(space: Space, loader: InputLoader, say: Callable[[str], None]) -> None:
    """Say before the first trial which sources the sampler will draw in vain."""
    sources = [
        source for item in space.ranges if item.key == "data.source" for source in item.choices
    ]
    for source in sources:
        for config in space.configurations:
            try:
                loader.load(parse_dotted({**config.dotted(), "data.source": source}, "a range"))
                break
            except ConfigError:  # it does not go with this method
                continue
            except BadInputError as error:
                say(f"of the ranges, data.source = {source} is left out: {error}")
                break


def _check_batches(space: Space, loader: InputLoader) -> None:
    """Deal every grid trial's first epoch: a premise's group may not fit its batch, for example.

    Raises:
        DataError: A method cannot learn from a batch.
    """
    kinds = {(c.method.name, c.data, c.optimizer.batch_size): c for c in space.configurations}
    for config in kinds.values():
        check_batches(loader.load(config).corpus, config)


def named(names: Sequence[str]) -> str:
    """The first few of many names."""
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")
