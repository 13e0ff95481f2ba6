"""Which trials a worker takes at once: one, or as many as can train as lanes of one model."""

from collections import Counter
from dataclasses import dataclass

from tune_sentcl.launch.groups import Assignment
from tune_sentcl.launch.options import LaneCount
from tune_sentcl.launch.session import Session
from tune_sentcl.train.lane import alike, lanes_at_most

_AHEAD = 4
"""How many hands of trials that need no draw may wait, so that hands of one kind come together."""
_LOOKED_AT = 1000
"""Trials that are looked at, again and again, for what they could share: more than workers."""


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
            self._draw(idle=self.running < workers)
        if not self._waiting:
            return []
        kind, most = self._waiting[0].kind, self._most(self._waiting[0], workers)
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

    def known(self, workers: int) -> int:
        """For how many more workers there are trials that need no draw, as far as one looks.

        Args:
            workers: As for `next`.
        """
        if self._lanes == 1:
            return self._session.known + len(self._waiting)
        queued = self._session.proposals.queued(min(_LOOKED_AT, self._session.known))
        there = [*self._waiting, *(_Waiting(one, self._kind(one)) for one in queued)]
        kinds = Counter(waiting.kind for waiting in there)
        most = {waiting.kind: self._most(waiting, workers) for waiting in there}
        return sum(-(-count // most[kind]) for kind, count in kinds.items())

    def _under_way(self) -> list[set[str]]:
        self._dealt = [there for there in self._dealt if any(map(self._session.runs, there))]
        return self._dealt

    def _draw(self, *, idle: bool = False) -> bool:
        assignment = self._session.next(idle=idle)
        if assignment is None:
            return False
        self._waiting.append(_Waiting(assignment, self._kind(assignment)))
        return True

    def _kind(self, assignment: Assignment) -> tuple[object, ...] | None:
        """What trials share that go together; None: it goes alone."""
        alone = assignment.action == "measure" or self._session.runs_alone(assignment.trial_id)
        if self._lanes == 1 or alone:
            return None
        return alike(assignment.config, assignment.fingerprints)

    def _of(self, kind: tuple[object, ...] | None) -> int:
        return sum(w.kind == kind for w in self._waiting)

    def _may_draw(self, most: int) -> bool:
        """Sampled trials learn from those before them, so no more wait than are wanted."""
        ahead = _AHEAD * most if self._session.known else most
        return len(self._waiting) < ahead

    def _most(self, waiting: _Waiting, workers: int) -> int:
        """How many trials go together with this one, itself counted."""
        if waiting.kind is None:
            return 1
        config, on_gpu = waiting.assignment.config, self._gpus > 0
        lanes = lanes_at_most(config, self._lanes, on_gpu=on_gpu)
        proposals = self._session.proposals
        left = proposals.total - proposals.done
        return max(1, min(lanes, -(-left // max(1, workers))))
