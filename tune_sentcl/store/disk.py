"""Files and folders on a local or shared disk that appear whole or not at all."""

import errno
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_TEMPORARY = re.compile(r"^\..+\.[0-9a-f]{8}\.(?P<pid>\d+)@(?P<host>.+)$")
_DAY = 24 * 60 * 60.0


def temporary(path: Path) -> Path:
    """A name beside `path` to work under, that says who does.

    It begins with a dot, because readers of a folder of tables skip those.
    """
    maker = f"{os.getpid()}@{socket.gethostname()}"
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{maker}")


def is_temporary(name: str) -> bool:
    """Whether a file name is one that `temporary` makes."""
    return bool(_TEMPORARY.match(name))


def abandoned(path: Path) -> bool:
    """Whether who works under a temporary name is gone: dead here, or silent for a day."""
    match = _TEMPORARY.match(path.name)
    if match and match["host"] == socket.gethostname() and not alive(int(match["pid"])):
        return True
    try:
        return time.time() - path.stat().st_mtime > _DAY
    except FileNotFoundError:  # its writer ended just now
        return False


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes its name when the block ends, so that nobody sees half of it.

    Raises:
        OSError: The disk refused; the old file, if any, is as it was.
    """
    scratch = temporary(path)
    try:
        with scratch.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, and see that they outlast a power cut."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_folder(made.parent)


def delete_folder(path: Path) -> None:
    """Delete a folder and all in it; under its own name it is there whole or not at all."""
    if path.exists():
        scratch = temporary(path)
        path.rename(scratch)
        shutil.rmtree(scratch)


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


def sync_tree(folder: Path) -> None:
    """See that all in a folder outlasts a power cut, for its renaming may reach the disk first."""
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)


def sweep(folder: Path) -> None:
    """Delete the files that killed writers left in a folder."""
    if folder.is_dir():
        for path in folder.iterdir():
            if is_temporary(path.name) and abandoned(path):
                path.unlink(missing_ok=True)


def alive(pid: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
