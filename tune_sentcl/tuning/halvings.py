"""The halvings of a study: what its options add to those that it has recorded."""

from dataclasses import replace

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.store.manifest import HalvingRecord, SearchRecord
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import Question
from tune_sentcl.tuning.stages import Halving, Stages, stages_for, stages_of_samples


def recorded_stages(record: SearchRecord, seeds: int, grid: int) -> Stages:
    """The stages of a study's halvings, with so many seeds and configurations of the grid."""
    halvings = tuple(Halving(each.shares, each.parts, each.further) for each in record.halvings)
    return Stages(halvings, seeds, len(record.whole), grid)


def with_halvings(
    record: SearchRecord, question: Question, grid: int, most: float, whole: int
) -> tuple[SearchRecord, int]:
    """Add to the recorded halvings the one that the options pay for beyond them.

    A study without one gets a halving that is drawn in two halves. A study with some gets another
    one for the difference, which is drawn at once.

    Args:
        record: The study's last search.
        question: The search.
        grid: How many configurations the grid has.
        most: How many configurations beyond the grid the ranges hold.
        whole: How many sampled configurations should run whole at once.

    Returns:
        The record, and how many of these configurations there is room for.

    Raises:
        ConfigError: The budget pays for no configuration.
    """
    options, seeds = question.options, question.seeds
    before = recorded_stages(record, len(seeds), grid)
    held = before.whole + sum(halving.sizes[0] for halving in before.halvings)
    parts = 1 if record.halvings else 2
    shares = record.halvings[0].shares if record.halvings else question.shares

    def with_whole(count: int) -> Stages:
        after = replace(before, whole=before.whole + count)
        if options.budget is None:
            left = int(min(options.samples, most)) - held - count
            return stages_of_samples(left, shares, after, parts=parts)
        more = options.budget - record.budget - (after.cost - before.cost)
        return stages_for(more, most - held - count, shares, after, parts=parts)

    # A halving comes first where the options do not pay for all of them.
    tried = ((count, with_whole(count)) for count in range(whole, -1, -1))
    paid = (one for one in tried if len(one[1].halvings) > len(before.halvings))
    count, after = next(paid, (0, before))
    if after == before:
        if not record.halvings:
            raise _too_small(options, replace(before, halvings=(Halving.of(1, shares),)))
        return record, 0
    objective = str(question.loader.early_stopping_objective)
    added = tuple(
        HalvingRecord(
            each.cost, each.sizes, each.shares, each.parts, each.further, seeds[0], objective
        )
        for each in after.halvings[len(before.halvings) :]
    )
    budget = max(record.budget, options.budget or after.cost)
    return replace(record, budget=budget, halvings=(*record.halvings, *added)), count


def whole_stages(options: SearchOptions, seeds: int, grid: int, most: float) -> Stages:
    """The stages of a search whose sampled configurations all train to the end.

    Raises:
        ConfigError: The budget pays for no configuration.
    """
    none = Stages((), seeds, grid=grid, keeps_all=options.is_whole)
    if options.budget is None:
        return stages_of_samples(int(min(options.samples, most)), (1.0,), none, parts=1)
    found = stages_for(options.budget, most, (1.0,), none, parts=1)
    if not found.halvings:
        raise _too_small(options, replace(none, halvings=(Halving.of(1, (1.0,)),)))
    return found


def _too_small(options: SearchOptions, least: Stages) -> ConfigError:
    rule = f"must be at least {least.cost:g}: one configuration with its seeds takes so much"
    given = f"{options.budget or 0:g}"
    return ConfigError(Fault("--budget", "", given, rule, "Give more, or fewer seeds."))


def check_halvings(record: SearchRecord | None, question: Question) -> None:
    """Refuse a search that cannot go on with the study's halvings.

    Raises:
        ConfigError: It begins with another seed, ranks stages by another score, or runs all
            configurations whole.
    """
    options, seeds = question.options, question.seeds
    objective = str(question.loader.early_stopping_objective)
    if record is None or not record.halvings or not options.is_sampling:
        return
    recorded = record.halvings[0]
    if recorded.first_seed != seeds[0]:
        rule = f"must begin with {recorded.first_seed}, the seed of the study's stages"
        given = ",".join(map(str, seeds))
        raise ConfigError(Fault("--seeds", "", given, rule, "Put it first, or start a study."))
    if recorded.objective != objective:
        rule = f"ranks stages by it, and those of the study are ranked by {recorded.objective}"
        move = "Name that one first, or start another study."
        raise ConfigError(Fault("--objective", "", objective, rule, move))
    if options.is_whole:
        rule = "cannot go on with a study that was sampled with --scheduler halving"
        raise ConfigError(Fault("--scheduler", "", "none", rule, "Start another study."))
