"""The local launcher runs one trial after another in this process."""

from contextlib import closing
from dataclasses import replace

from tune_sentcl.errors import DeviceError, StudyError
from tune_sentcl.history import Assignment
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Attempt, Failure, WorkerSettings


def run_locally(session: Session, settings: WorkerSettings) -> None:
    """Run a session to its end.

    An interrupted trial gets no row, and the repeated command runs it again. The same holds for
    the trial of a lost GPU, which this process cannot use again.
    """
    while not session.finished:
        assignment = session.next()
        if assignment is not None:
            _run(session, assignment, settings)
    if session.fatal is not None:
        raise session.fatal


def _run(session: Session, assignment: Assignment, settings: WorkerSettings) -> None:
    name = assignment.trial_id
    session.started(name, settings.gpus)
    seconds = min(session.budget.seconds_left(), settings.seconds or float("inf"))
    attempt = Attempt(assignment, session.loader, replace(settings, seconds=seconds))
    try:
        with closing(attempt.reports()) as reports:
            for report in reports:
                if isinstance(report, Failure):
                    if (
                        not session.stop_reason
                    ):  # else the timeout was the search's, not the trial's
                        session.fail(name, report)
                elif not session.progress(name, report) or session.stop_reason:
                    break
    except StudyError as error:
        session.abort(error)
    except DeviceError as lost:
        session.abort(DeviceError(f"{lost}; repeat the command to go on in a new process"))
