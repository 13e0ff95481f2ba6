"""The differences that planned seeds can show, before the seeds are paid for."""

import math
from collections.abc import Sequence

from tune_sentcl.errors import TuneSentclError
from tune_sentcl.judging.comparing import PLANNED_SHARE, ComparisonRules
from tune_sentcl.judging.configurations import Configurations
from tune_sentcl.judging.seed_blocks import SeedBlocks
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
    if confirm:
        return _line(confirm, "fresh seeds", _CONFIRMED, noise)
    if plan.configurations is None and len(plan.seeds) > 1:
        return _line(_FEW, f"fresh seeds (--confirm {_FEW})", _CONFIRMED, noise)
    return _line(len(plan.seeds), "seeds", plan.configurations or _CONFIRMED, noise)


def _line(seeds: int, kind: str, configurations: int, noise: tuple[float, int]) -> str:
    alpha = PLANNED_SHARE * ComparisonRules().alpha
    least = smallest_shown(seeds, configurations, alpha)
    if math.isinf(least):
        one = kind.removesuffix("s")
        return (
            f"1 {one} cannot tell a difference from luck: give --seeds 0,1,2 or --confirm {_FEW}"
        )
    sd, older = noise
    if math.isnan(sd) or sd <= TOLERANCE:  # alike, which says nothing of others
        return ""
    points = f"{least * sd:.2g} points"
    known = f"sd of a seed {sd:.2g}, from {older} older configurations"
    return f"{seeds} {kind} can show differences of {points} or more ({known})"


def older_noise(studies: Sequence[Study], objective: Objective) -> tuple[float, int]:
    """The sd of a seed in studies, and the number of configurations that it is from.

    Args:
        studies: Running or finished; those without such scores are left out.
        objective: The score.
    """
    squares, df, count = 0.0, 0, 0
    for study in studies:
        try:
            found = Configurations.read(study, objective)
        except TuneSentclError:
            continue  # the search itself reports what it cannot read
        blocks = SeedBlocks(found.drawn_scores())
        if blocks.df > 0:
            squares += blocks.df * blocks.sd**2
            df += blocks.df
            count += len(blocks.names) - len(blocks.apart)
    return (math.sqrt(squares / df) if df else math.nan), count
