"""The files that a driver writes, each replaced whole, and never by a driver with a successor.

On a disk a driver writes into a folder of its own, whose name begins with a dot, and renames from
there. Its successor makes its own folder, moves the older ones away and deletes them: a rename
that comes later finds no file. A driver that makes its folder after its successor finds that one.
The folder also keeps half-written files out of the tables, where `pd.read_parquet` would read
them.

On an object store each put is conditional: on the version that the driver read or wrote last, or
on the object's absence. If a lease expired before it was released, the successor first makes its
own version of every part, and its own next part of each table (`take_over`): a put that comes
later finds another version.
"""

import errno
import secrets
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.disk import atomic_file, sync_folder
from tune_sentcl.store.files import StudyFiles, Version
from tune_sentcl.store.objects import TakenError, storage_errors
from tune_sentcl.store.parts import empty_part, marked_part, next_part, part_names

SCRATCH = ".driver-"
"""How the name of a driver's own folder begins."""

_TRIES = 20


class DriverFiles:
    """Writes the files of a study for the driver that holds its lock.

    Attributes:
        files: The study's files, for reading.
    """

    def __init__(self, files: StudyFiles, lease: int) -> None:
        """Bar all earlier drivers of a disk; those of an object store are barred by `take_over`.

        Args:
            files: The study's files.
            lease: The number of the driver's lease; 0 without one.

        Raises:
            StudyError: Another driver has taken over, or the storage cannot be written.
        """
        self.files = files
        self._token = secrets.token_hex(4)
        self._versions: dict[str, Version] = {}
        self._scratch: Path | None = None
        if files.folder is not None:
            with storage_errors(files.where):
                self._scratch = files.folder / f"{SCRATCH}{lease:06d}-{self._token}"
                self._scratch.mkdir()
                sync_folder(files.folder)
                for other in files.folder.glob(f"{SCRATCH}*"):
                    if other.name[: len(SCRATCH) + 6] > self._scratch.name[: len(SCRATCH) + 6]:
                        self.close()
                        raise self._succeeded()
                    if other != self._scratch:
                        _remove(other)

    def take_over(self, tables: Collection[str]) -> None:
        """Bar an earlier driver that did not release an object store."""
        if self.files.folder is None:
            for folder in tables:
                names = part_names(self.files, folder)
                rows = self.files.each(self._make_own, names)
                while not rows or rows[-1]:  # behind an empty part no driver begins another one
                    names.append(next_part(folder, names))
                    made = self._create(names[-1], empty_part(folder))
                    rows.append(0 if made else self._make_own(names[-1]))

    def read(self, name: str) -> bytes | None:
        """Read a file before it is replaced; None if it is missing."""
        with suppress(FileNotFoundError):
            data, self._versions[name] = self.files.read(name)
            return data
        return None

    def write(self, name: str, data: bytes, *, for_display: bool = False) -> None:
        """Create a file, or replace one that this driver has read or written.

        Args:
            name: The file.
            data: Its content.
            for_display: Whether any version of an object may be replaced, because no search reads
                the file.

        Raises:
            StudyError: Another driver has taken over, or the storage cannot be written.
        """
        with storage_errors(self.files.display_path(name)):
            try:
                if for_display and self._scratch is None:
                    self.files.write_bytes(name, data)
                elif self._scratch is None:
                    self._put(name, data)
                else:
                    scratch = self._scratch / name.replace("/", ".")
                    with atomic_file(Path(self.files.where) / name, scratch) as file:
                        file.write(data)
            except (TakenError, FileNotFoundError) as error:
                if self._scratch is not None and self._scratch.is_dir():
                    raise
                raise self._succeeded() from error

    def close(self) -> None:
        """Delete the driver's own folder."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _succeeded(self) -> StudyError:
        rule = "another driver has taken over"
        move = "Leave the study to it; the rows that this driver committed are kept."
        return StudyError(Fault(self.files.where, "", "", rule, move))

    def _put(self, name: str, data: bytes) -> None:
        self._versions[name] = self.files.replace(name, data, self._versions.get(name))

    def _create(self, name: str, data: bytes) -> bool:
        try:
            self._put(name, data)
        except TakenError:
            return False
        return True

    def _make_own(self, name: str) -> int:
        """Replace any version of a part by the same rows in other bytes; return their number."""
        with storage_errors(self.files.display_path(name)):
            for _ in range(_TRIES):
                data, rows = marked_part(self.read(name) or b"", self._token)
                if self._create(name, data):
                    return rows
            raise OSError(errno.EAGAIN, f"it changed {_TRIES} times meanwhile")


def _remove(old: Path) -> None:
    """Move another driver's folder away, then delete it.

    The deletion bars a client of a network disk that still has the folder's handle.
    """
    gone = old.with_name(f"{SCRATCH}000000-gone-{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):
        old.rename(gone)
        sync_folder(gone.parent)
    if not gone.is_dir():  # a test file of `on_ray.survey`
        gone.unlink(missing_ok=True)
    while gone.is_dir():  # a late writer may add a file meanwhile
        shutil.rmtree(gone, ignore_errors=True)
