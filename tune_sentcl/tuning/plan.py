"""Plans a search: its trials, those that the study holds, and the time and disk of the rest.

The time of a search is its table of stages times the seconds of a training, packed on the slots.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from tune_sentcl.config import Values, short_name, stated, varied
from tune_sentcl.errors import TuneSentclError
from tune_sentcl.history import CONFIRM_ORIGIN
from tune_sentcl.space import Space
from tune_sentcl.store.files import study_path
from tune_sentcl.store.manifest import PlanRecord
from tune_sentcl.tuning.disk_need import DiskNeed
from tune_sentcl.tuning.first_checks import study_at
from tune_sentcl.tuning.prepare import PreparedSearch, prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.timing import first_training, whole_training
from tune_sentcl.watch.clock import clock

RAY_S, _HAND_OVER_S = 10.0, 0.3
"""Seconds for Ray and its workers to start and stop, and for Tune to start one trial."""
_BRIEF_S = 600.0  # a search with a shorter --max-time makes no estimate
_LACKING = "finished; lacks a score, its weights were not kept"
_TO_RUN = {"train": "to run", "measure": "to score", "retrain": "to train again"}


class Plan(NamedTuple):
    """A plan of a search.

    Attributes:
        trials: Id, dotted values and status of each trial: `to run`, or the status in the study.
        notes: Totals, estimated time and disk, one line each.
    """

    trials: list[tuple[str, Values, str]]
    notes: list[str]

    def rows(self, *, as_stated: bool = False) -> list[dict[str, Any]]:
        """One row per trial: `trial_id`, the knobs that differ, `seed` and `status`.

        `as_stated` gives knobs as tables print them; see `config.stated`.
        """
        keys = varied([values for _, values, _ in self.trials])
        rows = []
        for trial_id, values, status in self.trials:
            own = {short_name(k): stated(k, values) if as_stated else values.get(k) for k in keys}
            rows.append({"trial_id": trial_id, **own, "seed": values["seed"], "status": status})
        return rows


def make_plan(
    space: Space,
    study: str | None,
    data: str | Path | None,
    seeds: Sequence[int] | None,
    options: SearchOptions,
) -> Plan:
    """Plan a search without running any of it.

    Raises:
        BadInputError: A search would refuse an option or an input too, such as missing data.
    """
    path = None if study is None else study_path(study)
    prepared = prepare(space, data, seeds, options, path)
    held = None if path is None else study_at(path, prepared.space)
    prepared, history, record = prepared.resumed(held)
    proposals, lacking = prepared.proposals, prepared.proposals.needs_retraining
    status, queued = dict.fromkeys(lacking, _LACKING), proposals.queued()
    for name, action in ((trial.trial_id, trial.action) for trial in queued):
        before = f" ({history.status(name)} before)" * (action == "train" and name in history)
        status[name] = _TO_RUN[action] + before
    known = [(trial.trial_id, trial.config.dotted()) for trial in proposals.assignments()]
    notes = [f"{len(known)} trials so far, {len(queued)} of them to run"]
    if lacking:
        notes.append(
            f"{len(lacking)} lack a requested score, and their weights were not kept: they stay "
            "as they are, and --retrain trains them again"
        )
    if not proposals.finished:
        say_estimate(prepared, notes.append)
        need = DiskNeed.of(proposals, prepared.loader)
        states = f", {need.states / 1e6:.0f} MB of it states of trials" * bool(need.states)
        notes.append(f"at most {sum(need) / 1e6:.0f} MB of disk{states}")
    if text := prepared.shown(held, record.seed_plan):
        notes.append(text)
    return Plan([(n, v, status.get(n) or history.status(n) or "") for n, v in known], notes)


class Estimate(NamedTuple):
    """The estimated time of a search.

    Attributes:
        seconds: Time from the launcher's start to its end.
        runs: Number of runs; a trial runs once for each of its stages.
        training: Seconds of a whole training of a sampled configuration, divided by the trials at
            a time; None if no configuration is sampled.
        basis: The mean seconds of a training, or of a trial if none trains, and of encoding.
        confirmation: Time of the fresh seeds that follow; 0 without any.
    """

    seconds: float
    runs: int
    training: float | None
    basis: str
    confirmation: float


def estimate(prepared: PreparedSearch) -> Estimate | None:
    """Estimate the rest of a search; None if there is nothing to run.

    Call it after `PreparedSearch.resumed`. A stage of a sampled configuration counts as its share
    of the mean of the trainings that are to run.

    Raises:
        TuneSentclError: A trial cannot be timed.
    """
    proposals, timer = prepared.proposals, prepared.timer
    queued, shares = proposals.queued(), proposals.expected()
    if not queued and not shares:
        return None
    configs = [trial.config for trial in queued if trial.action != "measure"]
    durations = [timer.trial(t.config).end for t in queued if t.action == "measure"]
    durations += [timer.trial(config).whole for config in configs]
    trained = [timer.trial(config).whole for config in configs if config.method.takes_steps]
    if shares and not trained:
        trained = [timer.trial(first_training(prepared.space)).whole]
    mean = statistics.fmean(trained or durations)
    durations += [share * mean for share in shares]
    once = sum(timer.passes.values())
    seconds = (sum(durations) + _HAND_OVER_S * len(durations)) / timer.slots
    seconds = max(seconds, max(durations) + _HAND_OVER_S) + once + RAY_S
    basis = f"about {mean:.0f} s a trial" + f", {once:.0f} s of encoding once" * (once >= 1)
    training = mean / timer.slots if shares else None
    return Estimate(seconds, len(durations), training, basis, _confirmation(prepared, mean))


def _confirmation(prepared: PreparedSearch, mean: float) -> float:
    """The seconds of the fresh seeds of winner, runner-up and baseline, and of Ray's start."""
    grid = prepared.space.configurations
    is_constant = any(not config.method.takes_steps for config in grid)  # the untrained baseline
    trials = (2 if is_constant else 3) * prepared.options.confirm
    rounds = math.ceil(trials / prepared.timer.slots)
    return rounds * (mean + _HAND_OVER_S) + RAY_S if trials else 0.0


