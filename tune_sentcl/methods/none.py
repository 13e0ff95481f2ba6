"""No training: an encoder as it is, or whitened."""

import numpy as np
import torch
from torch import nn

from tune_sentcl.config import NoneConfig
from tune_sentcl.data.rows.corpus import Batch, Corpus
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.methods.base import Method, StepLoss
from tune_sentcl.model.dense import Dense, Tail
from tune_sentcl.model.frozen import FrozenEncoder


class Untrained(Method[NoneConfig, FrozenEncoder]):
    """Method `none`: the papers' untrained baselines.

    Whitening (Su et al., arXiv 2103.15316, eq. 4-6) centers the embeddings and turns their
    covariance on the training sentences into the identity: with the covariance U L U^T, an
    embedding x becomes (x - mean) U L^(-1/2), of which the first `whitening_dim` directions, those
    of the largest variance, may be kept.
    """

    def fit(self, corpus: Corpus) -> None:
        """Hang the whitening behind the pooling, if the config asks for it."""
        if not self.config.whitening:
            return
        embeddings = self.encoder.base(corpus.texts("text")).astype(np.float64)
        mean = embeddings.mean(axis=0)
        centered = embeddings - mean
        variances, directions = np.linalg.eigh(centered.T @ centered / len(centered))
        kept = self._kept(variances)
        weights = directions[:, kept].T / np.sqrt(variances[kept])[:, None]
        layer = nn.Linear(weights.shape[1], len(weights))
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weights))
            layer.bias.copy_(torch.from_numpy(-weights @ mean))
        self.encoder.tail = Tail(Dense(layer, "none")).to(self.encoder.device)

    def _kept(self, variances: np.ndarray) -> np.ndarray:
        """The directions to keep, the widest first; those without variance cannot be scaled."""
        order = np.argsort(-variances, kind="stable")
        real: np.ndarray = order[variances[order] > 1e-10 * variances.max()]
        asked = self.config.whitening_dim
        if asked is not None and asked > len(real):
            rule = f"the training sentences vary in only {len(real)} directions"
            move = "Take fewer, or whiten on more sentences."
            raise ConfigError(Fault("method.whitening_dim", "", str(asked), rule, move))
        return real[:asked]

    def loss(self, batch: Batch, generator: np.random.Generator) -> StepLoss:
        """There is none.

        Raises:
            NotImplementedError: Always; the method takes no steps.
        """
        raise NotImplementedError("method none has no loss")


METHOD = Untrained
