"""The cost of an encoder in use: time, weights, and the size of its embeddings."""

import copy
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

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
from tune_sentcl.score import Data, Score

_TEXTS, _REPEATS, _WARM_UPS = 64, 3, 2
# Milliseconds that all timed batches take together at least: a fast encoder repeats them, because
# other work on the machine disturbs a short measurement.
_LEAST = 300.0
_BYTES = 4  # bytes of a single-precision number

_Spent = tuple[float, float, float]
"""Milliseconds for a single text, milliseconds a text in a batch, and megabytes of weights."""
_OF_UNCHANGED: dict[tuple[object, ...], _Spent] = {}
"""The costs that this process measured of unchanged encoders, by all that they depend on."""


def cost_scores(
    encoder: Encoder | FrozenEncoder, sets: EvaluationSets, measures: Measures
) -> list[Score]:
    """Measure the cost of an encoder as exported: adapters are merged, and nothing is cached.

    The time of a text runs from the string to its embedding on the CPU, in evaluation's
    arithmetic. The texts are 64 of the evaluation sets, the same for every trial, with the prefix
    of a text. `milliseconds_1` is the median over single texts, `milliseconds_64` the median over
    repeats of a batch, divided by 64. A process times an unchanged encoder only once, so noise
    does not rank configurations that differ only in the compression of embeddings.

    Returns:
        The scores, in the order of `COSTS` and in their units; word vectors have a reason instead.
    """
    texts = _chosen(list(dict.fromkeys(sets.sentences())))
    spent = _spent(encoder, measures.device, texts)
    if spent is None:
        nothing = [None] * len(COSTS)
        return _scores(nothing, sets.data, "word vectors have no cost of encoding")
    compression = encoder.compression if isinstance(encoder, FrozenEncoder) else None
    size = (compression or Compression()).bytes(encoder.width)
    return _scores([*spent, float(size)], sets.data)


def _spent(encoder: Encoder | FrozenEncoder, device: str, texts: list[str]) -> _Spent | None:
    """Times and weights, without the embeddings' size; None for word vectors."""
    key: tuple[object, ...] | None = None
    if isinstance(encoder, FrozenEncoder) and not len(encoder.tail):
        options = (encoder.pooling, encoder.max_length, encoder.prefixes)
        threads = torch.get_num_threads()
        key = (encoder.checkpoint.fingerprint, *options, device, threads, *texts)
    if key in _OF_UNCHANGED:
        return _OF_UNCHANGED[key]
    whole = encoder if isinstance(encoder, Encoder) else encoder.whole()
    if whole is None:
        return None
    merged = _merged(whole.to(device))
    merged.eval()

    def encode(texts: Sequence[str]) -> None:
        read = merged.prefixes.put(texts)
        merged(Tokens.of(token_ids(merged.tokenizer, merged.max_length, read))).cpu()

    spent = (*_times(encode, texts), _megabytes(merged))
    if key is not None:
        _OF_UNCHANGED[key] = spent
    return spent


def model_cost_scores(model: Any, texts: Sequence[str], data: Data) -> list[Score]:
    """Measure a model of sentence-transformers as `cost_scores` does.

    A cross-encoder reads each text as both sides of a pair. A sparse embedding stores a number and
    its position for each value that is not 0; late interaction stores a vector for each token.

    Args:
        model: The model.
        texts: The texts from which 64 are chosen; if there are none, words are used.
        data: The evaluation data.
    """
    if not hasattr(model, "encode"):
        pairs = partial(model.predict, show_progress_bar=False)
        times = _times(lambda chosen: pairs([(text, text) for text in chosen]), texts)
        return _scores([*times, _megabytes(model), None], data, "it stores no embeddings")
    encode = partial(model.encode, batch_size=_TEXTS, show_progress_bar=False)
    found = encode(_chosen(texts))
    if isinstance(found, list):
        held = sum(each.shape[0] * each.shape[1] for each in found) * _BYTES
    elif isinstance(found, torch.Tensor) and found.layout != torch.strided:
        held = int((found.to_dense() != 0).sum()) * 2 * _BYTES
    else:
        held = found.shape[0] * found.shape[1] * _BYTES
    return _scores([*_times(encode, texts), _megabytes(model), held / len(found)], data)


def _scores(values: Sequence[float | None], data: Data, reason: str = "") -> list[Score]:
    return [
        Score(
            *(COST, COST, "dev", metric, COST),
            data,
            value,
            _TEXTS,
            reason=reason if value is None else None,
        )
        for metric, value in zip(COSTS, values, strict=True)
    ]


def _merged(encoder: Encoder) -> Encoder:
    if encoder.adapted is None:
        return encoder
    copied = copy.deepcopy(encoder)
    merge(copied.transformer)
    return copied


def _megabytes(model: torch.nn.Module) -> float:
    return sum(weight.numel() for weight in model.parameters()) * _BYTES / 1e6


def _chosen(texts: Sequence[str]) -> list[str]:
    """64 texts, evenly spaced among the given texts."""
    given = texts or toy_vocabulary()
    spread = np.linspace(0, len(given) - 1, _TEXTS).round().astype(int)
    return [given[place] for place in spread]


def _times(encode: Callable[[list[str]], object], texts: Sequence[str]) -> tuple[float, float]:
    """Milliseconds a text, for single texts and in a batch."""
    chosen = _chosen(texts)
    alone = _median(encode, [[text] for text in chosen])
    return alone, _median(encode, [chosen]) / _TEXTS


def _median(encode: Callable[[list[str]], object], batches: Sequence[list[str]]) -> float:
    """The median time of a batch; each batch is encoded at least once, in turn."""
    for _ in range(_WARM_UPS):
        _milliseconds(encode, batches[0])
    found: list[float] = []
    while len(found) < max(_REPEATS, len(batches)) or sum(found) < _LEAST:
        found.append(_milliseconds(encode, batches[len(found) % len(batches)]))
    return float(np.median(found))


def _milliseconds(encode: Callable[[list[str]], object], texts: list[str]) -> float:
    start = time.perf_counter()
    with torch.inference_mode():
        encode(texts)
    return 1000 * (time.perf_counter() - start)
