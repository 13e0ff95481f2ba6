"""The question of a search: its search space, data and scores, checked.

`ask` refuses bad input before a study is opened. This module writes nothing.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from tune_sentcl.config import TrialConfig, Values, flatten, parse_dotted, shown
from tune_sentcl.data.root import data_root
from tune_sentcl.data.task import Prompt
from tune_sentcl.errors import BadInputError, CheckpointError, ConfigError, Fault
from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.space import Params, Space
from tune_sentcl.store.files import StudyFiles, distinct_studies
from tune_sentcl.trial import InputLoader
from tune_sentcl.trial.inputs import auto_values_of
from tune_sentcl.trial.running import tasks_at_points
from tune_sentcl.tuning.configurations import TrialNamer
from tune_sentcl.tuning.first_checks import study_at
from tune_sentcl.tuning.input_checks import (
    check_first_batches,
    check_lengths,
    check_objectives,
    read_inputs,
    row_notes,
    search_objectives,
    stage_objective,
)
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.remarks import warnings
from tune_sentcl.tuning.sampler import (
    MOST_WHOLE,
    best_params,
    check_priors,
    past_studies,
    prior_params,
)
from tune_sentcl.tuning.stages import first_shares
from tune_sentcl.watch.terminal import RichWatcher

MEASURED = ("suites", "own", "cutoffs", "protocols", "cost", "classifier_seeds")
"""The hyperparameters of `evaluation` that decide which scores a trial gets."""

_LENGTHS = ("data.source", "data.limit", "optimizer.epochs", "optimizer.batch_size")
"""The hyperparameters that decide the number of steps of a training."""


@dataclass(frozen=True)
class Question:
    """A checked search, whose study is not opened yet.

    Attributes:
        space: The search space.
        options: The options of the search.
        seeds: The search seeds of every configuration, in the order in which stages add them.
        objectives: The objectives; the first also ranks kept weights.
        namer: Names the trials, and loads their inputs.
        watcher: Receives the messages of the search.
        shares: The shares of a whole training at the ends of stages.
        given: The configurations to propose before the sampler draws.
        whole: Those of `given` that train to the end without a halving.
        origin: The origin of every trial, for single trials and confirmation seeds; None: each
            trial's own.
        confirmed: The configurations that train with confirmation seeds, the winner first.
    """

    space: Space
    options: SearchOptions
    seeds: tuple[int, ...]
    objectives: tuple[Objective, ...]
    namer: TrialNamer
    watcher: RichWatcher
    shares: tuple[float, ...] = (1.0,)
    given: tuple[Params, ...] = ()
    whole: tuple[Params, ...] = ()
    origin: Literal["single", "confirm"] | None = None
    confirmed: tuple[str, ...] = ()

    @property
    def loader(self) -> InputLoader:
        """The loader of the trials' inputs."""
        return self.namer.loader

    @property
    def measured(self) -> dict[str, Any]:
        """The values of `MEASURED`, which all trials share."""
        return measured(self.space)


