"""Methods whose loss reads sentence embeddings: base classes, and losses of plugins."""

import inspect
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from tune_sentcl.config import METHODS, EmbeddingLossConfig, MethodConfig, NoneConfig
from tune_sentcl.config.embedding_methods import GradedConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.errors import CheckpointError, Fault, PluginError
from tune_sentcl.methods.base import Method, MethodInputs, StepLoss, embed
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.shapes import Embeddings

EmbeddingLossConfigT = TypeVar("EmbeddingLossConfigT", bound=EmbeddingLossConfig)


def require_widths(config: EmbeddingLossConfig | NoneConfig, width: int) -> None:
    """Raise CheckpointError if a config asks for a width that the encoder does not have."""
    if config.dims and config.dims[0] > width:
        rule = f"this encoder's embeddings have width {width}"
        value, move = str(config.dims[0]), "Use this width or less."
        raise CheckpointError(Fault("method.dims", value=value, rule=rule, move=move))


class EmbeddingLossMethod(Method[EmbeddingLossConfigT, Encoder]):
    """Encodes all sentences of a batch together; subclasses add their loss."""

    def __init__(
        self, config: EmbeddingLossConfigT, encoder: Encoder, inputs: MethodInputs
    ) -> None:
        super().__init__(config, encoder, inputs)
        require_widths(config, encoder.width)

    def at_widths(
        self, embeddings: Embeddings, loss: Callable[[Embeddings], StepLoss]
    ) -> StepLoss:
        """The sum of a loss at each width of `config.dims`; without dims, the loss at full width.

        Args:
            embeddings: The embeddings of all sentences. After a cut to a width they are normalized
                again.
            loss: Maps embeddings of any width to their loss.

        References:
            Kusupati et al., "Matryoshka Representation Learning", NeurIPS 2022, eq. 1.
        """
        if not self.config.dims:
            return loss(embeddings)
        cut = {dim: normalize(embeddings[:, :dim], dim=-1) for dim in self.config.dims}
        steps = {dim: loss(narrow) for dim, narrow in cut.items()}
        rates: dict[str, float] = {}
        for step in steps.values():
            rates.update(step.rates)
        return StepLoss(
            torch.stack([step.total for step in steps.values()]).sum(),
            {f"{n}@{dim}": part for dim, step in steps.items() for n, part in step.parts.items()},
            rates,
        )


@dataclass(frozen=True)
class DrawnPairs:
    """A batch of pairs with similarity scores, on the host.

    Attributes:
        tokens: All first sentences, then all second sentences.
        scores: The similarity of each pair.
    """

    tokens: Tokens
    scores: Float[Tensor, " rows"]


class GradedMethod(EmbeddingLossMethod[EmbeddingLossConfigT]):
    """A method whose rows are pairs with a similarity score."""

    def draw(self, batch: Batch, generator: np.random.Generator) -> DrawnPairs:
        """Both sentences of each pair as tokens, and the scores; no random draws."""
        tokens = self.tokens(batch.corpus)
        columns = (tokens.take(name, batch.rows) for name in ("sentence1", "sentence2"))
        return DrawnPairs(Tokens.concatenate(columns), self.pinned(batch.numbers("score")))

    def loss_of(self, drawn: DrawnPairs) -> StepLoss:
        """The loss over the batch's pairs."""
        scores = self.to_device(drawn.scores)

        def loss(embeddings: Embeddings) -> StepLoss:
            left, right = embeddings.chunk(2)
            return self.compare(left, right, scores)

        return self.at_widths(embed(self.encoder, drawn.tokens, self.config.chunk), loss)

    @abstractmethod
    def compare(
        self, left: Embeddings, right: Embeddings, scores: Float[Tensor, " rows"]
    ) -> StepLoss:
        """The loss of pairs of embeddings."""


@dataclass(frozen=True)
class DrawnTriplets:
    """A batch of anchors with positives and negatives, on the host.

    Attributes:
        tokens: All anchors, then all positives, then the negatives column by column.
        rows: The number of anchors, which is the number of positives.
        owners: The row of each negative; rows may have different numbers of negatives.
    """

    tokens: Tokens
    rows: int
    owners: Int[Tensor, " negatives"]


@dataclass(frozen=True)
class Triplets:
    """The embeddings of a batch of triplets.

    Attributes:
        anchors: One embedding per row.
        positives: One embedding per row.
        negatives: The negatives of all rows.
        owners: The row of each negative, on the encoder's device.
    """

    anchors: Embeddings
    positives: Embeddings
    negatives: Float[Tensor, "negatives dim"]
    owners: Int[Tensor, " negatives"]


