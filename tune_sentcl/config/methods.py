"""The methods' knobs, one class a method, and the union that their `name` tells apart.

The names are the papers': `lambda` and `temperature`, `num_positives` (P) and `num_negatives` (N).
A knob stands where it means something. Defaults never change in place: a trial's id leaves them
out.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tune_sentcl.config.sections import Pooling
from tune_sentcl.config.tables import Frozen


def _count_or_all(value: object) -> object:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise PydanticCustomError("count_or_all", 'Input should be a whole number above 0, or "all"')


Count = Annotated[int | Literal["all"], BeforeValidator(_count_or_all)]
"""How many candidates to draw: a number above 0, or `"all"` that the batch holds."""

Rows = Literal[
    "labeled_pairs", "sentences", "positive_pairs", "graded_pairs", "triplets", "nothing"
]
"""What a method reads: premises with hypotheses and labels; sentences; pairs that mean the same;
pairs with a similarity; anchors with a positive and any number of negatives; or no rows at all."""


class MethodBase(Frozen):
    """What every method's config says of itself, beside its knobs.

    Attributes:
        takes_steps: Whether there is a loss to minimize; if not, the optimizer's knobs are no
            part of a trial.
        freezes_encoder: Whether the encoder's own weights stay as they are; its embeddings then
            come from a cache that all trials of a machine share.
    """

    takes_steps: ClassVar[bool] = True
    freezes_encoder: ClassVar[bool] = False

    @property
    def rows(self) -> Rows:
        """What the method reads."""
        return "sentences"


class PairMethodConfig(MethodBase):
    """What the methods that train on labeled premise-hypothesis pairs have in common."""

    divisor: Literal["padded", "tokens"] = Field(
        "padded",
        description="what mean pooling divides by in training: the padded length of the batch "
        "(the authors' code) or the sentence's own tokens; evaluation always takes the latter",
    )
    classifier_hidden: int = Field(
        768, ge=1, description="width of the classifier's hidden layer over (u, v, |u-v|)"
    )
    classifier_activation: Literal["none", "relu", "tanh"] = Field(
        "none", description="what stands between the classifier's two layers"
    )

    @property
    def rows(self) -> Rows:
        """Premises and hypotheses with labels."""
        return "labeled_pairs"


class SbertConfig(PairMethodConfig):
    """SBERT baseline: cross-entropy of the pair classifier alone (SCL with lambda 0)."""

    name: Literal["sbert"]


class SclConfig(PairMethodConfig):
    """SCL: (1 - lambda) cross-entropy + lambda supervised contrastive loss (SCL eq. 3)."""

    name: Literal["scl"]
    lambda_: float = Field(
        0.3,
        alias="lambda",
        ge=0,
        le=1,
        description="weight of the contrastive loss beside the cross-entropy, from 0 to 1",
    )
    temperature: float = Field(
        1.0, gt=0, description="divides the similarities in the softmax (tau), above 0"
    )
    num_positives: Count = Field(
        "all", description='positives of an anchor (P): a number above 0, or "all"'
    )
    num_negatives: Count = Field(
        "all", description='negatives of an anchor (N): a number above 0, or "all"'
    )
    similarity: Literal["dot", "cosine"] = Field(
        "dot", description="raw dot product (the authors' code) or cosine"
    )
    anchors: Literal["entailment", "premise"] = Field(
        "entailment",
        description="one anchor for each entailment row (the authors' code), or one for each "
        "premise that has an entailment row (the paper's text)",
    )


class AugmentConfig(PairMethodConfig):
    """Augmented baseline: cross-entropy on the batch and on the pairs that SCL would draw."""

    name: Literal["augment"]
    lambda_: float = Field(
        0.5,
        alias="lambda",
        ge=0,
        le=1,
        description="weight of the drawn pairs beside the batch, from 0 to 1",
    )
    num_positives: Count = Field(
        "all", description='drawn entailed pairs of a premise (P): a number above 0, or "all"'
    )
    num_negatives: Count = Field(
        "all", description='drawn other pairs of a premise (N): a number above 0, or "all"'
    )
    cross_premise_label: Literal["contradiction", "neutral"] = Field(
        "contradiction", description="label of a drawn pair whose hypothesis has another premise"
    )


class SimcseConfig(MethodBase):
    """Unsupervised SimCSE: a sentence and its twin under other dropout, against the batch."""

    name: Literal["simcse"]
    temperature: float = Field(
        0.05, gt=0, description="divides the similarities in the softmax (tau), above 0"
    )


def _falling(dims: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(dims)) < len(dims) or any(dim < 1 for dim in dims):
        raise PydanticCustomError(
            "dims", "Input should be a list of distinct whole numbers above 0"
        )
    return tuple(sorted(dims, reverse=True))


class SidesConfig(MethodBase):
    """What the methods that compare the embeddings of a batch's sentences have in common."""

    dims: Annotated[
        tuple[int, ...],
        BeforeValidator(lambda dims: (dims,) if isinstance(dims, int) else dims),
        Field(strict=False),
        AfterValidator(_falling),
    ] = Field(
        (),
        description="widths at which the loss is taken, of the first numbers of an embedding, and "
        "summed (Matryoshka), such as [384, 128, 32]; empty: the whole embedding alone",
    )
    chunk: int | None = Field(
        None,
        ge=1,
        description="sentences that are encoded at a time, twice, so that a batch takes the "
        "memory of one chunk (GradCache); unset: the whole batch at once",
    )


