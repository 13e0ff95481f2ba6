"""The hyperparameters of the built-in methods: one class per method, registered under its name.

The names are the papers': `lambda` and `temperature`, `num_positives` (P) and `num_negatives` (N).
Never change a default here: trial ids leave defaults out (see `identity.ORIGINAL_DEFAULTS`).
"""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tune_sentcl.config.embedding_methods import (
    AngleConfig,
    CosentConfig,
    Dims,
    GistConfig,
    MnrConfig,
    TripletConfig,
)
from tune_sentcl.config.registry import Registered, register_all
from tune_sentcl.config.tables import ChunkedConfig, MethodBase, Rows


def _count_or_all(value: object) -> object:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise PydanticCustomError("count_or_all", 'Input should be a whole number above 0, or "all"')


Count = Annotated[int | Literal["all"], BeforeValidator(_count_or_all)]
"""The number of candidates to draw: above 0, or `"all"` candidates of the batch."""


class PairMethodConfig(ChunkedConfig):
    """The common hyperparameters of the methods on labeled premise-hypothesis pairs."""

    divisor: Literal["padded", "tokens"] = Field(
        "padded",
        description="divisor of mean pooling in training: the padded length of the batch (the "
        "authors' code) or the sentence's own token count; evaluation always uses the latter",
    )
    classifier_hidden: int = Field(
        768, ge=1, description="width of the classifier's hidden layer over (u, v, |u-v|)"
    )
    classifier_activation: Literal["none", "relu", "tanh"] = Field(
        "none", description="activation between the classifier's two layers"
    )

    @property
    def rows(self) -> Rows:
        """The rows are premises and hypotheses with labels."""
        return "labeled_pairs"


class SbertConfig(PairMethodConfig):
    """SBERT baseline: only the cross-entropy of the pair classifier (SCL with lambda 0)."""

    name: Literal["sbert"]


class SclConfig(PairMethodConfig):
    """SCL: (1 - lambda) cross-entropy + lambda supervised contrastive loss (SCL eq. 3)."""

    name: Literal["scl"]
    lambda_: float = Field(
        0.3,
        alias="lambda",
        ge=0,
        le=1,
        description="weight of the contrastive loss, from 0 to 1; the cross-entropy has weight 1 "
        "- lambda",
    )
    temperature: float = Field(
        1.0, gt=0, description="divides the similarities in the softmax (tau), above 0"
    )
    num_positives: Count = Field(
        "all", description='number of positives for each anchor (P), above 0, or "all"'
    )
    num_negatives: Count = Field(
        "all", description='number of negatives for each anchor (N), above 0, or "all"'
    )
    similarity: Literal["dot", "cosine"] = Field(
        "dot",
        description="similarity of embeddings: the raw dot product (the authors' code) or cosine",
    )
    anchors: Literal["entailment", "premise"] = Field(
        "entailment",
        description="anchors: one per entailment row (the authors' code), or one per premise that "
        "has an entailment row (the paper's text)",
    )


class AugmentConfig(PairMethodConfig):
    """Augmented baseline: cross-entropy on the batch and on the pairs that SCL would draw."""

    name: Literal["augment"]
    lambda_: float = Field(
        0.5,
        alias="lambda",
        ge=0,
        le=1,
        description="weight of the loss on the drawn pairs, from 0 to 1; the loss on the batch "
        "has weight 1 - lambda",
    )
    num_positives: Count = Field(
        "all", description='number of entailed pairs drawn for each premise (P), above 0, or "all"'
    )
    num_negatives: Count = Field(
        "all", description='number of other pairs drawn for each premise (N), above 0, or "all"'
    )
    cross_premise_label: Literal["contradiction", "neutral"] = Field(
        "contradiction", description="label of a drawn pair whose hypothesis has another premise"
    )


