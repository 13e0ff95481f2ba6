"""A folder of files that are computed once a machine: written whole, under a lock, and mapped.

What every cache shares: a folder for what its content depends on, one writer at a time for whom
the others wait (`turns.py`), files that appear whole or not at all, and files that are damaged or
of something else put aside.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tune_sentcl.errors import Fault, ResourceError, first_line
from tune_sentcl.model.turns import KEPT, PATIENCE_S, Renew, Work, turn

_log = logging.getLogger(__name__)
T = TypeVar("T")


def cache_root() -> Path:
    """Where caches lie: TUNE_SENTCL_CACHE, else the user's cache folder."""
    given = os.environ.get("TUNE_SENTCL_CACHE")
    if given:
        return Path(given).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "tune_sentcl"


@dataclass
class CacheFolder:
    """One folder of a cache.

    Attributes:
        work: What is cached, in the words of its messages.
        identity: What the content depends on.
        root: The folder of all caches.
        patience: Seconds that another's work may show no life while this one waits for it.
        notes: What was found wrong and mended, and who was waited for, for people.
    """

    work: Work
    identity: Mapping[str, str | int]
    root: Path
    patience: float = PATIENCE_S
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = json.dumps(dict(self.identity), sort_keys=True)
        self.path = self.root / hashlib.sha256(self.key.encode()).hexdigest()[:16]

    @contextmanager
    def locked(self) -> Iterator[Renew]:
        """Keep all others from writing; what killed ones have left behind is removed.

        Yields:
            What the work must call as it goes on.

        Raises:
            ResourceError: There is no such folder to be had, or its holder shows no life.
        """
        with ExitStack() as held:
            with self.explained():
                self.path.mkdir(parents=True, exist_ok=True)
                taken = turn(self.path, self.patience, self.notes.append, self.work)
                renew = held.enter_context(taken)
                for left in self.path.glob(".*"):
                    if left.name not in KEPT:
                        left.unlink(missing_ok=True)
            yield renew

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what a disk refuses into an error that says what can be done."""
        try:
            yield
        except (OSError, SafetensorError, NotImplementedError) as error:  # the last: no locks
            raise self.fault(first_line(error)) from None

    def fault(self, reason: str) -> ResourceError:
        """Why nothing can be kept there."""
        rule = f"{self.work.things} cannot be kept there ({reason})"
        move = "Set TUNE_SENTCL_CACHE to a folder that can be written and has room."
        return ResourceError(Fault(self.work.cache, "", str(self.path), rule, move))

    def write(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Write a file that is there whole or not at all.

        Raises:
            OSError, SafetensorError: The disk refused.
        """
        scratch = self.path / f".{name}.{os.getpid()}"
        try:
            save_file(tensors, scratch, metadata={"identity": self.key})
            with scratch.open("rb") as file:
                os.fsync(file.fileno())
            scratch.rename(self.path / f"{name}.safetensors")
        finally:
            scratch.unlink(missing_ok=True)

    def read(self, path: Path, owner: str) -> dict[str, Tensor]:
        """Map a file's tensors into memory.

        Args:
            path: In this folder.
            owner: Whose it must be, in words.

        Raises:
            FileNotFoundError: It is not there.
            OSError: It cannot be opened now.
            SafetensorError, ValueError: It is damaged, or of another identity.
        """
        with safe_open(path, "pt") as file:
            if (file.metadata() or {}).get("identity") != self.key:
                raise ValueError(f"it belongs to another {owner}")
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def usable(self, path: Path, opened: Callable[[Path], T]) -> T | None:
        """What a file holds; None where it is not there, or was put aside, for it is damaged.

        Args:
            path: In this folder.
            opened: By `read`; raises ValueError for what is not what was written.

        Raises:
            ResourceError: It cannot be opened now, or cannot be removed.
        """
        try:
            return opened(path)
        except FileNotFoundError:  # another has put it aside
            return None
        except (SafetensorError, ValueError) as error:
            self.put_aside(path, str(error))
            return None
        except OSError as error:  # says nothing of the file: it must not be lost for that
            raise self.fault(first_line(error)) from None

    def put_aside(self, path: Path, problem: str) -> None:
        """Remove a file that cannot be used, and say so.

        Raises:
            ResourceError: It cannot be removed.
        """
        with self.explained():
            path.unlink(missing_ok=True)
        note = (
            f"{self.work.cache}: {path} cannot be used ({problem}); "
            f"its sentences are {self.work.done} again"
        )
        self.notes.append(note)
        _log.warning(note)
