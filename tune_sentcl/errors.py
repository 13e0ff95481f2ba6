"""Every error that tune_sentcl raises on purpose.

Each class also derives from a built-in exception, so callers can catch the built-in kind. A
message names the place, the rule, the value that broke it, and the next move.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar


class TuneSentclError(Exception):
    """Base class of the errors that tune_sentcl raises on purpose."""


@dataclass(frozen=True)
class Fault:
    """One fault of an input.

    Attributes:
        where: The file or command-line option that holds the value.
        key: The dotted key or column; empty if the fault concerns the whole input.
        value: The value as the user wrote it; empty if missing.
        rule: The rule that the value breaks.
        move: How the user can fix it.
    """

    where: str
    _: KW_ONLY
    key: str = ""
    value: str = ""
    rule: str
    move: str

    def __str__(self) -> str:
        given = f"{self.key} = {self.value}" if self.key and self.value else self.key or self.value
        subject = f"{self.where}: {given}" if given else self.where
        return f"{subject}: {self.rule}. {self.move}".rstrip()


def first_line(error: Exception | str) -> str:
    """The first line of an error's text without its full stop; for an empty text the type."""
    nothing = "" if isinstance(error, str) else type(error).__name__
    return (str(error).strip() or nothing).partition("\n")[0].rstrip(".")


def first_names(names: Sequence[str], most: int = 3) -> str:
    """The first of many names, and the number of the others."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def with_frames(cause: str, frames: str) -> str:
    """An error's text for the study: the cause, a blank line, and the end of the traceback."""
    whole = frames.strip()
    end = whole if len(whole) <= 2000 else whole[-2000:].partition("\n")[2]
    return f"{cause.strip()[:2000]}\n\n{end}"


class BadInputError(TuneSentclError, ValueError):
    """The user's input breaks a rule; the error lists all faults at once.

    Attributes:
        faults: All faults, in the order of the input. A fault that several methods share is listed
            once, with the default of one method.
    """

    def __init__(self, faults: Fault | Iterable[Fault]) -> None:
        given = (faults,) if isinstance(faults, Fault) else tuple(faults)
        distinct: dict[tuple[str, ...], Fault] = {}
        for one in given:
            distinct.setdefault((one.where, one.key, one.value, one.rule), one)
        self.faults: tuple[Fault, ...] = tuple(distinct.values())
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[type["BadInputError"], tuple[tuple[Fault, ...]]]:
        """Pickle the faults, so that the error survives a process boundary."""
        return type(self), (self.faults,)


class ConfigError(BadInputError):
    """A config holds an unknown key or a value that breaks its rule."""


# These patterns find parts of a URL that may be secret: a user before "@", a password after ":", a
# query or a fragment. A URL parser would find no user in `s3://KEY:a/b@bucket`, because "/" ends a
# host, but an AWS key may contain it. In `s3://KEY:1/b@bucket` the "1" is no port, but the path of
# an HTTP URL may contain "@" after a port.
_CREDENTIALS = re.compile(
    r"://(?:[^/\s]*@|[^/\s\[]*:(?!\d*(?:[/\s'\",\]]|$))|\S*[?#])"
    r"|(?<!http)(?<!https)://[^/\s\[]*:[^\s'\",]*@"
)


def refuse_credentials(where: str, key: str, text: str) -> None:
    """Raise ConfigError, without the text, if the text has a URL that may contain credentials.

    Credentials may be in a URL's user, password, query and fragment.
    """
    if "://" in text and _CREDENTIALS.search(text):
        rule = "must not contain a user, password, query or fragment, because studies and messages"
        move = (
            "Pass keys and endpoints in environment variables such as AWS_ACCESS_KEY_ID and "
            "AWS_ENDPOINT_URL."
        )
        raise ConfigError(Fault(where, key=key, rule=f"{rule} show URLs", move=move))


class PluginError(BadInputError):
    """A plugin cannot be read or run, or what it defines breaks a rule."""


class SpaceError(BadInputError):
    """A space file is missing or does not describe a set of trials."""


class DataError(BadInputError):
    """A data file is missing, damaged, or holds unexpected rows."""


class CheckpointError(BadInputError):
    """An encoder's folder or name cannot be loaded."""


class ObjectiveError(BadInputError):
    """An objective names an unknown score, or a score that a search must not use."""


class StudyError(BadInputError):
    """A command cannot read, write or continue a study."""


class DamagedError(StudyError):
    """A file of a study differs from the file that was written."""


class ResourceError(BadInputError):
    """No available machine can ever run a trial with the requested resources."""


class NonFiniteError(TuneSentclError, ArithmeticError):
    """A loss, an embedding or a correlation is not a finite number."""


class OtherInputsError(TuneSentclError, ValueError):
    """A worker reads data or weights that differ from the driver's."""


class OutOfMemoryError(TuneSentclError, MemoryError):
    """A step of a training does not fit the device's memory."""


class DeviceError(TuneSentclError, RuntimeError):
    """A requested device cannot be used."""


class CaptureError(DeviceError):
    """A CUDA graph could not be captured; its process can no longer use the GPU.

    Attributes:
        variable: The environment variable that turns CUDA graphs off if it is 0.
        failed: The variable's value in processes that continue after a failed capture; their
            trials record that.
    """

    variable: ClassVar = "TUNE_SENTCL_GRAPHS"
    failed: ClassVar = "failed"


class NodeDrainingError(TuneSentclError, RuntimeError):
    """The trial's node is about to be removed; the trial resumes elsewhere, from its state."""


class TrialTimeoutError(TuneSentclError, TimeoutError):
    """A trial exceeded its time limit."""


class TrialFailedError(TuneSentclError, RuntimeError):
    """A trial that a caller ran for its scores ended with an error."""
