"""One worker in this process, one trial after another or lanes: the reference launcher."""

from contextlib import closing
from dataclasses import replace

from tune_sentcl.errors import DeviceError, StudyError
from tune_sentcl.launch.attempts import Attempts
from tune_sentcl.launch.dealing import Dealer
from tune_sentcl.launch.groups import Assignment
from tune_sentcl.launch.options import LaneCount
from tune_sentcl.launch.session import Session
from tune_sentcl.launch.worker import Failure, WorkerSettings
from tune_sentcl.trial import Progress


def run_locally(session: Session, settings: WorkerSettings, lanes: LaneCount = 1) -> None:
    """Run a session to its end.

    Trials never compete for the machine. An interruption leaves the trials at hand without a row,
    so that repeating the command runs them again; so does a GPU that is lost, for this process
    cannot have it back.

    Raises:
        TuneSentclError: The study could not be written, or the GPU is lost; what had ended is
            kept.
    """
    dealer = Dealer(session, lanes, settings.gpus)
    while not session.finished:
        assignments = dealer.next()
        if assignments:
            _run(session, assignments, settings)
    if session.fatal is not None:
        raise session.fatal


def _run(session: Session, assignments: list[Assignment], settings: WorkerSettings) -> None:
    names = [assignment.trial_id for assignment in assignments]
    for name in names:
        session.started(name, settings.gpus, names)
    if len(names) == 1:  # it looks at no other clock
        seconds = min(session.budget.seconds_left(), settings.seconds or float("inf"))
        settings = replace(settings, seconds=seconds)
    attempts = Attempts(assignments, session.loader, settings, over=lambda: bool(session.over))
    try:
        with closing(attempts.points()) as points:
            for name, told in points:
                if not _take(session, name, told):
                    attempts.stop(name)
                if session.over:
                    break
    except StudyError as error:
        session.stop(error)
    except DeviceError as lost:
        session.stop(DeviceError(f"{lost}; repeat the command to go on in a new process"))


def _take(session: Session, name: str, told: Progress | Failure) -> bool:
    """Let the session hear of a trial; whether it goes on."""
    if isinstance(told, Progress):
        return session.progress(name, told)
    if not session.over:  # else it was this search's time that ended
        session.fail(name, told)
    return False
