"""One trial after another in this process: the reference launcher."""

from contextlib import closing

from tune_sentcl.errors import StudyError
from tune_sentcl.launch.groups import Assignment
from tune_sentcl.launch.session import Session
from tune_sentcl.launch.worker import Attempt, WorkerSettings


def run_locally(session: Session, settings: WorkerSettings) -> None:
    """Run a session to its end.

    Trials never compete for the machine, and nothing is stopped early. An interruption leaves the
    trial at hand without a row, so that repeating the command runs it again.

    Raises:
        TuneSentclError: The study could not be written; what had ended is kept.
    """
    while not session.finished:
        assignment = session.next()
        if assignment is not None:
            _run(session, assignment, settings)
    if session.fatal is not None:
        raise session.fatal


def _run(session: Session, assignment: Assignment, settings: WorkerSettings) -> None:
    attempt = Attempt(assignment.config, session.loader, settings, assignment.action)
    try:
        with closing(attempt.points()) as points:
            for progress in points:
                session.progress(assignment.trial_id, progress)
    except StudyError as error:
        session.stop(error)
    except Exception as error:  # noqa: BLE001 - the border of a trial: its error becomes its row
        session.fail(assignment.trial_id, attempt.failure(error))
