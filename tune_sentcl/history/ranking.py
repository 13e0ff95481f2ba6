"""The ranking of configurations, and the evaluation data that it uses."""

import math
from collections.abc import Iterable, Sequence

from tune_sentcl.config import DataName, Values, draws
from tune_sentcl.objective import mean as mean_of
from tune_sentcl.store.reading.union import TOLERANCE


def constant_score(values: Sequence[float], knobs: Values) -> float | None:
    """The score of a configuration that does not depend on the seed; else None.

    It does not if the configuration takes no training step and its scores of several seeds are
    equal (the folds of an evaluation depend on the seed). The score then holds for lost seeds too.

    Args:
        values: Its scores by seed, times 100.
        knobs: Its dotted values.
    """
    if not values or draws(knobs) or max(values) - min(values) > TOLERANCE:
        return None
    return mean_of(values)


def rank_key(mean: float | None, lost: int, name: str) -> tuple[bool, bool, float, str]:
    """The sort key of configurations with the same evaluation data; the smallest is the best.

    The order is: configurations with all seeds, with lost seeds (whose other seeds may be the
    lucky ones), without a score. Within each group it is the mean, highest first, then the name.

    Args:
        mean: Of the seeds that count for a choice, by `tune_sentcl.objective.mean`, whose exact
            sum does not depend on the order of the seeds. None without a score.
        lost: The number of lost seeds (`History.lost_reason`); 0 with a `constant_score`.
        name: The configuration's name.
    """
    if mean is None or math.isnan(mean):
        return True, lost > 0, 0.0, name
    return False, lost > 0, -mean, name


def ranked_data(finished: Iterable[tuple[str, bool]]) -> DataName:
    """The evaluation data that ranks trials if several were used: the real sets if possible.

    Args:
        finished: The evaluation data of each finished trial that counts for a choice, and whether
            it has the score. Trials without the score matter only if no trial has it.
    """
    distinct = set(finished)
    sets = {data for data, scored in distinct if scored} or {data for data, _ in distinct}
    return "toy" if sets == {"toy"} else "root"
