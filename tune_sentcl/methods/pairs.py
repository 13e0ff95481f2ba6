"""The base class of the methods on labeled pairs: it encodes both sides and classifies them."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from tune_sentcl.config import PairMethodConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.methods.base import Method, MethodInputs, embed
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.modules import PairClassifier
from tune_sentcl.model.pooling import padded_count
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.shapes import Embeddings, Scalar

PairConfigT = TypeVar("PairConfigT", bound=PairMethodConfig)


@dataclass(frozen=True)
class DrawnPairs:
    """A batch of pairs as tokens, on the host.

    Attributes:
        parts: The batch's sentences in parts that are padded separately: premises and hypotheses.
            With `share_duplicates`, distinct premises, then distinct hypotheses that are no
            premise.
        divisors: For each part, the number by which mean pooling divides; None: each sentence's
            own number of tokens.
        rows: With `share_duplicates` the position of each premise and of each hypothesis among the
            sentences of all parts; else None.
        scale: A factor that corrects hypotheses that were pooled with the premises' divisor; None:
            1.
        premises: A number for each row's premise; equal for equal token ids.
        labels: 0 entailment, 1 neutral, 2 contradiction.
        targets: The labels as a tensor.
    """

    parts: tuple[Tokens, ...]
    divisors: tuple[int | None, ...]
    rows: tuple[Tensor, Tensor] | None
    scale: float | None
    premises: Int[np.ndarray, " rows"]
    labels: Int[np.ndarray, " rows"]
    targets: Int[Tensor, " rows"]


@dataclass(frozen=True)
class EncodedPairs:
    """The embeddings of a batch of pairs, on the encoder's device.

    Attributes:
        u: The premises' embeddings.
        v: The hypotheses' embeddings.
        labels: 0 entailment, 1 neutral, 2 contradiction.
    """

    u: Embeddings
    v: Embeddings
    labels: Int[Tensor, " rows"]


class PairMethod(Method[PairConfigT, Encoder]):
    """Encodes pairs and classifies (u, v, |u-v|); subclasses add their loss."""

    def __init__(self, config: PairConfigT, encoder: Encoder, inputs: MethodInputs) -> None:
        super().__init__(config, encoder, inputs)
        self._share = inputs.options.share_duplicates
        self.heads = PairClassifier(
            encoder.width,
            config.classifier_hidden,
            config.classifier_activation,
            inputs.generator,
        )

    def draw_pairs(self, batch: Batch) -> DrawnPairs:
        """A batch as tokens; premises and hypotheses are padded separately.

        With `divisor = padded`, mean pooling divides by the length of the batch's longest premise
        (or hypothesis), even if the sentence is encoded in another forward pass. With
        `share_duplicates`, each distinct sentence of the batch is encoded once, so equal sentences
        have equal embeddings even under dropout. About two thirds of SNLI's premises are repeats.
        """
        tokens = self.tokens(batch.corpus)
        columns = tuple(tokens.numbers(name, batch.rows) for name in ("premise", "hypothesis"))
        labels = np.asarray(batch.numbers("label"), dtype=np.int64)
        longest = [
            int(tokens.inputs.lengths_of(side).max()) if self.config.divisor == "padded" else None
            for side in columns
        ]
        rows: tuple[Tensor, Tensor] | None = None
        scale: float | None = None
        if self._share:
            # Premises and hypotheses are encoded as two parts: hypotheses are shorter, and padding
            # them to the length of the premises would waste time.
            distinct, indices = in_order(np.concatenate(columns))
            first = int(indices[: len(batch)].max()) + 1
            divided = [part for part in (distinct[:first], distinct[first:]) if len(part)]
            rows = (self.pinned(indices[: len(batch)]), self.pinned(indices[len(batch) :]))
            if longest[0] is not None and longest[1] is not None:
                pooling = self.encoder.pooling
                scale = padded_count(pooling, longest[0]) / padded_count(pooling, longest[1])
                longest[1] = longest[0]
        else:
            divided = list(columns)
        return DrawnPairs(
            tuple(tokens.inputs.take(part) for part in divided),
            tuple(longest[: len(divided)]),
            rows,
            scale,
            columns[0],
            labels,
            self.pinned(labels),
        )

    def encode(self, drawn: DrawnPairs) -> EncodedPairs:
        """Encode a batch with the current weights."""
        size = self.config.chunk
        if size is None:
            parts = self.encoder.together(drawn.parts, drawn.divisors)
        else:
            both = zip(drawn.parts, drawn.divisors, strict=True)
            parts = tuple(embed(self.encoder, part, size, divisor) for part, divisor in both)
        labels = self.to_device(drawn.targets)
        if drawn.rows is None:
            return EncodedPairs(parts[0], parts[1], labels)
        embeddings = torch.cat(parts)
        # On the CPU, the gradient of `index_select` adds in a fixed order, which that of fancy
        # indexing does not. On CUDA neither does, so a GPU repeats a trial only up to rounding.
        u, v = (embeddings.index_select(0, self.to_device(rows)) for rows in drawn.rows)
        return EncodedPairs(u, v if drawn.scale is None else v * drawn.scale, labels)

    def cross_entropy(self, pairs: EncodedPairs) -> Scalar:
        """Cross-entropy of the labels, mean over the batch, in nats (SCL eq. 1)."""
        return cross_entropy(self.heads(pairs.u, pairs.v), pairs.labels)


def in_order(
    numbers: Int[np.ndarray, " rows"],
) -> tuple[Int[np.ndarray, " distinct"], Int[np.ndarray, " rows"]]:
    """The distinct numbers by first occurrence, and each row's position among them."""
    distinct, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    indices = np.empty_like(order)
    indices[order] = np.arange(len(order))
    return distinct[order], indices[inverse]
