"""How long a step of a method takes, told from a few."""

import time
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.rows.batches import batches
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.methods import AnyMethod
from tune_sentcl.seeding import stream
from tune_sentcl.train import train

_STEPS = 8
_ROWS = 32
"""Rows of a timed batch where the encoder is trained; a larger one takes longer in proportion."""
_DISTINCT = 64
"""Rows that a frozen encoder is run on, dealt again and again: the steps know no difference."""


@dataclass(frozen=True)
class StepSample:
    """What a few steps are timed on.

    Attributes:
        rows: Batch after batch.
        size: Rows of each.
        ratio: How much longer the trial's own steps take, on the average.
    """

    rows: Corpus
    size: int
    ratio: float


def sample_steps(config: TrialConfig, corpus: Corpus) -> StepSample:
    """Choose rows for a few steps of a method that takes steps.

    Where an encoder is trained they are the beginnings of batches from all over the first epoch,
    for what stands together, and how long it is, is what a step costs.
    """
    order = stream(config.seed, "order", 0)
    drop_last = config.data.drop_last
    size = config.optimizer.batch_size
    dealt = batches(corpus, size, config.data.order, order, drop_last=drop_last)
    if config.method.freezes_encoder:
        size = len(dealt[0])
        numbers = np.arange(size * (_STEPS + 1)) % min(_DISTINCT, len(corpus))
        return StepSample(_take(corpus, numbers), size, 1.0)
    full = dealt[: max(1, len(dealt) - 1)]  # the last may be short
    chosen = [full[int(place)] for place in np.linspace(0, len(full) - 1, _STEPS + 1)]
    size = min(_ROWS, *map(len, chosen))
    rows = _take(corpus, np.concatenate([batch[:size] for batch in chosen]))
    return StepSample(rows, size, sum(map(len, dealt)) / len(dealt) / size)


def time_step(method: AnyMethod, config: TrialConfig, sample: StepSample, budget: float) -> float:
    """Take steps.

    Args:
        method: Is trained.
        config: The trial.
        sample: On what.
        budget: Seconds after which no further step begins.

    Returns:
        Seconds of one of the trial's own steps.
    """
    small = {"batch_size": sample.size, "epochs": 1}
    config = config.model_copy(
        update={
            "data": config.data.model_copy(update={"order": "file", "drop_last": False}),
            "optimizer": config.optimizer.model_copy(update=small),
        }
    )
    with closing(train(method, sample.rows, config)) as steps:
        next(steps)  # the first pays for the optimizer's memory
        wait()
        taken, start = 0, time.perf_counter()
        now = start
        for _ in islice(steps, _STEPS):
            wait()
            taken, now = taken + 1, time.perf_counter()
            if now - start > budget:
                break
    return (now - start) / taken * sample.ratio


def wait() -> None:
    """Let the accelerator, if one is in use, do all that it has been told."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _take(corpus: Corpus, numbers: np.ndarray) -> Corpus:
    return make_corpus(corpus.kind, corpus.table.take(pa.array(numbers)), corpus.source)
