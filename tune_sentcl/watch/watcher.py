"""The protocol of watchers: terminal, progress file, trackers."""

from typing import Protocol

from tune_sentcl.history import Assignment
from tune_sentcl.store.rows import TrialRow
from tune_sentcl.trial import Progress


class Watcher(Protocol):
    """Receives the events of a search from the session."""

    def begin(self, done: int, total: int) -> None:
        """The search starts; earlier runs did `done` of its `total` trials."""
        ...

    def started(self, assignment: Assignment) -> None:
        """A worker starts a trial, for the first time or again."""
        ...

    def planned(self, seconds: float) -> None:
        """The estimated duration of the search from now on."""
        ...

    def point(self, trial_id: str, progress: Progress) -> None:
        """A trial has reached an evaluation point that is not its end."""
        ...

    def ended(self, row: TrialRow, total: int, last: Progress | None) -> None:
        """A trial has ended, after a last report; the search now plans `total` trials."""
        ...

    def say(self, text: str) -> None:
        """A message that does not concern the end of a trial."""
        ...
