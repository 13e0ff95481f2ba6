"""One trial after another in this process: the reference launcher."""

from contextlib import closing
from dataclasses import replace

from tune_sentcl.errors import DeviceError, StudyError
from tune_sentcl.launch.groups import Assignment
from tune_sentcl.launch.session import Session
from tune_sentcl.launch.worker import Attempt, WorkerSettings


def run_locally(session: Session, settings: WorkerSettings) -> None:
    """Run a session to its end.

    Trials never compete for the machine. An interruption leaves the trial at hand without a row,
    so that repeating the command runs it again; so does a GPU that is lost, for this process
    cannot have it back.

    Raises:
        TuneSentclError: The study could not be written, or the GPU is lost; what had ended is
            kept.
    """
    while not session.finished:
        assignment = session.next()
        if assignment is not None:
            _run(session, assignment, settings)
    if session.fatal is not None:
        raise session.fatal


def _run(session: Session, assignment: Assignment, settings: WorkerSettings) -> None:
    session.started(assignment.trial_id, settings.gpus)
    seconds = min(session.budget.seconds_left(), settings.seconds or float("inf"))
    attempt = Attempt(assignment, session.loader, replace(settings, seconds=seconds))
    try:
        with closing(attempt.points()) as points:
            for progress in points:
                if not session.progress(assignment.trial_id, progress) or session.over:
                    break
    except StudyError as error:
        session.stop(error)
    except Exception as error:  # noqa: BLE001 - the border of a trial: its error becomes its row
        lost = attempt.lost_device(error)
        if lost is not None:
            session.stop(DeviceError(f"{lost}; repeat the command to go on in a new process"))
        elif not session.over:  # else it was this search's time that ended
            session.fail(assignment.trial_id, attempt.failure(error))
