"""Every error that tune_sentcl raises on purpose.

Each class is also a built-in kind, so that callers who know nothing of this package can still
catch what they expect. A message names the rule, the value that broke it and the next move.
"""

from collections.abc import Iterable
from dataclasses import dataclass


class TuneSentclError(Exception):
    """Base of every error raised on purpose."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with an input.

    Attributes:
        where: The file or command-line option that holds the value.
        key: The dotted key or column, empty when the whole input is meant.
        value: What was given, as the user wrote it; empty when nothing was.
        rule: The law that the value breaks.
        next_move: What the user can do about it.
    """

    where: str
    key: str
    value: str
    rule: str
    next_move: str

    def __str__(self) -> str:
        """The fault as one line."""
        given = f"{self.key} = {self.value}" if self.key and self.value else self.key or self.value
        subject = f"{self.where}: {given}" if given else self.where
        return f"{subject}: {self.rule}. {self.next_move}".rstrip()


def first_line(error: Exception | str) -> str:
    """The first line of what an error says, or of its text in a study, for a sentence of ours."""
    nothing = "" if isinstance(error, str) else type(error).__name__
    return (str(error).strip() or nothing).partition("\n")[0].rstrip(".")


def with_frames(cause: str, frames: str) -> str:
    """The text of an error for a study: its cause, a blank line, and the last of the frames."""
    return f"{cause.strip()[:2000]}\n\n{frames.strip()[-2000:]}"


class BadInputError(TuneSentclError, ValueError):
    """The user's input breaks a rule; all faults are listed at once.

    Attributes:
        faults: What is wrong, in the order of the input.
    """

    def __init__(self, faults: Fault | Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = (faults,) if isinstance(faults, Fault) else tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[type["BadInputError"], tuple[tuple[Fault, ...]]]:
        """Pickle by faults, so that the error crosses process borders whole."""
        return type(self), (self.faults,)


class ConfigError(BadInputError):
    """A config holds an unknown key or a value that breaks its rule."""


class SpaceError(BadInputError):
    """A space file is missing or does not describe a set of trials."""


class DataError(BadInputError):
    """A data file is missing, damaged, or holds other rows than it should."""


class CheckpointError(BadInputError):
    """An encoder's folder or name cannot be loaded."""


class ObjectiveError(BadInputError):
    """An objective names no score, or one that a search must not see."""


class StudyError(BadInputError):
    """A study cannot be read, written, or continued with this command."""


class DamagedError(StudyError):
    """A file of a study is not what was written; whoever may go on without it can leave it out."""


class ResourceError(BadInputError):
    """No machine at hand can ever run a trial as it was asked for."""


class NonFiniteError(TuneSentclError, ArithmeticError):
    """A loss, an embedding or a correlation is not a finite number."""


class OtherInputsError(TuneSentclError, ValueError):
    """A worker reads other data or weights than the driver did."""


class OutOfMemoryError(TuneSentclError, MemoryError):
    """A step of a training does not fit the device's memory."""


class DeviceError(TuneSentclError, RuntimeError):
    """A device that was asked for cannot be computed on."""


class NodeDrainingError(TuneSentclError, RuntimeError):
    """The machine of a trial is about to go; the trial goes on elsewhere, from its state."""


class TrialTimeoutError(TuneSentclError, TimeoutError):
    """A trial took longer than it was given."""


class TrialFailedError(TuneSentclError, RuntimeError):
    """A trial that was run for its scores ended with an error instead."""
