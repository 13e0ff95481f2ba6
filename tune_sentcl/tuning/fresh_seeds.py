"""Runs the best configuration of a search on fresh seeds (`--confirm`).

The best score of many is biased upwards, because the seeds' luck took part in the choice. The mean
over fresh seeds has no such bias and may be reported.
"""

from dataclasses import replace
from itertools import count, islice

from tune_sentcl.history import CONFIRM_ORIGIN, rank_key
from tune_sentcl.store.reading.study import Study
from tune_sentcl.tuning.configuration_groups import Sampling
from tune_sentcl.tuning.prepare import PreparedSearch
from tune_sentcl.tuning.proposals import Proposals
from tune_sentcl.tuning.session_study import SessionSettings
from tune_sentcl.watch.terminal import RichWatcher

_FIRST = 1000  # users' seeds are small: a later search with more seeds does not reuse these


def confirmation_search(prepared: PreparedSearch, path: str) -> PreparedSearch | None:
    """The search that runs the best configuration on fresh seeds; a repetition gives the same one.

    It is None if no confirmation is requested, or no configuration has finished all its seeds. Its
    trials have the origin `confirm`: the sampler does not learn from them, rankings leave them
    out, and their weights are not kept.
    """
    wanted = prepared.options.confirm
    found = prepared.proposals.objectives()
    if not wanted:
        return None
    if not found:
        prepared.watcher.say("nothing is confirmed: no configuration has finished all its seeds")
        return None
    best = min(found, key=lambda name: rank_key(found[name], 0, name))
    config = next(a.config for a in prepared.proposals.assignments() if a.configuration == best)
    rows = Study.read(path).trials(["seed", "origin"]).to_pylist()
    seen = {row["seed"] for row in rows if row["origin"] != CONFIRM_ORIGIN}
    seeds = tuple(islice((seed for seed in count(_FIRST) if seed not in seen), wanted))
    best_config = config.model_copy(update={"seed": 0})
    space = replace(prepared.space, configurations=(best_config,), ranges=(), seeds=seeds)
    watcher = RichWatcher()
    watcher.say(f"the best configuration, {best}, is confirmed on {wanted} fresh seeds")
    return replace(
        prepared,
        space=space,
        options=replace(prepared.options, trials=0, keep=0, confirm=0),
        proposals=Proposals(
            space, prepared.proposals.namer, Sampling(seeds, sampler="grid"), watcher.say
        ),
        watcher=watcher,
        settings=SessionSettings(space.name, 0, CONFIRM_ORIGIN),
        past_trials=[],
        rung_spacing=None,
    )
