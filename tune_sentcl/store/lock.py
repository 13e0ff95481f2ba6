"""One driver a study: a lock that the system frees when its holder ends, however it ends."""

import fcntl
import json
import os
import socket
from pathlib import Path

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.faults import disk_faults

LOCK = ".lock"
"""The lock's file name in the study; the file stays, only the lock on it comes and goes."""


class StudyLock:
    """Held from its making until `release`, or until the process is gone."""

    def __init__(self, folder: Path) -> None:
        """Take the lock at once, or say who has it.

        Args:
            folder: The study's folder, which must exist.

        Raises:
            StudyError: Another process has it, or the disk refused.
        """
        path = folder / LOCK
        with disk_faults(str(path)):
            self._file = path.open("a+", encoding="utf-8")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._file.truncate(0)
                self._file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
                self._file.flush()
            except BlockingIOError:
                holder = _holder(path)
                self._file.close()
                rule = f"another driver has this study: {holder}"
                move = "Wait for it to end, or stop it; then repeat the command."
                raise StudyError(Fault(str(folder), "", "", rule, move)) from None
            except OSError:
                self._file.close()
                raise

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        self._file.close()


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is just writing its name
        return "a process that has only now begun"
