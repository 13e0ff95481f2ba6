"""Runs prepared searches: in this process, with Ray on this machine, or on a cluster."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace

from tune_sentcl.errors import DeviceError, StudyError
from tune_sentcl.history import Assignment
from tune_sentcl.on_ray.environment import prepare_ray
from tune_sentcl.tuning.limits import Limits
from tune_sentcl.tuning.plan import with_estimate
from tune_sentcl.tuning.prepare import PreparedSearch
from tune_sentcl.tuning.resources import gpus_a_trial, this_machine, trials_at_a_time
from tune_sentcl.tuning.search_run import (
    Launch,
    SearchOutcome,
    confirmation_search,
    limits_of,
    run_session,
)
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Attempt, Failure, WorkerSettings, worker_settings


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
