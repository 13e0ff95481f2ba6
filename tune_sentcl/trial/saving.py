"""When the state of a running trial is written: now and then, and for little of its time."""

import time
from collections.abc import Callable

from tune_sentcl.trial.output import Output
from tune_sentcl.trial.state import TrialState

_SHARE = 0.05
"""Of a trial's time, the most that goes into writing states."""


class Saving:
    """The rolling state of one trial, which each new one replaces.

    Attributes:
        seconds: What the writing has taken.
    """

    def __init__(self, output: Output | None, clock: Callable[[], float] = time.perf_counter):
        """Nothing is written before the output's interval is over once.

        Args:
            output: Where states go, and how often; None: nowhere.
            clock: Gives seconds.
        """
        self._output, self._clock = output, clock
        self._every = None if output is None else output.save_every
        self._began = clock()
        self._next = self._began + (self._every or 0.0)
        self.seconds = 0.0

    def due(self, *, last: bool) -> bool:
        """Whether a state is to be written now.

        Args:
            last: Whether only the final evaluation follows, which may take as long as the
                training; it is worth a state as soon as the training was.
        """
        if self._every is None:
            return False
        now = self._clock()
        return now >= (min(self._next, self._began + self._every) if last else self._next)

    def write(self, state: TrialState) -> None:
        """Replace the trial's state.

        Raises:
            StudyError: The disk refused.
        """
        if self._output is None or self._every is None:
            return
        start = self._clock()
        self._output.save(state)
        end = self._clock()
        self.seconds += end - start
        self._next = end + max(self._every, (end - start) * (1 / _SHARE - 1))
