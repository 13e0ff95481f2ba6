"""Which trials a worker takes at once: one, or as many as can train as lanes of one model."""

from dataclasses import dataclass

from tune_sentcl.launch.groups import Assignment
from tune_sentcl.launch.options import LaneCount
from tune_sentcl.launch.session import Session
from tune_sentcl.train.lane import LANES, alike, lanes_that_pay

_AHEAD = 4
"""How many hands of trials that need no draw may wait, so that hands of one kind come together."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    assignment: Assignment
    kind: tuple[object, ...] | None


class Dealer:
    """Hands a session's trials to workers, several at once where they can be lanes.

    Law: each trial that the session hands out goes to one worker. What waits here has not begun;
    a driver that ends leaves it without a row, as it leaves what runs.
    """

    def __init__(self, session: Session, lanes: LaneCount, gpus: float) -> None:
        """Nothing is handed out yet.

        Args:
            session: Whose trials these are.
            lanes: How many at once at most; `auto`: as many as pay.
            gpus: A worker's share of a GPU.
        """
        self._session, self._lanes, self._gpus = session, lanes, gpus
        self._waiting: list[_Waiting] = []
        self._dealt: list[set[str]] = []

    def next(self, workers: int = 1) -> list[Assignment]:
        """The trials that the next worker takes; none while there are none to run.

        Args:
            workers: That run side by side: what is left is shared out evenly, so that none of
                them stands idle beside another's lanes.
        """
        if not self._waiting:
            self._draw()
        if not self._waiting:
            return []
        kind, most = self._waiting[0].kind, self._most(workers)
        while self._of(kind) < most and self._may_draw(most) and self._draw():
            pass
        chosen = [w for w in self._waiting if w.kind == kind][:most]
        self._waiting = [w for w in self._waiting if w not in chosen]
        dealt = [w.assignment for w in chosen]
        names = {assignment.trial_id for assignment in dealt}
        self._dealt = [there - names for there in self._under_way()]  # of a worker that was lost
        self._dealt.append(names)
        return dealt

    @property
    def running(self) -> int:
        """Workers that have trials which have not ended."""
        return len(self._under_way())

    @property
    def known(self) -> int:
        """For how many more workers there are trials that need no draw."""
        most = LANES if self._lanes == "auto" else self._lanes
        return -(-(self._session.known + len(self._waiting)) // most)

    def _under_way(self) -> list[set[str]]:
        self._dealt = [there for there in self._dealt if any(map(self._session.runs, there))]
        return self._dealt

    def _draw(self) -> bool:
        assignment = self._session.next()
        if assignment is None:
            return False
        kind = None
        if self._lanes != 1 and assignment.action != "measure":
            kind = alike(assignment.config, assignment.fingerprints)
        self._waiting.append(_Waiting(assignment, kind))
        return True

    def _of(self, kind: tuple[object, ...] | None) -> int:
        return sum(w.kind == kind for w in self._waiting)

    def _may_draw(self, most: int) -> bool:
        """Sampled trials learn from those before them, so no more wait than are wanted."""
        ahead = _AHEAD * most if self._session.known else most
        return len(self._waiting) < ahead

    def _most(self, workers: int) -> int:
        """Lanes of the trial that is first."""
        first = self._waiting[0]
        if first.kind is None:
            return 1
        lanes = self._lanes
        if lanes == "auto":
            lanes = lanes_that_pay(first.assignment.config, on_gpu=self._gpus > 0)
        proposals = self._session.proposals
        left = proposals.total - proposals.done
        return max(1, min(lanes, -(-left // max(1, workers))))
