"""What a method is: which rows go in, which heads, which loss."""

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from tune_sentcl.config import EncoderConfig, MethodBase
from tune_sentcl.data.rows.corpus import Batch, Corpus
from tune_sentcl.model.device import staged
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.token_store import CorpusTokens, corpus_tokens
from tune_sentcl.shapes import Scalar

ConfigT = TypeVar("ConfigT", bound=MethodBase)
EncoderT = TypeVar("EncoderT", bound=Encoder | FrozenEncoder)


@dataclass(frozen=True)
class StepLoss:
    """What one step minimizes.

    Attributes:
        total: The loss, in nats.
        parts: Its terms before weighting, by name, for the curves.
        rates: Other numbers of the step, by name, for the curves.
    """

    total: Scalar
    parts: dict[str, Scalar]
    rates: dict[str, float] = field(default_factory=dict)


@runtime_checkable
class Resource(Protocol):
    """Something that a method reads beside its rows, such as a dictionary of antonyms."""

    @property
    def fingerprint(self) -> str:
        """A hash of what it holds."""
        ...


@dataclass(frozen=True)
class Setting:
    """What a method finds beside its config and its encoder.

    Attributes:
        options: The encoder's options.
        generator: Draws the starting weights of what the method adds to the encoder.
        resource: What its `resource` gave, or None.
    """

    options: EncoderConfig
    generator: torch.Generator
    resource: Any = None


class Method(ABC, Generic[ConfigT, EncoderT]):
    """How an encoder is trained; a subclass says with which loss.

    A step has two halves. `draw` does what needs no weights, on the host: tokens, labels, who is
    whose positive. `loss_of` does the rest, on the device, and never looks at what lies there.

    Laws: `draw` takes all its chance from the generator, and leaves torch's as it is; it may run
    in another thread, ahead of earlier steps. `loss_of` draws from the encoder's dropout
    alone. Neither changes the batch, and what is drawn depends on nothing but the batch and the
    generator's state.

    Attributes:
        smallest_batch: Rows that a batch must have.
        coupled_terms: Terms of the loss that say something of a batch and nothing of its rows one
            by one, whether or not their weight is 0.
        config: The method's knobs.
        encoder: What is trained. A method may hang layers behind its pooling (`encoder.tail`),
            which are trained too, kept at test, and saved with it.
        heads: What is trained beside the encoder and dropped at test.
        notes: What people should know of how its rows were read.
    """

    smallest_batch: ClassVar[int] = 1
    coupled_terms: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, config: ConfigT, encoder: EncoderT, setting: Setting) -> None:
        """Bind a config to an encoder; subclasses draw their heads here, from the setting."""
        self.config = config
        self.encoder = encoder
        self.heads: nn.Module = nn.Identity()
        self.notes: list[str] = []

    @property
    def coupling(self) -> str | None:
        """Why a row's gradient depends on the other rows of its batch; None where it does not.

        None promises that the mean of the losses of a batch's parts, weighted by their rows, has
        the gradient of the batch's loss, so that memory for a part is enough. Contrast with the
        batch, batch normalization and divisors that count over a batch all break that; a method is
        taken to do so unless it says otherwise.
        """
        return "the method's loss couples the rows of a batch"

    @classmethod
    def resource(cls, config: Any, root: Path | None) -> Resource | None:
        """Read what the method needs beside its rows; by default nothing.

        Args:
            config: The method's knobs.
            root: The data root.

        Raises:
            DataError: It is not there.
        """
        return None

    @classmethod
    def check(cls, corpus: Corpus) -> None:
        """See that there is something to learn in some rows; by default there is.

        Raises:
            DataError: There is not.
        """
        return

    def tokens(self, corpus: Corpus, *, special: bool = True) -> CorpusTokens:
        """A corpus as the encoder, which is trained, reads it; as `corpus_tokens`.

        What there is to note of them this trial notes, and no other.
        """
        if isinstance(self.encoder, FrozenEncoder):
            raise TypeError("a frozen encoder reads no tokens")
        found = corpus_tokens(self.encoder, corpus, special=special)
        self.notes += found.notes
        found.notes.clear()
        return found

    def fit(self, corpus: Corpus) -> None:
        """Set weights in closed form from the rows, before any step; by default none."""
        return

    @abstractmethod
    def draw(self, batch: Batch, generator: np.random.Generator) -> Any:
        """What a step on a batch needs of the host; `loss_of` reads it."""

    @abstractmethod
    def loss_of(self, drawn: Any) -> StepLoss:
        """The loss under the present weights of a batch that `draw` has seen."""

    def after_step(self) -> None:
        """What follows each update of the weights, such as a moving average; by default nothing.

        What it changes must lie in the encoder or the heads, so that a state holds it.
        """
        return

    def loss(self, batch: Batch, generator: np.random.Generator) -> StepLoss:
        """The loss of one batch under the present weights: both halves."""
        return self.loss_of(self.draw(batch, generator))

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        weights = itertools.chain(self.heads.parameters(), self.encoder.parameters())
        return next((weight.device for weight in weights), torch.device("cpu"))

    def staged(self, numbers: Shaped[np.ndarray, "..."]) -> Tensor:
        """Numbers of the host, ready to be copied by `placed`."""
        return staged(numbers, self.device)

    def placed(self, staged: Tensor) -> Tensor:
        """A copy where the weights lie, for which nobody waits; on the CPU the same tensor."""
        return staged.to(self.device, non_blocking=True)
