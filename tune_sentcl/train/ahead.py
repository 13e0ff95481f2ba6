"""Batches drawn ahead of the steps that take them, in a thread of their own."""

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

_AHEAD = 4  # what the host may be late for a batch now and then, and no step waits
_MOST_AHEAD = 64
_VARIABLE = "TUNE_SENTCL_AHEAD"


def ahead_here() -> int:
    """How many batches may be drawn ahead: TUNE_SENTCL_AHEAD, else four; 0 needs no thread.

    Raises:
        ConfigError: The variable holds something else than a number of batches.
    """
    given = os.environ.get(_VARIABLE) or str(_AHEAD)
    if not given.isdecimal() or int(given) > _MOST_AHEAD:
        rule = f"must be a number of batches, 0 to {_MOST_AHEAD}"
        raise ConfigError(Fault(_VARIABLE, "", given, rule, "Set it to one, or not at all."))
    return int(given)


@dataclass(frozen=True)
class Drawn:
    """What the host knows of a batch.

    Attributes:
        batch: Its rows.
        parts: What the method has drawn for each part of it, with the part's share of the rows.
        before: The state of the drawing generator before the batch was drawn.
        after: And behind it, which is what a training that goes on behind the batch begins with.
    """

    batch: Batch
    parts: list[tuple[float, Any]]
    before: Mapping[str, Any]
    after: Mapping[str, Any]


class Ahead:
    """Draws a training's batches in their order, some of them before they are asked for.

    The first batch is drawn by whoever asks: its corpus may have to be tokenized, or waited for,
    and that shall end when it is told to. One thread draws the others in turn, so that what the
    generator gives is what it would give without one; an error comes up where its batch is asked
    for. Batches that were drawn and never taken are as if they had not been: the state to go on
    from is a batch's own (`Drawn`).

    Attributes:
        count: In how many parts a batch is drawn; one of fewer rows has one a row.
    """

    def __init__(
        self,
        method: AnyMethod,
        batches: Iterable[Batch],
        draws: np.random.Generator,
        count: int = 1,
        most: int = _AHEAD,
    ) -> None:
        """Nothing is drawn before the first batch is asked for.

        Args:
            method: Draws.
            batches: In the order of the steps; dealt by the thread of whoever asks.
            draws: As for `Method.draw`; nobody else may draw from it.
            count: In how many parts.
            most: Batches that may be drawn ahead; 0 draws each when it is asked for.
        """
        self.count = count
        self._method, self._draws = method, draws
        self._batches, self._most = iter(batches), most
        self._waiting: deque[tuple[Batch, Future[Drawn]]] = deque()
        self._thread = ThreadPoolExecutor(1, "ahead") if most else None
        self._first = True

    def __iter__(self) -> Iterator[Drawn]:
        """Itself."""
        return self

    def __next__(self) -> Drawn:
        """The next batch, waited for where it is not there yet."""
        if self._first or self._thread is None:
            self._first = False
            found = self._draw(next(self._batches), self.count)
            self._fill()
            return found
        if not self._waiting:
            raise StopIteration
        _, drawn = self._waiting.popleft()
        self._fill()
        return drawn.result()

    def again(self, drawn: Drawn, count: int) -> Drawn:
        """Draw a batch once more, in so many parts, as are all that follow it."""
        rest = [(batch, future.cancel(), future) for batch, future in self._waiting]
        for _, cancelled, future in rest:
            if not cancelled:
                future.exception()  # until the thread has let go of the generator
        self._waiting.clear()
        self.count = count
        self._draws.bit_generator.state = drawn.before
        found = self._draw(drawn.batch, count)
        for batch, _, _ in rest:
            self._submit(batch)
        return found

    def close(self) -> None:
        """End the thread; what it is drawing is waited for."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _fill(self) -> None:
        while len(self._waiting) < self._most:
            batch = next(self._batches, None)
            if batch is None:
                return
            self._submit(batch)

    def _submit(self, batch: Batch) -> None:
        if self._thread is not None:
            self._waiting.append((batch, self._thread.submit(self._draw, batch, self.count)))

    def _draw(self, batch: Batch, count: int) -> Drawn:
        before = self._draws.bit_generator.state
        parts = np.array_split(batch.rows, min(count, len(batch)))
        drawn = [
            (
                len(rows) / len(batch),
                self._method.draw(Batch(batch.corpus, rows), self._draws),
            )
            for rows in parts
        ]
        return Drawn(batch, drawn, before, self._draws.bit_generator.state)
