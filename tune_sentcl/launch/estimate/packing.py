"""How trials of unequal length lie on the slots that there are."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """What one trial takes.

    Attributes:
        seconds: Of a slot that has run such a trial before.
        warming: What a slot's first trial of its encoder takes beyond that.
        once: What one trial does for all others of its encoder, who wait for it.
        encoder: Whose trial it is.
        beyond: Of `seconds`, what is not needed to score STS by cosine.
    """

    seconds: float
    warming: float = 0.0
    once: float = 0.0
    encoder: str = ""
    beyond: float = 0.0


def makespan(loads: Iterable[Load], slots: int) -> float:
    """When the last trial ends, if each in turn goes to the slot that is free first.

    Args:
        loads: In the order in which they are handed out.
        slots: Trials at a time.
    """
    free = [(0.0, slot) for slot in range(slots)]
    ready: dict[str, float] = {}
    warm: set[tuple[int, str]] = set()
    last = 0.0
    for load in loads:
        begin, slot = heapq.heappop(free)
        if load.once:
            ready[load.encoder] = max(begin, ready.get(load.encoder, 0.0)) + load.once
        if (slot, load.encoder) not in warm:
            warm.add((slot, load.encoder))
            begin += load.warming
        end = max(begin, ready.get(load.encoder, 0.0)) + load.seconds
        heapq.heappush(free, (end, slot))
        last = max(last, end)
    return last
