"""A study's files in a local folder, on a shared disk or on an object store, as one class."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from tune_sentcl.errors import DamagedError, Fault, StudyError, refuse_credentials
from tune_sentcl.store.disk import DiskStorage, sweep
from tune_sentcl.store.storage import storage_errors

# A trial's file is mostly footer. Without compression, thousands of them read four times as fast.
_SMALL = 50
_PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": False}


class Storage(Protocol):
    """Operations of disks and object stores; names are relative, with `/` between parts."""

    def make_folder(self, name: str) -> None:
        """Make a folder and its parents; an object store does nothing."""
        ...

    def kind(self, name: str) -> str | None:
        """Return `file`, `folder`, or None if the name does not exist."""
        ...

    def is_file(self, name: str) -> bool:
        """Whether a file of this name exists."""
        ...

    def versions(self, folder: str) -> dict[str, Any]:
        """List a folder: each name with a value that changes when the file changes."""
        ...

    def read(self, name: str) -> bytes:
        """Read a file; FileNotFoundError if it is missing."""
        ...

    def open(self, name: str) -> Any:
        """Open a file for Arrow; FileNotFoundError if it is missing."""
        ...

    def writing(self, name: str, *, new: bool = False) -> AbstractContextManager[IO[bytes]]:
        """Write a file that appears, complete, only when the block ends without an error."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Write a file if none exists; return whether it was written."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        ...

    def delete_all(self, names: Collection[str]) -> None:
        """Delete files in any order."""
        ...


