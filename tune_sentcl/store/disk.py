"""Files and folders on a local or shared disk that appear whole or not at all."""

import errno
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

_TEMPORARY = re.compile(r"^\.(?P<name>.+)\.[0-9a-f]{8}\.(?P<pid>\d+)@(?P<host>.+)$")
_DAY = 24 * 60 * 60.0
# Disks of one machine. Any other kind is taken for shared, for a lock of the system may not reach.
_OWN_KINDS = (
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "bcachefs", "overlay"),
    *("aufs", "tmpfs", "ramfs", "rootfs", "vfat", "exfat", "ntfs3"),
)
_ESCAPED = re.compile(r"\\([0-7]{3})")  # blanks in the table of mounts
_MOUNTS = Path("/proc/self/mountinfo")


def is_shared(path: Path) -> bool:
    """Whether a path may lie on a disk that other machines mount too, by its mount's type."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux: this machine's own, as far as can be told
        return False
    path = path.resolve()
    where, kind = "", ""
    for line in mounts:
        before, _, after = line.partition(" - ")
        point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), before.split()[4])
        if len(point) >= len(where) and path.is_relative_to(point):
            where, kind = point, after.split()[0]
    return kind not in _OWN_KINDS


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


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes its name when the block ends; else nothing is left of it.

    What killed writers of the same folder have left is cleared away.

    Args:
        path: Where there is nothing yet; folders above it are made.

    Raises:
        OSError: The disk refused.
    """
    make_folder(path.parent)
    for left in path.parent.iterdir():
        found = _TEMPORARY.match(left.name)
        if found and found["name"] == path.name and abandoned(left):
            delete_tree(left)
    scratch = temporary(path)
    scratch.mkdir()
    try:
        yield scratch
        sync_tree(scratch)
        scratch.rename(path)
        sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def make_folder(path: Path) -> None:
    """Make a folder and those above it, and see that they outlast a power cut."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_folder(made.parent)


def delete_folder(path: Path) -> None:
    """Delete a folder and all in it; under its own name it is there whole or not at all."""
    scratch = temporary(path)
    with suppress(FileNotFoundError):  # it is gone: there was none, or another was faster
        path.rename(scratch)
        delete_tree(scratch)


def delete_tree(path: Path) -> None:
    """Delete a folder and all in it, or a link; what a link leads to is another's."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path)


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


@dataclass(frozen=True)
class Disk:
    """The files in a folder of a local or shared disk.

    Attributes:
        root: The folder.
    """

    root: Path

    def make_folder(self, name: str) -> None:
        """Make a folder and those above it, where they are missing."""
        make_folder(self.root / name)

    def kind(self, name: str) -> str | None:
        """`file`, `folder` or None, where there is nothing."""
        path = self.root / name
        if path.is_dir():
            return "folder"
        return "file" if path.exists() else None

    def is_file(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self.root / name).is_file()

    def versions(self, folder: str) -> dict[str, Any]:
        """What lies in a folder, by name, with what tells one version from another."""
        found = {}
        with suppress(FileNotFoundError), os.scandir(self.root / folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # it has gone just now
                    status = entry.stat()
                    found[entry.name] = (status.st_size, status.st_mtime_ns, status.st_ino)
        return found

    def read(self, name: str) -> bytes:
        """A file's bytes.

        Raises:
            FileNotFoundError: It is not there.
        """
        return (self.root / name).read_bytes()

    def open(self, name: str) -> Any:
        """A file to read from.

        Raises:
            FileNotFoundError: It is not there.
        """
        return pa.OSFile(str(self.root / name))

    @contextmanager
    def writing(self, name: str, *, new: bool = False) -> Iterator[IO[bytes]]:
        """A file to write, which appears whole when the block ends; `new` cannot be asked."""
        del new
        with whole_file(self.root / name) as file:
            yield file

    def create(self, name: str, data: bytes) -> bool:
        """Write a file where there is none; whether that was so."""
        make_folder((self.root / name).parent)
        try:
            file = (self.root / name).open("xb")
        except FileExistsError:
            return False
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            (self.root / name).unlink(missing_ok=True)
            raise
        return True

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""
        (self.root / name).unlink(missing_ok=True)

    def delete_all(self, names: Collection[str]) -> None:
        """Delete files, in their order."""
        for name in names:
            self.delete(name)
