"""`show --watch`: reads a study again and again while its search runs."""

import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tune_sentcl.cli.exits import say
from tune_sentcl.cli.terminal_tables import cell, line
from tune_sentcl.history import CONFIRM_ORIGIN
from tune_sentcl.objective import parse_objectives
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST, Manifest
from tune_sentcl.store.progress import RunningTrial, SearchProgress
from tune_sentcl.store.study import Study
from tune_sentcl.watch.clock import clock

_DISK_S, _STORE_S = 1.0, 10.0
_BEGIN_S = 300.0  # the most that a job takes to begin where nodes install packages first
_COLUMNS = (
    "trial_id",
    "status",
    "origin",
    "objective",
    "objective_name",
    "started_at",
    "wall_seconds",
    "error_type",
)
_SUMMARY_INTERVAL_S = 60.0
_LAST = 10  # ended trials that a terminal shows

Row = Mapping[str, Any]


@dataclass(frozen=True)
class StudyView:
    """A study at one moment.

    Attributes:
        rows: Its ended trials in the order of their ends.
        progress: The last report of its driver; None without one.
        interrupted: Whether the driver is gone without a final report.
        objective: The first objective of its last search.
    """

    rows: list[Row]
    progress: SearchProgress | None
    interrupted: bool
    objective: str

    @property
    def over(self) -> bool:
        """Whether no more trials will end."""
        return self.progress is None or self.progress.state != "running" or self.interrupted

    @property
    def best(self) -> Row | None:
        """The trial with the best first objective; confirmation trials do not count.

        Values of another objective, from an earlier search, do not count either.
        """
        found = [
            row
            for row in self.rows
            if row["objective"] is not None
            and row["objective_name"] == self.objective
            and row["origin"] != CONFIRM_ORIGIN
        ]
        return max(found, key=lambda row: float(row["objective"]), default=None)

    def summary(self) -> list[str]:
        """Number of trials by status, and the rate of ended trials."""
        counts = Counter(row["status"] for row in self.rows)
        kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("finished", "pruned", "failed"))
        pace = [] if self.best is None else [f"best {self.best['objective']:.2f}"]
        progress = self.progress
        if progress is None or self.over:
            return [kinds, *pace]
        if progress.ended and progress.seconds:
            pace.append(f"{60 * progress.ended / progress.seconds:.1f} a minute")
        pace.append(self.left())
        running = f"{len(progress.running)} running"
        return [f"{progress.done} of {progress.total} done, {running}: {kinds}", ", ".join(pace)]

    def left(self) -> str:
        """The remaining time, as text."""
        seconds = None if self.progress is None else self.progress.seconds_left
        return "time left unknown" if seconds is None else f"left {clock(seconds)}"

    def verdict(self) -> str:
        """How the search has ended, as text."""
        if self.progress is None:
            return "no search has reported its progress in this study"
        if self.interrupted:  # the last count may be older than the last rows
            return "the search ended unexpectedly"
        ending = _ENDS.get(self.progress.state, "ended")
        done = f"{self.progress.done} of {self.progress.total} trials are done"
        return f"the search has {ending}, {done}"


_ENDS = {"ended": "ended", "interrupted": "been interrupted"}


def watch(path: str) -> None:
    """Follow a study until its search ends: in place on a terminal, else line by line."""
    _wait_for_search(StudyFiles.at(path))
    study = Study.read(path)
    reader = _StudyReader(study)
    name = study.files.where
    if sys.stdout.isatty():  # a variable can force rich's own check
        _watch_in_place(reader, Console(highlight=False), name)
    else:
        _watch_by_lines(reader, name)


def _wait_for_search(files: StudyFiles) -> None:
    """Wait until a study has a trial or a report of its search: a job takes time to begin."""
    if files.folder is not None and files.folder.is_file():
        return  # which `Study.read` refuses
    said, end = False, time.monotonic() + _BEGIN_S
    while not _has_begun(files) and time.monotonic() < end:
        if not said:
            most = f"at most {clock(_BEGIN_S)}"
            say(f"{files.where}: no search has begun there; waiting for {most}")
            said = True
        time.sleep(_DISK_S if files.folder else _STORE_S)


def _has_begun(files: StudyFiles) -> bool:
    return files.exists(MANIFEST) and (
        SearchProgress.read(files) is not None or bool(files.versions("trials"))
    )


