"""Remarks that a user should read before the first trial; they decide nothing."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from tune_sentcl.config import AUTO_FALLBACKS, TrialConfig, usual_ranges
from tune_sentcl.errors import TuneSentclError, first_names
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.model.checkpoints.tokenizer_files import notes_of
from tune_sentcl.objective import Objective
from tune_sentcl.space import Space
from tune_sentcl.train import rows_left_out
from tune_sentcl.trial.trainers import Rehearsal
from tune_sentcl.tuning.input_checks import (
    BatchKind,
    GridInputs,
    batch_kind,
    grid_and_range_ends,
)


def warnings(
    space: Space,
    read: Sequence[GridInputs],
    num_batches: Mapping[BatchKind, int],
    objectives: Sequence[Objective] = (),
    *,
    sampled: bool,
) -> Iterator[str]:
    """Yield the remarks that a user should read before the first trial, each once.

    Args:
        space: The search space.
        read: The grid's configurations with their inputs.
        num_batches: From `check_first_batches`.
        objectives: The objectives of the search.
        sampled: Whether configurations are sampled from the ranges too.
    """
    yield from _unread_tasks(read)
    yield from _rehearsals(read, objectives)
    each = ((point.inputs.checkpoint, point.config.encoder.pooling) for point in read)
    encoders = dict.fromkeys(each)
    for checkpoint, pooling in encoders:
        yield from notes_of(checkpoint, pooling)
    yield from _unused_prefixes(read)
    yield from _other_than_stated(read)
    static = {one.name for one, _ in encoders if one.is_static}
    yield from _unusual_values(grid_and_range_ends(space, sampled=sampled), static)
    drawn = [item for item in space.ranges if sampled and item.key == "optimizer.batch_size"]
    sizes = [int(size) for item in drawn for size in item.ends()]
    yield from _few_batches(read, sizes)
    yield from dict.fromkeys(_short_batches(read, num_batches))
    yield from _left_out_rows(read)
    yield from _unreached_points(read, sizes, num_batches)


def _unread_tasks(read: Sequence[GridInputs]) -> Iterator[str]:
    unread: dict[str, TuneSentclError] = {}
    for point in read:
        for missing in point.inputs.sets.unread:
            unread.setdefault(missing.task, missing.error)
    for task, error in unread.items():
        yield f"{task} is not measured: {error}"


def _rehearsals(read: Sequence[GridInputs], objectives: Sequence[Objective]) -> Iterator[str]:
    known: dict[str, Rehearsal | None] = {}
    for point in read:
        known.setdefault(point.config.method.name, point.inputs.rehearsal)
    for name, rehearsal in known.items():
        if rehearsal is not None:
            rows = rehearsal.rows // max(rehearsal.steps, 1)
            metrics = first_names(rehearsal.metrics)
            made = f"{rehearsal.steps:,} steps of {rows} examples in its first configuration"
            yield f"{name} makes {made}. Its evaluator gives {metrics}"
            if rehearsal.unread:
                kinds = ", ".join(rehearsal.unread)
                yield f"trial ids do not follow from what the evaluator of {name} has in {kinds}"
            chained, ranks_by = rehearsal.chained, {one.metric for one in objectives}
            if len(chained) > 1 and rehearsal.metrics[0] in ranks_by:
                yield (
                    f"{rehearsal.metrics[0]} is {chained[-1]}, the metric of the last evaluator; "
                    f"to rank by another one, give --objective {name}:{chained[0]}:dev"
                )


def _unused_prefixes(read: Sequence[GridInputs]) -> Iterator[str]:
    """Encoders whose files ask for prefixes that the trials do not use."""
    unused: dict[str, Prefixes] = {}
    for point in read:
        stated = point.inputs.checkpoint.prefixes
        if stated != Prefixes() and Prefixes.of(point.config.encoder) == Prefixes():
            unused[point.config.encoder.checkpoint] = stated
    for name, stated in unused.items():
        (document,) = stated.put([""], prompt="document")
        yield (
            f"the files of {name} ask for {stated.query!r} before queries, {document!r} "
            f"before documents and {stated.text!r} before other sentences; the trials use "
            "these prefixes only if encoder.query_prefix and encoder.text_prefix set them "
            "(text_prefix is put before documents too)"
        )


def _other_than_stated(read: Sequence[GridInputs]) -> Iterator[str]:
    """Encoders that the trials pool or truncate differently from what their files state."""
    by_checkpoint: dict[str, list[GridInputs]] = {}
    for point in read:
        by_checkpoint.setdefault(point.config.encoder.checkpoint, []).append(point)
    for name, group in by_checkpoint.items():
        checkpoint = group[0].inputs.checkpoint
        parts = []
        for key in AUTO_FALLBACKS:
            _, _, knob = key.partition(".")
            value = getattr(checkpoint, knob)
            used = {getattr(each.config.encoder, knob) for each in group}
            if value is not None and used != {value}:
                parts.append(f"{key} = {value} (here {' or '.join(sorted(map(str, used)))})")
        if parts:
            yield (
                f"the files of {name} say {' and '.join(parts)}; with auto, the trials follow "
                "the files"
            )


def _unusual_values(configs: Sequence[TrialConfig], static: Collection[str]) -> Iterator[str]:
    """Hyperparameters with unusual values; `static` names the static encoders."""
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
        yield f"{key} = {' and '.join(numbers)} is unusual; usual values are {usual}"


def _few_batches(read: Sequence[GridInputs], sizes: Sequence[int]) -> Iterator[str]:
    """Batches that hold all rows; `sizes` are batch sizes that a sampler may draw."""
    said: dict[str, None] = {}
    for point in (point for point in read if point.config.method.trains_on_rows):
        corpus = point.inputs.corpus
        rows = max(corpus.epoch_sizes())
        if len(corpus) == 1:
            said[f"{corpus.source} has 1 row, so no batch compares it with another row"] = None
            continue
        for size in (point.config.optimizer.batch_size, *sizes):
            if size > rows:
                text = f"optimizer.batch_size = {size} is more than the {rows} rows"
                said[f"{text}, so one batch holds them all"] = None
    yield from said


def _short_batches(
    read: Sequence[GridInputs], num_batches: Mapping[BatchKind, int]
) -> Iterator[str]:
    """Batches that the order `distinct` shortens, which makes an epoch longer."""
    for kind, point in {batch_kind(point.config): point for point in read}.items():
        sizes, count = point.inputs.corpus.epoch_sizes(), num_batches[kind]
        full = sum(-(-rows // point.config.optimizer.batch_size) for rows in sizes)
        if point.config.data.order == "distinct" and count > 1.2 * full:
            yield (
                f"data.order = distinct makes {count} batches an epoch instead of {full}, "
                f"because rows share texts: {sum(sizes) / count:.1f} rows a batch"
            )


def _left_out_rows(read: Sequence[GridInputs]) -> Iterator[str]:
    for point in {batch_kind(point.config): point for point in read}.values():
        corpus = point.inputs.corpus
        if left := rows_left_out(corpus, point.config):
            size, order = point.config.optimizer.batch_size, point.config.data.order
            of = f"{left:,} of the {sum(corpus.epoch_sizes()):,} rows of {corpus.source}"
            given = f"data.order = {order} and optimizer.batch_size = {size}"
            yield f"with {given}, the first epoch leaves out {of}"


def _unreached_points(
    read: Sequence[GridInputs], sizes: Sequence[int], num_batches: Mapping[BatchKind, int]
) -> Iterator[str]:
    """Evaluation points after the last step; `sizes` are batch sizes that a sampler may draw."""
    said: dict[str, None] = {}
    for point in (point for point in read if point.config.method.trains_on_rows):
        config, every = point.config, point.config.evaluation.every
        rows = sum(point.inputs.corpus.epoch_sizes())
        batches = {size: math.ceil(rows / size) for size in sizes}
        batches[config.optimizer.batch_size] = num_batches[batch_kind(config)]
        for size, count in batches.items():
            if every > (steps := count * config.optimizer.epochs):
                text = f"evaluation.every = {every} is more than the {steps} steps of a trial"
                said[
                    (f"{text} with batch_size = {size}, so the trial is scored only at its end")
                ] = None
    yield from said