@dataclass(frozen=True)
class StudyFiles:
    """The files of one study; errors of its storage become `StudyError`. Can be pickled.

    Attributes:
        storage: The disk or the object store; names are relative to the study.
        where: The folder or URL for messages.
    """

    storage: Storage
    where: str

    @classmethod
    def at(cls, path: str | Path) -> Self:
        """Make the files of a study from its folder, `file://` URL or object-store URL.

        Raises:
            ConfigError: The URL has credentials.
            StudyError: It has an unknown scheme.
        """
        text = str(path)
        refuse_credentials("study", "", text)
        if text.startswith("file:"):
            text = _path_of(text)
        if "://" in text:
            # Imported here because obstore takes time to load and few studies need it.
            from tune_sentcl.store.objects import objects_at

            return cls(objects_at(text), text.rstrip("/"))
        folder = Path(text).expanduser().absolute()
        return cls(DiskStorage(folder), str(folder))

    @property
    def folder(self) -> Path | None:
        """The folder on a disk that this machine mounts; None for an object store."""
        return self.storage.root if isinstance(self.storage, DiskStorage) else None

    def refuse_links(self, *names: str) -> None:
        """Refuse symbolic links, which would make us write and delete outside the study."""
        if self.folder is None:
            return
        for name in names:
            if (self.folder / name).is_symlink():
                rule = "must not be a symbolic link"
                move = "Replace the link by the file or folder that it points to."
                raise StudyError(Fault(self.display_path(name), "", "", rule, move))

    def display_path(self, name: str) -> str:
        """A file's path or URL for messages."""
        return f"{self.where}/{name}" if name else self.where

    def make_folders(self, *names: str) -> None:
        """Make the study's folder and these folders in it, if they are missing."""
        for name in ("", *names):
            with storage_errors(self.display_path(name)):
                self.storage.make_folder(name)

    def is_folder(self) -> bool:
        """Whether the study's folder exists; a file in its place is an error."""
        with storage_errors(self.where):
            kind = self.storage.kind("")
        if kind == "file":
            move = "Choose another path for the study."
            raise StudyError(Fault(self.where, "", "", "must be a folder", move))
        return kind is not None

    def exists(self, name: str) -> bool:
        """Whether a file exists."""
        with storage_errors(self.display_path(name)):
            return self.storage.is_file(name)

    def names(self, folder: str = "") -> list[str]:
        """Sorted names in a folder, with dot files; empty if the folder does not exist."""
        return sorted(self.versions(folder))

    def versions(self, folder: str) -> dict[str, Any]:
        """See `Storage`."""
        with storage_errors(self.display_path(folder)):
            return self.storage.versions(folder)

    @contextmanager
    def writing(self, name: str, *, new: bool = False) -> Iterator[IO[bytes]]:
        """Write a file that appears, complete, only when the block ends without an error.

        After an error the old file, if any, is unchanged. A disk renames a temporary file, an
        object store uploads one.

        Args:
            name: The file.
            new: Fail if the file exists. Only object stores check this.
        """
        with storage_errors(self.display_path(name)), self.storage.writing(name, new=new) as file:
            yield file

    def write_bytes(self, name: str, data: Any, *, new: bool = False) -> None:
        """Write a file atomically; see `writing`."""
        with self.writing(name, new=new) as file:
            file.write(data)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file if none exists; return whether it was written."""
        with storage_errors(self.display_path(name)):
            return self.storage.create(name, data)

    def read_bytes(self, name: str) -> bytes | None:
        """Read a file; None if it is missing."""
        with storage_errors(self.display_path(name)):
            try:
                return self.storage.read(name)
            except FileNotFoundError:
                return None

    def write_table(self, name: str, table: pa.Table, *, new: bool = False) -> None:
        """Write a Parquet file atomically; see `writing`."""
        sink = pa.BufferOutputStream()
        if len(table) < _SMALL:
            pq.write_table(table, sink, **_PLAIN)
        else:
            pq.write_table(table, sink, compression="zstd")
        self.write_bytes(name, memoryview(sink.getvalue()), new=new)

    @contextmanager
    def reading(self, name: str, repeating: Collection[str] = ()) -> Iterator[Any]:
        """Open a `pyarrow.parquet.ParquetFile`.

        Args:
            name: The file.
            repeating: Columns to read as dictionaries if they exist. Long files are then read
                and filtered several times as fast.

        Raises:
            FileNotFoundError: The file is missing, or was deleted meanwhile.
            DamagedError: It is not a complete Parquet file.
            StudyError: The storage cannot be read.
        """
        with self._open(name) as source:
            try:
                footer = pq.read_metadata(source) if repeating else None
                there = [n for n in repeating if footer and n in footer.schema.names]
                yield pq.ParquetFile(source, metadata=footer, read_dictionary=there)
            except FileNotFoundError:
                raise
            except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
                # Arrow raises OSError without a number for bytes that it cannot decode.
                refused = isinstance(error, OSError) and error.errno is not None
                raise (StudyError if refused else DamagedError)(
                    self._unreadable_table(name, error)
                ) from error

    def _open(self, name: str) -> Any:
        try:
            return self.storage.open(name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StudyError(self._unreadable_table(name, error)) from error

    def _unreadable_table(self, name: str, error: Exception) -> Fault:
        rule = f"must be a complete Parquet file ({error})"
        move = "Restore it from a copy, or delete it and repeat the command to run it again."
        return Fault(self.display_path(name), "", "", rule, move)

    def write_json(self, name: str, document: Mapping[str, Any], *, new: bool = False) -> None:
        """Write a JSON file atomically; see `writing`."""
        text = json.dumps(document, indent=2, ensure_ascii=False)
        self.write_bytes(name, f"{text}\n".encode(), new=new)

    def read_json(self, name: str) -> Any:
        """Read a JSON file; DamagedError if it is not JSON."""
        with storage_errors(self.display_path(name)):
            data = self.storage.read(name)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:  # also if it is not UTF-8
            move = "Restore it from a copy; the tables beside it are intact."
            fault = Fault(self.display_path(name), "", "", f"must be JSON ({error})", move)
            raise DamagedError(fault) from None

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        with storage_errors(self.display_path(name)):
            self.storage.delete(name)

    def delete_all(self, folder: str, names: Collection[str]) -> None:
        """Delete files of a folder in any order."""
        with storage_errors(self.display_path(folder)):
            self.storage.delete_all([f"{folder}/{name}" for name in names])

    def sweep(self, *folders: str) -> None:
        """Delete temporary files of killed writers; object stores have none."""
        if self.folder is None:
            return
        for name in folders:
            with storage_errors(self.display_path(name)):
                sweep(self.folder / name)


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    here = url.startswith("file:///") or parts.netloc == "localhost"
    if not here or not parts.path.strip("/"):
        rule = "must name a folder of this machine as file:///PATH"
        raise StudyError(Fault(url, "", "", rule, "Correct it, or give a plain path."))
    return unquote(parts.path)