class _StudyReader:
    """Reads a study's progress, and its tables if their files have changed."""

    def __init__(self, study: Study) -> None:
        self._study, self._seen = study, object()
        self._rows: list[Row] = []
        self._objective = ""
        self._interval = _DISK_S if study.files.folder else _STORE_S

    def read(self) -> StudyView:
        """The study now."""
        files: StudyFiles = self._study.files
        progress = SearchProgress.read(files)  # before the tables, so that these are as new
        seen = files.versions("trials")
        if seen != self._seen:
            rows = self._study.trials(_COLUMNS).to_pylist()
            self._rows, self._seen = sorted(rows, key=_end), seen
            self._objective = _objective(Manifest.read(files))  # a new search may have another one
        interrupted = progress is not None and progress.is_interrupted(files)
        return StudyView(self._rows, progress, interrupted, self._objective)

    def next(self) -> StudyView:
        """The study after a pause; the end of a search is read twice.

        A confirmation starts directly after its search.
        """
        time.sleep(self._interval)
        view = self.read()
        if view.over:
            time.sleep(self._interval)
            view = self.read()
        return view


def _objective(manifest: Manifest) -> str:
    asked = manifest.search.objectives if manifest.search else ()
    return str(parse_objectives(asked, allow_test=True)[0])


def _watch_by_lines(reader: _StudyReader, name: str) -> None:
    view = reader.read()
    _print(name, *view.summary())
    printed, last_time = {_key(row) for row in view.rows}, time.monotonic()
    while not view.over:
        view = reader.next()
        new = [row for row in view.rows if _key(row) not in printed]
        printed.update(map(_key, new))
        for index, row in enumerate(new, 1):
            _print(_ended(row, view, len(new) - index))
        if new or time.monotonic() > last_time + _SUMMARY_INTERVAL_S:
            last_time = time.monotonic()
            if not new:
                _print(*view.summary())
    _print(*view.summary(), view.verdict())


def _watch_in_place(reader: _StudyReader, console: Console, name: str) -> None:
    view = reader.read()
    with Live(_view(view, name), console=console, auto_refresh=False) as live:
        while not view.over:
            view = reader.next()
            live.update(_view(view, name), refresh=True)
    _print(view.verdict())


def _print(*lines: str) -> None:
    for text in lines:
        line(text)
    sys.stdout.flush()


def _key(row: Row) -> tuple[str, Any]:
    """Identifies one attempt of a trial."""
    return row["trial_id"], row["started_at"]


def _ended(row: Row, view: StudyView, later: int) -> str:
    """The line that the search itself prints; `later` trials have ended since."""
    _, status, objective, _, error = _words(row)
    progress, best = view.progress, view.best
    count = f"[{progress.done - later}/{progress.total}] " if progress else ""
    top = f"best {best['objective']:.2f}  " if best else ""
    return f"{count}{row['trial_id']} {status} {error or objective}  {top}{view.left()}"


def _view(view: StudyView, name: str) -> RenderableType:
    parts: list[RenderableType] = [Text(name, style="bold"), *map(Text, view.summary())]
    if (best := view.best) is not None:
        parts.append(Text(f"best by {best['objective_name']}: {best['trial_id'][:8]}"))
    running = () if view.progress is None or view.over else view.progress.running
    if running:
        table = Table("running", "since", "step", "dev", box=None, pad_edge=False)
        for trial in running[:_LAST]:
            table.add_row(*_steps(trial))
        parts.append(table)
        if len(running) > _LAST:
            parts.append(Text(f"and {len(running) - _LAST} more"))
    if view.rows:
        table = Table("ended", "status", "objective", "seconds", "", box=None, pad_edge=False)
        for row in reversed(view.rows[-_LAST:]):
            table.add_row(*_words(row))
        parts.append(table)
    return Group(*parts)


def _words(row: Row) -> list[str]:
    values = (row["objective"], row["wall_seconds"])
    objective, seconds = ("-" if value is None else cell(float(value)) for value in values)
    return [row["trial_id"][:8], row["status"], objective, seconds, row["error_type"] or ""]


def _steps(trial: RunningTrial) -> list[str]:
    step = "-" if trial.step is None else f"{trial.step}/{trial.steps}"
    dev = "-" if trial.dev is None else f"{trial.dev:.2f}"
    return [trial.trial_id[:8], trial.since[11:19], step, dev]


def _end(row: Row) -> tuple[float, str]:
    begun = row["started_at"]
    seconds = 0.0 if begun is None else begun.timestamp() + (row["wall_seconds"] or 0.0)
    return seconds, row["trial_id"]
