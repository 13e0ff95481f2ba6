"""Refuse inputs on which a search cannot train or be scored, before its first trial.

`read_inputs` reads the inputs of each grid configuration once. The checks are functions of that
list.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tune_sentcl.config import (
    DataConfig,
    TrialConfig,
    evaluation_data,
    evaluation_data_of,
    source_names,
)
from tune_sentcl.data.rows.row_checks import overlaps, problems, refuse_overlaps
from tune_sentcl.data.rows.sources import is_named
from tune_sentcl.data.tasks.own_task import ForeignTask, OwnTask, objectives_of
from tune_sentcl.errors import (
    BadInputError,
    CheckpointError,
    ConfigError,
    Fault,
    ObjectiveError,
    StudyError,
)
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.history import History
from tune_sentcl.objective import (
    DEFAULT,
    Objective,
    default_among,
    metric_cutoff,
    parse_stage_objective,
    unmeasured,
)
from tune_sentcl.space import Space
from tune_sentcl.train import check_batches
from tune_sentcl.trial import InputLoader, TrialInputs
from tune_sentcl.trial.inputs import measures_of
from tune_sentcl.tuning.configurations import TrialNamer

_LENGTHS = ("encoder.max_length", "encoder.train_length")
_ANY_ENCODER = 512
"""A length that search spaces may state for any encoder; one with fewer positions truncates."""

BatchKind = tuple[str, DataConfig, int]
"""Method, data and batch size: with the seed, they decide an epoch's batches."""


@dataclass(frozen=True, eq=False)
class GridInputs:
    """A configuration of the grid with the inputs of its trials."""

    config: TrialConfig
    inputs: TrialInputs


def read_inputs(space: Space, namer: TrialNamer) -> list[GridInputs]:
    """Read the inputs of each configuration of the grid.

    Raises:
        BadInputError: The inputs of a configuration cannot be read.
    """
    return [GridInputs(config, namer.inputs(config.dotted())) for config in space.configurations]


def range_ends(space: Space) -> Iterator[TrialConfig]:
    """A configuration at each end of each range, for every method and optimizer."""
    for branch in space.branches() if space.ranges else ():
        for item in space.active_ranges(branch):
            for value in item.ends():
                yield space.sampled({**branch, item.key: value})


def grid_and_range_ends(space: Space, *, sampled: bool) -> list[TrialConfig]:
    """The grid's configurations, and those of `range_ends` if configurations are sampled."""
    return [*space.configurations, *(range_ends(space) if sampled else ())]


def check_lengths(space: Space, loader: InputLoader, *, sampled: bool) -> None:
    """Refuse lengths that exceed both the encoder's positions and 512.

    Args:
        space: The search space.
        loader: Reads the checkpoints' files.
        sampled: Whether configurations are also sampled from the ranges.

    Raises:
        ConfigError: A length is too large.
    """
    faults: dict[Fault, None] = {}
    for config in grid_and_range_ends(space, sampled=sampled):
        name = config.encoder.checkpoint
        positions = None
        if config.method.is_trainer:
            continue
        with suppress(CheckpointError):
            # The trial that needs this encoder reports the error.
            positions = loader.checkpoint(name).positions
        for key, length in config.dotted().items():
            if key not in _LENGTHS or positions is None or not isinstance(length, int):
                continue
            if length > max(positions, _ANY_ENCODER):
                rule = f"{name} has {positions} positions, so it cannot read longer inputs"
                move = f"Set it to {positions} at most."
                faults[Fault(space.source, key=key, value=str(length), rule=rule, move=move)] = (
                    None
                )
    if faults:
        raise ConfigError(list(faults))


def check_first_batches(read: Sequence[GridInputs]) -> Mapping[BatchKind, int]:
    """Draw the first epoch of each kind of batch, to find batches that a method cannot use.

    Returns:
        By kind, the number of batches of an epoch; 0 without steps.

    Raises:
        DataError: A method cannot learn from a batch.
    """
    kinds = {batch_kind(point.config): point for point in read}
    return {
        kind: check_batches(point.inputs.corpus, point.config) for kind, point in kinds.items()
    }


def batch_kind(config: TrialConfig) -> BatchKind:
    """The kind of a configuration's batches."""
    return config.method.name, config.data, config.optimizer.batch_size


