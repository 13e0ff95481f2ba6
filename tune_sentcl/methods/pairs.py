"""What the methods on labeled pairs share: encoding both sides, and the pair classifier."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from tune_sentcl.config import PairMethodConfig
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.methods.base import Method, Setting
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.heads import PairClassifier
from tune_sentcl.model.pooling import padded_count
from tune_sentcl.shapes import Embeddings, Scalar

Divisor = Literal["padded", "tokens"]
PairConfigT = TypeVar("PairConfigT", bound=PairMethodConfig)


@dataclass(frozen=True)
class EncodedPairs:
    """A batch under the encoder's present weights.

    Attributes:
        u: The premises' embeddings.
        v: The hypotheses' embeddings.
        premises: A number for each row's premise, equal where the token ids are.
        labels: 0 entailment, 1 neutral, 2 contradiction, on the encoder's device.
    """

    u: Embeddings
    v: Embeddings
    premises: Int[np.ndarray, " rows"]
    labels: Int[Tensor, " rows"]


def encode_pairs(encoder: Encoder, batch: Batch, *, share: bool, divisor: Divisor) -> EncodedPairs:
    """Encode both sides of a batch.

    Premises and hypotheses are padded separately: under `padded`, mean pooling divides by the
    longest premise (hypothesis) of the batch, in whichever forward pass a sentence is encoded.

    Args:
        encoder: The encoder being trained.
        batch: The rows.
        share: Whether each distinct sentence of the batch is encoded once; equal sentences then
            have equal embeddings even under dropout. About two thirds of SNLI's premises are
            repeats.
        divisor: What mean pooling divides by.
    """
    premises = [tuple(ids) for ids in encoder.tokenize(batch.texts("premise"))]
    hypotheses = [tuple(ids) for ids in encoder.tokenize(batch.texts("hypothesis"))]
    longest = [
        max(map(len, side)) if divisor == "padded" else None for side in (premises, hypotheses)
    ]
    if share:
        u, v = _encode_shared(encoder, premises, hypotheses, longest)
    else:
        u, v = encoder(premises, longest[0]), encoder(hypotheses, longest[1])
    numbers = {ids: number for number, ids in enumerate(dict.fromkeys(premises))}
    labels = torch.from_numpy(batch.numbers("label")).to(u.device)
    return EncodedPairs(u, v, np.array([numbers[ids] for ids in premises]), labels)


def _encode_shared(
    encoder: Encoder,
    premises: Sequence[tuple[int, ...]],
    hypotheses: Sequence[tuple[int, ...]],
    longest: Sequence[int | None],
) -> tuple[Embeddings, Embeddings]:
    # Two passes, for hypotheses are shorter: together they would be padded to the premises'
    # length.
    first = list(dict.fromkeys(premises))
    known = {ids: row for row, ids in enumerate(first)}
    rest = [ids for ids in dict.fromkeys(hypotheses) if ids not in known]
    known.update((ids, len(first) + row) for row, ids in enumerate(rest))
    parts = [encoder(part, longest[0]) for part in (first, rest) if part]
    embeddings = torch.cat(parts)
    # index_select, whose gradient adds up in a fixed order on the CPU; that of fancy indexing does
    # not. On CUDA neither does, so that a GPU repeats a trial to rounding only.
    u = embeddings.index_select(0, _rows(premises, known, embeddings))
    v = embeddings.index_select(0, _rows(hypotheses, known, embeddings))
    if longest[0] is not None and longest[1] is not None:
        counts = [padded_count(encoder.pooling, length) for length in (longest[0], longest[1])]
        v = v * (counts[0] / counts[1])
    return u, v


def _rows(
    sentences: Sequence[tuple[int, ...]], known: dict[tuple[int, ...], int], like: Tensor
) -> Int[Tensor, " rows"]:
    return torch.tensor([known[ids] for ids in sentences], device=like.device)


class PairMethod(Method[PairConfigT, Encoder]):
    """A classifier over (u, v, |u-v|), and how its pairs are encoded; methods add their loss."""

    def __init__(self, config: PairConfigT, encoder: Encoder, setting: Setting) -> None:
        """Draw the classifier's starting weights."""
        super().__init__(config, encoder, setting)
        self._share = setting.options.share_duplicates
        self.heads = PairClassifier(
            encoder.width,
            config.classifier_hidden,
            config.classifier_activation,
            setting.generator,
        )

    @property
    def coupling(self) -> str | None:
        """Cross-entropy couples nothing; a padded divisor is the whole batch's."""
        if self.config.divisor == "padded" and self.encoder.pooling != "cls":
            return (
                "pooling divides by the length of the batch's longest sentence, which "
                "method.divisor=tokens and encoder.pooling=cls do not"
            )
        return None

    def encode(self, batch: Batch) -> EncodedPairs:
        """Encode a batch as the config has it."""
        return encode_pairs(self.encoder, batch, share=self._share, divisor=self.config.divisor)

    def cross_entropy(self, pairs: EncodedPairs) -> Scalar:
        """Cross-entropy of the labels, mean over the batch, in nats (SCL eq. 1)."""
        return cross_entropy(self.heads(pairs.u, pairs.v), pairs.labels)
