"""Launchers run a search: in this process, with Ray on this machine, or on a cluster."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from tune_sentcl.errors import DeviceError, StudyError
from tune_sentcl.history import Assignment
from tune_sentcl.on_ray.environment import prepare_ray
from tune_sentcl.tuning.machine import gpus_a_trial, this_machine, trials_at_a_time
from tune_sentcl.tuning.question import Question
from tune_sentcl.tuning.search import Launch
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Attempt, Failure, WorkerSettings, worker_settings


def run_locally(session: Session, settings: WorkerSettings) -> None:
    """Run a session to its end, one trial after another.

    An interrupted trial gets no row, and the repeated command runs it again. The same holds for a
    trial whose GPU is lost, because this process cannot use that GPU again.
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
                    # If the search's own time limit ended the trial, the trial has not failed.
                    if not session.stop_reason:
                        session.fail(name, report)
                elif not session.progress(name, report) or session.stop_reason:
                    break
    except StudyError as error:
        session.abort(error)
    except DeviceError as lost:
        session.abort(type(lost)(f"{lost}; repeat the command to continue in a new process"))


@contextmanager
def launcher(question: Question, path: str) -> Iterator[Launch]:
    """Give the launcher that the options name; check a given cluster before writing anything."""
    options = question.options
    if options.is_here:
        machine = this_machine()
        at_a_time = trials_at_a_time(options, [machine])
        question.watcher.where = f"{at_a_time} at a time on this machine ({machine})"
    if options.launcher == "local":
        gpus = gpus_a_trial(options.gpus_per_trial, [this_machine()])
        here = worker_settings(path, options, gpus, question.loader.stage_objective)
        yield lambda session: run_locally(session, here)
    elif options.ray_address == "local" and not (options.accelerator or options.memory_per_trial):
        # `first_checks` has already checked this machine's resources, so Ray need not start before
        # the session.
        yield lambda session: _on_ray_here(session, question, path)
    else:
        with _on_ray(question, path) as run:
            yield run


@contextmanager
def _on_ray(question: Question, path: str) -> Iterator[Launch]:
    prepare_ray()
    from tune_sentcl.on_ray.launcher import on_ray

    with on_ray(question, path) as run:
        yield run


def _on_ray_here(session: Session, question: Question, path: str) -> None:
    with _on_ray(question, path) as run:
        run(session)
