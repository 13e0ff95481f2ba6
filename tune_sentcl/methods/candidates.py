"""Which rows of a batch are whose positives and negatives (SCL, section 3)."""

from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int

Count = int | Literal["all"]


@dataclass(frozen=True)
class Candidates:
    """The contrast of one batch.

    Attributes:
        anchors: Row numbers of the anchors; the anchor vector is that row's premise.
        positives: Whether a row's hypothesis was drawn as a positive of an anchor (P_i).
        negatives: Whether a row's hypothesis was drawn as a negative of an anchor (N_i).
    """

    anchors: Int[np.ndarray, " anchors"]
    positives: Bool[np.ndarray, "anchors rows"]
    negatives: Bool[np.ndarray, "anchors rows"]


def draw_candidates(
    premises: Int[np.ndarray, " rows"],
    labels: Int[np.ndarray, " rows"],
    generator: np.random.Generator,
    *,
    num_positives: Count,
    num_negatives: Count,
    anchors: Literal["entailment", "premise"] = "entailment",
) -> Candidates:
    """Draw positives and negatives for every anchor of a batch, uniformly without replacement.

    An anchor is a row labeled entailment. Its possible positives are the entailed rows of the same
    premise, itself always among those drawn; its possible negatives are all other rows: the same
    premise's neutral and contradicted ones and every row of another premise, whatever its label. A
    possible positive that was not drawn is never a negative.

    Args:
        premises: A number for each row's premise, equal where the premises are.
        labels: 0 entailment, 1 neutral, 2 contradiction.
        generator: Source of the draws; unused when both counts are `"all"`.
        num_positives: Positives of an anchor, itself included; fewer where the batch has fewer.
        num_negatives: Negatives of an anchor; fewer where the batch has fewer.
        anchors: `entailment`, one for each entailed row (the authors' code), or `premise`, the
            first entailed row of each premise (the paper's text).

    Returns:
        The anchors in row order; none where the batch has no entailed row.
    """
    entailed = labels == 0
    rows = np.flatnonzero(entailed)
    if anchors == "premise":
        rows = np.sort(rows[np.unique(premises[rows], return_index=True)[1]])
    possible = entailed[None, :] & (premises[None, :] == premises[rows, None])
    negatives = ~possible
    positives = possible.copy()
    others = possible.copy()
    others[np.arange(len(rows)), rows] = False  # an anchor is always its own positive
    drops = (
        [] if num_positives == "all" else [_Drop(positives, others, num_positives - 1)],
        [] if num_negatives == "all" else [_Drop(negatives, negatives.copy(), num_negatives)],
    )
    # One anchor after the other, its positives first: who draws all at once draws other numbers.
    for anchor in range(len(rows)):
        for drop in chain(*drops):
            drop.draw(anchor, generator)
    return Candidates(rows, positives, negatives)


class _Drop:
    """Takes from each row of a mask what is too much, uniformly without replacement."""

    def __init__(
        self,
        mask: Bool[np.ndarray, "anchors rows"],
        whom: Bool[np.ndarray, "anchors rows"],
        most: int,
    ) -> None:
        """Nothing is taken yet.

        Args:
            mask: Is changed.
            whom: What may be taken.
            most: How many of a row's stay.
        """
        self._mask, self._columns = mask, np.nonzero(whom)[1]
        counts = np.count_nonzero(whom, axis=1)
        self._ends, self._counts = np.cumsum(counts).tolist(), counts.tolist()
        self._most = most

    def draw(self, anchor: int, generator: np.random.Generator) -> None:
        """Take from one row; where nothing is too much nothing is drawn."""
        count, end = self._counts[anchor], self._ends[anchor]
        if count > self._most:
            found = generator.choice(count, count - self._most, replace=False)
            self._mask[anchor, self._columns[end - count + found]] = False
