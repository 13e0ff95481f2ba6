"""Successive halving in plain words: a stage begins when the whole stage before has ended."""

from tune_sentcl.tuning.halving import FAILED, Stages

End = float | None
Ended = dict[str, list[End]]
"""How each configuration ends each stage (of the grid: each number of seeds) if it runs it."""


def waiting(stages: Stages, sampled: Ended, grid: Ended) -> list[set[str]]:
    """Successive halving that begins a stage when the one before has ended."""
    members, found = set(sampled), []
    for stage, size in enumerate(stages.sizes[1:]):
        ends = {name: sampled[name][stage] for name in members}
        ranked = [name for name, end in ends.items() if end not in (None, FAILED)]
        ranked.sort(key=lambda name: (-(ends[name] or 0), name))
        best = ranked[:size]
        if stage >= len(stages.shares) - 1 and grid and not stages.keeps_all:
            seeds = stage - (len(stages.shares) - 1)
            rivals = {name: values[seeds] for name, values in grid.items()}
            both = {
                **{n: v for n, v in rivals.items() if v is not None},
                **{n: ends[n] for n in ranked},
            }
            order = sorted(both, key=lambda name: (-(both[name] or 0), name))
            third = order[: (stages.sizes[stage] + len(grid)) // 3]
            best = [name for name in best if name in third or name == ranked[0]]
        members = set(best)
        found.append(members)
    return found
