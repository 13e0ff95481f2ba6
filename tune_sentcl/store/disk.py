"""Atomic and durable files and folders on a local or shared disk."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def atomic_file(path: Path, scratch: Path | None = None) -> Iterator[IO[bytes]]:
    """Write a file that replaces `path` when the block ends without an error.

    Args:
        path: The file to replace.
        scratch: The temporary file, on the same disk; None: a file beside `path`.
    """
    scratch = scratch or _partial(path)
    try:
        with scratch.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        with suppress(OSError):
            # If the name is too long or names a folder, `unlink` fails too.
            scratch.unlink()
        raise
    sync_folder(path.parent)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Fill a temporary folder that is renamed to `path` when the block ends without an error.

    `path` must not exist; its parents are made. A temporary folder of a killed process is deleted.
    """
    make_folder(path.parent)
    scratch = _partial(path)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        yield scratch
        sync_tree(scratch)
        scratch.rename(path)
        sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, and sync each new name to the disk."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_folder(made.parent)


def sync_folder(path: Path) -> None:
    """Sync a folder to the disk, so that the names in it survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            # Some network file systems cannot sync a folder.
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Sync all files in a folder, because a later rename could otherwise reach the disk first."""
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)


def is_alive(pid: int) -> bool:
    """Whether a process with this id exists on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
