"""Checks of a search's inputs before its first trial: refusals and warnings.

`read_inputs` reads the inputs of each grid configuration once. The checks are functions of that
list.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tune_sentcl.config import (
    AUTO_FALLBACKS,
    DataConfig,
    TrialConfig,
    source_names,
    usual_ranges,
)
from tune_sentcl.data.rows.row_checks import overlaps, problems, refuse_overlaps
from tune_sentcl.data.rows.sources import is_named
from tune_sentcl.errors import (
    BadInputError,
    CheckpointError,
    ConfigError,
    Fault,
    ObjectiveError,
    TuneSentclError,
)
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.model.checkpoints.tokenizer_files import notes_of
from tune_sentcl.objective import Objective, default_among, metric_cutoff
from tune_sentcl.space import Space
from tune_sentcl.train import check_batches, rows_left_out
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.search_configurations import ResolvedInputs, TrialNamer

_LENGTHS = ("encoder.max_length", "encoder.train_length")
_ANY_ENCODER = 512
"""A length that spaces state for every encoder; one with fewer positions truncates sooner."""


BatchKind = tuple[str, DataConfig, int]
"""A method, its data and its batch size: all that an epoch's batches depend on, but the seed."""


@dataclass(frozen=True, eq=False)
class GridInputs:
    """A configuration of the grid with the inputs of its trials."""

    config: TrialConfig
    resolved: ResolvedInputs


def read_inputs(space: Space, namer: TrialNamer) -> list[GridInputs]:
    """Read the inputs of each configuration of the grid.

    Raises:
        BadInputError: They cannot be read.
    """
    return [GridInputs(config, namer.resolve(config.dotted())) for config in space.configurations]


def range_ends(space: Space) -> Iterator[TrialConfig]:
    """A configuration at each end of each range, for every method and optimizer."""
    for branch in space.branches() if space.ranges else ():
        for item in space.active_ranges(branch):
            for value in item.ends():
                yield space.sampled({**branch, item.key: value})


def _grid_and_range_ends(space: Space, *, sampled: bool) -> list[TrialConfig]:
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
    for config in _grid_and_range_ends(space, sampled=sampled):
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
    kinds = {_kind(point.config): point for point in read}
    return {
        kind: check_batches(point.resolved.inputs.corpus, point.config)
        for kind, point in kinds.items()
    }


def _kind(config: TrialConfig) -> BatchKind:
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
        return objective in point.resolved.inputs.sets.objectives
    return any(map(objective.rests_on, point.resolved.requested))


def _missing_objective(objective: Objective, point: GridInputs) -> Fault:
    sets = point.resolved.inputs.sets
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
    for config in _grid_and_range_ends(space, sampled=sampled):
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


def warnings(
    space: Space,
    read: Sequence[GridInputs],
    num_batches: Mapping[BatchKind, int],
    *,
    sampled: bool,
) -> Iterator[str]:
    """Everything that a user should know before the first trial, each sentence once.

    Args:
        space: The space that is searched.
        read: Its grid's configurations with their inputs.
        num_batches: From `check_first_batches`.
        sampled: Whether configurations are sampled from the ranges too.
    """
    yield from _unread_tasks(read)
    each = ((point.resolved.inputs.checkpoint, point.config.encoder.pooling) for point in read)
    encoders = dict.fromkeys(each)
    for checkpoint, pooling in encoders:
        yield from notes_of(checkpoint, pooling)
    yield from _unused_prefixes(read)
    yield from _other_than_stated(read)
    static = {one.name for one, _ in encoders if one.is_static}
    yield from _unusual_values(_grid_and_range_ends(space, sampled=sampled), static)
    drawn = [item for item in space.ranges if sampled and item.key == "optimizer.batch_size"]
    sizes = [int(size) for item in drawn for size in item.ends()]
    yield from _few_batches(read, sizes)
    yield from dict.fromkeys([*_short_batches(read, num_batches), *_mined_rows(read)])
    yield from _left_out_rows(read)
    yield from _unreached_points(read, sizes, num_batches)


def _unread_tasks(read: Sequence[GridInputs]) -> Iterator[str]:
    unread: dict[str, TuneSentclError] = {}
    for point in read:
        for missing in point.resolved.inputs.sets.unread:
            unread.setdefault(missing.task, missing.error)
    for task, error in unread.items():
        yield f"{task} is not measured: {error}"


def _unused_prefixes(read: Sequence[GridInputs]) -> Iterator[str]:
    """Encoders whose own files ask for prefixes that the trials leave out."""
    unused: dict[str, Prefixes] = {}
    for point in read:
        stated = point.resolved.inputs.checkpoint.prefixes
        if stated != Prefixes() and Prefixes.of(point.config.encoder) == Prefixes():
            unused[point.config.encoder.checkpoint] = stated
    for name, stated in unused.items():
        (document,) = stated.put([""], prompt="document")
        yield (
            f"{name} puts {stated.query!r} before queries, {document!r} before documents and "
            f"{stated.text!r} before other sentences, by its own files; encoder.query_prefix and "
            "encoder.text_prefix do so here, the latter before documents too"
        )


