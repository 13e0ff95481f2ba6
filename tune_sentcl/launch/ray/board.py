"""Where the driver says which lanes are to stop, for Tune stops whole runs only."""

from typing import Any

import ray

_PATIENCE_S = 10.0


class Board:
    """Names of trials, in a process of its own that computes nothing.

    A name may come again, or never be asked for; where the board is lost its worker trains on, and
    the driver, which hears of a trial that it has stopped, says so again.
    """

    def __init__(self) -> None:
        """Start it, wherever there is room."""
        self._names: Any = ray.remote(num_cpus=0, max_restarts=-1)(_Names).remote()

    def stop(self, trial_id: str) -> None:
        """Say that a trial is to stop; it is said once this returns."""
        _answer(self._names.add.remote(trial_id))

    def stopped(self, trial_id: str) -> bool:
        """Whether that has been said of a trial."""
        return bool(_answer(self._names.holds.remote(trial_id)))


class _Names:
    def __init__(self) -> None:
        self._names: set[str] = set()

    def add(self, name: str) -> None:
        self._names.add(name)

    def holds(self, name: str) -> bool:
        return name in self._names


def _answer(asked: Any) -> Any:
    try:
        return ray.get(asked, timeout=_PATIENCE_S)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        return None
