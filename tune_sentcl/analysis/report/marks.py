"""Which values of a table are the best, and which are not distinguishable from the best."""

from collections.abc import Container, Mapping, Sequence

import pandas as pd

from tune_sentcl.analysis.report.table import Estimate, Value
from tune_sentcl.judging.comparing import Family
from tune_sentcl.judging.seed_blocks import collapsed_seeds
from tune_sentcl.judging.statistics import mean
from tune_sentcl.store.union import TOLERANCE

LEGEND = "Bold: the best of a column; underlined: not distinguishable from it"


def caption(of: str, seeds: "pd.Series[int]", averages: str) -> str:
    """The first sentence of a table's caption; `averages` says of which tasks they are."""
    least, most = int(seeds.min()), int(seeds.max())
    count = f"{least} to {most}" if least != most else f"{most}"
    tasks = averages.strip().rstrip(".").replace(". ", "; ")
    over = f"{of}: mean ± sd over {count} {'seed' if most == 1 else 'seeds'}"
    return f"{over} ({tasks})." if tasks else f"{over}."


def indistinguishable(
    scores: Mapping[str, Mapping[int, float]], best: str, constants: Container[str]
) -> set[str]:
    """The best configurations that the seeds do not tell from the first.

    They end at the first mean that is told from it: a worse one with a wide spread is not among
    them, though its own seeds tell nothing.

    The comparisons hold for all pairs together. Their seeds are those of the best configuration
    that depends on the seed. One that lacks such a seed is not told from the best.

    Args:
        scores: By configuration and seed.
        best: The configuration with the highest mean.
        constants: The configurations whose scores do not depend on the seed; one seed is enough.
    """
    drawn, fixed = {}, {}
    for name, values in scores.items():
        own = list(values.values())
        known = len(own) > 1 or name in constants
        if known and max(own) - min(own) <= TOLERANCE:
            fixed[name] = mean(own)
        elif own:
            drawn[name] = values
    seeds = max(drawn.values(), key=lambda own: mean([*own.values()]), default={}).keys()
    whole = {
        name: {seed: own[seed] for seed in seeds}
        for name, own in drawn.items()
        if own.keys() >= seeds
    }
    family = Family(whole, fixed, len(scores), collapsed=collapsed_seeds(whole))
    found: set[str] = set()
    others = (name for name, values in scores.items() if values and name != best)
    for name in sorted(others, key=lambda name: -mean([*scores[name].values()])):
        comparison = family.compare(best, name)
        if comparison is not None and comparison.verdict == "ESTABLISHED":
            break
        found.add(name)
    return found


def marks(
    rows: Sequence[Sequence[Value]],
    ids: Sequence[str],
    scores: Mapping[int, "pd.Series[float]"],
    constants: Container[str],
) -> tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]]:
    """The cells with the best means as printed, and those not distinguishable from them.

    Args:
        rows: The rows of a table.
        ids: The configuration of each row.
        scores: For each column of scores, the scores by configuration and seed, also those of
            rows that the table leaves out.
        constants: As for `indistinguishable`.
    """
    best, near = set(), set()
    for column, values in scores.items():
        by_seed: dict[str, dict[int, float]] = {}
        there = values.dropna()
        for (name, seed), value in zip(there.index.tolist(), there.tolist(), strict=True):
            by_seed.setdefault(name, {})[seed] = value
        if not by_seed:
            continue
        first = max(by_seed, key=lambda name: mean([*by_seed[name].values()]))
        top = Estimate(mean([*by_seed[first].values()])).shown
        equal = indistinguishable(by_seed, first, constants) if len(by_seed[first]) > 1 else set()
        for y, (row, name) in enumerate(zip(rows, ids, strict=True)):
            cell = row[column]
            if not isinstance(cell, Estimate) or not cell.shown:
                continue
            if cell.shown == top:
                best.add((y, column))
            elif name in equal:
                near.add((y, column))
    return frozenset(best), frozenset(near)
