"""A search's plan against what it took: said at its end, and kept in its study."""

import time
from collections.abc import Callable

from tune_sentcl.errors import TuneSentclError
from tune_sentcl.history import FRESH
from tune_sentcl.launch.clock import clock
from tune_sentcl.launch.estimate.search import SearchEstimate, estimate_search, place_of
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.prepared import Prepared
from tune_sentcl.launch.session import Session
from tune_sentcl.store.manifest import PlanRecord
from tune_sentcl.store.study import Study

_BRIEF_S = 600.0
"""A search of so little time spends none of it on an estimate, which takes up to a minute."""


def against_plan(
    launch: Callable[[Session], None], prepared: Prepared, path: str
) -> Callable[[Session], None]:
    """Let a launcher's search be estimated before and compared with that after.

    Args:
        launch: Runs the session.
        prepared: The search, which has recalled its study.
        path: The study, which this process has open for writing.
    """

    def run(session: Session) -> None:
        plan = foresee(prepared, path)
        if session.finished:  # the estimate has used up its time
            return
        if plan is not None:
            session.watcher.planned(plan.seconds)
        start = time.monotonic()
        launch(session)
        if plan is not None and not session.over:
            _compare(prepared, session, plan, time.monotonic() - start)

    return run


def foresee(prepared: Prepared, path: str) -> SearchEstimate | None:
    """Estimate a search that is about to begin.

    Nothing is timed on a GPU: a driver that has used one holds a part of it until its end.

    Returns:
        None where it runs elsewhere, trains nothing, has few minutes, or cannot be told, which is
        said.
    """
    options, proposals = prepared.options, prepared.proposals
    queued = proposals.queued()
    to_train = any(trial.action != "measure" for trial in queued)
    sampled = proposals.total - proposals.done - len(queued)
    brief = options.max_time is not None and options.max_time < _BRIEF_S
    fresh = prepared.settings.origin == FRESH  # the plan that is kept is the search's own
    if not runs_here(options) or brief or fresh or not (to_train or sampled):
        return None
    try:
        on_cpu = place_of(options).device == "cpu"
        return estimate_search(prepared, Study.read(path), may_time=on_cpu)
    except TuneSentclError as error:
        prepared.watcher.say(f"how long this will take cannot be told: {error}")
        return None


def runs_here(options: SearchOptions) -> bool:
    """Whether Ray runs the trials on this machine, as far as the options say.

    The local launcher's few trials are not worth the seconds that an estimate takes.
    """
    return options.launcher == "ray" and options.ray_address == "local"


def _compare(prepared: Prepared, session: Session, plan: SearchEstimate, took: float) -> None:
    most = "" if prepared.options.scheduler == "none" else "at most "
    trials = f"{plan.trials} trial{'' if plan.trials == 1 else 's'}"
    prepared.watcher.say(
        f"planned {most}{clock(plan.seconds)} for {trials} ({plan.basis}), took {clock(took)}"
    )
    session.record(plan=PlanRecord(round(plan.seconds, 1), round(took, 1), plan.trials))
