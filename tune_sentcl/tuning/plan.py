"""Plans a search: its trials, those that the study holds, and the time and disk of the rest.

The time of a search is its table of stages times the seconds of a training, packed on the slots.
"""

import heapq
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tune_sentcl.config import TrialConfig, Values, short_name, stated, varied
from tune_sentcl.data.tasks.own_task import LabeledTask
from tune_sentcl.errors import (
    BadInputError,
    CheckpointError,
    DataError,
    Fault,
    ResourceError,
    TuneSentclError,
)
from tune_sentcl.history import CONFIRM_ORIGIN
from tune_sentcl.space import Space
from tune_sentcl.store.manifest import PlanRecord
from tune_sentcl.store.study import Study
from tune_sentcl.store.study_urls import refuse_itself
from tune_sentcl.tuning.disk_need import DiskNeed
from tune_sentcl.tuning.prepare import PreparedSearch, prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.timing import (
    Kind,
    TrialSeconds,
    finished_seconds,
    kind_of,
    trainings,
    whole_training,
)
from tune_sentcl.tuning.worker import study_path
from tune_sentcl.watch.clock import clock

_RAY_S, _HAND_OVER_S = 10.0, 0.3
"""Seconds for Ray and its workers to start and stop, and for Tune to start one trial."""
_BRIEF_S = 600.0  # a search with a shorter --max-time makes no estimate
_LACKING = "finished; lacks a score, its weights were not kept"
_TO_RUN = {"train": "to run", "measure": "to measure", "retrain": "to train again"}


@dataclass(frozen=True)
class Plan:
    """A plan of a search.

    Attributes:
        rows: One per trial: `trial_id`, the knobs that differ, `seed`, and `status`: `to run`, or
            the status in the study.
        stated: The same rows with the knobs as tables print them.
        notes: Totals, estimated time and disk, one line each.
        refused: The error with which a search would refuse to start; None if it would run.
    """

    rows: list[dict[str, Any]]
    stated: list[dict[str, Any]]
    notes: list[str]
    refused: BadInputError | None = None


def make_plan(
    space: Space,
    study: str | None,
    data: str | Path | None,
    seeds: Sequence[int] | None,
    options: SearchOptions,
) -> Plan:
    """Plan a search without running any of it.

    If data or checkpoint are missing, the trials are listed without ids, and `refused` has the
    error.
    """
    if study is not None:
        refuse_itself(study, options.learn_from)
    try:
        prepared = prepare(space, data, seeds, options)
    except (CheckpointError, DataError) as error:
        own = [(c.dotted(), seed) for c in space.configurations for seed in seeds or space.seeds]
        unknown = [(None, {**values, "seed": seed}, "unknown") for values, seed in own]
        note = f"{len(own)} trials; their status in a study is unknown"
        return Plan(*_rows(unknown), [note], error)
    found = None if study is None else prepared.study_at(study_path(study))
    prepared, history, record = prepared.resumed(found)
    proposals, lacking = prepared.proposals, prepared.proposals.needs_retraining
    status, queued = dict.fromkeys(lacking, _LACKING), proposals.queued()
    for name, action in ((trial.trial_id, trial.action) for trial in queued):
        before = f" ({history.status(name)} before)" * (action == "train" and name in history)
        status[name] = _TO_RUN[action] + before
    known = [(one.trial_id, one.config.dotted()) for one in proposals.assignments()]
    notes = [f"{len(known)} trials are known, {len(queued)} of them to run"]
    if lacking:
        notes.append(
            f"{len(lacking)} lack a requested score, and their weights were not kept: they stay "
            "as they are, and --retrain trains them again"
        )
    if not proposals.finished:
        _say_costs(prepared, found, notes.append)
    if text := prepared.shown(found, record.seed_plan):
        notes.append(text)
    rows = _rows([(n, v, status.get(n) or history.status(n) or "") for n, v in known])
    return Plan(*rows, notes)


