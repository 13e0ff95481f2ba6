"""Files on a local or shared disk that appear whole or not at all."""

import errno
import os
import re
import secrets
import socket
import time
from pathlib import Path

_TEMPORARY = re.compile(r"^\..+\.[0-9a-f]{8}\.(?P<pid>\d+)@(?P<host>.+)$")
_DAY = 24 * 60 * 60.0


def write_whole(path: Path, data: bytes | memoryview) -> None:
    """Write a file by way of a temporary name in its folder, so that no reader sees half of it.

    The name begins with a dot, because readers of a folder of tables skip those.

    Raises:
        OSError: The disk refused; the old file, if any, is as it was.
    """
    temporary = path.with_name(
        f".{path.name}.{secrets.token_hex(4)}.{os.getpid()}@{socket.gethostname()}"
    )
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, and see that they outlast a power cut."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_folder(made.parent)


def sync_folder(path: Path) -> None:
    """See that the names in a folder outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks cannot
            raise
    finally:
        os.close(descriptor)


def is_temporary(name: str) -> bool:
    """Whether a file name is one that `write_whole` uses on the way."""
    return bool(_TEMPORARY.match(name))


def sweep(folder: Path) -> None:
    """Delete what killed writers left: files of dead processes here, and any older than a day."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        match = _TEMPORARY.match(path.name)
        if match and _abandoned(path, int(match["pid"]), match["host"]):
            path.unlink(missing_ok=True)


def _abandoned(path: Path, pid: int, host: str) -> bool:
    if host == socket.gethostname() and not _alive(pid):
        return True
    try:
        return time.time() - path.stat().st_mtime > _DAY
    except FileNotFoundError:  # its writer ended just now
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
