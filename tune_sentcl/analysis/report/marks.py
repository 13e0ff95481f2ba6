"""Which values of a table are the best, and which are not distinguishable from the best."""

from collections.abc import Mapping, Sequence

import pandas as pd

from tune_sentcl.analysis.report.table import Estimate, Value
from tune_sentcl.analysis.statistics import confidence_sequence, differences, mean

LEGEND = "Bold: the best of a column; underlined: not distinguishable from it"


def caption(of: str, seeds: "pd.Series[int]", averages: str) -> str:
    """The first sentence of a table's caption; `averages` says of which tasks they are."""
    least, most = int(seeds.min()), int(seeds.max())
    count = f"{least} to {most}" if least != most else f"{most}"
    tasks = averages.strip().rstrip(".").replace(". ", "; ")
    over = f"{of}: mean ± sd over {count} {'seed' if most == 1 else 'seeds'}"
    return f"{over} ({tasks})." if tasks else f"{over}."


def indistinguishable(best: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """Whether the seeds leave open which of two configurations scores higher.

    Args:
        best: The scores by seed of the configuration with the highest mean.
        other: Those of another configuration.
    """
    low, high = confidence_sequence(differences(best, other)[0], 0.05)
    return low <= 0 <= high


def marks(
    rows: Sequence[Sequence[Value]], ids: Sequence[str], scores: Mapping[int, "pd.Series[float]"]
) -> tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]]:
    """The cells with the best means as printed, and those not distinguishable from them.

    Args:
        rows: The rows of a table.
        ids: The configuration of each row.
        scores: For each column of scores, the scores by configuration and seed, also those of
            rows that the table leaves out.
    """
    best, near = set(), set()
    for column, values in scores.items():
        by_seed: dict[str, dict[int, float]] = {}
        there = values.dropna()
        for (name, seed), value in zip(there.index.tolist(), there.tolist(), strict=True):
            by_seed.setdefault(name, {})[seed] = value
        first = max(by_seed.values(), key=lambda own: mean([*own.values()]), default={})
        top = Estimate(mean([*first.values()])).shown
        for y, (row, name) in enumerate(zip(rows, ids, strict=True)):
            cell = row[column]
            if not isinstance(cell, Estimate) or not cell.shown:
                continue
            if cell.shown == top:
                best.add((y, column))
            elif len(first) > 1 and indistinguishable(first, by_seed.get(name, {})):
                near.add((y, column))
    return frozenset(best), frozenset(near)