def say_estimate(prepared: PreparedSearch, say: Callable[[str], None]) -> Estimate | None:
    """Say the stages and the time of what is left to run."""
    planned, loader = None, prepared.loader
    try:
        planned = estimate(prepared)
    except Exception as error:
        if not isinstance(error, TuneSentclError) and not prepared.space.plugins:
            raise
        say(f"the time cannot be estimated: {error}")
    for line in stages_table(prepared, planned and planned.training):
        say(line)
    if planned is not None:
        slots = min(prepared.timer.slots, planned.runs)
        time_of_all = f"{clock(planned.seconds)} in all with {slots} at a time on this machine"
        say(f"{time_of_all} ({planned.basis})")
        if planned.confirmation:
            say(f"and {clock(planned.confirmation)} for --confirm {prepared.options.confirm}")
        sets = [loader.sets(trial.config) for trial in prepared.proposals.queued()]
        if any(each.transfer or each.truncated or each.rated for each in sets):
            say("this does not include the classifiers of the evaluation")
    return planned


def stages_table(prepared: PreparedSearch, seconds_each: float | None) -> Iterator[str]:
    """The stages of sampled configurations, and the trials beside them; nothing without stages.

    `seconds_each` are the seconds of a whole training divided by the trials at a time, if known.
    """
    stages, configurations = prepared.proposals.stages, prepared.proposals.configurations
    if stages is None:
        return

    def costs(trainings: float) -> str:
        time = "" if seconds_each is None else clock(trainings * seconds_each)
        return f"{trainings:>11.1f}{time:>9}".rstrip()

    rows, _ = whole_training(first_training(prepared.space), prepared.loader)
    names = [f"half {n}" for n in range(1, len(stages.halvings) + 1)]
    names = names if len(names) > 1 else ["sampled"]
    rule = "all run each stage" if stages.keeps_all else "the best of each go on"
    yield f"stages of sampled configurations, done or not; {rule}:"
    heads = "".join(f"{name:>9}" for name in names)
    yield f"{heads}  {'train to':<18}{'rows':>11}{'trainings':>11}{'time':>9}"

    def line(sizes: Sequence[int], until: str, share: float, trainings: float) -> str:
        counts = "".join(f"{size:>9,}" for size in sizes).rjust(len(heads))
        return f"{counts}  {until:<18}{round(share * rows):>11,}{costs(trainings)}"

    if stages.whole:
        yield line([stages.whole], "the end, at once", 1.0, stages.whole)
    for stage, share in enumerate(stages.halvings[0].shares):
        sizes = [halving.sizes[stage] for halving in stages.halvings]
        trainings = sum(halving.sizes[stage] * halving.costs[stage] for halving in stages.halvings)
        part = f"{Fraction(share).limit_denominator(1000)} training" if share < 1 else "the end"
        yield line(sizes, part, share, trainings)
    for seeds, size in enumerate(stages.seed_sizes, 2):
        yield line([size], f"the end, {seeds} seeds", 1.0, size)
    yield f"{'':>{len(heads) + 2}}{'sum':<29}{costs(stages.cost)}"
    if count := len(configurations.grid):
        seeds = sum(len(configurations.seeds_of(configurations[n])) for n in configurations.grid)
        more = f", {seeds} trials" * (seeds > count)
        yield f"and {count} configurations of the grid{more}"


def with_estimate(
    launch: Callable[[Session], None], prepared: PreparedSearch
) -> Callable[[Session], None]:
    """A launcher that estimates a search, runs it, and reports estimated and actual time.

    `prepared` has the study's trials already. Only searches on the CPUs of this machine are
    estimated, if they are not short: on a GPU the driver would hold a part of its memory until the
    end. Of a confirmation the study keeps the plan of the search itself.
    """
    options, say = prepared.options, prepared.watcher.say
    is_short = options.max_time is not None and options.max_time < _BRIEF_S
    is_here = options.launcher == "ray" and options.is_here and prepared.timer.device == "cpu"
    is_estimated = is_here and not is_short and prepared.settings.origin != CONFIRM_ORIGIN

    def run(session: Session) -> None:
        planned = say_estimate(prepared, say) if is_estimated else None
        for line in () if is_estimated else stages_table(prepared, None):
            say(line)
        if session.finished:  # the estimate took longer than --max-time
            return
        if planned is not None:
            session.watcher.planned(planned.seconds)
        start = time.monotonic()
        launch(session)
        taken = time.monotonic() - start
        if planned is not None and not session.stop_reason:
            runs = f"{planned.runs} run{'' if planned.runs == 1 else 's'} ({planned.basis})"
            say(f"planned {clock(planned.seconds)} for {runs}, took {clock(taken)}")
            plan = PlanRecord(round(planned.seconds, 1), round(taken, 1), planned.runs)
            session.study.record(plan=plan)

    return run
