"""Who stands before whom: the one order of configurations, and whose evaluation sets it is of."""

import math
from collections.abc import Iterable, Sequence

from tune_sentcl.config import DataName, Values, draws
from tune_sentcl.objective import mean as mean_of
from tune_sentcl.store.reading.union import TOLERANCE


def constant_score(values: Sequence[float], knobs: Values) -> float | None:
    """What a configuration scores with every seed, where nothing is drawn; else None.

    Nothing is drawn where no step is taken and, as its scores show, none in measuring either:
    folds move with the seed. Such a score stands for the seeds that were lost too.

    Args:
        values: Its scores by seed.
        knobs: Its dotted values.
    """
    if not values or draws(knobs) or max(values) - min(values) > TOLERANCE:
        return None
    return mean_of(values)


def rank_key(mean: float | None, lost: int, name: str) -> tuple[bool, bool, float, str]:
    """Where a configuration stands among those of its data; the smallest is the best.

    Those without a score come last, before them those that lost a seed, for the seeds that are
    left to these may be the lucky ones. Then the best mean counts, and of equal ones the name.

    Args:
        mean: Of the seeds that it was chosen by, by `tune_sentcl.objective.mean`, whose sum is
            exact and so the same in whatever order the seeds come; None: there is none.
        lost: How many of them it lost (see `History.lost_reason`); 0 where it has a
            `constant_score`.
        name: The configuration's.
    """
    absent = mean is None or math.isnan(mean)
    return absent, lost > 0, 0.0 if mean is None or absent else -mean, name


def ranked_data(finished: Iterable[tuple[str, bool]]) -> DataName:
    """On whose evaluation sets trials are ranked, where several were used.

    The real ones as soon as one trial has its score there. Trials without it decide only where
    none has it.

    Args:
        finished: Of each finished trial that a search chose by: whose sets it means, and whether
            it has the score.
    """
    distinct = set(finished)
    sets = {data for data, scored in distinct if scored} or {data for data, _ in distinct}
    return "toy" if sets == {"toy"} else "root"