class TripletMethod(EmbeddingLossMethod[EmbeddingLossConfigT]):
    """A method whose rows are anchors with positives and negatives."""

    def draw_triplets(self, batch: Batch) -> DrawnTriplets:
        """The tokens of a batch, without its empty negatives."""
        tokens, columns = self.tokens(batch.corpus), text_columns_of(batch)
        owners = [rows for _, rows in columns[2:]]
        all_owners = np.concatenate([np.empty(0, np.int64), *owners])
        taken = Tokens.concatenate([tokens.take(name, batch.rows[rows]) for name, rows in columns])
        return DrawnTriplets(taken, len(batch), self.pinned(all_owners))

    def draw(self, batch: Batch, generator: np.random.Generator) -> Any:
        """The triplets as tokens; no random draws."""
        return self.draw_triplets(batch)

    def embedded(self, drawn: DrawnTriplets, loss: Callable[[Triplets], StepLoss]) -> StepLoss:
        """The loss of a batch's embeddings, summed over the widths."""
        owners = self.to_device(drawn.owners)

        def split(embeddings: Embeddings) -> StepLoss:
            sizes = [drawn.rows, drawn.rows, len(drawn.owners)]
            anchors, positives, negatives = embeddings.split(sizes)
            return loss(Triplets(anchors, positives, negatives, owners))

        return self.at_widths(
            self.head(embed(self.encoder, drawn.tokens, self.config.chunk)), split
        )

    def head(self, embeddings: Embeddings) -> Embeddings:
        """Transform the embeddings for the loss; returns them unchanged by default."""
        return embeddings


def text_columns_of(batch: Batch) -> list[tuple[str, Int[np.ndarray, " some"]]]:
    """The text columns of a batch, each with the numbers of the rows whose text is not empty."""
    columns = [(name, np.arange(len(batch))) for name in ("anchor", "positive")]
    for name in batch.corpus.negatives():
        filled = np.array([bool(text) for text in batch.texts(name)])
        columns.append((name, np.flatnonzero(filled)))
    return columns


def loss_class(config: MethodConfig) -> type[GradedMethod[Any] | TripletMethod[Any]]:
    """The method class of a plugin's loss, by the kind of rows that its config names."""
    return GradedLoss if isinstance(config, GradedConfig) else TripletLoss


class GradedLoss(GradedMethod[EmbeddingLossConfig]):
    """A plugin's loss over pairs with a score."""

    def compare(
        self, left: Embeddings, right: Embeddings, scores: Float[Tensor, " rows"]
    ) -> StepLoss:
        """The loss of the pairs."""
        return _step_loss(self.config, anchors=left, positives=right, labels=scores)


class TripletLoss(TripletMethod[EmbeddingLossConfig]):
    """A plugin's loss over anchors with positives and negatives."""

    def loss_of(self, drawn: DrawnTriplets) -> StepLoss:
        """The loss over the batch."""
        return self.embedded(drawn, lambda embeddings: _step_loss(self.config, **vars(embeddings)))


def _step_loss(config: EmbeddingLossConfig, **inputs: Tensor) -> StepLoss:
    """Call a plugin's loss with the inputs that its parameters name.

    Raises:
        PluginError: The function does not return a tensor of one number with a gradient.
    """
    function, names = _bound(config)
    loss = function(**{name: inputs[name] for name in names if name in inputs})
    if isinstance(loss, Tensor) and not loss.ndim and loss.requires_grad:
        return StepLoss(loss, {config.name: loss})
    value = f"{tuple(loss.shape)} {loss.dtype}" if torch.is_tensor(loss) else type(loss).__name__
    rule = "must be a tensor of one number that depends on the embeddings"
    where = f"{METHODS[config.name].plugin}: loss {config.name}"
    raise PluginError(
        Fault(
            where,
            key="returned",
            value=value,
            rule=rule,
            move="Return losses.mean(), for example.",
        )
    )


def _bound(config: EmbeddingLossConfig) -> tuple[Callable[..., Any], list[str]]:
    """A plugin's function with its hyperparameters bound, and the names of its parameters."""
    function = METHODS[config.name].implementation
    if function is None:
        raise TypeError(f"{config.name} is no loss of a plugin")
    names = list(inspect.signature(function).parameters)
    knobs = {name: getattr(config, name) for name in names if name in type(config).model_fields}
    return partial(function, **knobs), names
