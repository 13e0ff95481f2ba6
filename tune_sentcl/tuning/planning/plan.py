"""Plans a search: its trials, those that the study holds, and the time and disk of the rest."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_sentcl.config import TrialConfig, Values, short_name, stated, varied
from tune_sentcl.data.tasks.own_task import LabeledTask, protocol_of
from tune_sentcl.errors import BadInputError, CheckpointError, DataError, TuneSentclError
from tune_sentcl.history import CONFIRM_ORIGIN, Assignment, History
from tune_sentcl.objective import OFFERS, tasks_of
from tune_sentcl.space import Space
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST, PlanRecord
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.reading.study import Study
from tune_sentcl.store.rows import masked
from tune_sentcl.store.study_urls import refuse_itself
from tune_sentcl.store.writing.driver import refuse_foreign
from tune_sentcl.tuning.disk_need import DiskNeed
from tune_sentcl.tuning.past_trials import interrupted_trials
from tune_sentcl.tuning.planning.estimate import (
    SearchEstimate,
    device_and_slots,
    estimate_search,
    with_affordable_shares,
)
from tune_sentcl.tuning.planning.stages_table import stages_table
from tune_sentcl.tuning.prepare import PreparedSearch, prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import study_path
from tune_sentcl.watch.clock import clock

_BRIEF_S = 600.0  # a search with a shorter --max-time makes no estimate
_BYTES_A_TRIAL = 60_000  # upper bound of a trial's compressed scores, curves and row


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
        return _plan_without_ids(space, seeds or space.seeds, error)
    existing_study = _existing_study(prepared, study)
    history, search = History(prepared.objectives), None
    if existing_study:
        compared = prepared.loader.early_stopping_objective
        history = History.read(
            existing_study, prepared.objectives, early_stopping_objective=compared
        )
        search = existing_study.manifest.search
    prepared = with_affordable_shares(prepared, search)
    interrupted = interrupted_trials(existing_study, history) if existing_study else {}
    prepared.resume_from(history, search, interrupted)
    proposals = prepared.proposals
    to_run = proposals.queued()
    status = _statuses(prepared, history, to_run)
    trials = [
        (assignment.trial_id, assignment.config.dotted(), status[assignment.trial_id])
        for assignment in proposals.assignments()
    ]
    waiting = {assignment.trial_id for assignment in to_run}
    notes = [f"{len(trials)} trials are known, {len(waiting)} of them to run"]
    if proposals.needs_retraining:
        notes.append(
            f"{len(proposals.needs_retraining)} lack a requested score, and their weights were "
            "not kept: they stay as they are, and --retrain trains them again"
        )
    costs = list(_costs(prepared, existing_study)) if not proposals.finished else []
    if text := prepared.shown(existing_study, search.seed_plan if search else None):
        costs.append(text)
    return _plan(trials, [*notes, *costs])


def _existing_study(prepared: PreparedSearch, study: str | None) -> Study | None:
    if study is None:
        return None
    files = StudyFiles.at(study_path(study))
    refuse_foreign(files)
    if not files.exists(MANIFEST):
        return None
    existing_study = Study.read(study_path(study))
    existing_study.manifest.check_space(prepared.space, existing_study.files.where)
    return existing_study


def _statuses(
    prepared: PreparedSearch, history: History, to_run: Sequence[Assignment]
) -> dict[str, str]:
    """The status of each trial, as text."""
    found: dict[str, str] = {
        a.trial_id: history.status(a.trial_id) or "" for a in prepared.proposals.assignments()
    }
    for name in prepared.proposals.needs_retraining:
        found[name] = "finished; lacks a score, its weights were not kept"
    for assignment in to_run:
        before = history.status(assignment.trial_id)
        match assignment.action:
            case "train":
                found[assignment.trial_id] = f"to run ({before} before)" if before else "to run"
            case "measure":
                found[assignment.trial_id] = "to measure"
            case "retrain":
                found[assignment.trial_id] = "to train again"
    return found


_Trial = tuple[str | None, Values, str]
"""Its id, if it is known, its knobs and its status."""


def _plan(
    trials: Sequence[_Trial], notes: list[str], refused: BadInputError | None = None
) -> Plan:
    keys = varied([values for _, values, _ in trials])
    raw, shown = (
        [
            {
                "trial_id": trial_id,
                **{short_name(key): masked(value_of(key, values)) for key in keys},
                "seed": values["seed"],
                "status": status,
            }
            for trial_id, values, status in trials
        ]
        for value_of in (_value, stated)
    )
    return Plan(raw, shown, notes, refused)


def _value(key: str, values: Values) -> Any:
    return values.get(key)


def _plan_without_ids(space: Space, seeds: Sequence[int], refused: BadInputError) -> Plan:
    trials: list[_Trial] = [
        (None, {**config.dotted(), "seed": seed}, "unknown")
        for config in space.configurations
        for seed in seeds
    ]
    return _plan(trials, [f"{len(trials)} trials; their status in a study is unknown"], refused)


def _costs(prepared: PreparedSearch, study: Study | None) -> Iterator[str]:
    """Lines about the stages, the time and the disk of what is left to run."""
    slots, options = 1, prepared.options
    queued = prepared.proposals.queued()
    configs = [a.config for a in queued] or prepared.space.configurations
    count = len(queued) + len(prepared.proposals.expected())
    try:
        estimate = estimate_search(prepared, study)
        yield from stages_table(prepared, estimate.seconds_a_training if estimate else None)
        if estimate is not None:
            slots = estimate.slots
            yield _duration(estimate)
            protocols = {name for c in configs for name in _classifiers(prepared, c)}
            if estimate.timed and protocols:
                yield (
                    f"this does not include the classifiers of {', '.join(sorted(protocols))}; "
                    "--set evaluation.protocols=cosine leaves SentEval's out of the trials"
                )
    except TuneSentclError as error:
        yield from stages_table(prepared, None)
        yield f"the time cannot be estimated: {mask_text(str(error))}"
    need = DiskNeed.of(configs, prepared.loader, options, count, slots)
    peak = (min(need.trained, need.kept) + need.states + count * _BYTES_A_TRIAL) / 1e6
    of_it = f", {need.states / 1e6:.0f} MB of it states of running trials" if need.states else ""
    yield f"about {peak:.0f} MB of disk at the peak{of_it}"


def _classifiers(prepared: PreparedSearch, config: TrialConfig) -> Iterator[str]:
    """The protocols that train a classifier on a task that a config measures."""
    offered = {name for task in tasks_of(config.evaluation.suites) for name in OFFERS[task]}
    yield from offered.intersection(config.evaluation.protocols) - {"cosine"}
    for task in prepared.loader.sets(config).own:
        if isinstance(task, LabeledTask):
            yield protocol_of(task)


def _duration(estimate: SearchEstimate) -> str:
    low, high = round(min(estimate.seconds_per_trial)), round(max(estimate.seconds_per_trial))
    each = f"{low}" if low == high else f"{low} to {high}"
    encoding = (
        f", and {estimate.encoding_seconds:.0f} s of encoding once"
        if estimate.encoding_seconds >= 1
        else ""
    )
    at_once = min(estimate.slots, estimate.trials)
    return (
        f"about {each} s a trial ({estimate.basis}){encoding}; {clock(estimate.seconds)} in all "
        f"with {at_once} at a time on this machine"
    )


def with_estimate(
    launch: Callable[[Session], None], prepared: PreparedSearch, path: str
) -> Callable[[Session], None]:
    """A launcher that estimates a search, runs it, and reports estimated and actual time.

    `prepared` has the study's trials already, and this process has `path` open for writing.
    """

    def run(session: Session) -> None:
        plan = estimate_if_useful(prepared, path)
        if prepared.settings.origin is None:
            for line in stages_table(prepared, plan.seconds_a_training if plan else None):
                prepared.watcher.say(line)
        if session.finished:  # the estimate took longer than --max-time
            return
        if plan is not None:
            session.watcher.planned(plan.seconds)
        start = time.monotonic()
        launch(session)
        actual_seconds = time.monotonic() - start
        if plan is not None and not session.stop_reason:
            runs = f"{plan.trials} run{'' if plan.trials == 1 else 's'}"
            planned = f"planned {clock(plan.seconds)} for {runs} ({plan.basis})"
            prepared.watcher.say(f"{planned}, took {clock(actual_seconds)}")
            session.study.record(
                plan=PlanRecord(round(plan.seconds, 1), round(actual_seconds, 1), plan.trials)
            )

    return run


def estimate_if_useful(prepared: PreparedSearch, path: str) -> SearchEstimate | None:
    """The estimate of a search that is about to run; None if it is not worth its time.

    That is so if trials run elsewhere, nothing is trained, or --max-time is short. Nothing is
    timed on a GPU: the driver would hold a part of its memory until the end.
    """
    options, proposals = prepared.options, prepared.proposals
    to_train = any(trial.action != "measure" for trial in proposals.queued())
    is_short = options.max_time is not None and options.max_time < _BRIEF_S
    is_confirmation = (
        prepared.settings.origin == CONFIRM_ORIGIN
    )  # the study keeps the plan of the search itself
    if (
        not runs_here(options)
        or is_short
        or is_confirmation
        or not (to_train or proposals.expected())
    ):
        return None
    try:
        on_cpu = device_and_slots(options)[0] == "cpu"
        return estimate_search(prepared, Study.read(path), may_time=on_cpu)
    except TuneSentclError as error:
        prepared.watcher.say(f"the time cannot be estimated: {error}")
        return None


def runs_here(options: SearchOptions) -> bool:
    """Whether the options start Ray on this machine."""
    return options.launcher == "ray" and options.ray_address == "local"
