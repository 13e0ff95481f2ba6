"""The protocol of watchers: the terminal, the progress file, trackers, and a caller's watcher."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    # These imports load torch; without them, wrong arguments of `search` are refused at once.
    from tune_sentcl.history import Assignment
    from tune_sentcl.store.rows import TrialRow
    from tune_sentcl.trial import Progress


@runtime_checkable
class Watcher(Protocol):
    """Receives the events of a search from the session; a subclass may ignore some."""

    def begin(self, done: int, total: int) -> None:
        """The search starts; earlier commands ran `done` of its `total` trials."""
        return

    def started(self, assignment: "Assignment") -> None:
        """A worker starts a trial, for the first time or again."""
        return

    def point(self, trial_id: str, progress: "Progress") -> None:
        """A trial has reached an evaluation point that is not its end."""
        return

    def ended(self, row: "TrialRow", total: int, last: "Progress | None") -> None:
        """A trial has ended; `last` is its last report; the search now plans `total` trials."""
        return

    def say(self, text: str) -> None:
        """A message that does not concern the end of a trial."""
        return