def _rows(
    trials: Sequence[tuple[str | None, Values, str]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of trials with an id, dotted values and a status; raw ones, and as tables print."""
    keys, raw, shown = varied([values for _, values, _ in trials]), [], []
    for trial_id, values, status in trials:
        rest = {"seed": values["seed"], "status": status}
        own = {short_name(key): values.get(key) for key in keys}
        raw.append({"trial_id": trial_id, **own, **rest})
        own = {short_name(key): stated(key, values) for key in keys}
        shown.append({"trial_id": trial_id, **own, **rest})
    return raw, shown


class Estimate(NamedTuple):
    """The estimated time of a search.

    Attributes:
        seconds: Time from the launcher's start to its end.
        runs: Number of runs; a trial runs once for each of its stages.
        training: Seconds of a whole training of a sampled configuration, divided by the trials at
            a time; None if none is sampled.
        basis: The seconds of a trial, and where they come from.
    """

    seconds: float
    runs: int
    training: float | None
    basis: str


def estimate(
    prepared: PreparedSearch, study: Study | None, *, may_time: bool = True
) -> Estimate | None:
    """Estimate the rest of a search; None if there is nothing to run.

    Call it after `PreparedSearch.resumed`. A stage of a sampled configuration counts as its share
    of the mean of the known trainings. `may_time` allows to time kinds of trial without finished
    ones in `study`.

    Raises:
        TuneSentclError: A trial cannot be timed.
    """
    proposals, options, timer = prepared.proposals, prepared.options, prepared.timer
    queued, shares = proposals.queued(), proposals.expected()
    if not queued and not shares:
        return None
    finished = finished_seconds(study, timer.device, options.cpus_per_trial) if study else {}
    by_ray = options.launcher == "ray"
    timed: dict[Kind, TrialSeconds] = {}

    def seconds(config: TrialConfig, *, is_measured: bool = False) -> float:
        kind = kind_of(config.dotted(), prepared.loader.load(config).fingerprints)
        if kind in finished and not is_measured:
            return finished[kind] + by_ray * _HAND_OVER_S
        if not may_time:
            rule = "a search on a GPU estimates its time from finished trials, and a kind has none"
            raise ResourceError(Fault("estimate", "", "", rule, "The command plan times them."))
        if kind not in timed:
            timed[kind] = timer.trial(config)
        parts = timed[kind]
        return (parts.end if is_measured else parts.whole) + by_ray * _HAND_OVER_S

    trials = [seconds(t.config, is_measured=t.action == "measure") for t in queued]
    known = [t.config for t in queued if t.action != "measure"]
    known = known or [t.config for t in proposals.assignments()]
    trained = [config for config in known if config.method.takes_steps]
    trained = trained or list(islice(trainings(prepared.space), 1)) or known
    mean = statistics.fmean(map(seconds, trained)) if shares else 0.0
    free = [0.0] * timer.slots
    for duration in (*trials, *(share * mean for share in shares)):
        heapq.heapreplace(free, free[0] + duration)  # on the slot that is free first
    once, each = sum(timer.passes.values()), sorted({round(one) for one in trials or [mean]})
    basis = " to ".join(map(str, dict.fromkeys((each[0], each[-1])))) + " s a trial"
    basis += f", {once:.0f} s of encoding once" * (once >= 1)
    basis += ", timed here" if timed else ", as finished trials took"
    whole = max(free) + once + by_ray * _RAY_S
    return Estimate(
        whole, len(queued) + len(shares), mean / timer.slots if shares else None, basis
    )


def _say_time(
    prepared: PreparedSearch, study: Study | None, say: Callable[[str], None], **how: bool
) -> Estimate | None:
    """Say the stages of a search and the reason if its time cannot be estimated."""
    found = None
    try:
        found = estimate(prepared, study, **how)
    except Exception as error:
        if not isinstance(error, TuneSentclError) and not prepared.space.plugins:
            raise
        say(f"the time cannot be estimated: {error}")
    for line in stages_table(prepared, found and found.training):
        say(line)
    return found


def _say_costs(prepared: PreparedSearch, study: Study | None, say: Callable[[str], None]) -> None:
    """Say the stages, the time and the disk of what is left to run."""
    loader = prepared.loader
    if found := _say_time(prepared, study, say):
        at_once = min(prepared.timer.slots, found.runs)
        in_all = f"{clock(found.seconds)} in all with {at_once} at a time on this machine"
        say(f"{in_all} ({found.basis})")
        sets = [loader.sets(trial.config) for trial in prepared.proposals.queued()]
        own = any(isinstance(task, LabeledTask) for one in sets for task in one.own)
        if own or any(one.transfer or one.truncated or one.rated for one in sets):
            how = "--set evaluation.protocols=cosine leaves SentEval's out"
            say(f"this does not include the classifiers of the evaluation; {how}")
    need = DiskNeed.of(prepared.proposals, loader)
    states = f", {need.states / 1e6:.0f} MB of it states of running trials" * bool(need.states)
    say(f"about {need.peak / 1e6:.0f} MB of disk at the peak{states}")


def stages_table(prepared: PreparedSearch, seconds_each: float | None) -> Iterator[str]:
    """The stages of sampled configurations, and the trials beside them; nothing without stages.

    `seconds_each` are the seconds of a whole training divided by the trials at a time, if known.
    """
    stages, found = prepared.proposals.stages, prepared.proposals.configurations
    if stages is None:
        return
    rows = next((whole_training(c, prepared.loader)[0] for c in trainings(prepared.space)), 0)
    lines = [("sampled", "train to", "rows", "trainings", "time")]

    def add(size: str, until: str, seen: str, cost: float) -> None:
        lines.append((size, until, seen, f"{cost:.1f}", clock(cost * (seconds_each or 0.0))))

    for stage, (size, each) in enumerate(zip(stages.sizes, stages.costs, strict=True)):
        share, seeds = stages.share(stage), stages.seeds(stage)
        until = f"{Fraction(share).limit_denominator(1000)} of the rows"
        if share == 1:
            until = "the end" if seeds == 1 else f"the end, {seeds} seeds"
        add(f"{size:,}", until, f"{round(share * rows):,}", size * each)
    add("", "all", "", stages.cost)
    rule = "all run each stage" if stages.keeps_all else "the best of each go on"
    yield f"sampled configurations by stage; {rule}:"
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [text.rjust(width) for text, width in zip(line, widths, strict=True)]
        cells[1] = line[1].ljust(widths[1])
        yield "  ".join(cells if seconds_each is not None else cells[:-1]).rstrip()
    if count := len(found.grid):
        trials = sum(len(found.seeds_of(found[name])) for name in found.grid)
        more = f", {trials} trials" * (trials > count)
        yield f"beside them {count} of the grid run whole{more}"


def with_estimate(
    launch: Callable[[Session], None], prepared: PreparedSearch, path: str
) -> Callable[[Session], None]:
    """A launcher that estimates a search, runs it, and reports estimated and actual time.

    `prepared` has the study's trials already, and this process has `path` open for writing. Trials
    on other machines or without Ray are not estimated, nor a search that trains nothing or is
    short. Nothing is timed on a GPU, because the driver would hold a part of its memory until the
    end. Of a confirmation the study keeps the plan of the search itself.
    """
    options, proposals, say = prepared.options, prepared.proposals, prepared.watcher.say
    is_short = options.max_time is not None and options.max_time < _BRIEF_S
    is_here = options.launcher == "ray" and options.is_here
    is_estimated = is_here and not is_short and prepared.settings.origin != CONFIRM_ORIGIN

    def run(session: Session) -> None:
        found, is_cpu = None, prepared.timer.device == "cpu"
        trains = any(trial.action != "measure" for trial in proposals.queued())
        if is_estimated and (trains or proposals.expected()):
            found = _say_time(prepared, Study.read(path), say, may_time=is_cpu)
        else:
            for line in stages_table(prepared, None):
                say(line)
        if session.finished:  # the estimate took longer than --max-time
            return
        if found is not None:
            session.watcher.planned(found.seconds)
        start = time.monotonic()
        launch(session)
        taken = time.monotonic() - start
        if found is not None and not session.stop_reason:
            runs = f"{found.runs} run{'' if found.runs == 1 else 's'} ({found.basis})"
            say(f"planned {clock(found.seconds)} for {runs}, took {clock(taken)}")
            plan = PlanRecord(round(found.seconds, 1), round(taken, 1), found.runs)
            session.study.record(plan=plan)

    return run