def check_objectives(read: Sequence[GridInputs], objectives: Sequence[Objective]) -> None:
    """Refuse an objective that the evaluation sets do not yield.

    Raises:
        ObjectiveError: The objective's set cannot be read, or does not exist.
    """
    faults = {
        _missing_objective(objective, point): None
        for point in read
        for objective in objectives
        if not _is_measured(objective, point)
    }
    if faults:
        raise ObjectiveError(faults)


def _is_measured(objective: Objective, point: GridInputs) -> bool:
    if objective.is_own:
        return objective in point.inputs.sets.objectives
    measured = expected_measurements(point.inputs.sets, measures_of(point.config))
    return any(map(objective.rests_on, measured))


def _missing_objective(objective: Objective, point: GridInputs) -> Fault:
    sets = point.inputs.sets
    unread = [missing.error for missing in sets.unread if missing.task == objective.task]
    why = f" ({unread[0]})" if unread else ""
    if objective.is_own:
        measured = [other for other in sets.objectives if other.task == objective.task]
        why = f"; the task has {', '.join(map(str, measured))}"
        if any(metric_cutoff(other.metric) for other in measured):
            why += ", and these metrics at any other cut-off"
    alternative = default_among(sets.objectives)
    such = f", such as {alternative}" if alternative else ""
    move = f"Repair the evaluation set, or choose another objective{such}."
    return Fault(
        "--objective",
        value=str(objective),
        rule=f"no readable evaluation set has this score{why}",
        move=move,
    )


def row_notes(
    space: Space, loader: InputLoader, *, sampled: bool, allow_overlap: bool
) -> Iterator[str]:
    """Notes on training rows that teach nothing, and on rows that are also in evaluation tasks.

    Args:
        space: The search space.
        loader: Reads the inputs.
        sampled: Whether configurations are also sampled from the ranges.
        allow_overlap: Whether examples of the user's files may also be in custom tasks.

    Raises:
        DataError: Such examples are in custom tasks, and that is not allowed.
    """
    each = {}
    for config in grid_and_range_ends(space, sampled=sampled):
        if config.method.trains_on_rows:
            data = config.data.model_copy(update={"mined": 0})
            with suppress(BadInputError):
                # The trial that needs these inputs reports the error.
                found = loader.load(config.model_copy(update={"data": data}))
                each[id(found.corpus), id(found.sets)] = config, found
    said: dict[str, None] = {}
    for config, found in each.values():
        corpus, own = found.corpus, not all(map(is_named, source_names(config.data.source)))
        overlapping = overlaps(corpus, [*found.sets.sts, *found.sets.own])
        if own and not allow_overlap:
            refuse_overlaps(corpus, overlapping)
        notes = list(map(str, overlapping))
        if own:
            notes = [*corpus.notes, *map(str, problems(corpus)), *notes]
        said |= dict.fromkeys(f"{corpus.source}: {note}" for note in notes)
    yield from said


def search_objectives(
    space: Space, loader: InputLoader, *, named: bool, single_trial: bool
) -> tuple[Objective, ...]:
    """Check the loader's objectives, or choose the default.

    The default objective is STS-B dev; without the suite `sts` it is the first dev score of the
    first custom task. A single trial without evaluation points needs no dev score; its first score
    is then the objective. `named` tells whether the user named the objectives.
    """
    _refuse_mixed_evaluation_data(space)
    configs = space.configurations
    if not any(config.evaluation.own or config.method.is_trainer for config in configs):
        _refuse_unmeasured(loader.objectives, space)
        return loader.objectives
    if named:
        return loader.objectives
    measured = _own_scores(space, loader)
    default = default_among(measured)
    if default is None and single_trial and measured and not _has_points(space):
        default = measured[0]
    if default is None:
        rule = "no custom task has a dev split whose score a search could maximize"
        move = "Add dev rows, or name an objective by --objective."
        raise ObjectiveError(Fault("--objective", rule=rule, move=move))
    return (default,)


