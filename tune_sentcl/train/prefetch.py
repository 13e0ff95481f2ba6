"""Prefetch of batches: a thread draws them ahead of the steps that use them."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.methods import AnyMethod

_DEFAULT = 4  # enough that no step waits when the host is late for one batch
_MOST = 64
_VARIABLE = "TUNE_SENTCL_PREFETCH"


def prefetch_count() -> int:
    """How many batches to draw ahead: TUNE_SENTCL_PREFETCH, else four; 0 starts no thread.

    Raises:
        ConfigError: The variable does not hold a number of batches.
    """
    given = os.environ.get(_VARIABLE) or str(_DEFAULT)
    if not given.isdecimal() or int(given) > _MOST:
        rule = f"must be a number of batches, 0 to {_MOST}"
        raise ConfigError(Fault(_VARIABLE, "", given, rule, "Set it to one, or unset it."))
    return int(given)


@dataclass(frozen=True)
class Drawn:
    """A batch that the method has drawn on the host.

    Attributes:
        batch: Its rows.
        drawn: The result of `Method.draw`.
        after: The state of the drawing generator afterwards, with which a training resumed after
            this batch begins.
    """

    batch: Batch
    drawn: Any
    after: Mapping[str, Any]


class Prefetcher:
    """Draws a training's batches in their order, some of them ahead of their steps.

    The calling thread draws the first batch, because that may tokenize the corpus or wait for
    another process to do so, and an interrupt must be able to end it. One thread draws the others
    in order, so the generator gives the same numbers as without a thread. An error is raised where
    its batch is requested. A batch that was drawn and never used has no effect, because training
    resumes from the generator state of a used batch (`Drawn`).
    """

    def __init__(
        self,
        method: AnyMethod,
        batches: Iterable[Batch],
        draws: np.random.Generator,
        most: int | None = None,
    ) -> None:
        """Prepare; drawing begins when the first batch is requested.

        Args:
            method: Draws the batches.
            batches: In the order of the steps; the calling thread iterates over them.
            draws: The generator for `Method.draw`; no other code may draw from it.
            most: Batches that may be drawn ahead; 0 draws each when it is requested, None takes
                `prefetch_count`.
        """
        self._method, self._draws = method, draws
        self._batches = iter(batches)
        self._most = prefetch_count() if most is None else most
        self._waiting: deque[Future[Drawn]] = deque()
        self._thread = ThreadPoolExecutor(1, "ahead") if self._most else None
        self._first = True

    def __iter__(self) -> Iterator[Drawn]:
        return self

    def __next__(self) -> Drawn:
        if self._first or self._thread is None:
            self._first = False
            found = self._draw(next(self._batches))
            self._fill()
            return found
        if not self._waiting:
            raise StopIteration
        drawn = self._waiting.popleft()
        self._fill()
        return drawn.result()

    def close(self) -> None:
        """End the thread after the batch that it is drawing."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _fill(self) -> None:
        while self._thread is not None and len(self._waiting) < self._most:
            batch = next(self._batches, None)
            if batch is None:
                return
            self._waiting.append(self._thread.submit(self._draw, batch))

    def _draw(self, batch: Batch) -> Drawn:
        drawn = self._method.draw(batch, self._draws)
        return Drawn(batch, drawn, self._draws.bit_generator.state)
