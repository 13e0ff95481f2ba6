"""A job followed to its end, over connections that break.

The log is read anew each time and printed from where it was left: nothing is lost or told twice
when a connection breaks, and the status alone says when a job is over. The end of Ray's stream of
a log says nothing: it comes while jobs run.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tune_sentcl.launch.ray.jobs import Jobs, NoAnswerError, Run

_QUICK_S, _SLOW_S = 0.5, 10.0
_BYTES_A_SECOND = 500_000  # of a long log, which comes whole each time
_PENDING_S = 30.0
_LAST_TRIES = 5


@dataclass
class _Told:
    """What the user knows already."""

    characters: int = 0
    away: bool = False
    waits: bool = False


def follow(jobs: Jobs, run: Run, write: Callable[[str], None], say: Callable[[str], None]) -> Run:
    """Print what a run prints, until it is over.

    Args:
        jobs: Of its cluster.
        run: The run.
        write: Takes the log, piece by piece.
        say: Takes sentences about the connection.

    Returns:
        The run at its end.

    Raises:
        UnknownJobError: The cluster does not know it any more.
    """
    told, pause, unread = _Told(), _QUICK_S, 0
    while True:
        try:
            run = jobs.again(run)  # first, so that the log of one that is over is whole
            new = _news(jobs, run, told, write)
            unread = 0
            if told.away:
                say("the dashboard answers again")
            told.away = False
        except NoAnswerError as error:
            new, unread = False, unread + 1
            if not told.away:
                say(f"{error} The job does not depend on it; asking again.")
            told.away = True
        if run.over and (unread == 0 or unread >= _LAST_TRIES):
            return run
        if run.status == "PENDING" and not told.waits and _age(run) > _PENDING_S:
            told.waits = True
            say(f"still PENDING: {run.message}")
        pause = _QUICK_S if new else min(1.5 * pause, _SLOW_S)
        time.sleep(max(pause, told.characters / _BYTES_A_SECOND))


def _news(jobs: Jobs, run: Run, told: _Told, write: Callable[[str], None]) -> bool:
    text = jobs.logs(run)
    new = text[told.characters :]
    if new:
        write(new)
        told.characters = len(text)
    return bool(new)


def _age(run: Run) -> float:
    """Seconds since it was submitted, by the clock of the cluster's head and ours."""
    return 0.0 if run.started is None else time.time() - run.started