def ask(
    space: Space,
    data: str | Path | None,
    seeds: Sequence[int] | None,
    options: SearchOptions,
    study: str | None = None,
    origin: Literal["single"] | None = None,
    watcher: RichWatcher | None = None,
    *,
    extends: bool = False,
) -> Question:
    """Load what the grid and the sampler need, and check it.

    Call `first_checks` before. `study` is the path of the study, from which tasks and mined
    negatives are taken. With `extends`, the search space has the study's tasks and further ones.
    Without a watcher, messages go to stderr.

    Raises:
        BadInputError: An option or an input is wrong.
    """
    check_priors(space)
    measured(space)  # raises if the space's trials would measure different scores
    asked, held = space, None if study is None else study_at(study, space)
    begun = held.manifest if held and held.has_finished else None
    if begun and begun.measured and not extends:
        space = _as_the_study(space, begun.measured)
    options = replace(options, learn_from=distinct_studies(options.learn_from))
    loader, watcher = InputLoader(data_root(data)), watcher or RichWatcher()
    loader.study = None if study is None else StudyFiles.at(study)
    space = space.with_auto_values(_auto_values(space, loader))
    loader.objectives = parse_objectives(
        options.objectives, allow_test=options.allow_test_objective
    )
    sampled = options.is_sampling
    objectives = search_objectives(
        # The default objective must not depend on added tasks.
        space if options.objectives else asked,
        loader,
        named=bool(options.objectives),
        single_trial=origin == "single",
    )
    loader.stage_objective = stage_objective(
        space,
        loader,
        objectives[0],
        options.stage_objective,
        halves=sampled and not options.is_whole,
    )
    namer = TrialNamer(loader)
    read = read_inputs(space, namer)
    check_lengths(space, loader, sampled=sampled)
    num_batches = check_first_batches(read)
    check_objectives(read, objectives)
    for text in row_notes(space, loader, sampled=sampled, allow_overlap=options.allow_overlap):
        watcher.say(text)
    for text in warnings(space, read, num_batches, objectives, sampled=sampled):
        watcher.say(text)
    best = best_params(past_studies(options.learn_from, space, objectives, loader))
    priors = [params for params in prior_params(space) if params not in best]
    shares: tuple[float, ...] = (1.0,)
    if sampled and not options.is_whole:
        shares = first_shares(*shortest_training(space, loader))
    return Question(
        space,
        options,
        tuple(dict.fromkeys(seeds or space.seeds)),
        objectives,
        namer,
        watcher,
        shares,
        given=(*best, *priors),
        whole=(*best[:MOST_WHOLE], *priors[:1]),
        origin=origin,
    )


def measured(space: Space) -> dict[str, Any]:
    """The values of `MEASURED` that all trials of a search space share.

    Raises:
        ConfigError: Trials have different values, or a range draws a value.
    """
    kinds = [
        {name: getattr(config.evaluation, name) for name in MEASURED}
        for config in space.configurations
    ]
    for name in MEASURED:
        values = {shown(kind[name]) for kind in kinds}
        drawn = (item.ends() for item in space.ranges if item.key == f"evaluation.{name}")
        values |= {shown(value) for ends in drawn for value in ends}
        if len(values) > 1:
            rule = (
                "must be the same in all trials, because a study has the same scores for each "
                "trial"
            )
            move = "Set one value in [fixed]."
            raise ConfigError(
                Fault(
                    space.source,
                    key=f"evaluation.{name}",
                    value=" and ".join(sorted(values)),
                    rule=rule,
                    move=move,
                )
            )
    return kinds[0]


def stored_config(text: str, name: str, scored_by: Mapping[str, Any]) -> TrialConfig:
    """The config of a study's row without its seed, with other values of `MEASURED`.

    Args:
        text: The row's column `config`.
        name: The name of the trial or configuration, for errors.
        scored_by: The values of `MEASURED`, which replace those of the row.
    """
    values = dict(flatten(json.loads(text)))
    values |= {f"evaluation.{key}": value for key, value in scored_by.items()}
    return parse_dotted({**values, "seed": 0}, name)


def _as_the_study(space: Space, recorded: Mapping[str, Any]) -> Space:
    """The search space, with the tasks and scores of its study.

    Raises:
        ConfigError: The search space asks for other tasks or scores.
    """
    asked, faults = measured(space), []
    both = united_measures(recorded, asked)
    for name, theirs in recorded.items():
        more = both[name]
        others = more[len(theirs) :] if isinstance(more, tuple) else more > theirs
        if others:
            value = others if isinstance(more, tuple) else more
            text = json.dumps(value, ensure_ascii=False)
            rule = "is not among the scores that this study has for its trials"
            move = (
                f"Add the score first: tune-sentcl measure STUDY --set 'evaluation.{name}={text}'."
            )
            faults.append(
                Fault(
                    space.source,
                    key=f"evaluation.{name}",
                    value=shown(value),
                    rule=rule,
                    move=move,
                )
            )
    if faults:
        raise ConfigError(faults)
    if both == asked:
        return space
    if space.text:
        return space.with_overrides({f"evaluation.{name}": both[name] for name in both})
    evaluations = (config.evaluation.model_copy(update=both) for config in space.configurations)
    configs = zip(space.configurations, evaluations, strict=True)
    return replace(
        space,
        configurations=tuple(each.model_copy(update={"evaluation": new}) for each, new in configs),
    )


