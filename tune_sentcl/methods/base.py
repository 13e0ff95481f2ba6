"""The interface of a training method: the rows that it reads, its heads and its loss."""

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tune_sentcl.config import EncoderConfig, MethodBase
from tune_sentcl.data.rows.corpus import Batch, Corpus
from tune_sentcl.model.corpus_tokens import CorpusTokens, corpus_tokens
from tune_sentcl.model.device import pinned
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.shapes import Embeddings, Scalar

ConfigT = TypeVar("ConfigT", bound=MethodBase)
EncoderT = TypeVar("EncoderT", bound=Encoder | FrozenEncoder)


@dataclass(frozen=True)
class StepLoss:
    """The loss of one training step.

    Attributes:
        total: The loss to minimize, in nats; a margin loss is in units of its distance.
        parts: Its terms before weighting, by name, for the curves.
        rates: Other numbers of the step, by name, for the curves.
    """

    total: Scalar
    parts: dict[str, Scalar]
    rates: dict[str, float] = field(default_factory=dict)


@runtime_checkable
class Resource(Protocol):
    """Data that a method reads besides its training rows, such as a dictionary of antonyms."""

    @property
    def fingerprint(self) -> str:
        """A hash of the content."""
        ...


@dataclass(frozen=True)
class MethodInputs:
    """The inputs of a method besides its config and its encoder.

    Attributes:
        options: The `encoder` section of the config.
        generator: Draws the initial weights of the layers that the method adds.
        resource: The result of `Method.resource`, or None.
    """

    options: EncoderConfig
    generator: torch.Generator
    resource: Any = None


class Method(ABC, Generic[ConfigT, EncoderT]):
    """Trains an encoder; each subclass defines a loss.

    A step has two halves. `draw` runs on the host and needs no weights: it makes tokens and
    labels, and draws the positives of each row. `loss_of` computes the loss on the device. It
    never copies a value to the host, because the copy would wait for the device.

    Rules: `draw` takes all random numbers from its generator and leaves torch's random state
    unchanged. Its result depends only on the batch and the generator's state. It may run in
    another thread, ahead of earlier steps. `loss_of` uses random numbers only in the encoder's
    dropout. `draw` and `loss_of` do not change the batch.

    Attributes:
        smallest_batch: Fewest rows that a batch may have.
        config: The method's hyperparameters.
        encoder: The encoder to train. A method may append layers to `encoder.tail`, after the
            pooling. These layers are trained, used at test, and saved with the encoder.
        heads: Layers that are trained with the encoder and not used at test.
    """

    smallest_batch: ClassVar[int] = 1

    def __init__(self, config: ConfigT, encoder: EncoderT, inputs: MethodInputs) -> None:
        """Bind a config to an encoder; subclasses draw their heads here, from the inputs."""
        self.config = config
        self.encoder = encoder
        self.heads: nn.Module = nn.Identity()

    @classmethod
    def resource(cls, config: Any, root: Path | None) -> Resource | None:
        """Read the method's `Resource` from the data root; None by default."""
        return None

    @classmethod
    def check(cls, corpus: Corpus) -> None:
        """Raise DataError if the method cannot learn from the rows; does nothing by default."""
        return

    def tokens(self, corpus: Corpus, *, special: bool = True) -> CorpusTokens:
        """The tokens of a corpus, from `corpus_tokens`."""
        if isinstance(self.encoder, FrozenEncoder):
            raise TypeError("a frozen encoder reads no tokens")
        return corpus_tokens(self.encoder, corpus, special=special)

    def fit(self, corpus: Corpus) -> None:
        """Set weights in closed form before the first step; does nothing by default."""
        return

    @abstractmethod
    def draw(self, batch: Batch, generator: np.random.Generator) -> Any:
        """Prepare a step on a batch, on the host, for `loss_of`."""

    @abstractmethod
    def loss_of(self, drawn: Any) -> StepLoss:
        """The loss of a prepared batch with the current weights."""

    def after_step(self) -> None:
        """Called after each update, e.g. for a moving average; does nothing by default.

        It may change only the encoder and the heads, because a saved state holds nothing else.
        """
        return

    def loss(self, batch: Batch, generator: np.random.Generator) -> StepLoss:
        """The loss of a batch with the current weights, by both halves of a step."""
        return self.loss_of(self.draw(batch, generator))

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        weights = itertools.chain(self.heads.parameters(), self.encoder.parameters())
        return next((weight.device for weight in weights), torch.device("cpu"))

    def pinned(self, numbers: Shaped[np.ndarray, "..."]) -> Tensor:
        """A host tensor that `to_device` can copy."""
        return pinned(numbers, self.device)

    def to_device(self, pinned: Tensor) -> Tensor:
        """An asynchronous copy on the device of the weights; on the CPU the same tensor."""
        return pinned.to(self.device, non_blocking=True)


def embed(
    encoder: Encoder, tokens: Tokens, chunk: int | None, divisor: int | None = None
) -> Embeddings:
    """The embeddings of a batch's sentences, encoded in chunks.

    A chunk's activations are freed and recomputed in the backward pass, under the same dropout
    (Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited Peak Setup",
    2021). The gradient is the same as without chunks.

    Args:
        encoder: The encoder, in its current mode.
        tokens: The sentences.
        chunk: Sentences to encode at a time; None: all.
        divisor: The divisor of `pool`, the same for every sentence.
    """
    if chunk is None or chunk >= len(tokens):
        return _encoded(encoder, tokens, divisor)
    # torch's `checkpoint` restores the random state of a GPU only if an argument is a tensor on
    # this GPU.
    here = next(encoder.parameters())
    starts = range(0, len(tokens), chunk)
    parts = [tokens.take(np.arange(s, min(s + chunk, len(tokens)))) for s in starts]
    return torch.cat(
        [checkpoint(_encoded, encoder, part, divisor, here, use_reentrant=False) for part in parts]
    )


def _encoded(
    encoder: Encoder, tokens: Tokens, divisor: int | None, _here: Tensor | None = None
) -> Embeddings:
    embeddings: Embeddings = encoder(tokens, divisor)
    return embeddings
