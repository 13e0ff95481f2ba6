"""What every tracker does, and what it is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Value = str | int | float | bool


@dataclass(frozen=True)
class Project:
    """A search.

    Attributes:
        space: The name of its space.
        study: Where its study lies, secrets hidden.
        folder: The study's folder; None on an object store.
    """

    space: str
    study: str
    folder: Path | None


@dataclass(frozen=True)
class Begun:
    """A trial that begins.

    Attributes:
        trial_id: Its name.
        configuration: Its configuration's name, which all its seeds share.
        params: Its knobs by their dotted keys, secrets hidden; those without a value left out.
    """

    trial_id: str
    configuration: str
    params: Mapping[str, Value]


@dataclass(frozen=True)
class End:
    """How a trial has ended.

    Attributes:
        status: `finished`, `pruned` or `failed`.
        step: Its optimizer steps.
        numbers: Objectives, scores (`score/...`, times 100) and cost (`cost/...`) by name.
        facts: What else there is to say, secrets hidden.
    """

    status: str
    step: int
    numbers: Mapping[str, float]
    facts: Mapping[str, str]


class Tracker(Protocol):
    """One project's client.

    Laws: a trial is there once, as its last attempt left it; what it raises ends the tracking and
    nothing else.
    """

    def __init__(self, project: Project) -> None:
        """Import the client, and open where it writes."""
        ...

    def begin(self, trial: Begun) -> None:
        """A trial begins; what an earlier search left of it gives way."""
        ...

    def point(self, trial_id: str, step: int, values: Mapping[str, float]) -> None:
        """The curves of a trial that has begun go on, at a step that is told once."""
        ...

    def end(self, trial_id: str, end: End) -> None:
        """A trial that has begun has ended."""
        ...

    def close(self) -> None:
        """The search is over; trials that have not ended were interrupted."""
        ...
