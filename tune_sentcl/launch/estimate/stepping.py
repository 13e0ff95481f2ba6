"""How long a step of a method takes, told from a few."""

import time
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.rows.batches import batches
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.placing import wait_for
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
    data, size = config.data, config.optimizer.batch_size
    dealt = batches(corpus, size, data.order, order, drop_last=data.drop_last, mix=data.mix)
    if config.method.freezes_encoder:
        size = len(dealt[0])
        numbers = np.arange(size * (_STEPS + 1)) % min(_DISTINCT, len(corpus))
        return StepSample(rows_of(corpus, numbers), size, 1.0)
    full = _not_short(dealt[: max(1, len(dealt) - 1)])  # the last may be short
    chosen = [full[int(place)] for place in np.linspace(0, len(full) - 1, _STEPS + 1)]
    size = min(_ROWS, *map(len, chosen))
    rows = rows_of(corpus, np.concatenate([batch[:size] for batch in chosen]))
    return StepSample(rows, size, sum(map(len, dealt)) / len(dealt) / size)


def _not_short(dealt: list[np.ndarray]) -> list[np.ndarray]:
    """Batches but for those of less than half the longest: the last of a source, or of texts."""
    least = max(map(len, dealt)) / 2
    return [batch for batch in dealt if len(batch) >= least]


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
    with closing(train(method, sample.rows, one_epoch(config, sample.size))) as steps:
        next(steps)  # the first pays for the optimizer's memory
        wait_for(method.device)
        taken, start = 0, time.perf_counter()
        now = start
        for _ in islice(steps, _STEPS):
            wait_for(method.device)
            taken, now = taken + 1, time.perf_counter()
            if now - start > budget:
                break
    return (now - start) / taken * sample.ratio


def one_epoch(config: TrialConfig, size: int) -> TrialConfig:
    """A trial that takes its rows once, so many a batch, as they lie there."""
    data = config.data.model_copy(update={"order": "file", "drop_last": False})
    optimizer = config.optimizer.model_copy(update={"batch_size": size, "epochs": 1})
    return config.model_copy(update={"data": data, "optimizer": optimizer})


def rows_of(corpus: Corpus, numbers: np.ndarray) -> Corpus:
    """Some rows of a corpus, in such an order; other rows, so another fingerprint."""
    return make_corpus(corpus.kind, corpus.table.take(pa.array(numbers)), corpus.source)