def united_measures(theirs: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Unite a study's values of `MEASURED` with further ones; lists begin with the study's.

    A custom task (`name=place`) of `own` may have moved: its name identifies it, the later place
    counts.
    """
    both = dict(theirs)
    for name, value in own.items():
        if isinstance(value, list | tuple):
            entries = {str(each).partition("=")[0]: each for each in (*theirs[name], *value)}
            both[name] = tuple(entries.values())
        else:
            both[name] = max(theirs[name], value)
    return both


def whole_training(config: TrialConfig, loader: InputLoader) -> tuple[int, int]:
    """The rows that a whole training reads, and about how many steps it makes."""
    if not config.method.takes_steps:
        return 0, 0
    if rehearsal := loader.load(config).rehearsal:
        return rehearsal.rows, rehearsal.steps
    corpus, size = loader.load(config).corpus, config.optimizer.batch_size
    rows = list(corpus.epoch_sizes())
    if config.data.drop_last:
        rows = [count - count % size if count > size else count for count in rows]
    if config.data.mix == "in_turn":
        rounds = min(-(-count // size) for count in rows)
        rows = [min(count, rounds * size) for count in rows]
    epochs = config.optimizer.epochs
    return sum(rows) * epochs, sum(-(-count // size) for count in rows) * epochs


def shortest_training(space: Space, loader: InputLoader) -> tuple[int, int, int]:
    """The training of the grid and the ranges that makes the fewest steps.

    Returns:
        Its steps, the number of its training texts, and the number of texts that a score at the
        end of a stage encodes (0 with a frozen encoder, which has encoded them). Zeros without a
        training.
    """
    found = []
    for config in _trainings(space):
        with suppress(BadInputError):
            # A configuration with unreadable inputs does not run, so it does not count.
            rows, steps = whole_training(config, loader)
            inputs, frozen = loader.load(config), config.method.freezes_encoder
            if known := inputs.rehearsal:
                found.append((known.steps, known.rows, known.scored))
                continue
            texts = rows * len(inputs.corpus.text_columns())
            scored = 0 if frozen else len(texts_at_points(config, loader))
            found.append((steps, texts, scored))
    return min(found, default=(0, 0, 0))


def texts_at_points(config: TrialConfig, loader: InputLoader) -> set[str]:
    """The texts that an evaluation point encodes."""
    tasks = tasks_at_points(loader.load(config).sets, loader.stage_objective)
    return {text for task in tasks for prompt in get_args(Prompt) for text in task.texts(prompt)}


def first_training(space: Space) -> TrialConfig:
    """A training of the grid, else one of the ranges, else a configuration without training."""
    return next(_trainings(space), space.configurations[0])


def _trainings(space: Space) -> Iterator[TrialConfig]:
    """Yield the grid's trainings, and for each method one at each end of `_LENGTHS`' ranges."""
    yield from (config for config in space.configurations if config.method.takes_steps)
    for branch in space.branches() if space.ranges else ():
        drawn = [item for item in space.active_ranges(branch) if item.key not in branch]
        ends = [[int(end) if item.kind == "int" else end for end in item.ends()] for item in drawn]
        used = (e if i.key in _LENGTHS else e[:1] for i, e in zip(drawn, ends, strict=True))
        for values in itertools.product(*used):
            ranged = dict(zip((item.key for item in drawn), values, strict=True))
            with suppress(BadInputError):
                # A configuration with invalid values does not run.
                config = space.sampled({**branch, **ranged})
                if config.method.takes_steps:
                    yield config


def _auto_values(space: Space, loader: InputLoader) -> dict[str, Values]:
    """By encoder, the settings that its files state."""
    own = (config for config in space.configurations if not config.method.is_trainer)
    names = {config.encoder.checkpoint for config in own}
    for item in space.ranges:
        if item.key == "encoder.checkpoint":
            names.update(item.choices)
    settings = {}
    for name in sorted(names):
        with suppress(CheckpointError):
            # The trial that needs this encoder reports the error.
            settings[name] = auto_values_of(loader.checkpoint(name))
    return settings
