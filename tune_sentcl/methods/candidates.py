"""Which rows of a batch are whose positives and negatives (SCL, section 3)."""

from dataclasses import dataclass
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
    for anchor, row in enumerate(rows):
        if num_positives != "all":
            others = np.flatnonzero(possible[anchor])
            others = others[others != row]
            dropped = max(0, len(others) - (num_positives - 1))
            positives[anchor, generator.choice(others, dropped, replace=False)] = False
        if num_negatives != "all":
            others = np.flatnonzero(negatives[anchor])
            dropped = max(0, len(others) - num_negatives)
            negatives[anchor, generator.choice(others, dropped, replace=False)] = False
    return Candidates(rows, positives, negatives)
