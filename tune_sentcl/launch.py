"""Chooses where a search runs: in this process, with Ray on this machine, or on a cluster."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import DeviceError, StudyError, TrialFailedError
from tune_sentcl.history import Assignment
from tune_sentcl.on_ray.environment import prepare_ray
from tune_sentcl.plugins import Plugin, load_plugins
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.files import refuse_itself, refuse_memory
from tune_sentcl.store.rows import scores_table
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.limits import Limits
from tune_sentcl.tuning.plan import with_estimate
from tune_sentcl.tuning.prepare import PreparedSearch, prepare
from tune_sentcl.tuning.resources import gpus_a_trial, this_machine, trials_at_a_time
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import (
    Launch,
    SearchOutcome,
    confirmation_search,
    limits_of,
    run_session,
)
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Attempt, Failure, WorkerSettings, study_path, worker_settings
from tune_sentcl.watch.trackers import check_tracking


def run_locally(session: Session, settings: WorkerSettings) -> None:
    """Run a session to its end.

    An interrupted trial gets no row, and the repeated command runs it again. The same holds for
    the trial of a lost GPU, which this process cannot use again.
    """
    while not session.finished:
        assignment = session.next()
        if assignment is not None:
            _run_trial(session, assignment, settings)
    if session.fatal is not None:
        raise session.fatal


def _run_trial(session: Session, assignment: Assignment, settings: WorkerSettings) -> None:
    name = assignment.trial_id
    session.started(name, settings.gpus)
    seconds = min(session.limits.seconds_left(), settings.seconds or float("inf"))
    attempt = Attempt(assignment, session.loader, replace(settings, seconds=seconds))
    try:
        with closing(attempt.reports()) as reports:
            for report in reports:
                if isinstance(report, Failure):
                    # A trial that the search's own limit ended has not failed.
                    if not session.stop_reason:
                        session.fail(name, report)
                elif not session.progress(name, report) or session.stop_reason:
                    break
    except StudyError as error:
        session.abort(error)
    except DeviceError as lost:
        session.abort(type(lost)(f"{lost}; repeat the command to go on in a new process"))


def search(
    space: Space | str | Path,
    study: str | Path,
    *,
    data: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    seeds: Sequence[int] | None = None,
    options: SearchOptions | None = None,
) -> SearchOutcome:
    """Run every trial of a space that the study does not hold yet.

    A search that was killed and is called again in the same way ends with every trial exactly
    once. If a finished study lacks a requested score, it is measured on the kept weights. A trial
    without kept weights is trained again only if the options say `retrain`.

    Args:
        space: A loaded space, the name of a shipped one, or a TOML file.
        study: A folder or an object store's URL; created if it does not exist.
        data: The data root; None takes TUNE_SENTCL_DATA.
        overrides: Dotted keys that replace the space's values in every trial.
        seeds: Seeds of every configuration; None takes the space's.
        options: Sampler, scheduler, resources and other options.

    Returns:
        Counts of trials and the reason of an early end; `read_study(study)` reads the scores.

    Raises:
        BadInputError: An argument or an input is wrong; no trial has run.
        KeyboardInterrupt: The search was interrupted; ended trials are kept.
    """
    options = options or SearchOptions()
    if not isinstance(space, Space):
        space = load_space(space, overrides)
    elif overrides:
        space = space.with_overrides(overrides)
    path = study_path(study)
    refuse_itself(study, options.learn_from)
    check_tracking(options.track, path)
    if options.launcher == "ray":
        refuse_memory("--study", path)
    return run_and_confirm(prepare(space, data, seeds, options, path), path)


def run_and_confirm(
    prepared: PreparedSearch, path: str, launch: Launch | None = None
) -> SearchOutcome:
    """Run the search, and then winner, baseline and runner-up on fresh seeds if options say so.

    `launch` is that of `run_prepared`.
    """
    limits = limits_of(prepared.options)
    outcome = run_prepared(prepared, path, launch, limits)
    # Trials that fail again and again do not block the confirmation: all others have run.
    complete = not outcome.ended_by or (limits.failure_reason and not outcome.untried)
    confirmation = confirmation_search(prepared, path) if complete else None
    if confirmation is None:
        return outcome
    limits.reset_failures()
    return outcome.combined_with(run_prepared(confirmation, path, launch, limits))


def run_prepared(
    prepared: PreparedSearch,
    path: str,
    launch: Launch | None = None,
    limits: Limits | None = None,
) -> SearchOutcome:
    """Run what a study lacks, with the launcher of the options or with `launch`; then compact it.

    `limits` are those of the search so far; None: those of the options.
    """
    limits = limits or limits_of(prepared.options)
    with _launcher(prepared, path) if launch is None else nullcontext(launch) as run:
        return run_session(prepared, path, run, limits)


@contextmanager
def _launcher(prepared: PreparedSearch, path: str) -> Iterator[Launch]:
    """The launcher of the options; a given cluster is checked before anything is written."""
    options = prepared.options
    if options.is_here:
        machine = this_machine()
        at_a_time = trials_at_a_time(options, [machine])
        prepared.watcher.where = f"{at_a_time} at a time on this machine ({machine})"
    if options.launcher == "local":
        gpus = gpus_a_trial(options.gpus_per_trial, [this_machine()])
        here = worker_settings(path, options, gpus, prepared.loader.early_stopping_objective)
        yield with_estimate(lambda session: run_locally(session, here), prepared)
    elif options.ray_address == "local" and not (options.accelerator or options.memory_per_trial):
        # `prepare` has checked this machine's resources, so Ray can start later.
        yield with_estimate(lambda session: _on_ray_here(session, prepared, path), prepared)
    else:
        with _on_ray(prepared, path) as run:
            yield with_estimate(run, prepared)


@contextmanager
def _on_ray(prepared: PreparedSearch, path: str) -> Iterator[Launch]:
    prepare_ray()
    from tune_sentcl.on_ray.launcher import on_ray

    with on_ray(prepared, path) as run:
        yield run


def _on_ray_here(session: Session, prepared: PreparedSearch, path: str) -> None:
    with _on_ray(prepared, path) as run:
        run(session)


Row = dict[str, Any]


def train_one(
    settings: Mapping[str, Any],
    *,
    study: str | Path | None,
    data: str | Path | None,
    options: SearchOptions | None = None,
    plugins: Sequence[str | Path] = (),
) -> list[Row]:
    """Train and measure one trial in this process, without Ray.

    Args:
        settings: Dotted keys of its config; `method.name` defaults to `scl`.
        study: A study of single trials that keeps the trial; None keeps nothing.
        data: The data root; None takes TUNE_SENTCL_DATA.
        options: Objectives and resources of the trial; other options have no effect.
        plugins: Files that end in .py, or names of installed plugins.

    Returns:
        The trial's rows of the scores table, also if the study held the trial already.

    Raises:
        BadInputError: An argument or an input is wrong.
        TuneSentclError: The trial failed; the study has its row.
    """
    loaded = load_plugins(plugins)
    config = parse_dotted({"method.name": "scl", **settings}, "--set")
    options = options or SearchOptions()
    share = options.gpus_per_trial
    if share is None:
        share = float(torch.cuda.is_available())
    options = replace(options, launcher="local", gpus_per_trial=share)
    path = None if study is None else study_path(study)
    prepared = prepare(_single(config, loaded), data, (config.seed,), options, path, "single")
    (assignment,) = prepared.proposals.assignments()
    name = assignment.trial_id
    if path is None:
        settings_here = worker_settings(
            None,
            replace(options, keep=0, save_every=0),
            share,
            prepared.loader.early_stopping_objective,
        )
        with closing(Attempt(assignment, prepared.loader, settings_here).points()) as points:
            *_, last = points
        return list(scores_table(name, last.scores).to_pylist())
    run_prepared(prepared, path)
    kept = Study.read(path)
    rows = kept.trials(["trial_id", "status", "error_type", "error_text"])
    for row in rows.filter(pc.field("trial_id") == name).to_pylist():
        if row["status"] == "failed":
            raise TrialFailedError(f"{row['error_type']}: {row['error_text']}")
    return list(kept.scores(where=pc.field("trial_id") == name).to_pylist())


def _single(config: TrialConfig, plugins: tuple[Plugin, ...]) -> Space:
    return Space(
        name="single",
        paper="",
        tables=(),
        summary="trials run one by one",
        configurations=(config.model_copy(update={"seed": 0}),),
        base={},
        ranges=(),
        seeds=(config.seed,),
        text="",
        source="--set",
        plugins=plugins,
    )
