"""GIST: contrast within the batch, without false negatives that a frozen guide encoder finds."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from tune_sentcl.config import GistConfig
from tune_sentcl.data.rows.corpus import Batch, Corpus
from tune_sentcl.errors import CheckpointError, Fault
from tune_sentcl.losses import guided, guided_similarities
from tune_sentcl.methods.base import MethodInputs, StepLoss
from tune_sentcl.methods.embedding_losses import (
    DrawnTriplets,
    TripletMethod,
    Triplets,
    text_columns_of,
)
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.frozen import FrozenEncoder


@dataclass(frozen=True)
class Guide:
    """The guide encoder's name, and the fingerprint of its weights when the search began."""

    name: str
    fingerprint: str


@dataclass(frozen=True)
class DrawnGuided:
    """A batch, and the candidates that the guide excludes, on the host.

    Attributes:
        triplets: The batch.
        left_out: The excluded candidates, in the order of `guided_similarities`.
        filtered: The excluded share of the candidates that are not the row's own sentences.
    """

    triplets: DrawnTriplets
    left_out: Bool[Tensor, "rows candidates"]
    filtered: float


class Gist(TripletMethod[GistConfig]):
    """Method `gist` (Solatorio, "GISTEmbed", 2024).

    The guide encodes each sentence once, not in every step. Its embeddings come from the cache
    that all trials of a machine share.
    """

    def __init__(self, config: GistConfig, encoder: Encoder, inputs: MethodInputs) -> None:
        super().__init__(config, encoder, inputs)
        self._name: Guide = inputs.resource
        self._max_length = inputs.options.max_length
        self._corpus: Corpus | None = None
        self._guide: FrozenEncoder
        self._column_numbers: list[NDArray[np.int64]] = []

    @classmethod
    def resource(cls, config: Any, root: Path | None) -> Guide:
        """The guide encoder; a trial's id includes its fingerprint."""
        try:
            return Guide(config.guide, resolve_checkpoint(config.guide).fingerprint)
        except CheckpointError as error:
            raise CheckpointError(replace(f, where="method.guide") for f in error.faults) from None

    def draw(self, batch: Batch, generator: np.random.Generator) -> DrawnGuided:
        """The triplets as tokens, and the excluded candidates; no random draws."""
        drawn = self.draw_triplets(batch)
        self._load_guide(batch.corpus)
        numbers = np.concatenate(
            [
                side[batch.rows[rows]]
                for side, (_, rows) in zip(
                    self._column_numbers, text_columns_of(batch), strict=True
                )
            ]
        )
        embeddings = torch.from_numpy(self._guide.cache.take(numbers))
        count = len(batch)
        left_out, filtered = self._left_out(
            *embeddings.split([count, count, len(embeddings) - 2 * count])
        )
        return DrawnGuided(drawn, self.pinned(left_out.numpy()), filtered)

    def loss_of(self, drawn: DrawnGuided) -> StepLoss:
        """The contrastive loss over the candidates that were not excluded."""
        left_out = self.to_device(drawn.left_out)

        def contrast(triplets: Triplets) -> StepLoss:
            cosines = self._cosines(triplets.anchors, triplets.positives, triplets.negatives)
            temperature = self.config.temperature
            loss = guided(cosines, left_out, temperature=temperature).mean()
            return StepLoss(loss, {"contrastive": loss}, {"filtered": drawn.filtered})

        return self.embedded(drawn.triplets, contrast)

    def _load_guide(self, corpus: Corpus) -> None:
        """Open the guide's cached embeddings of a corpus.

        Raises:
            CheckpointError: The guide's name has other weights on this machine.
        """
        if self._corpus is corpus:
            return
        checkpoint = resolve_checkpoint(self._name.name)
        if checkpoint.fingerprint != self._name.fingerprint:
            rule = "has other weights on this machine than on the machine that began the search"
            move = "Copy the model's files to this machine again."
            raise CheckpointError(
                Fault("method.guide", value=self._name.name, rule=rule, move=move)
            )
        pooling, device = self.config.guide_pooling, str(self.device)
        sentences = corpus.sentences()
        self._guide = FrozenEncoder(checkpoint, pooling, self._max_length, device, sentences)
        self._column_numbers = [
            self._guide.locate(corpus.texts(name)) for name in corpus.text_columns()
        ]
        self._corpus = corpus

    def _cosines(self, *sides: Tensor) -> Float[Tensor, "rows candidates"]:
        config = self.config
        return guided_similarities(
            *sides,
            contrast_anchors=config.contrast_anchors,
            contrast_positives=config.contrast_positives,
        )

    def _left_out(self, *guide: Tensor) -> tuple[Bool[Tensor, "rows candidates"], float]:
        """The candidates that the guide finds about as near as the positive, and their share."""
        config = self.config
        cosines = self._cosines(*guide)
        rows, negatives = len(guide[0]), len(guide[2])
        near = cosines.diagonal()
        margin = config.margin * (near.abs() if config.margin_kind == "relative" else 1)
        left_out = cosines > (near - margin)[:, None]
        # The positive of a row stays a candidate; the row's own sentence never is one.
        itself = torch.eye(rows, dtype=torch.bool)
        blocks = (cosines.shape[1] - rows - negatives) // rows
        own = torch.cat([itself, itself.new_zeros(rows, negatives), *[itself] * blocks], dim=1)
        filtered = left_out[~own].float().mean().item() if rows > 1 or negatives else 0.0
        left_out |= own
        left_out[:, :rows] &= ~itself
        return left_out, filtered


METHOD = Gist