class SimcseConfig(ChunkedConfig):
    """Unsupervised SimCSE: encode each sentence twice with dropout; contrast it with the batch."""

    name: Literal["simcse"]
    temperature: float = Field(
        0.05, gt=0, description="divides the similarities in the softmax (tau), above 0"
    )


class ConisiConfig(ChunkedConfig):
    """ConIsI: (1 - lambda) contrastive + lambda interactive loss (ConIsI eq. 10)."""

    name: Literal["conisi"]
    lambda_: float = Field(
        0.8, alias="lambda", ge=0, le=1, description="weight of the interactive loss, from 0 to 1"
    )
    temperature: float = Field(
        0.05, gt=0, description="divides the cosines in the contrastive loss (tau), above 0"
    )
    strategy: Literal["s", "o1", "o2"] = Field(
        "s",
        description="the sentence c that is combined with the sentence x: s, another sentence of "
        "the batch; o1, x with subwords replaced; o2, x with words replaced by their WordNet "
        "antonyms",
    )
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of subwords (o1) or of words with an antonym (o2) to replace; "
        "unset: 0.15 for o1, 0.5 for o2",
    )
    interaction: Literal["scalar", "elementwise"] = Field(
        "scalar",
        description="the interactive score r: one number, or one per dimension, whose losses "
        "are averaged",
    )
    batch_norm: Literal["pairs", "joint", "separate"] = Field(
        "pairs",
        description="which inputs of the head share batch statistics: pairs, (x, x) and (x, c) "
        "together and x by itself; joint, all three; separate, none, so that the interactive loss "
        "cannot tell the pairs apart by a feature's mean",
    )


class ClsrConfig(MethodBase):
    """CLSR: a small network on a frozen encoder's embeddings, trained with NT-Xent."""

    freezes_encoder: ClassVar[bool] = True

    name: Literal["clsr"]
    temperature: float = Field(
        0.1, gt=0, description="divides the cosines in the softmax (tau), above 0"
    )
    hidden: int = Field(768, ge=1, description="width of the network's hidden layer")
    width: int = Field(768, ge=1, description="width of the network's output, the embedding")
    output_relu: bool = Field(
        True,
        description="apply ReLU also to the embedding (the paper's text), or only to the hidden "
        "layer",
    )

    @property
    def rows(self) -> Rows:
        """The rows are pairs of sentences with the same meaning."""
        return "positive_pairs"


class NoneConfig(MethodBase):
    """No training: the encoder unchanged, whitened, or with smaller embeddings."""

    takes_steps: ClassVar[bool] = False
    freezes_encoder: ClassVar[bool] = True

    name: Literal["none"]
    whitening: bool = Field(
        False,
        description="center the embeddings and turn their covariance on the training sentences "
        "into the identity (Su et al. 2021)",
    )
    whitening_dim: int | None = Field(
        None,
        ge=1,
        description="number of whitened directions to keep, from the one of the largest variance "
        "on; unset: all",
    )
    dims: Annotated[Dims, Field(max_length=1)] = Field(
        (),
        description="width to which embeddings are cut before they are scaled to length 1 "
        "(Matryoshka); empty or 0: the whole embedding",
    )
    quantization: Literal["none", "int8", "binary"] = Field(
        "none",
        description="bits per number of an embedding: 32 (no quantization), 8 (int8, with ranges "
        "from the training sentences) or 1 (binary: the sign)",
    )

    @property
    def rows(self) -> Rows:
        """Sentences for whitening and for the ranges of int8, else nothing."""
        return "sentences" if self.whitening or self.quantization == "int8" else "nothing"


_BUILT_IN: tuple[type[MethodBase], ...] = (
    SbertConfig,
    SclConfig,
    AugmentConfig,
    SimcseConfig,
    ConisiConfig,
    ClsrConfig,
    CosentConfig,
    AngleConfig,
    MnrConfig,
    GistConfig,
    TripletConfig,
    NoneConfig,
)
register_all(map(Registered, _BUILT_IN))
