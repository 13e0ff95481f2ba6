"""A study's files on a local folder, a shared disk or an object store, behind one set of calls."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from tune_sentcl.errors import DamagedError, Fault, StudyError
from tune_sentcl.store.disk import Disk, sweep
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.storage import disk_faults

# A file of one trial is mostly footer: written plainly, thousands of them read four times as fast.
_SMALL = 50
_PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": False}


class Storage(Protocol):
    """What disks and object stores can both do; names are relative, with `/` between parts."""

    def make_folder(self, name: str) -> None:
        """Make a folder, where folders have to be made."""
        ...

    def kind(self, name: str) -> str | None:
        """`file`, `folder` or None, where there is nothing."""
        ...

    def is_file(self, name: str) -> bool:
        """Whether there is a file of that name."""
        ...

    def versions(self, folder: str) -> dict[str, Any]:
        """What lies in a folder, by name, with what tells one version from another."""
        ...

    def read(self, name: str) -> bytes:
        """A file's bytes."""
        ...

    def open(self, name: str) -> Any:
        """A file for Arrow to read from."""
        ...

    def writing(self, name: str, *, new: bool = False) -> AbstractContextManager[IO[bytes]]:
        """A file to write, which appears whole when the block ends, or not at all."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Write a file where there is none; whether that was so."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""
        ...

    def delete_all(self, names: Collection[str]) -> None:
        """Delete files, in no order that could be counted on."""
        ...


@dataclass(frozen=True)
class StudyFiles:
    """Where a study lies. Names are relative to it, with `/` between parts. Can be pickled.

    Attributes:
        storage: The disk or the object store.
        where: The folder or URL for messages.
    """

    storage: Storage
    where: str

    @classmethod
    def at(cls, path: str | Path) -> Self:
        """Find where a path or URL lies.

        Args:
            path: A folder, a `file://` URL, or an object store's (`objects.SCHEMES`).

        Raises:
            StudyError: The URL is none of those.
        """
        text = str(path)
        if text.startswith("file:"):
            text = _path_of(text)
        if "://" in text:
            # Only who has a study there pays for the library.
            from tune_sentcl.store.objects import objects_at

            return cls(objects_at(text), text.rstrip("/"))
        folder = Path(text).expanduser().absolute()
        return cls(Disk(folder), str(folder))

    @property
    def folder(self) -> Path | None:
        """The folder on a disk that this machine mounts; None for an object store."""
        return self.storage.root if isinstance(self.storage, Disk) else None

    def refuse_links(self, *names: str) -> None:
        """See that places of a study, which may come from anywhere, are its own.

        Through a link we would write and delete in other places.

        Raises:
            StudyError: One is a link.
        """
        if self.folder is None:
            return
        for name in names:
            if (self.folder / name).is_symlink():
                rule = "must be the study's own, and is a link"
                raise StudyError(
                    Fault(self.shown(name), "", "", rule, "Put what it leads to there.")
                )

    def shown(self, name: str) -> str:
        """A file's path or URL for messages."""
        return f"{self.where}/{name}" if name else self.where

    def make_folders(self, *names: str) -> None:
        """Make the study's folder and folders in it, where they are missing.

        Raises:
            StudyError: The disk refused.
        """
        for name in ("", *names):
            with disk_faults(self.shown(name)):
                self.storage.make_folder(name)

    def is_folder(self) -> bool:
        """Whether the study's folder exists.

        Raises:
            StudyError: There is something else in its place, or the disk refused.
        """
        with disk_faults(self.where):
            kind = self.storage.kind("")
        if kind == "file":
            move = "Choose another path for the study."
            raise StudyError(Fault(self.where, "", "", "must be a folder", move))
        return kind is not None

    def exists(self, name: str) -> bool:
        """Whether a file exists."""
        with disk_faults(self.shown(name)):
            return self.storage.is_file(name)

    def names(self, folder: str = "") -> list[str]:
        """Names of what lies in a folder, sorted, dot files included; empty if there is none."""
        return sorted(self.versions(folder))

    def versions(self, folder: str) -> dict[str, Any]:
        """What lies in a folder, by name, with what tells one version of it from another."""
        with disk_faults(self.shown(folder)):
            return self.storage.versions(folder)

    @contextmanager
    def writing(self, name: str, *, new: bool = False) -> Iterator[IO[bytes]]:
        """A file to write, which appears whole when the block ends, or not at all.

        On a disk that is a renaming, on an object store an upload of what was written here.

        Args:
            name: The file.
            new: On an object store, whether there must be none of that name; a disk cannot be
                asked that.

        Raises:
            StudyError: The disk refused, or there is one; the old file, if any, is as it was.
        """
        with disk_faults(self.shown(name)), self.storage.writing(name, new=new) as file:
            yield file

    def write_bytes(self, name: str, data: Any, *, new: bool = False) -> None:
        """Write a file whole; see `writing`."""
        with self.writing(name, new=new) as file:
            file.write(data)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file where there is none; whether that was so.

        Raises:
            StudyError: The disk refused.
        """
        with disk_faults(self.shown(name)):
            return self.storage.create(name, data)

    def read_bytes(self, name: str) -> bytes | None:
        """A file's bytes; None where there is none.

        Raises:
            StudyError: The disk refused.
        """
        with disk_faults(self.shown(name)):
            try:
                return self.storage.read(name)
            except FileNotFoundError:
                return None

    def write_table(self, name: str, table: pa.Table, *, new: bool = False) -> None:
        """Write a Parquet file whole; see `writing`."""
        sink = pa.BufferOutputStream()
        if len(table) < _SMALL:
            pq.write_table(table, sink, **_PLAIN)
        else:
            pq.write_table(table, sink, compression="zstd")
        self.write_bytes(name, memoryview(sink.getvalue()), new=new)

    @contextmanager
    def reading(self, name: str, repeating: Collection[str] = ()) -> Iterator[Any]:
        """One Parquet file as a `pyarrow.parquet.ParquetFile`.

        Args:
            name: The file.
            repeating: Columns to read as dictionaries, where they are there: a long file is read
                and filtered several times as fast.

        Raises:
            FileNotFoundError: It is not there (any more).
            DamagedError: It is no whole Parquet file.
            StudyError: The disk refused.
        """
        with self._opened(name) as source:
            try:
                footer = pq.read_metadata(source) if repeating else None
                there = [n for n in repeating if footer and n in footer.schema.names]
                yield pq.ParquetFile(source, metadata=footer, read_dictionary=there)
            except FileNotFoundError:
                raise
            except (OSError, pa.ArrowException) as error:
                # Arrow says of what it cannot decode that it is an OSError, without a number.
                refused = isinstance(error, OSError) and error.errno is not None
                raise (StudyError if refused else DamagedError)(
                    self._no_table(name, error)
                ) from error

    def _opened(self, name: str) -> Any:
        try:
            return self.storage.open(name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StudyError(self._no_table(name, error)) from error

    def _no_table(self, name: str, error: Exception) -> Fault:
        rule = f"must be a whole Parquet file ({error})"
        move = "Restore it from a copy, or delete it and repeat the command to run it again."
        return Fault(self.shown(name), "", "", rule, move)

    def write_json(self, name: str, document: Mapping[str, Any], *, new: bool = False) -> None:
        """Write a JSON file whole; see `writing`."""
        text = json.dumps(document, indent=2, ensure_ascii=False)
        self.write_bytes(name, f"{text}\n".encode(), new=new)

    def read_json(self, name: str) -> Any:
        """Read a JSON file.

        Raises:
            DamagedError: It is no JSON.
            StudyError: It is missing, or the disk refused.
        """
        with disk_faults(self.shown(name)):
            data = self.storage.read(name)
        try:
            return json.loads(data)
        except ValueError as error:  # also what is no UTF-8
            move = "Restore it from a copy; the tables beside it are whole."
            fault = Fault(self.shown(name), "", "", f"must be JSON ({error})", move)
            raise DamagedError(fault) from None

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""
        with disk_faults(self.shown(name)):
            self.storage.delete(name)

    def delete_all(self, folder: str, names: Collection[str]) -> None:
        """Delete files of a folder, in no order that could be counted on."""
        with disk_faults(self.shown(folder)):
            self.storage.delete_all([f"{folder}/{name}" for name in names])

    def sweep(self, *folders: str) -> None:
        """Delete temporary files of killed writers; an object store has none."""
        if self.folder is None:
            return
        for name in folders:
            with disk_faults(self.shown(name)):
                sweep(self.folder / name)


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    here = url.startswith("file:///") or parts.netloc == "localhost"
    if not here or "?" in url or "#" in url or not parts.path.strip("/"):
        rule = "must name a folder of this machine, as file:///PATH"
        raise StudyError(Fault(mask_text(url), "", "", rule, "Correct it, or give a plain path."))
    return unquote(parts.path)
