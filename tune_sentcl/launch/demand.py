"""What one trial asks of a GPU: which ones are measured, by a few of their steps."""

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice

import numpy as np
import pyarrow.compute as pc
import torch
from torch.profiler import ProfilerActivity, profile

from tune_sentcl.config import UNSAID, TrialConfig
from tune_sentcl.data.rows.batches import batches
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.errors import DeviceError
from tune_sentcl.launch.estimate.stepping import one_epoch, rows_of
from tune_sentcl.launch.sharing import Demand
from tune_sentcl.seeding import stream
from tune_sentcl.space import Space
from tune_sentcl.train import Step, train
from tune_sentcl.train.lane import width_of
from tune_sentcl.trial import InputLoader, assemble, torch_threads

_LONGEST, _TIMED = 2, 8
"""Steps on the longest rows, which pay for the optimizer's memory too; steps that are timed, and
as many again under torch's profiler, which slows them down."""
_KINDS = 4
_ENCODER = "encoder.checkpoint"
_LARGER = (
    "optimizer.batch_size",
    "encoder.max_length",
    "encoder.train_length",
    "method.hidden",
    "method.width",
)
"""The knobs that make a step larger."""


def measure_demand(config: TrialConfig, loader: InputLoader, cpus: int) -> Demand:
    """Take some of a trial's steps on this process's GPU.

    Args:
        config: A trial that takes steps.
        loader: Gives what it reads.
        cpus: Threads of torch.

    Raises:
        DeviceError: This process has no GPU.
        TuneSentclError: The trial cannot be run.
    """
    if not torch.cuda.is_available():
        raise DeviceError("there is no GPU to measure a trial on")
    inputs = loader.load(config)
    rows = rows_to_measure(config, inputs.corpus)
    with torch_threads(cpus):
        method = assemble(config, inputs, "cuda", rows.sentences())
        with closing(train(method, rows, in_file_order(config, rows))) as steps:
            for _ in islice(steps, _LONGEST):
                pass
            seconds = _seconds(steps)
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                _seconds(steps)
    at_work = sum(event.self_device_time_total for event in seen.key_averages()) / 1e6
    total = torch.cuda.get_device_properties(0).total_memory
    return Demand(torch.cuda.max_memory_reserved(), min(1.0, at_work / seconds), total)


def _seconds(steps: Iterator[Step]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in islice(steps, _TIMED):
        pass
    torch.cuda.synchronize()
    return time.perf_counter() - start


def rows_to_measure(config: TrialConfig, corpus: Corpus) -> Corpus:
    """Batches of a trial in a row: first its corpus's longest rows, then some as they are dealt.

    Args:
        config: The trial.
        corpus: Its rows, one at least.
    """
    size = min(config.optimizer.batch_size, len(corpus))
    texts = map(corpus.table.column, corpus.text_columns())
    columns = [pc.utf8_length(column).to_numpy() for column in texts]
    longest = np.argsort(-np.sum(columns, axis=0), kind="stable")[:size]
    order = stream(config.seed, "order", 0)
    data = config.data
    dealt = batches(corpus, size, data.order, order, drop_last=data.drop_last, mix=data.mix)
    full = [batch for batch in dealt if len(batch) == size] or [longest]
    places = np.linspace(0, len(full) - 1, 2 * _TIMED).astype(int)
    numbers = np.concatenate([*_LONGEST * [longest], *(full[place] for place in places)])
    return rows_of(corpus, numbers)


def in_file_order(config: TrialConfig, rows: Corpus) -> TrialConfig:
    """The trial on such rows: one epoch, batch by batch as they lie there."""
    return one_epoch(config, len(rows) // (_LONGEST + 2 * _TIMED))


def may_be_drawn(space: Space) -> Iterator[TrialConfig]:
    """The largest trials that a sampler may draw from a space, one of each kind."""
    for branch in space.branches() if space.ranges else ():
        active = space.active_ranges(branch)
        ends = {r.key: r.ends()[0] for r in active if r.key not in branch}
        ends |= {r.key: max(r.ends()) for r in active if r.key in _LARGER}
        checkpoints = [r.choices for r in active if r.key == _ENCODER] or [(None,)]
        for name in checkpoints[0]:
            chosen = {} if name is None else {_ENCODER: name}
            yield space.sampled({**branch, **ends, **chosen})


def kinds_to_measure(configs: Iterable[TrialConfig]) -> list[TrialConfig]:
    """A few trials among which the hungriest are: of each encoder and method the largest."""
    largest: dict[tuple[str, str], TrialConfig] = {}
    for config in configs:
        if not config.method.takes_steps:
            continue
        key = config.encoder.checkpoint, config.method.name
        if key not in largest or _size(config) > _size(largest[key]):
            largest[key] = config
    return sorted(largest.values(), key=_size, reverse=True)[:_KINDS]


def _size(config: TrialConfig) -> tuple[bool, int]:
    """What orders trials by what they ask for: an encoder that is trained asks for more."""
    rows = config.optimizer.batch_size
    if config.method.freezes_encoder:
        return False, rows * (width_of(config) or 1)
    length = config.encoder.train_length or config.encoder.max_length
    return True, rows * (length if length != "auto" else UNSAID["encoder.max_length"])
