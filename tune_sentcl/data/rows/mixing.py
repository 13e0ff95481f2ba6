"""In which order the batches of several sources are taken."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from tune_sentcl.data.rows.corpus import RowNumbers

Mix = Literal["proportional", "in_turn"]


def mixed(
    parts: Sequence[Sequence[RowNumbers]], mix: Mix, generator: np.random.Generator | None
) -> list[RowNumbers]:
    """Take the batches of several sources, those of each in their own order.

    Args:
        parts: The batches of each source.
        mix: `proportional` takes all of them; `in_turn` one of each source after the other, as
            many of each as the source with the fewest has.
        generator: Draws the order of a proportional mix; None spreads each source evenly.

    Returns:
        The batches, in the order of training.
    """
    if mix == "in_turn":
        return [batch for turn in zip(*parts, strict=False) for batch in turn]
    counts = [len(part) for part in parts]
    owners = np.repeat(np.arange(len(parts)), counts)
    if generator is None:
        # The middle of the stretch of the epoch that a batch would have among its source's alone.
        places = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
        owners = owners[np.argsort(places, kind="stable")]
    else:
        owners = generator.permutation(owners)
    following = [iter(part) for part in parts]
    return [next(following[owner]) for owner in owners.tolist()]
