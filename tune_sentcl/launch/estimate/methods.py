"""How long a kind of method takes to start, to step, and to look a frozen embedding up."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.launch.estimate.stepping import StepSample, sample_steps, time_step
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.trial import TrialInputs, assemble

_LOOKED_UP = 512
_WORDS = 200_000_000
"""Bytes of a file of word vectors that are still read for an estimate."""


@dataclass(frozen=True)
class MethodPace:
    """Seconds of one kind of method, with its encoder.

    Attributes:
        start: Until it is assembled.
        step: Of a step; 0 where there are none.
        lookup: Of a sentence in the cache; 0 where the encoder is trained.
        width: Of an embedding.
        cache: Where a frozen encoder's embeddings lie; None where it is trained.
    """

    start: float
    step: float
    width: int
    lookup: float = 0.0
    cache: EmbeddingCache | None = None

    def look_up(self, sentences: Collection[str]) -> float:
        """Seconds until the cache has given the embeddings of some sentences."""
        return self.lookup * len(sentences)


def time_method(
    config: TrialConfig, inputs: TrialInputs, device: str, budget: float
) -> MethodPace:
    """Assemble a trial's method and take a few steps.

    Args:
        config: The trial.
        inputs: What it reads.
        device: Where to compute.
        budget: Seconds for the steps, roughly.

    Raises:
        TuneSentclError: The method cannot be run.
    """
    _refuse_large(inputs)
    sample = sample_steps(config, inputs.corpus) if config.method.takes_steps else None
    few = sample.rows.sentences() if sample else list(inputs.sets.sentences())[:_LOOKED_UP]
    assemble(config, inputs, device, few)  # imports, reads and encodes what later ones find done
    start = time.perf_counter()
    method = assemble(config, inputs, device, few)
    assembled = time.perf_counter() - start
    encoder = method.encoder
    if not isinstance(encoder, FrozenEncoder):
        return MethodPace(assembled, _step(method, config, sample, budget), encoder.width)
    sentences = (few * _LOOKED_UP)[:_LOOKED_UP]
    encoder.encode(sentences)
    start = time.perf_counter()
    encoder.encode(sentences)
    lookup = (time.perf_counter() - start) / len(sentences)
    step = _step(method, config, sample, budget)
    return MethodPace(assembled, step, encoder.width, lookup, encoder.cache)


def _step(
    method: AnyMethod, config: TrialConfig, sample: StepSample | None, budget: float
) -> float:
    return time_step(method, config, sample, budget) if sample else 0.0


def _refuse_large(inputs: TrialInputs) -> None:
    if inputs.checkpoint.kind != "words":
        return
    size = Path(inputs.checkpoint.path).stat().st_size
    if size > _WORDS:
        rule = "is too large to be read for an estimate"
        move = "Run it: what its trials took then tells what others take."
        raise ResourceError(Fault("encoder.checkpoint", "", inputs.checkpoint.name, rule, move))
