"""No training: the encoder unchanged, whitened, or with smaller embeddings."""

import itertools
from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float32, Float64
from torch import nn

from tune_sentcl.config import NoneConfig
from tune_sentcl.data.rows.corpus import Batch, Corpus
from tune_sentcl.errors import ConfigError, DataError, Fault
from tune_sentcl.methods.base import Method, StepLoss
from tune_sentcl.methods.embedding_losses import require_widths
from tune_sentcl.model.compression import Compression
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.modules import Tail, dense
from tune_sentcl.shapes import EmbeddingMatrix

_CHUNK = 16_384
"""Rows to convert to double precision at a time, 100 MB at 768 dimensions."""


class Untrained(Method[NoneConfig, FrozenEncoder]):
    """Method `none`: the papers' untrained baselines.

    Whitening (Su et al., arXiv 2103.15316, eq. 4-6) centers the embeddings and makes their
    covariance on the training sentences the identity. With the covariance U L U^T, an embedding x
    becomes (x - mean) U L^(-1/2). `whitening_dim` is the number of directions to keep, those with
    the largest variance first.
    """

    def fit(self, corpus: Corpus) -> None:
        """Append the whitening to the encoder's tail, and compress embeddings, if asked."""
        if self.config.whitening:
            self._whiten(corpus)
        require_widths(self.config, self.encoder.width)
        width, quantization = next(iter(self.config.dims), None), self.config.quantization
        if width is None and quantization == "none":
            return
        self.encoder.compression = Compression(width)
        if quantization != "none":
            ranges = self._ranges(corpus) if quantization == "int8" else None
            self.encoder.compression = Compression(width, quantization, ranges)

    def _ranges(self, corpus: Corpus) -> Float32[np.ndarray, "2 dim"]:
        """The least and greatest value of each dimension over the sentences' embeddings."""
        texts = corpus.texts("text")
        chunks = (self.encoder.encode(texts[n : n + _CHUNK]) for n in range(0, len(texts), _CHUNK))
        ends = np.stack([(chunk.min(axis=0), chunk.max(axis=0)) for chunk in chunks])
        ranges = np.stack([ends[:, 0].min(axis=0), ends[:, 1].max(axis=0)])
        if not np.ptp(ranges, axis=0).any():
            rule = (
                "the training sentences must vary, because int8 takes its ranges from their "
                "embeddings"
            )
            raise DataError(
                Fault("method.quantization", value="int8", rule=rule, move="Use more sentences.")
            )
        return ranges

    def _whiten(self, corpus: Corpus) -> None:
        numbers = self.encoder.locate(corpus.texts("text"))
        take = self.encoder.cache.take
        chunks = (take(numbers[n : n + _CHUNK]) for n in range(0, len(numbers), _CHUNK))
        mean, covariance = moments(chunks)
        variances, directions = np.linalg.eigh(covariance)
        kept = self._kept(variances)
        weights = directions[:, kept].T / np.sqrt(variances[kept])[:, None]
        layer = nn.Linear(weights.shape[1], len(weights))
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weights))
            layer.bias.copy_(torch.from_numpy(-weights @ mean))
        self.encoder.tail = Tail(dense(layer, "Identity")).to(self.encoder.device)

    def _kept(self, variances: np.ndarray) -> np.ndarray:
        """The directions to keep, by descending variance; directions without variance go."""
        order = np.argsort(-variances, kind="stable")
        real: np.ndarray = order[variances[order] > 1e-10 * variances.max()]
        if not len(real):
            rule = (
                "the training sentences must vary, because whitening divides by the spread of "
                "their embeddings"
            )
            raise DataError(
                Fault("method.whitening", value="true", rule=rule, move="Use more sentences.")
            )
        asked = self.config.whitening_dim
        if asked is not None and asked > len(real):
            rule = f"the embeddings of the training sentences vary in only {len(real)} directions"
            move = "Use fewer directions, or more sentences."
            raise ConfigError(
                Fault("method.whitening_dim", value=str(asked), rule=rule, move=move)
            )
        return real[:asked]

    def draw(self, batch: Batch, generator: np.random.Generator) -> None:
        """Return nothing, because the method takes no steps."""

    def loss_of(self, drawn: None) -> StepLoss:
        """Always raise a NotImplementedError."""
        raise NotImplementedError("method none has no loss")


def moments(
    chunks: Iterable[EmbeddingMatrix],
) -> tuple[Float64[np.ndarray, " dim"], Float64[np.ndarray, "dim dim"]]:
    """Mean and covariance of rows that are read in chunks, to save memory.

    Sums are in double precision, of differences from the first chunk's mean. Otherwise the
    covariance would lose digits if the mean is far from 0.
    """
    rest = iter(chunks)
    first = next(rest)
    center = first.mean(axis=0, dtype=np.float64)
    count, total = 0, np.zeros_like(center)
    products = np.zeros((len(center), len(center)))
    for chunk in itertools.chain([first], rest):
        rows = chunk - center
        count, total = count + len(rows), total + rows.sum(axis=0)
        products += rows.T @ rows
    offset = total / count
    return center + offset, products / count - np.outer(offset, offset)


METHOD = Untrained