class TripletRowsConfig(SidesConfig):
    """What the methods on anchors with positives have in common."""

    @property
    def rows(self) -> Rows:
        """Anchors with positives and, where there are any, negatives."""
        return "triplets"


class GradedConfig(SidesConfig):
    """What the methods on pairs with a similarity have in common."""

    @property
    def rows(self) -> Rows:
        """Pairs with a similarity."""
        return "graded_pairs"


class MnrConfig(TripletRowsConfig):
    """Multiple negatives ranking (InfoNCE): a positive among the batch's and hard negatives."""

    name: Literal["mnr"]
    temperature: float = Field(
        0.05, gt=0, description="divides the cosines in the softmax (tau), above 0"
    )
    symmetric: bool = Field(
        False, description="positives look for their anchors too, and both losses are averaged"
    )
    negative_weight: float = Field(
        1.0, gt=0, description="weight of a row's own negatives in its softmax, above 0"
    )
    head: Literal["none", "dropped", "kept"] = Field(
        "none",
        description="a layer with tanh behind the pooling: none, in training only (dropped), or "
        "at test too (kept, as supervised SimCSE has it)",
    )


class GistConfig(TripletRowsConfig):
    """GIST: contrast with the batch, where a frozen guide leaves false negatives out."""

    name: Literal["gist"]
    temperature: float = Field(
        0.01, gt=0, description="divides the cosines in the softmax (tau), above 0"
    )
    guide: str = Field(
        "minilm",
        min_length=1,
        description="the frozen encoder that tells false negatives, named as `encoder.checkpoint`",
    )
    guide_pooling: Pooling = Field(
        "mean", description="how the guide's token states become one embedding"
    )
    margin: float = Field(
        0.0,
        ge=0,
        description="a candidate is left out if the guide finds it nearer than the positive, or "
        "further by no more than this",
    )
    margin_kind: Literal["absolute", "relative"] = Field(
        "absolute", description="whether the margin is a cosine, or a share of the positive's"
    )
    contrast_anchors: bool = Field(True, description="anchors are negatives of each other, too")
    contrast_positives: bool = Field(
        True, description="positives are negatives of each other, too"
    )


class TripletConfig(TripletRowsConfig):
    """Triplet loss: an anchor is nearer to its positive than to its negatives, by a margin."""

    name: Literal["triplet"]
    margin: float = Field(
        1.0, gt=0, description="how much further away a negative shall be, above 0"
    )
    distance: Literal["euclidean", "cosine"] = Field(
        "euclidean", description="between embeddings: euclidean, or 1 - cosine"
    )


class ConisiConfig(MethodBase):
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
        description="the sentence c that is composed with x: s, another of the batch; o1, x with "
        "subwords replaced; o2, x with words replaced by their WordNet antonyms",
    )
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of subwords (o1) or of words with an antonym (o2) that are chosen; "
        "unset: 0.15 for o1, 0.5 for o2",
    )
    interaction: Literal["scalar", "elementwise"] = Field(
        "scalar",
        description="the interactive score r: one number, or one in each dimension whose losses "
        "are averaged",
    )
    batch_norm: Literal["pairs", "joint", "separate"] = Field(
        "pairs",
        description="what the head normalizes by common batch statistics: pairs, (x, x) and "
        "(x, c), with x by its own; joint, all three; separate, nothing, so that the interactive "
        "loss cannot tell the pairs by any feature's mean",
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
        True, description="ReLU on the embedding too (the paper's text), or on the hidden layer"
    )

    @property
    def rows(self) -> Rows:
        """Pairs of sentences that mean the same."""
        return "positive_pairs"


class CosentConfig(GradedConfig):
    """CoSENT: cosines in the order of the pairs' scores (Su 2022)."""

    name: Literal["cosent"]
    temperature: float = Field(0.05, gt=0, description="divides the cosines (tau), above 0")


class AngleConfig(GradedConfig):
    """AnglE: similarities in complex space in the order of the pairs' scores."""

    name: Literal["angle"]
    temperature: float = Field(0.05, gt=0, description="divides the similarities (tau), above 0")
    cosine_weight: float = Field(
        0.0, ge=0, description="weight of CoSENT's loss beside, with the same temperature; from 0"
    )


class NoneConfig(MethodBase):
    """No training: the encoder as it is, or whitened; the papers' untrained baselines."""

    takes_steps: ClassVar[bool] = False
    freezes_encoder: ClassVar[bool] = True

    name: Literal["none"]
    whitening: bool = Field(
        False,
        description="center the embeddings and turn their covariance on the training sentences "
        "into the identity (Su et al. 2021)",
    )
    whitening_dim: int | None = Field(
        None, ge=1, description="keep so many of the whitened directions, the widest; unset: all"
    )

    @property
    def rows(self) -> Rows:
        """Sentences to whiten on, or none."""
        return "sentences" if self.whitening else "nothing"


MethodConfig = Annotated[
    SbertConfig
    | SclConfig
    | AugmentConfig
    | SimcseConfig
    | ConisiConfig
    | ClsrConfig
    | CosentConfig
    | AngleConfig
    | MnrConfig
    | GistConfig
    | TripletConfig
    | NoneConfig,
    Field(discriminator="name"),
]
