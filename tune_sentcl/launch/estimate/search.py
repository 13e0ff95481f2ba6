"""How long a whole search will take on this machine."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch

from tune_sentcl.launch.estimate.finished import finished_seconds
from tune_sentcl.launch.estimate.packing import Load, makespan
from tune_sentcl.launch.estimate.timed import Place
from tune_sentcl.launch.estimate.trials import TrialEstimates
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.prepared import Prepared
from tune_sentcl.launch.slots import gpus_a_trial, this_machine, trials_at_a_time
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.store.study import Study

_RAY_S, _HAND_OVER_S = 10.0, 0.3
"""Seconds for Ray and its workers to come and go, of which two cores take 9.5 to 10.5, and for
Tune to hand out a trial: rough."""
_EXAMPLES = 50


@dataclass(frozen=True)
class SearchEstimate:
    """What a search will take.

    Attributes:
        seconds: From its launcher's start to its end.
        trials: How many will run.
        each: Of those that are known already, what each takes of a slot.
        once: Of `seconds`, passes of frozen encoders that one trial makes for all.
        beyond: The share of the trials' time that scoring STS by cosine does not need.
        slots: Trials at a time.
        basis: What it rests on, for people.
        weights: Bytes of the largest encoder that was loaded for it; 0 where none was.
    """

    seconds: float
    trials: int
    each: Sequence[float]
    once: float
    beyond: float
    slots: int
    basis: str
    weights: int


def estimate_search(
    prepared: Prepared, study: Study | None, *, may_time: bool = True
) -> SearchEstimate | None:
    """Estimate what there is to do for a search that has recalled its study.

    What the sampler will propose is nobody's to know: it is counted as the mean of the rest.

    Args:
        prepared: The search.
        study: Holds the finished trials; None where there is no study yet.
        may_time: Whether kinds of trial that have not been run may be timed here.

    Returns:
        None where there is nothing to do.

    Raises:
        TuneSentclError: A trial cannot be run, or the study cannot be read.
    """
    proposals, options = prepared.proposals, prepared.options
    queued = proposals.queued()
    sampled = proposals.total - proposals.done - len(queued)
    if not queued and not sampled:
        return None
    place = place_of(options, prepared.loader.compared_by)
    trained = [trial for trial in queued if trial.action != "measure"]
    examples = (trained or list(islice(proposals.known(), _EXAMPLES))) if sampled else []
    finished = finished_seconds(study, place.device, place.threads) if study else {}
    found = TrialEstimates(
        [*queued, *examples], prepared.loader, finished, place, may_time=may_time
    )
    loads = found.loads[: len(queued)] + sampled * [_mean(found.loads[len(queued) :])]
    by_ray = options.launcher == "ray"
    loads = [replace(load, seconds=load.seconds + by_ray * _HAND_OVER_S) for load in loads]
    return SearchEstimate(
        makespan(loads, place.slots) + by_ray * _RAY_S,
        len(loads),
        [load.seconds for load in found.loads],
        sum(load.once for load in loads),
        sum(load.beyond for load in loads) / max(1e-9, sum(load.seconds for load in loads)),
        place.slots,
        found.basis,
        found.weights,
    )


def place_of(options: SearchOptions, compared_by: Objective = DEFAULT) -> Place:
    """Where the trials of a search on this machine run."""
    here = [this_machine()]
    gpus = gpus_a_trial(options.gpus_per_trial, here)
    device = "cuda" if gpus > 0 and torch.cuda.is_available() else "cpu"
    slots = trials_at_a_time(options, here)
    return Place(device, options.cpus_per_trial, slots, compared_by)


def _mean(loads: Sequence[Load]) -> Load:
    """The mean of some trials, without what one of them does for all."""
    if not loads:
        return Load(0.0)
    columns = zip(*((load.seconds, load.warming, load.beyond) for load in loads), strict=True)
    seconds, warming, beyond = map(statistics.fmean, columns)
    return Load(seconds, warming, encoder=loads[0].encoder, beyond=beyond)
