"""The scores of a search's configurations, and their order."""

from tune_sentcl.history import RankKey, constant_score, estimates, rank_key
from tune_sentcl.tuning.configuration_groups import Groups


def rank_keys(groups: Groups) -> dict[str, RankKey]:
    """The sort key of each configuration that lost no seed; the smallest is the best."""
    ended = ((name, group) for name, group in groups.items() if group.ended)
    scores = {name: group.first_objective() for name, group in ended if group.outcome()[1]}
    grid = (name for name in scores if groups[name].origin == "grid")
    constant = {n for n in grid if constant_score(scores[n], groups.values(n)) is not None}
    found = estimates(scores, constant)
    return {name: rank_key(found[name], own, 0, name) for name, own in scores.items()}


def first_seeds(groups: Groups) -> dict[str, float]:
    """The first objective of each first seed that has finished, by trial."""
    firsts = ((group.trial_ids[0], group.results) for _, group in groups.items())
    found = ((m, results[m].values[:1]) for m, results in firsts if m in results)
    return {m: values[0] for m, values in found if values and values[0] is not None}
