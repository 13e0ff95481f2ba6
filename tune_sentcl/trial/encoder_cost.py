"""The cost of an encoder in use: time, weights, and the size of its embeddings."""

import copy
import time
from collections.abc import Sequence

import numpy as np
import torch

from tune_sentcl.config.data_names import COST
from tune_sentcl.data.tasks.evaluation_sets import EvaluationSets
from tune_sentcl.data.toy import toy_vocabulary
from tune_sentcl.evaluate import Measures
from tune_sentcl.model.checkpoints.adapters import merge
from tune_sentcl.model.compression import Compression
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.tokenizing import token_ids
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.objective import COSTS
from tune_sentcl.score import Score

_TEXTS, _REPEATS, _WARM_UPS = 64, 3, 2
_LEAST = 300.0  # milliseconds: a fast encoder is timed often, because a machine has other work
_BYTES = 4  # of a number in single precision

_Spent = tuple[float, float, float]
"""Milliseconds of a text alone and in a batch, and megabytes of weights."""
_OF_UNCHANGED: dict[tuple[object, ...], _Spent] = {}
"""By all that they depend on, the costs that this process has measured of unchanged encoders."""


def cost_scores(
    encoder: Encoder | FrozenEncoder, sets: EvaluationSets, measures: Measures
) -> list[Score]:
    """Measure the encoder as it is exported: its adapters are merged, and nothing is cached.

    A text's time runs from the string to its embedding on the CPU, in evaluation's arithmetic. The
    texts are 64 of the evaluation sets, the same ones for every trial, with the prefix of a text.
    `milliseconds_1` is the median over the texts, `milliseconds_64` that over repeats of a batch.
    Unchanged encoders that a process has timed once keep their times, so that noise does not rank
    configurations that differ only in the compression of embeddings.

    Returns:
        The scores, in the order of `COSTS` and in their units; word vectors have a reason instead.
    """
    values: list[float | None] = [None] * len(COSTS)
    reason = "word vectors have no cost of encoding"
    spent = _spent(encoder, measures.device, _texts(sets))
    if spent is not None:
        compression = encoder.compression if isinstance(encoder, FrozenEncoder) else None
        size = (compression or Compression()).bytes(encoder.width)
        values, reason = [*spent, float(size)], ""
    return [
        Score(COST, COST, "dev", metric, COST, sets.data, value, _TEXTS, reason=reason or None)
        for metric, value in zip(COSTS, values, strict=True)
    ]


def _texts(sets: EvaluationSets) -> tuple[str, ...]:
    distinct = list(dict.fromkeys(sets.sentences())) or toy_vocabulary()
    spread = np.linspace(0, len(distinct) - 1, _TEXTS).round().astype(int)
    return tuple(distinct[place] for place in spread)


def _spent(encoder: Encoder | FrozenEncoder, device: str, texts: tuple[str, ...]) -> _Spent | None:
    """The cost without that of the embeddings; None for word vectors."""
    key: tuple[object, ...] | None = None
    if isinstance(encoder, FrozenEncoder) and not len(encoder.tail):
        options = (encoder.pooling, encoder.max_length, encoder.prefixes)
        key = (encoder.checkpoint.fingerprint, *options, device, torch.get_num_threads(), texts)
    if key in _OF_UNCHANGED:
        return _OF_UNCHANGED[key]
    whole = encoder if isinstance(encoder, Encoder) else encoder.whole()
    if whole is None:
        return None
    spent = _measured(_merged(whole.to(device)), texts)
    if key is not None:
        _OF_UNCHANGED[key] = spent
    return spent


def _merged(encoder: Encoder) -> Encoder:
    if encoder.adapted is None:
        return encoder
    copied = copy.deepcopy(encoder)
    merge(copied.transformer)
    return copied


def _measured(encoder: Encoder, texts: Sequence[str]) -> _Spent:
    encoder.eval()
    alone, joined = _median(encoder, [[text] for text in texts]), _median(encoder, [texts])
    numbers = sum(weight.numel() for weight in encoder.parameters())
    return alone, joined / _TEXTS, numbers * _BYTES / 1e6


def _median(encoder: Encoder, batches: Sequence[Sequence[str]]) -> float:
    """The median time of a batch; each is encoded at least once, and all in turn."""
    for _ in range(_WARM_UPS):
        _milliseconds(encoder, batches[0])
    found: list[float] = []
    while len(found) < max(_REPEATS, len(batches)) or sum(found) < _LEAST:
        found.append(_milliseconds(encoder, batches[len(found) % len(batches)]))
    return float(np.median(found))


def _milliseconds(encoder: Encoder, texts: Sequence[str]) -> float:
    start = time.perf_counter()
    with torch.inference_mode():
        read = encoder.prefixes.put(texts)
        encoder(Tokens.of(token_ids(encoder.tokenizer, encoder.max_length, read))).cpu()
    return 1000 * (time.perf_counter() - start)
