"""How long an encoder takes for some sentences, told from a few of every length."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tune_sentcl.model.encoder import Encoder

_BATCH = 64  # what `Encoder.encode` puts together
_MOST, _FEWEST = 8, 3  # stretches


@dataclass(frozen=True)
class EncodingPace:
    """Seconds by length.

    Attributes:
        lengths: Characters, rising.
        seconds: Of a sentence of that length, among others like it.
        reading: Of a character, for the tokenizer, which a process asks once.
    """

    lengths: tuple[float, ...]
    seconds: tuple[float, ...]
    reading: float

    def tokenize(self, sentences: Iterable[str]) -> float:
        """Seconds until the distinct ones of some sentences are tokens."""
        return self.reading * sum(map(len, set(sentences)))

    def encode(self, sentences: Iterable[str]) -> float:
        """Seconds until the distinct ones of some tokenized sentences are embeddings."""
        if not self.lengths:
            return 0.0
        lengths = [len(sentence) for sentence in set(sentences)]
        return float(np.interp(lengths, self.lengths, self.seconds).sum())


def time_encoding(encoder: Encoder, sentences: Iterable[str], budget: float) -> EncodingPace:
    """Encode stretches of neighbours in the order of length, as an evaluation's batches are.

    Args:
        encoder: In evaluation mode.
        sentences: Those that there will be to encode.
        budget: Seconds that this may take, roughly.
    """
    distinct = sorted(set(sentences), key=lambda sentence: (-len(sentence), sentence))
    if not distinct:
        return EncodingPace((), (), 0.0)
    size, count = _affordable(encoder, distinct, budget)
    # The longest come first, as always, and pay for memory: they are not counted.
    places = [0.0, *((number + 0.5) / count for number in range(count))]
    stretches = [_stretch(distinct, place, size) for place in places]
    start = time.perf_counter()
    chosen = list(dict.fromkeys(sentence for stretch in stretches for sentence in stretch))
    encoder.tokenize(chosen)
    reading = (time.perf_counter() - start) / sum(map(len, chosen))
    marks = [time.perf_counter()]
    encoder.encode(chosen, size, lambda done, total: marks.append(time.perf_counter()))
    batches = [chosen[first : first + size] for first in range(0, len(chosen), size)]
    spans = list(zip(batches, np.diff(marks), strict=True))
    counted = sorted(
        (float(np.mean([len(sentence) for sentence in batch])), float(span) / len(batch))
        for batch, span in spans[1:] or spans
    )
    lengths, seconds = zip(*counted, strict=True)
    return EncodingPace(lengths, seconds, reading)


def _affordable(encoder: Encoder, distinct: Sequence[str], budget: float) -> tuple[int, int]:
    """How many sentences to a stretch, and how many stretches."""
    probe = _stretch(distinct, 0.5, _BATCH // 8)
    encoder.encode(probe)
    start = time.perf_counter()
    encoder.encode(probe)
    affordable = budget * len(probe) / (time.perf_counter() - start)
    size = int(np.clip(affordable / _FEWEST, _BATCH // 8, _BATCH))
    return size, int(np.clip(affordable / size, _FEWEST, _MOST))


def _stretch(distinct: Sequence[str], place: float, size: int) -> Sequence[str]:
    """So many neighbours around a place from 0 to 1."""
    first = int(place * len(distinct) - size / 2)
    first = max(0, min(first, len(distinct) - size))
    return distinct[first : first + size]
