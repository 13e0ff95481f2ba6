"""How many trials share a GPU: what one asks of it, and the rule."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Share = float | Literal["auto"] | None
"""A share of a GPU as a user asks for it: a number, `auto`, or None: one where there is any."""

_ROOM = 1.3
"""A trial's own evaluation and unlucky batches take more than the steps that were measured."""
_CONTEXT_BYTES = 700 * 2**20
"""What a process's context takes of a GPU beside what torch allocates there."""
_WORTH = 0.25
"""The least that another trial has to add, as a part of what the first one does."""
_MOST = 16


@dataclass(frozen=True)
class Demand:
    """What one trial asks of a GPU.

    Attributes:
        peak_bytes: The most that torch allocated there.
        busy: The part of the time in which the GPU was at work, 0 to 1.
        total_bytes: What the GPU holds.
    """

    peak_bytes: int
    busy: float
    total_bytes: int

    def times(self, lanes: int) -> "Demand":
        """What so many trials ask that train as one model, at most."""
        busy = min(1.0, lanes * self.busy)
        return Demand(lanes * self.peak_bytes, busy, self.total_bytes)

    def __str__(self) -> str:
        """For messages."""
        held = f"{self.peak_bytes / 1e9:.1f} of {self.total_bytes / 1e9:.0f} GB"
        return f"{held}, busy {100 * self.busy:.0f} % of the time"


def trials_a_gpu(demands: Iterable[Demand]) -> int:
    """How many trials share a GPU, so that the hungriest fits by memory and each is worth it.

    The k-th trial adds `min(1, k busy) - (k - 1) busy` of a GPU's work; it is worth its place as
    long as that is a quarter of `busy`, what the first one does. One is always let in.

    Args:
        demands: Of one trial of each kind.
    """
    return max(1, min((_fitting(demand) for demand in demands), default=1))


def _fitting(demand: Demand) -> int:
    needed = max(_ROOM * demand.peak_bytes + _CONTEXT_BYTES, 1.0)
    by_memory = int(demand.total_bytes / needed)
    # The largest k with 1 - (k - 1) busy >= worth x busy.
    by_time = math.inf if demand.busy <= 0 else 1 / demand.busy + 1 - _WORTH + 1e-9
    return min(by_memory, int(min(by_time, _MOST)))


def share_of(trials: int) -> float:
    """The share that so many trials take of a GPU, such that as many fit; rounded down."""
    return 1.0 if trials <= 1 else math.floor(1e4 / trials) / 1e4
