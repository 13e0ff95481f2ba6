"""The differences that planned seeds can show, before the seeds are paid for."""

import math
from collections.abc import Sequence

from tune_sentcl.errors import TuneSentclError
from tune_sentcl.judging.comparing import ALPHA
from tune_sentcl.judging.configurations import Configurations
from tune_sentcl.judging.statistics import smallest_shown
from tune_sentcl.objective import Objective
from tune_sentcl.store.manifest import SeedPlan
from tune_sentcl.store.study import Study
from tune_sentcl.store.union import TOLERANCE

_FEW = 5  # fresh seeds that are proposed where none were asked for
_CONFIRMED = 3  # winner, baseline and runner-up


def shown(plan: SeedPlan, confirm: int, noise: tuple[float, int]) -> str:
    """Say which differences the seeds of a search can show.

    Empty for a single configuration, and if older configurations scored alike with every seed.

    Args:
        plan: The seeds that it is asked for.
        confirm: The number of fresh seeds that follow.
        noise: Of `older_noise`.
    """
    if plan.configurations == 1:
        return ""
    seeds, kind, count = len(plan.seeds), "seeds", plan.configurations or _CONFIRMED
    if confirm:
        seeds, kind, count = confirm, "fresh seeds", _CONFIRMED
    elif plan.configurations is None and seeds > 1:
        seeds, kind = _FEW, f"fresh seeds (--confirm {_FEW})"
    least = smallest_shown(seeds, count, ALPHA)
    if math.isinf(least):
        seed = f"1 {kind.removesuffix('s')}"
        more = f"give --seeds 0,1,2 or --confirm {_FEW}"
        return f"{seed} cannot show whether a difference is luck: {more}"
    sd, older = noise
    if math.isnan(sd) or sd <= TOLERANCE:  # alike, which says nothing of others
        return ""
    known = f"sd of a seed {sd:.2g}, from {older} older configurations"
    return f"{seeds} {kind} can show differences of {least * sd:.2g} points or more ({known})"


def older_noise(studies: Sequence[Study], objective: Objective) -> tuple[float, int]:
    """The sd of a seed in studies, and the number of configurations that it is from.

    Args:
        studies: Running or finished; those without such scores are left out.
        objective: The score.
    """
    squares, df, count = 0.0, 0, 0
    for study in studies:
        try:
            configurations = Configurations.read(study, objective)
        except TuneSentclError:
            continue  # the search itself reports what it cannot read
        blocks = configurations.seed_blocks
        if blocks.df > 0:
            squares += blocks.df * blocks.sd**2
            df += blocks.df
            count += len(blocks.names) - len(blocks.apart)
    return (math.sqrt(squares / df) if df else math.nan), count
