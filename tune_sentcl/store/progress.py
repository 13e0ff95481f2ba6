"""`progress.json`: the state of a running search, for display only.

A search never reads this file. Only the tables say which trials have ended.
"""

import dataclasses
import json
from typing import Literal, Self

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.writer_lock import Holder

PROGRESS = "progress.json"
"""The file's name."""

State = Literal["running", "ended", "interrupted"]


@dataclass(frozen=True)
class RunningTrial:
    """A trial that a worker runs.

    Attributes:
        trial_id: The trial.
        since: Its start, in ISO format, UTC.
        step: Optimizer steps at its last evaluation point; None before the first.
        steps: Its planned number of steps; None before the first evaluation point.
        dev: The stage objective at that point, times 100.
    """

    trial_id: str
    since: str
    step: int | None = None
    steps: int | None = None
    dev: float | None = None


@dataclass(frozen=True)
class SearchProgress:
    """The state of a search when its driver last wrote it.

    Attributes:
        state: Whether the search is running, has ended or was interrupted.
        began: Start of this command, in ISO format, UTC.
        seconds: Seconds from the start to this record.
        done: Trials that are neither queued nor running, including trials of earlier commands.
        total: Planned trials.
        ended: Trials that this command ended.
        running: The running trials.
        driver: The process that wrote the record.
    """

    state: State
    began: str
    seconds: float = 0.0
    done: int = 0
    total: int = 0
    ended: int = 0
    running: tuple[RunningTrial, ...] = ()
    driver: Holder | None = None

    @classmethod
    def read(cls, files: StudyFiles) -> Self | None:
        """Read the file; None if it is missing or damaged."""
        try:
            return TypeAdapter(cls).validate_json(files.read_bytes(PROGRESS) or b"")
        except ValidationError:
            return None

    def encoded(self) -> bytes:
        """The content of the file."""
        return json.dumps(dataclasses.asdict(self), indent=2).encode()

    @property
    def seconds_left(self) -> float | None:
        """Remaining seconds at the rate of this command; None before the first trial has ended."""
        if not self.ended:
            return None
        return self.seconds / self.ended * max(0, self.total - self.done)

    def is_interrupted(self, files: StudyFiles) -> bool:
        """Whether the driver died without a final record; only the driver's machine can tell."""
        if self.state != "running" or self.driver is None:
            return False
        return self.driver.is_alive(files.where) is False
