"""Refuses inputs that a search cannot train on or be scored by, before its first trial.

`read_inputs` reads the inputs of each grid configuration once. The checks are functions of that
list.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tune_sentcl.config import DataConfig, TrialConfig, source_names
from tune_sentcl.data.rows.row_checks import overlaps, problems, refuse_overlaps
from tune_sentcl.data.rows.sources import is_named
from tune_sentcl.errors import (
    BadInputError,
    CheckpointError,
    ConfigError,
    Fault,
    ObjectiveError,
)
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.objective import Objective, default_among, metric_cutoff
from tune_sentcl.space import Space
from tune_sentcl.train import check_batches
from tune_sentcl.trial import InputLoader, TrialInputs
from tune_sentcl.trial.inputs import measures_of
from tune_sentcl.tuning.configurations import TrialNamer

_LENGTHS = ("encoder.max_length", "encoder.train_length")
_ANY_ENCODER = 512
"""A length that spaces state for every encoder; one with fewer positions truncates sooner."""

BatchKind = tuple[str, DataConfig, int]
"""A method, its data and its batch size: all that an epoch's batches depend on, but the seed."""


@dataclass(frozen=True, eq=False)
class GridInputs:
    """A configuration of the grid with the inputs of its trials."""

    config: TrialConfig
    inputs: TrialInputs


def read_inputs(space: Space, namer: TrialNamer) -> list[GridInputs]:
    """Read the inputs of each configuration of the grid.

    Raises:
        BadInputError: They cannot be read.
    """
    return [GridInputs(config, namer.inputs(config.dotted())) for config in space.configurations]


def range_ends(space: Space) -> Iterator[TrialConfig]:
    """A configuration at each end of each range, for every method and optimizer."""
    for branch in space.branches() if space.ranges else ():
        for item in space.active_ranges(branch):
            for value in item.ends():
                yield space.sampled({**branch, item.key: value})


def grid_and_range_ends(space: Space, *, sampled: bool) -> list[TrialConfig]:
    """The grid, and `range_ends` if configurations are sampled."""
    return [*space.configurations, *(range_ends(space) if sampled else ())]


def check_lengths(space: Space, loader: InputLoader, *, sampled: bool) -> None:
    """Refuse inputs that are longer than the encoder's positions, and longer than 512.

    Args:
        space: The space that is searched.
        loader: Reads the checkpoints' files.
        sampled: Whether configurations are sampled from the ranges too.

    Raises:
        ConfigError: A length is too large.
    """
    faults: dict[Fault, None] = {}
    for config in grid_and_range_ends(space, sampled=sampled):
        name = config.encoder.checkpoint
        positions = None
        with suppress(CheckpointError):  # the trial that needs it reports it
            positions = loader.checkpoint(name).positions
        for key, length in config.dotted().items():
            if key not in _LENGTHS or positions is None or not isinstance(length, int):
                continue
            if length > max(positions, _ANY_ENCODER):
                rule = f"{name} has {positions} positions, so it cannot read longer inputs"
                move = f"Set it to {positions} at most."
                faults[Fault(space.source, key, str(length), rule, move)] = None
    if faults:
        raise ConfigError(list(faults))


def check_first_batches(read: Sequence[GridInputs]) -> Mapping[BatchKind, int]:
    """Draw the first epoch of each kind of batch; a premise's rows may exceed a batch.

    Returns:
        The number of batches of an epoch; 0 without steps.

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
    """Refuse an objective that the evaluation sets cannot give.

    Raises:
        ObjectiveError: Its set cannot be read, or does not exist.
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
        why = f"; there are {', '.join(map(str, measured))}"
        if any(metric_cutoff(other.metric) for other in measured):
            why += ", and these metrics at any other cut-off"
    alternative = default_among(sets.objectives)
    such = f", such as {alternative}" if alternative else ""
    move = f"Repair the set, or choose another objective{such}."
    return Fault("--objective", "", str(objective), f"no set at hand gives it{why}", move)


def row_notes(
    space: Space, loader: InputLoader, *, sampled: bool, allow_overlap: bool
) -> Iterator[str]:
    """Notes on training rows that teach nothing, and on rows that stand in evaluation tasks.

    Args:
        space: The space that is searched.
        loader: Reads the inputs.
        sampled: Whether configurations are sampled from the ranges too.
        allow_overlap: Whether the user's own rows may stand in the user's own tasks.

    Raises:
        DataError: They may not, and do.
    """
    each = {}
    for config in grid_and_range_ends(space, sampled=sampled):
        if config.method.takes_steps:
            data = config.data.model_copy(update={"mined": 0})
            with suppress(BadInputError):  # the trial that needs it reports it
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
