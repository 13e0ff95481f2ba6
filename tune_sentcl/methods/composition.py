"""How ConIsI composes a sentence c with a sentence x (section 3.2), but for the antonyms."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

_REPLACED = 0.8


def other_rows(count: int, generator: np.random.Generator) -> Int[np.ndarray, " rows"]:
    """Draw for each row of a batch another one, independently and uniformly (strategy s).

    Args:
        count: Rows of the batch, 2 or more.
        generator: Source of the draws.
    """
    drawn = generator.integers(0, count - 1, size=count)
    return drawn + (drawn >= np.arange(count))


def replace_subwords(
    ids: Sequence[int],
    share: float,
    vocabulary: Int[np.ndarray, " tokens"],
    generator: np.random.Generator,
) -> list[int]:
    """Choose subwords, and put random ones in the place of four out of five (strategy o1).

    A chosen subword is replaced with chance 0.8 and kept with chance 0.2, as the paper has it; at
    least one is really changed, for c must differ from x.

    Args:
        ids: The sentence's content tokens; an empty sentence stays empty.
        share: How many of them are chosen, rounded, 1 at the least.
        vocabulary: Tokens to draw from, at least two.
        generator: Source of the draws.
    """
    changed = list(ids)
    if not changed:
        return changed
    count = max(1, round(share * len(changed)))
    chosen = generator.choice(len(changed), size=count, replace=False)
    replaced = generator.random(count) < _REPLACED
    if not replaced.any():
        replaced[0] = True  # `chosen` is in random order, so the first is any of them
    for position in chosen[replaced]:
        drawn = changed[position]
        while drawn == ids[position]:
            drawn = int(vocabulary[generator.integers(len(vocabulary))])
        changed[position] = drawn
    return changed
