"""A search's stages in plain words: a stage begins when the whole stage before has ended."""

from collections.abc import Collection, Mapping, Sequence

from tune_sentcl.tuning.stages import FAILED, Stages

End = float | None
Ended = Mapping[str, Sequence[End]]
"""How each configuration ends each stage (of whole trainings: with each number of seeds)."""


def order(ends: Mapping[str, End]) -> list[str]:
    """The names with a rank, the best first; ties by name."""
    ranked = [name for name, end in ends.items() if end not in (None, FAILED)]
    return sorted(ranked, key=lambda name: (-(ends[name] or 0), name))


def waiting(halving: Ended, sizes: Sequence[int]) -> list[set[str]]:
    """The configurations of each stage of one halving."""
    found = [set(halving)]
    for stage, size in enumerate(sizes[1:]):
        found.append(set(order({name: halving[name][stage] for name in found[-1]})[:size]))
    return found


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
