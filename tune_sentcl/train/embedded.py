"""The frozen embeddings that the steps of many lanes read."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.placing import placed


class Embedded:
    """The frozen embeddings of the rows' texts: on a GPU all at once, where there is room."""

    def __init__(
        self, encoder: FrozenEncoder, corpus: Corpus, columns: Sequence[str], device: str
    ) -> None:
        """Find the rows' texts.

        Args:
            encoder: Has their embeddings in its cache.
            corpus: The rows.
            columns: Which of their texts.
            device: Where they are wanted.
        """
        found = [encoder.locate(corpus.texts(column)) for column in columns]
        self._numbers, self._cache, self.device = np.stack(found), encoder.cache, device
        self._table: Tensor | None = None
        if device != "cpu":
            distinct, places = np.unique(self._numbers, return_inverse=True)
            with suppress(torch.OutOfMemoryError):  # then they come batch by batch
                self._table = torch.from_numpy(self._cache.take(distinct)).to(device)
                self._numbers = places.reshape(self._numbers.shape)

    def take(self, rows: NDArray[np.int64]) -> Float[Tensor, "lanes texts dim"]:
        """The embeddings of each lane's rows, those of a later column below.

        Args:
            rows: Their numbers, a batch a lane.
        """
        device = torch.device(self.device)
        numbers = np.ascontiguousarray(self._numbers[:, rows].swapaxes(0, 1))
        if self._table is None:
            taken = placed(self._cache.take(numbers.ravel()), device)
        else:
            taken = self._table.index_select(0, placed(numbers.ravel(), device))
        return taken.view(len(rows), -1, taken.shape[1])
