"""An encoder whose transformer is never trained; its embeddings come from the cache."""

import copy
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tune_sentcl.config import Auto, Pooling
from tune_sentcl.data.task import Prompt
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint, used
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.model.checkpoints.word_vectors import average_vectors
from tune_sentcl.model.device import tensor_cores
from tune_sentcl.model.embedding_cache import EmbeddingCache
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.encoding import check_finite
from tune_sentcl.model.modules import Tail
from tune_sentcl.shapes import EmbeddingMatrix


class FrozenEncoder(nn.Module):
    """Looks up frozen embeddings, and applies the layers that a method has appended.

    The transformer is loaded only to encode sentences that the cache lacks, and freed afterwards.

    Attributes:
        checkpoint: The encoder's checkpoint.
        cache: The frozen embeddings by text, with prefix. Encoders that differ in prefixes alone
            share it.
        prefixes: Prefixes of sentences in `base`, `locate` and `encode`.
        tail: Layers after the frozen embeddings, often none; this module has no other weights.
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
        """Encode the sentences that the cache lacks.

        Args:
            checkpoint: From `resolve_checkpoint`.
            pooling: How token states become an embedding, for `auto` see `used`; word vectors are
                always averaged.
            max_length: Longest input in tokens, special tokens included; for `auto` see `used`.
            device: The device of the tail, and of missing embeddings' computation.
            sentences: All texts that will be needed, with prefix, to encode them in one pass.

        Raises:
            CheckpointError: It cannot be loaded, or does not support the pooling.
            NonFiniteError: An embedding holds NaN or infinity.
        """
        super().__init__()
        self.checkpoint = checkpoint
        self.pooling, self.max_length = used(checkpoint, pooling, max_length)
        self.device = device
        self.prefixes = Prefixes()
        self.tail = Tail()
        self.cache = EmbeddingCache(self._identity())
        # One row, because all of them may not fit in memory.
        self.dim: int = self.cache.take(self.cache.locate(sentences, self._encode)[:1]).shape[1]

    @property
    def width(self) -> int:
        """Width of an embedding, after the tail."""
        return self.tail.width(self.dim)

    def base(self, sentences: Sequence[str], *, prompt: Prompt = "text") -> EmbeddingMatrix:
        """The frozen embeddings of sentences, one row each."""
        return self.cache.take(self.locate(sentences, prompt=prompt))

    def locate(self, sentences: Sequence[str], *, prompt: Prompt = "text") -> NDArray[np.int64]:
        """The numbers of one or more sentences, given without prefix, for `cache.take`."""
        return self.cache.locate(self.prefixes.put(sentences, prompt=prompt), self._encode)

    def encode(self, sentences: Sequence[str], *, prompt: Prompt = "text") -> EmbeddingMatrix:
        """The embeddings of one or more sentences, given without prefix; no gradient.

        Raises:
            NonFiniteError: An embedding holds NaN or infinity; names the first such sentence.
        """
        was_training = self.training
        self.eval()
        try:
            with torch.inference_mode():
                base = torch.from_numpy(self.base(sentences, prompt=prompt)).to(self.device)
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
        encoder.tail = Tail(*encoder.tail, *copy.deepcopy(self.tail).cpu())
        return encoder

    def _identity(self) -> dict[str, str | int]:
        """Everything that the frozen embeddings depend on, to the last bit."""
        found: dict[str, str | int] = {"checkpoint": self.checkpoint.fingerprint}
        if self.checkpoint.kind == "words":
            return found
        device = torch.device(self.device)
        found |= {"pooling": self.pooling, "max_length": self.max_length, "device": device.type}
        with tensor_cores(device, allowed=True):  # as `Encoder.forward` in evaluation
            found["precision"] = torch.get_float32_matmul_precision()
        return found | {name: version(name) for name in ("tokenizers", "torch", "transformers")}

    def _encode(self, sentences: Sequence[str]) -> EmbeddingMatrix:
        if self.checkpoint.kind == "words":
            return average_vectors(self.checkpoint.path, sentences)
        encoder = load_encoder(self.checkpoint, self.pooling, self.max_length, self.device)
        return np.ascontiguousarray(encoder.encode(sentences))
