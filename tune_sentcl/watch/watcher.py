"""The protocol of everything that follows a search: terminal, progress file, trackers."""

from typing import Protocol

from tune_sentcl.history import Assignment
from tune_sentcl.store.rows import TrialRow
from tune_sentcl.trial import Progress


class Watcher(Protocol):
    """Follows a search; the session calls it."""

    def begin(self, done: int, total: int) -> None:
        """The search starts, with so many of its trials done in earlier runs."""
        ...

    def started(self, assignment: Assignment) -> None:
        """A worker has begun a trial, perhaps not as the first."""
        ...

    def planned(self, seconds: float) -> None:
        """The search is estimated to take so long from now on."""
        ...

    def point(self, trial_id: str, progress: Progress) -> None:
        """A trial has come to an evaluation point that is not its end."""
        ...

    def ended(self, row: TrialRow, total: int) -> None:
        """A trial has ended; the search now plans `total` trials."""
        ...

    def say(self, text: str) -> None:
        """Something has happened that is no trial's end."""
        ...
