"""How much of a difference hangs on which sentence pairs a task happens to have."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.analysis.statistics import bootstrap_correlations
from tune_sentcl.objective import Objective
from tune_sentcl.store.study import Study


@dataclass(frozen=True)
class OverPairs:
    """A bootstrap interval of a difference over sentence pairs, the seeds as they are.

    Attributes:
        low: Lower end, x 100.
        high: Upper end.
        n: How many pairs there are.
        seeds: Over how many common seeds the difference is a mean.
    """

    low: float
    high: float
    n: int
    seeds: int


def over_pairs(
    study: Study,
    objective: Objective,
    first: Mapping[int, str],
    second: Mapping[int, str],
    level: float = 0.95,
) -> OverPairs | None:
    """Sample a task's sentence pairs anew, the same ones for all trials, and compare again.

    Percentiles of the mean difference over the seeds of which both trials have kept their pairs.

    Args:
        study: The study.
        objective: Spearman or Pearson by cosine.
        first: Finished trials by seed.
        second: Of the other configuration.
        level: The probability that is meant.

    Returns:
        None where no seed has the pairs of both.

    Raises:
        StudyError: A file is damaged, or the disk refused.
    """
    common = sorted(first.keys() & second.keys())
    named = {first[seed] for seed in common} | {second[seed] for seed in common}
    if not named or objective.protocol != "cosine":
        return None
    kept = _kept(study.pairs(named), objective)
    there = [seed for seed in common if {first[seed], second[seed]} <= kept.keys()]
    if not there:
        return None
    sides = [[kept[side[seed]] for seed in there] for side in (first, second)]
    gold = sides[0][0][1]
    if any(not np.array_equal(other, gold) for side in sides for _, other in side):
        return None  # the sets have changed in between
    predicted = np.stack([values for side in sides for values, _ in side])
    found = bootstrap_correlations(predicted, gold, ranks=objective.metric == "spearman")
    apart = found[:, : len(there)].mean(axis=1) - found[:, len(there) :].mean(axis=1)
    low, high = np.nanquantile(100 * apart, [(1 - level) / 2, (1 + level) / 2])
    return OverPairs(float(low), float(high), len(gold), len(there))


def _kept(table: pa.Table, objective: Objective) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By trial, what it said of a task's pairs and what people said, in the task's order."""
    wanted = (pc.field("task") == objective.task) & (pc.field("split") == objective.split)
    rows = table.filter(wanted & (pc.field("protocol") == objective.protocol)).sort_by("row")
    found = {}
    for name in pc.unique(rows["trial_id"]).to_pylist():
        own = rows.filter(pc.field("trial_id") == name)
        values = (own[key].to_numpy().astype(np.float64) for key in ("predicted", "gold"))
        predicted, gold = values
        found[name] = (predicted, gold)
    return found
