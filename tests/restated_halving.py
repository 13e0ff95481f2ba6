"""A search's stages in plain words: a stage begins when the whole stage before has ended."""

from collections.abc import Collection, Mapping, Sequence

from tune_sentcl.tuning.stages import FAILED, Halving, Stages

End = float | None
Ended = Mapping[str, Sequence[End]]
"""How each configuration ends each stage (of whole trainings: with each number of seeds)."""


def order(ends: Mapping[str, End]) -> list[str]:
    """The names with a rank, the best first; ties by name."""
    ranked = [name for name, end in ends.items() if end not in (None, FAILED)]
    return sorted(ranked, key=lambda name: (-(ends[name] or 0), name))


def waiting(halving: Halving, parts: Sequence[Ended]) -> list[set[str]]:
    """The configurations of each stage of one halving, given the ends of each of its parts."""
    stages = len(halving.shares)
    own = stages if stages < 3 else stages - 1
    found = [set[str]() for _ in range(own)]
    ends = {name: one for part in parts for name, one in part.items()}
    for part, size in zip(parts, halving.parts, strict=False):
        members = set(part)
        found[0] |= members
        for stage in range(1, own):
            size = max(1, size // 4)
            members = set(order({name: ends[name][stage - 1] for name in members})[:size])
            found[stage] |= members
    if own < stages:
        best = order({name: ends[name][own - 1] for name in found[-1]})
        found.append(set(best[: last(halving)]))
    return found


def last(halving: Halving) -> int:
    """How many configurations train to the end."""
    size = 0
    for part in halving.parts:
        for _ in range(len(halving.shares) - 2):
            part = max(1, part // 4) if part else 0
        size += part
    return max(1, size // 4) + halving.further


def with_seeds(
    stages: Stages, finalists: Collection[str], ends: Ended, grid: Ended
) -> list[set[str]]:
    """The sampled configurations of each stage of further seeds."""
    members, found, before = set(finalists), list[set[str]](), stages.finalists
    for stage, size in enumerate(stages.seed_sizes):
        own = order({name: ends[name][stage] for name in members})
        best = own[:size]
        if grid and not stages.keeps_all:
            rivals = {n: e for n, v in grid.items() if (e := v[stage]) is not None}
            both = order({**rivals, **{name: ends[name][stage] for name in own}})
            third = both[: (before + len(grid)) // 3]
            best = [name for name in best if name in third or name == own[0]]
        members, before = set(best), size
        found.append(members)
    return found