def stage_objective(
    space: Space, loader: InputLoader, first: Objective, named: str | None, *, halves: bool
) -> Objective:
    """Choose the stage objective, which ranks trials at the ends of stages and may select weights.

    Args:
        space: The search space.
        loader: Reads the custom tasks.
        first: The first objective.
        named: The score that the user named.
        halves: Whether sampled configurations train in stages.

    Raises:
        ObjectiveError: A trial needs a score during training, but none of one encoding pass is
            named; or the trials do not measure the named score.
    """
    if named is not None:
        chosen = parse_stage_objective(named)
        faults = list(unmeasured([chosen], (c.evaluation for c in space.configurations)))
        if chosen.is_own and not faults and chosen not in _own_scores(space, loader):
            rule = "the trials do not measure this score"
            faults = [Fault("", value=named, rule=rule, move="Name a score of your custom tasks.")]
        if faults:
            raise ObjectiveError(replace(fault, where="--stage-objective") for fault in faults)
        return chosen
    if first.is_cheap:
        return first
    if halves or _has_points(space):
        rule = (
            "cannot rank trials during training; only a dev score of pairs, retrieval or a "
            "plugin can"
        )
        cheap = [str(one) for one in _own_scores(space, loader) if one.is_cheap]
        if all("sts" in config.evaluation.suites for config in space.configurations):
            cheap.append(str(DEFAULT))
        if cheap:
            move = f"Name such a score too: --stage-objective {cheap[0]}."
        else:
            move = "Add to evaluation.own a task of pairs or retrieval, or add the suite sts to "
            move += "evaluation.suites, or give evaluation.every=0"
            move += " and --scheduler none." if halves else "."
        raise ObjectiveError(Fault("--objective", value=str(first), rule=rule, move=move))
    return DEFAULT  # the caller needs a value, but no trial measures this score during training


def _own_scores(space: Space, loader: InputLoader) -> list[Objective]:
    """STS-B dev and the scores of custom tasks, if all trials of the grid have them."""
    configs = [c for c in space.configurations if c.evaluation.own or c.method.is_trainer]
    each = [loader.sets(config).objectives for config in configs]
    return [
        score for score in dict.fromkeys(each[0] if each else ()) if all(score in e for e in each)
    ]


def _has_points(space: Space) -> bool:
    """Whether some trial of the grid has evaluation points."""
    return any(c.evaluation.every and c.method.takes_steps for c in space.configurations)


def _refuse_mixed_evaluation_data(space: Space) -> None:
    """Raise ConfigError if trials would be scored partly on toy sets and partly on real sets."""
    drawn = [item for item in space.ranges if item.key in ("evaluation.data", "data.source")]
    changes = [{}, *({item.key: value} for item in drawn for value in item.ends())]
    trials = [config.dotted() for config in space.configurations]
    kinds = {evaluation_data_of({**trial, **change}) for trial in trials for change in changes}
    if len(kinds) > 1:
        rule = "trials on toy examples are scored on toy sets, other trials on real ones"
        move = 'Set evaluation.data to "root" or "toy" for all trials.'
        raise ConfigError(
            Fault(space.source, key="evaluation.data", value="auto", rule=rule, move=move)
        )


def _refuse_unmeasured(objectives: Sequence[Objective], space: Space) -> None:
    faults = list(unmeasured(objectives, (c.evaluation for c in space.configurations)))
    if faults:
        raise ObjectiveError(faults)


def other_versions(
    space: Space, loader: InputLoader, history: History
) -> Iterator[tuple[OwnTask, str, str]]:
    """Yield each custom task that the study scored on other rows, its split, and the versions."""
    for config in space.configurations:
        for task in loader.sets(config).own:
            for split in dict.fromkeys(score.split for score in objectives_of(task)):
                others = history.versions.get((task.name, split), set()) - {task.version or ""}
                if others:
                    yield task, split, " and ".join(sorted(others))


def check_evaluation_data(space: Space, history: History) -> None:
    """Raise StudyError if the study's trials were scored on other evaluation data."""
    wanted = evaluation_data(space.configurations[0])
    if history.data not in (None, wanted):
        rule = (
            f"the trials of this study were scored on {history.data} data, and a study must "
            "use one kind of evaluation data"
        )
        move = f"Choose another folder for the study, or set evaluation.data={history.data}."
        raise StudyError(Fault("evaluation.data", value=wanted, rule=rule, move=move))


def check_versions(space: Space, loader: InputLoader, history: History) -> None:
    """Raise StudyError if a custom task's rows changed since the study's trials were scored."""
    faults: dict[Fault, None] = {}
    for task, split, others in other_versions(space, loader, history):
        foreign = isinstance(task, ForeignTask)
        whose = "its code or data have" if foreign else "its rows have"
        rule = f"has version {task.version} now, but the study's trials were scored on {others}: "
        old = "that version" if foreign else "the old rows"
        move = f"Restore {old}, or start another study."
        faults[
            Fault(
                "evaluation.own",
                key=task.name,
                value=split,
                rule=f"{rule}{whose} changed",
                move=move,
            )
        ] = None
    if faults:
        raise StudyError(faults)
