"""Draw the positives and negatives of the anchors of a batch (SCL, section 3)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int

Count = int | Literal["all"]


@dataclass(frozen=True)
class Candidates:
    """The anchors of one batch with their positives and negatives.

    Attributes:
        anchors: Row numbers of the anchors; an anchor's vector is its row's premise.
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
    premise; the anchor's own row is always drawn. Its possible negatives are all other rows:
    neutral and contradicted rows of the same premise, and all rows of other premises. A possible
    positive that was not drawn is never a negative.

    Args:
        premises: The number of each row's premise, equal for equal premises.
        labels: 0 entailment, 1 neutral, 2 contradiction.
        generator: Draws the candidates; unused if both counts are `"all"`.
        num_positives: The largest number of positives that an anchor gets, its own row included,
            or `"all"`.
        num_negatives: The largest number of negatives that an anchor gets, or `"all"`.
        anchors: `entailment`, one for each entailed row (the authors' code), or `premise`, the
            first entailed row of each premise (the paper's text).

    Returns:
        The anchors in row order; empty if the batch has no entailed row.
    """
    entailed = labels == 0
    rows = np.flatnonzero(entailed)
    if anchors == "premise":
        rows = np.sort(rows[np.unique(premises[rows], return_index=True)[1]])
    possible = entailed[None, :] & (premises[None, :] == premises[rows, None])
    negatives = ~possible
    positives = possible.copy()
    others = possible.copy()
    # An anchor's own row is always among its positives, so it is not removable.
    others[np.arange(len(rows)), rows] = False
    # The loop draws anchor by anchor, positives first; another order would give other random
    # numbers.
    for anchor in range(len(rows)):
        if num_positives != "all":
            _drop_surplus(positives[anchor], others[anchor], num_positives - 1, generator)
        if num_negatives != "all":
            _drop_surplus(negatives[anchor], negatives[anchor], num_negatives, generator)
    return Candidates(rows, positives, negatives)


def _drop_surplus(
    mask: Bool[np.ndarray, " rows"],
    removable: Bool[np.ndarray, " rows"],
    most: int,
    generator: np.random.Generator,
) -> None:
    """Keep at most `most` of the removable entries of `mask`, in place.

    It draws no random number if there are at most `most`.
    """
    columns = np.flatnonzero(removable)
    if len(columns) > most:
        mask[columns[generator.choice(len(columns), len(columns) - most, replace=False)]] = False