def _other_than_stated(read: Sequence[GridInputs]) -> Iterator[str]:
    """Encoders that the trials pool or truncate otherwise than their own files state."""
    by_checkpoint: dict[str, list[GridInputs]] = {}
    for point in read:
        by_checkpoint.setdefault(point.config.encoder.checkpoint, []).append(point)
    for name, group in by_checkpoint.items():
        checkpoint = group[0].resolved.inputs.checkpoint
        parts = []
        for key in AUTO_FALLBACKS:
            _, _, knob = key.partition(".")
            value = getattr(checkpoint, knob)
            used = {getattr(each.config.encoder, knob) for each in group}
            if value is not None and used != {value}:
                parts.append(f"{key} = {value} (here {' or '.join(sorted(map(str, used)))})")
        if parts:
            yield f"the files of {name} say {' and '.join(parts)}; auto takes what they say"


def _unusual_values(configs: Sequence[TrialConfig], static: Collection[str]) -> Iterator[str]:
    """Values that few people use; `static` names the static encoders."""
    unusual: dict[tuple[str, str], dict[str, None]] = {}
    for config in configs:
        values = config.dotted()
        is_static = config.encoder.checkpoint in static
        for key, (low, high) in usual_ranges(values, is_static=is_static).items():
            if not low <= values[key] <= high:
                names = f"{config.method.name} and {config.optimizer.name}"
                usual = f"{low:g} to {high:g} with {names}"
                unusual.setdefault((key, usual), {})[f"{values[key]:g}"] = None
    for (key, usual), numbers in unusual.items():
        yield f"{key} = {' and '.join(numbers)} is unusual; people use {usual}"


def _few_batches(read: Sequence[GridInputs], sizes: Sequence[int]) -> Iterator[str]:
    """Batches that hold all rows; `sizes` are those that a sampler may draw."""
    said: dict[str, None] = {}
    for point in (point for point in read if point.config.method.takes_steps):
        corpus = point.resolved.inputs.corpus
        rows = max(corpus.epoch_sizes())
        if len(corpus) == 1:
            said[f"{corpus.source} has 1 row: no batch compares it with another"] = None
            continue
        for size in (point.config.optimizer.batch_size, *sizes):
            if size > rows:
                text = f"optimizer.batch_size = {size} is more than the {rows} rows"
                said[f"{text}: a batch holds them all"] = None
    yield from said


def _short_batches(
    read: Sequence[GridInputs], num_batches: Mapping[BatchKind, int]
) -> Iterator[str]:
    """Batches that `distinct` makes shorter than they might be, so that there are more of them."""
    for kind, point in {_kind(point.config): point for point in read}.items():
        sizes, count = point.resolved.inputs.corpus.epoch_sizes(), num_batches[kind]
        full = sum(-(-rows // point.config.optimizer.batch_size) for rows in sizes)
        if point.config.data.order == "distinct" and count > 1.2 * full:
            yield (
                f"data.order = distinct makes {count} batches an epoch, and not {full}, because "
                f"rows share texts: {sum(sizes) / count:.1f} rows a batch"
            )


def _mined_rows(read: Sequence[GridInputs]) -> Iterator[str]:
    for point in {_kind(point.config): point for point in read}.values():
        corpus, mined = point.resolved.inputs.corpus, point.config.data.mined
        if corpus.kind == "triplets" and mined:
            columns = [corpus.texts(name) for name in corpus.negatives()[-mined:]]
            if few := sum("" in texts for texts in zip(*columns, strict=True)):
                yield f"{few:,} of {len(corpus):,} rows have fewer than {mined} mined negatives"


def _left_out_rows(read: Sequence[GridInputs]) -> Iterator[str]:
    for point in {_kind(point.config): point for point in read}.values():
        corpus = point.resolved.inputs.corpus
        if left := rows_left_out(corpus, point.config):
            size, order = point.config.optimizer.batch_size, point.config.data.order
            of = f"{left:,} of the {sum(corpus.epoch_sizes()):,} rows of {corpus.source}"
            given = f"data.order = {order} and optimizer.batch_size = {size}"
            yield f"with {given}, the first epoch leaves out {of}"


def _unreached_points(
    read: Sequence[GridInputs], sizes: Sequence[int], num_batches: Mapping[BatchKind, int]
) -> Iterator[str]:
    """Evaluation points behind the last step; `sizes` are batches that a sampler may draw."""
    said: dict[str, None] = {}
    for point in (point for point in read if point.config.method.takes_steps):
        config, every = point.config, point.config.evaluation.every
        rows = sum(point.resolved.inputs.corpus.epoch_sizes())
        batches = {size: math.ceil(rows / size) for size in sizes}
        batches[config.optimizer.batch_size] = num_batches[_kind(config)]
        for size, count in batches.items():
            if every > (steps := count * config.optimizer.epochs):
                text = f"evaluation.every = {every} is more than the {steps} steps of a trial"
                said[f"{text} with batch_size = {size}: it is scored at its end alone"] = None
    yield from said
