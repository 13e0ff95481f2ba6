"""A cache's folder: its files are computed once a machine, and every process maps them.

The folder's name is a hash of everything that its content depends on. One process at a time
writes (`cache_lock.py`), a file appears complete or not at all, and a damaged file is removed.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tune_sentcl.errors import Fault, ResourceError, first_line
from tune_sentcl.model.cache_lock import KEPT, PATIENCE_S, Renew, Work, cache_lock

_log = logging.getLogger(__name__)
T = TypeVar("T")


def cache_root() -> Path:
    """The folder of all caches: TUNE_SENTCL_CACHE, else the user's cache folder."""
    given = os.environ.get("TUNE_SENTCL_CACHE")
    if given:
        return Path(given).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "tune_sentcl"


@dataclass
class CacheFolder:
    """One folder of a cache.

    Attributes:
        work: The words for its messages.
        identity: Everything that the content depends on.
        root: The folder of all caches.
        patience: Seconds without progress of another process before this one stops waiting for it.
        notes: Lines for people, about repaired files and long waits.
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
        """Hold the folder's lock, and remove the scratch files of killed processes.

        Yields:
            A function that the work must call as it goes on.

        Raises:
            ResourceError: The folder cannot be made, or the lock's holder makes no progress.
        """
        with ExitStack() as stack:
            with self.explained():
                self.path.mkdir(parents=True, exist_ok=True)
                lock = cache_lock(self.path, self.patience, self.notes.append, self.work)
                renew = stack.enter_context(lock)
                for left in self.path.glob(".*"):
                    if left.is_dir():
                        shutil.rmtree(left)
                    elif left.name not in KEPT:
                        left.unlink(missing_ok=True)
            yield renew

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn an error of the disk into one that names the next move."""
        try:
            yield
        except (OSError, SafetensorError, NotImplementedError) as error:  # the last: no locks
            raise self.fault(first_line(error)) from None

    def fault(self, reason: str) -> ResourceError:
        """The error of a folder in which nothing can be kept."""
        rule = f"{self.work.things} cannot be kept there ({reason})"
        move = "Set TUNE_SENTCL_CACHE to a folder that can be written and has room."
        return ResourceError(Fault(self.work.cache, "", str(self.path), rule, move))

    def write(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Write a file that appears whole or not at all.

        Raises:
            OSError, SafetensorError: The disk refused an operation.
        """
        scratch = self.path / f".{name}.{os.getpid()}"
        try:
            save_file(tensors, scratch, metadata={"identity": self.key})
            self.publish(scratch, f"{name}.safetensors")
        finally:
            scratch.unlink(missing_ok=True)

    def publish(self, scratch: Path, name: str) -> Path:
        """Give a whole file its name in this folder, once its bytes are on the disk.

        Raises:
            OSError: The disk refused an operation.
        """
        with scratch.open("rb") as file:
            os.fsync(file.fileno())
        return scratch.rename(self.path / name)

    def read(self, path: Path, owner: str) -> dict[str, Tensor]:
        """Map a file's tensors into memory.

        Args:
            path: The file, in this folder.
            owner: The thing to which its content belongs, in words.

        Raises:
            FileNotFoundError: The file does not exist.
            OSError: The file cannot be opened now.
            SafetensorError, ValueError: The file is damaged, or of another identity.
        """
        with safe_open(path, "pt") as file:
            if (file.metadata() or {}).get("identity") != self.key:
                raise ValueError(f"it belongs to another {owner}")
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def usable(self, path: Path, opened: Callable[[Path], T]) -> T | None:
        """Open a file; None if it does not exist, or was damaged and has been removed.

        Args:
            path: The file, in this folder.
            opened: Opens it, and raises ValueError if its content is not as it was written.

        Raises:
            ResourceError: The file cannot be opened now, or cannot be removed.
        """
        try:
            return opened(path)
        except FileNotFoundError:  # another process has removed it
            return None
        except (SafetensorError, ValueError) as error:
            self.remove(path, str(error))
            return None
        except OSError as error:  # the file may be whole, so it stays
            raise self.fault(first_line(error)) from None

    def remove(self, path: Path, problem: str) -> None:
        """Remove a file that cannot be used, and note it.

        Raises:
            ResourceError: The file cannot be removed.
        """
        with self.explained():
            path.unlink(missing_ok=True)
        note = (
            f"{self.work.cache}: {path} cannot be used ({problem}); "
            f"its sentences are {self.work.done} again"
        )
        self.notes.append(note)
        _log.warning(note)
