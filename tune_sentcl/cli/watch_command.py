"""`show --watch`: the tables of `show`, updated while the search runs."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tune_sentcl.cli.exits import say
from tune_sentcl.cli.study_tables import print_study, study_lines
from tune_sentcl.cli.terminal_tables import line, table_lines
from tune_sentcl.results.standings import asked_objectives
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.progress import SearchProgress
from tune_sentcl.store.study import Study
from tune_sentcl.watch.clock import clock

_DISK_S, _STORE_S = 1.0, 10.0
# In seconds: before its search begins, a submitted job may have to install packages on nodes.
_BEGIN_S = 300.0
_ENDS = {"ended": "ended", "interrupted": "been interrupted"}
_RUNNING = 10  # the largest number of running trials that a terminal shows


def watch(
    path: str, objectives: Sequence[str], most: int, terminal: Console | None = None
) -> None:
    """Follow a study until its search ends.

    A terminal shows the running trials and the tables of `show`, and draws them again when they
    change. A file or a pipe gets a line whenever trials have ended, and the tables at the end.
    """
    files = StudyFiles.at(path)
    _wait_for_search(files)
    study = Study.read(path)  # raises if the folder is no study
    if objectives:
        asked_objectives(study, objectives)  # raises if no trial has such a score
    if terminal is None and sys.stdout.isatty():
        # rich also believes environment variables such as FORCE_COLOR, so `isatty` decides.
        terminal = Console(highlight=False)
    live = terminal and Live(console=terminal, auto_refresh=False)
    verdict, table = "", list[str]()
    with live or nullcontext():
        for progress, verdict, has_changed in _moments(files):
            running = None if verdict else progress
            words = _counts(running) if running else ""
            if live and terminal:
                if has_changed:
                    table = study_lines(path, objectives, most, terminal.width)
                trials = [
                    {"running": trial.trial_id, "since": trial.since[11:19]}
                    | {"step": trial.step or 0, "of": trial.steps, "dev": trial.dev}
                    for trial in (running.running[:_RUNNING] if running else ())
                ]
                shown = [words, *table_lines(trials, terminal.width), "", *table]
                live.update(Group(Text(files.where, "bold"), *map(Text, shown)), refresh=True)
            elif has_changed and words:
                line(words)
                sys.stdout.flush()
    if live is None:
        print_study(path, objectives, most)
    line(verdict)


def _moments(files: StudyFiles) -> Iterator[tuple[SearchProgress | None, str, bool]]:
    """Yield the progress, how the search ended (empty: it runs), and whether trials were added.

    The end of a search is read twice, because a confirmation may start directly after the search.
    """
    interval = _DISK_S if files.folder else _STORE_S
    seen, before = None, "over"
    while True:
        begun = time.monotonic()
        # Progress is read before the tables, so that the tables are at least as new.
        progress = SearchProgress.read(files)
        versions, verdict = files.versions("trials"), _verdict(progress, files)
        yield progress, verdict, versions != seen
        if verdict and before:
            return
        seen, before = versions, verdict
        # Reading a large study takes seconds, so the pause grows with that time; otherwise
        # watching would keep a core busy.
        time.sleep(max(interval, 4 * (time.monotonic() - begun)))


def _verdict(progress: SearchProgress | None, files: StudyFiles) -> str:
    """How the search has ended; empty while it runs."""
    if progress is None:
        return "no search has reported its progress in this study"
    if progress.is_interrupted(files):
        # The driver died without a last write, so its count of trials may be too low to show.
        return "the search ended without reporting its end"
    if progress.state == "running":
        return ""
    done = f"{progress.done} of {progress.total} trials are done"
    return f"the search has {_ENDS.get(progress.state, 'ended')}; {done}"


def _counts(progress: SearchProgress) -> str:
    left = progress.seconds_left
    rest = "time left unknown" if left is None else f"left {clock(left)}"
    paced = progress.ended and progress.seconds
    pace = f", {60 * progress.ended / progress.seconds:.1f} a minute" if paced else ""
    counts = f"{progress.done} of {progress.total} trials done, {len(progress.running)} running"
    return f"{counts}{pace}, {rest}"


def _wait_for_search(files: StudyFiles) -> None:
    """Wait until a study has a trial or a search's progress, because a job starts slowly."""
    end = time.monotonic() + _BEGIN_S
    if not _has_begun(files):
        most = f"at most {clock(_BEGIN_S)}"
        say(f"{files.where}: no search has begun in this study; waiting for {most}")
    while not _has_begun(files) and time.monotonic() < end:
        time.sleep(_DISK_S if files.folder else _STORE_S)


def _has_begun(files: StudyFiles) -> bool:
    if files.folder is not None and files.folder.is_file():
        return True  # `Study.read` then raises the error for a file
    has_trials = SearchProgress.read(files) is not None or bool(files.versions("trials"))
    return has_trials and files.exists(MANIFEST)
