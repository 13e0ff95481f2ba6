"""Progress of a search on stderr: done and planned trials, best score, time left, failures."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tune_sentcl.errors import first_line
from tune_sentcl.history import Assignment
from tune_sentcl.store.rows import TrialRow
from tune_sentcl.watch.clock import clock
from tune_sentcl.watch.watcher import Watcher

if TYPE_CHECKING:
    # The package `trial` imports torch.
    from tune_sentcl.trial import Progress as TrialProgress

_log = logging.getLogger("tune_sentcl")
_POINTS_S = 30.0  # seconds between two lines about the same running trial


@contextmanager
def encoding_bar() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, if it is a terminal; call it with encoded and total sentences."""
    bar = Progress(
        TextColumn("sentences"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not Console(stderr=True).is_terminal,
    )
    task = bar.add_task("sentences", total=None)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise, so that the search ends in order; rich would exit with code 1."""
        raise BrokenPipeError


class _NoListener(Watcher):
    """Ignores all events."""


class RichWatcher:
    """A live line on a terminal; plain lines about running and ended trials elsewhere.

    Attributes:
        where: The number of parallel trials and their devices, as text; set before `begin`.
        objective: The name of the objective; empty for a single trial, which omits the first
            lines.
        best: The best objective in the study, including trials that ended since; None without a
            score.
        notes: All messages, including those of earlier watchers of the same search.
    """

    def __init__(
        self,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
        listener: Watcher | None = None,
    ) -> None:
        """Write to stderr or another console, and pass events on; `now` returns seconds."""
        self._console = console or _Console(stderr=True)
        self._now = now
        self._listener = listener or _NoListener()
        self.notes: list[str] = []
        self._bar = Progress(
            TextColumn("trials"),
            BarColumn(bar_width=None),  # the bar takes the rest of the line
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TextColumn("running {task.fields[running]}"),
            console=self._console,
            expand=True,
        )
        self._task = self._bar.add_task("trials", total=0, state="", running=0)
        self._running: set[str] = set()
        self._done = self._ended = self._failed = 0
        self.where = self.objective = ""
        self.best: float | None = None
        self._ranks = True  # False for a confirmation, which chooses no best trial
        # The time at which each running trial's last line was written.
        self._last_line_at: dict[str, float] = {}
        self._encoded, self._encoding = 0, 0.0
        self._notes: set[str] = set()
        self._start = now()

    def for_confirmation(self) -> "RichWatcher":
        """A watcher for the same search's confirmation, with new counts."""
        watcher = RichWatcher(self._console, self._now, self._listener)
        watcher.notes, watcher._ranks = self.notes, False
        return watcher

    def begin(self, done: int, total: int) -> None:
        """Show the planned trials and the best score so far."""
        self._listener.begin(done, total)
        self._done = done
        self._start = self._now()
        if self.objective:
            left = total - done
            work = f"{left} of {total} trials to run, {self.where}" if left else "no trial to run"
            self._line(work)
            if self._ranks:
                self._line(f"best so far {self._shown_best()} ({self.objective})")
        if self._console.is_terminal:
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total, state=f"{done} done before")

    def started(self, assignment: Assignment) -> None:
        """Count a running trial."""
        self._listener.started(assignment)
        self._running.add(assignment.trial_id)
        self._last_line_at[assignment.trial_id] = self._now()
        self._bar.update(self._task, running=len(self._running))

    def point(self, trial_id: str, progress: "TrialProgress") -> None:
        """Write a line on a trial's step, unless there is a live line."""
        self._listener.point(trial_id, progress)
        if (
            self._console.is_terminal
            or self._now() - self._last_line_at.get(trial_id, 0.0) < _POINTS_S
        ):
            return
        self._last_line_at[trial_id] = self._now()
        value = "" if progress.dev is None else f", {progress.dev:.2f} on dev"
        self._line(f"trial {trial_id} is at step {progress.step} of {progress.total}{value}")

    def ended(self, row: TrialRow, total: int, last: "TrialProgress | None" = None) -> None:
        """Show how a trial ended."""
        self._listener.ended(row, total, last)
        self._running.discard(row.trial_id)
        self._done += 1
        self._ended += 1
        self._failed += row.status == "failed"
        if row.encoded_sentences:  # other trials may have waited for the same encoding
            self._encoded += row.encoded_sentences
            self._encoding += row.encoding_seconds or 0.0
        objective = row.objectives[0][1] if row.objectives else None
        if objective is not None and self._ranks:
            self.best = objective if self.best is None else max(self.best, objective)
        left = (self._now() - self._start) / self._ended * max(0, total - self._done)
        state = f"left {clock(left)}  failed {self._failed}"
        if self._ranks:
            state = f"best {self._shown_best()}  {state}"
        running = len(self._running)
        self._bar.update(
            self._task, completed=self._done, total=total, state=state, running=running
        )
        if not self._console.is_terminal:
            value = _stage(row) if objective is None else f" {objective:.2f}"
            line = f"[{self._done}/{total}] {row.trial_id} {row.status}{value}  {state}"
            self._console.print(line, highlight=False, soft_wrap=True)
        self._write_details(row)

    def _shown_best(self) -> str:
        return "none" if self.best is None else f"{self.best:.2f}"

    def _write_details(self, row: TrialRow) -> None:
        """Write a trial's error and notes; repeated notes appear only once."""
        if row.notes and row.notes not in self._notes:
            self._notes.add(row.notes)
            self._line(f"trial {row.trial_id}: {row.notes}")
        if row.status == "failed":
            reason = first_line(row.error_text or "")
            self._line(f"trial {row.trial_id} failed: {row.error_type}: {reason}")

    def say(self, text: str) -> None:
        """Write and keep a message."""
        self.notes.append(text)
        _log.info(text)
        self._listener.say(text)
        self._line(text)

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the live line, and write the number of trials per minute."""
        if self._console.is_terminal:
            # rich writes a blank line if a bar is stopped that never started.
            self._bar.stop()
        if not self._ended:
            return
        seconds = self._now() - self._start
        encoder = ""
        if self._encoded:
            encoder = (
                f"; frozen encoders encoded {self._encoded:,} sentences in {self._encoding:.1f} s"
            )
        rate = 60 * self._ended / max(seconds, 1e-9)
        self._line(f"{self._ended} trials in {clock(seconds)}, {rate:.1f} a minute{encoder}")


def terminal_watcher(listener: Watcher | None = None, *, shown: bool) -> RichWatcher:
    """A watcher that passes all events on, and either shows them on stderr or prints nothing."""
    # Even on a quiet console, rich's live display would take over the caller's stdout and stderr;
    # without a terminal it does not.
    console = _Console(stderr=True) if shown else _Console(quiet=True, force_terminal=False)
    return RichWatcher(console, listener=listener)


def _stage(row: TrialRow) -> str:
    """The score of a trial that stopped at the end of a stage, and the share of its training."""
    if row.status != "pruned" or not row.stages:
        return ""
    last = row.stages[-1]
    return f" {last['value']:.2f} at {100 * last['share']:.2g} %"
