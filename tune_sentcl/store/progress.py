"""`progress.json`: what the driver of a study says of its search while it goes on.

Nothing rests on it but what people are shown: a search never reads it, and the tables alone say
what has ended.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.writer_lock import Holder

PROGRESS = "progress.json"
"""The file's name."""

State = Literal["running", "ended", "interrupted"]


@dataclass(frozen=True)
class RunningTrial:
    """A trial that a worker has begun.

    Attributes:
        trial_id: Its name.
        since: When that was, in ISO format, UTC.
        step: Steps at its last evaluation point; None before the first.
        steps: Steps that it makes in all; likewise.
        dev: The score by which it was compared there, times 100.
    """

    trial_id: str
    since: str
    step: int | None = None
    steps: int | None = None
    dev: float | None = None


@dataclass(frozen=True)
class SearchProgress:
    """How a search stands, as its driver has last said.

    Attributes:
        state: Whether it goes on.
        began: When its run began, in ISO format, UTC.
        seconds: From then to this word.
        done: Trials that are neither queued nor under way, those of earlier runs included.
        total: Trials that are planned.
        ended: Trials that have ended in this run.
        planned_seconds: What this run was estimated to take; None where it was not.
        running: The trials under way.
        driver: Who says so (`store.writer_lock.Holder`).
    """

    state: State
    began: str
    seconds: float = 0.0
    done: int = 0
    total: int = 0
    ended: int = 0
    planned_seconds: float | None = None
    running: tuple[RunningTrial, ...] = ()
    driver: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, files: StudyFiles) -> Self | None:
        """The last word of a study's driver; None where there is none that can be read.

        Raises:
            StudyError: The disk refused.
        """
        data = files.read_bytes(PROGRESS)
        try:
            document = json.loads(data or b"")
            running = tuple(RunningTrial(**one) for one in document.pop("running"))
            return cls(**document, running=running)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, files: StudyFiles) -> None:
        """Write it whole.

        Raises:
            StudyError: The disk refused.
        """
        files.write_json(PROGRESS, dataclasses.asdict(self))

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the rate so far, else as planned; None: nobody knows."""
        if self.ended:
            return self.seconds / self.ended * max(0, self.total - self.done)
        if self.planned_seconds is None:
            return None
        return max(0.0, self.planned_seconds - self.seconds)

    def is_interrupted(self, files: StudyFiles) -> bool:
        """Whether the driver is known to be gone without a last word; only its machine sees it."""
        holder = Holder.parse(json.dumps(dict(self.driver)).encode())
        return (
            self.state == "running" and holder is not None and holder.lives(files.where) is False
        )
