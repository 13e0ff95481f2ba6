"""An encoder whose own weights never move; its embeddings come from the cache."""

import copy
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tune_sentcl.config import Auto, Pooling
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint, used
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.model.checkpoints.word_vectors import average_vectors
from tune_sentcl.model.dense import Tail
from tune_sentcl.model.device import tensor_cores
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.model.encoder import Encoder, check_finite, load_encoder
from tune_sentcl.shapes import EmbeddingMatrix


class FrozenEncoder(nn.Module):
    """Looks embeddings up, and puts them through what a method has hung behind them.

    The transformer is loaded only where a sentence is not in the cache yet, and let go again.

    Attributes:
        checkpoint: Whose embeddings these are.
        cache: Where they lie, each by its text with the prefix, so that encoders which differ in
            prefixes alone share them.
        prefixes: What stands before sentences, in all that is asked for by `base`, `locate` and
            `encode`.
        tail: Layers behind the frozen embeddings; often none. All weights of this module are here.
        dim: Width of a frozen embedding.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        pooling: Pooling | Auto,
        max_length: int | Auto,
        device: str,
        sentences: Sequence[str],
    ) -> None:
        """Make sure that the cache holds some sentences.

        Args:
            checkpoint: From `resolve_checkpoint`.
            pooling: How token states become an embedding, see `used`; word vectors are always
                averaged.
            max_length: Longest input in tokens, special tokens included; likewise.
            device: Where a missing embedding is computed, and where the tail goes.
            sentences: Every text that will be asked for, its prefix included, so that they are
                encoded in one pass.

        Raises:
            CheckpointError: It cannot be loaded, or does not go with the pooling.
            NonFiniteError: An embedding holds NaN or infinity.
        """
        super().__init__()
        self.checkpoint = checkpoint
        self.pooling, self.max_length = used(checkpoint, pooling, max_length)
        self.device = device
        self.prefixes = Prefixes()
        self.tail = Tail()
        self.cache = EmbeddingCache(self._identity())
        # One row: all of them may not fit in memory.
        self.dim: int = self.cache.take(self.cache.locate(sentences, self._encode)[:1]).shape[1]

    @property
    def width(self) -> int:
        """Width of an embedding, behind the tail."""
        return self.tail.width(self.dim)

    def base(self, sentences: Sequence[str], *, query: bool = False) -> EmbeddingMatrix:
        """The frozen embeddings of sentences, one row each."""
        return self.cache.take(self.locate(sentences, query=query))

    def locate(self, sentences: Sequence[str], *, query: bool = False) -> NDArray[np.int64]:
        """Numbers by which `cache.take` knows the frozen embeddings of sentences.

        Args:
            sentences: At least one, without their prefix.
            query: Whether they are queries, which have another prefix than texts.
        """
        return self.cache.locate(self.prefixes.put(sentences, query=query), self._encode)

    def encode(self, sentences: Sequence[str], *, query: bool = False) -> EmbeddingMatrix:
        """The embeddings of sentences, for evaluation: no gradient.

        Args:
            sentences: At least one, without their prefix.
            query: Whether they are queries of retrieval.

        Raises:
            NonFiniteError: An embedding holds NaN or infinity; names the first such sentence.
        """
        was_training = self.training
        self.eval()
        try:
            with torch.inference_mode():
                base = torch.from_numpy(self.base(sentences, query=query)).to(self.device)
                embeddings: EmbeddingMatrix = self.tail(base).float().cpu().numpy()
        finally:
            self.train(was_training)
        check_finite(embeddings, sentences)
        return embeddings

    def whole(self) -> Encoder | None:
        """The same encoder with its transformer, to be saved; None for word vectors."""
        if self.checkpoint.kind == "words":
            return None
        encoder = load_encoder(self.checkpoint, self.pooling, self.max_length)
        encoder.prefixes = self.prefixes
        encoder.tail = Tail(*encoder.tail.layers, *copy.deepcopy(self.tail).cpu().layers)
        return encoder

    def _identity(self) -> dict[str, str | int]:
        """What decides the frozen embeddings to their last bit."""
        found: dict[str, str | int] = {"checkpoint": self.checkpoint.fingerprint}
        if self.checkpoint.kind == "words":
            return found
        device = torch.device(self.device)
        found |= {"pooling": self.pooling, "max_length": self.max_length, "device": device.type}
        with tensor_cores(device, allowed=True):  # as `Encoder.forward` has it in evaluation
            found["precision"] = torch.get_float32_matmul_precision()
        return found | {name: version(name) for name in ("tokenizers", "torch", "transformers")}

    def _encode(self, sentences: Sequence[str]) -> EmbeddingMatrix:
        if self.checkpoint.kind == "words":
            return average_vectors(self.checkpoint.path, sentences)
        encoder = load_encoder(self.checkpoint, self.pooling, self.max_length, self.device)
        return np.ascontiguousarray(encoder.encode(sentences, progress=self.cache.progress))
