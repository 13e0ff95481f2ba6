"""The hyperparameters of the losses on embeddings: mnr, gist, triplet, cosent, angle."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tune_sentcl.config.sections import Pooling
from tune_sentcl.config.tables import ChunkedConfig, Rows


def _falling(dims: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(dims)) < len(dims) or any(dim < 1 for dim in dims):
        raise PydanticCustomError(
            "dims", "Input should be a list of distinct whole numbers above 0"
        )
    return tuple(sorted(dims, reverse=True))


Dims = Annotated[
    tuple[int, ...],
    BeforeValidator(lambda dims: (dims,) * (dims != 0) if isinstance(dims, int) else dims),
    Field(strict=False),
    AfterValidator(_falling),
]
"""Distinct widths of an embedding, the widest first; a number n means (n,), and 0 means ()."""


class EmbeddingLossConfig(ChunkedConfig):
    """Hyperparameters that the methods on a batch's embeddings share."""

    dims: Dims = Field(
        (),
        description="widths of the leading parts of an embedding whose losses are summed "
        "(Matryoshka), such as [384, 128, 32]; empty: only the whole embedding",
    )


class TripletRowsConfig(EmbeddingLossConfig):
    """Base of the methods on anchors with positives."""

    @property
    def rows(self) -> Rows:
        """The rows have an anchor, a positive and, if the source has them, negatives."""
        return "triplets"


class GradedConfig(EmbeddingLossConfig):
    """Base of the methods on pairs with a similarity."""

    @property
    def rows(self) -> Rows:
        """The rows are pairs with a similarity."""
        return "graded_pairs"


class MnrConfig(TripletRowsConfig):
    """Multiple negatives ranking (InfoNCE): the positive against in-batch and hard negatives."""

    name: Literal["mnr"]
    temperature: float = Field(
        0.05, gt=0, description="divides the cosines in the softmax (tau), above 0"
    )
    symmetric: bool = Field(
        False, description="also rank the anchors for each positive, and average the two losses"
    )
    negative_weight: float = Field(
        1.0, gt=0, description="weight of a row's own negatives in its softmax, above 0"
    )
    contrast_anchors: bool = Field(
        False,
        description="also use the other anchors of the batch as negatives (GTE); all candidates "
        "share one softmax",
    )
    contrast_positives: bool = Field(
        False,
        description="also contrast each positive with the texts of other rows (GTE); all "
        "candidates share one softmax",
    )
    hardness: float = Field(
        0.0,
        ge=0,
        description="factor by which a negative's cosine is multiplied before it is added to the "
        "negative's logit (LLaVE: 9, EmbeddingGemma: 5)",
    )
    hardened: Literal["all", "in_batch", "own"] = Field(
        "all",
        description="negatives to which hardness applies: all, those of other rows, or the row's "
        "own",
    )
    false_margin: float | None = Field(
        None,
        ge=0,
        description="leave out a negative whose cosine exceeds the positive's by more than this "
        "(Qwen3 Embedding: 0.1); unset: leave out none",
    )
    head: Literal["none", "dropped", "kept"] = Field(
        "none",
        description="a layer with tanh after the pooling: none, in training only (dropped), or "
        "also at test time (kept, as in supervised SimCSE)",
    )


class GistConfig(TripletRowsConfig):
    """GIST: in-batch contrast in which a frozen guide encoder removes false negatives."""

    name: Literal["gist"]
    temperature: float = Field(
        0.01, gt=0, description="divides the cosines in the softmax (tau), above 0"
    )
    guide: str = Field(
        "minilm",
        min_length=1,
        description="the frozen encoder that finds false negatives, named as `encoder.checkpoint`",
    )
    guide_pooling: Pooling = Field(
        "mean", description="how the guide's token states become one embedding"
    )
    margin: float = Field(
        0.0,
        ge=0,
        description="leave out a candidate that the guide puts nearer to the anchor than the "
        "positive, or further away by at most this margin",
    )
    margin_kind: Literal["absolute", "relative"] = Field(
        "absolute",
        description="the margin is a difference of cosines, or a share of the positive's cosine",
    )
    contrast_anchors: bool = Field(True, description="also use other anchors as negatives")
    contrast_positives: bool = Field(True, description="also contrast positives with each other")


class TripletConfig(TripletRowsConfig):
    """Triplet loss: an anchor is nearer to its positive than to its negatives by a margin."""

    name: Literal["triplet"]
    margin: float = Field(
        1.0, gt=0, description="how much further away a negative must be, above 0"
    )
    distance: Literal["euclidean", "cosine"] = Field(
        "euclidean", description="distance of embeddings: euclidean, or 1 - cosine"
    )


class CosentConfig(GradedConfig):
    """CoSENT: cosines ordered like the pairs' scores (Su 2022)."""

    name: Literal["cosent"]
    temperature: float = Field(0.05, gt=0, description="divides the cosines (tau), above 0")


class AngleConfig(GradedConfig):
    """AnglE: similarities in complex space ordered like the pairs' scores."""

    name: Literal["angle"]
    temperature: float = Field(0.05, gt=0, description="divides the similarities (tau), above 0")
    cosine_weight: float = Field(
        0.0, ge=0, description="weight of an added CoSENT loss with the same temperature, from 0"
    )
