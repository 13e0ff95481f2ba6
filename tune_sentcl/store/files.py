"""A study's files on a local folder, a shared disk or an object store, behind one set of calls."""

import json
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.disk import make_folder, sweep, whole_file
from tune_sentcl.store.faults import disk_faults
from tune_sentcl.store.provenance import mask_text

# A file of one trial is mostly footer: written plainly, thousands of them read four times as fast.
_SMALL = 50
_PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": False}


@dataclass(frozen=True)
class StudyFiles:
    """Where a study lies. Names are relative to it, with `/` between parts. Can be pickled.

    Attributes:
        filesystem: A `pyarrow.fs.FileSystem`.
        root: The study's folder in it.
        where: The folder or URL for messages, without secrets.
    """

    filesystem: Any
    root: str
    where: str

    @classmethod
    def at(cls, path: str | Path, filesystem: Any = None) -> Self:
        """Find the file system that a path or URL lies on.

        Args:
            path: A folder, or a URL that `pyarrow.fs.FileSystem.from_uri` takes.
            filesystem: A `pyarrow.fs.FileSystem` in which `path` lies, to be asked in its stead.

        Raises:
            StudyError: No file system takes the URL.
        """
        text = str(path)
        if filesystem is not None:
            return cls(filesystem, text.rstrip("/"), mask_text(text))
        if "://" not in text:
            folder = str(Path(text).expanduser().absolute())
            return cls(pafs.LocalFileSystem(), folder, folder)
        try:
            found, root = pafs.FileSystem.from_uri(text)
        except (OSError, ImportError, ValueError, pa.ArrowException) as error:
            rule = f"must be a URL that pyarrow can open ({mask_text(str(error))})"
            move = "Check the address, the network and your credentials."
            raise StudyError(Fault(mask_text(text), "", "", rule, move)) from None
        return cls(found, root.rstrip("/"), mask_text(text))

    @property
    def local(self) -> bool:
        """Whether the files lie on a disk that this machine mounts."""
        return isinstance(self.filesystem, pafs.LocalFileSystem)

    def path(self, name: str = "") -> str:
        """A file's path in the file system."""
        return f"{self.root}/{name}" if name else self.root

    def shown(self, name: str) -> str:
        """A file's path or URL for messages."""
        return f"{self.where.rstrip('/')}/{name}" if name else self.where

    def make_folders(self, *names: str) -> None:
        """Make the study's folder and folders in it, where they are missing.

        Raises:
            StudyError: The disk refused.
        """
        for name in ("", *names):
            with disk_faults(self.shown(name)):
                if self.local:
                    make_folder(Path(self.path(name)))
                else:
                    self.filesystem.create_dir(self.path(name), recursive=True)

    def is_folder(self) -> bool:
        """Whether the study's folder exists.

        Raises:
            StudyError: There is something else in its place, or the disk refused.
        """
        with disk_faults(self.where):
            kind = self.filesystem.get_file_info(self.root).type
        if kind in (pafs.FileType.Directory, pafs.FileType.NotFound):
            return bool(kind == pafs.FileType.Directory)
        move = "Choose another path for the study."
        raise StudyError(Fault(self.where, "", "", "must be a folder", move))

    def exists(self, name: str) -> bool:
        """Whether a file or folder exists."""
        with disk_faults(self.shown(name)):
            kind = self.filesystem.get_file_info(self.path(name)).type
        return bool(kind != pafs.FileType.NotFound)

    def names(self, folder: str = "") -> list[str]:
        """Names of what lies in a folder, sorted, dot files included; empty if there is none."""
        return sorted(self.versions(folder))

    def versions(self, folder: str) -> dict[str, tuple[int, int]]:
        """Size and time of change, in nanoseconds, of what lies in a folder, by name."""
        selector = pafs.FileSelector(self.path(folder), allow_not_found=True)
        with disk_faults(self.shown(folder)):
            found = self.filesystem.get_file_info(selector)
        return {info.base_name: (info.size or 0, info.mtime_ns or 0) for info in found}

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write, which appears whole when the block ends, or not at all.

        On a disk that is a renaming, on an object store an upload of what was written here.

        Raises:
            StudyError: The disk refused; the old file, if any, is as it was.
        """
        with disk_faults(self.shown(name)):
            if self.local:
                with whole_file(Path(self.path(name))) as file:
                    yield file
            else:
                with tempfile.TemporaryFile() as file:
                    yield file
                    file.seek(0)
                    with self.filesystem.open_output_stream(self.path(name)) as stream:
                        shutil.copyfileobj(file, stream)

    def write_bytes(self, name: str, data: Any) -> None:
        """Write a file whole; see `writing`."""
        with self.writing(name) as file:
            file.write(data)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a Parquet file whole; see `writing`."""
        sink = pa.BufferOutputStream()
        if len(table) < _SMALL:
            pq.write_table(table, sink, **_PLAIN)
        else:
            pq.write_table(table, sink, compression="zstd")
        self.write_bytes(name, memoryview(sink.getvalue()))

    @contextmanager
    def reading(self, name: str, repeating: Collection[str] = ()) -> Iterator[Any]:
        """One Parquet file as a `pyarrow.parquet.ParquetFile`.

        Args:
            name: The file.
            repeating: Columns to read as dictionaries, where they are there: a long file is read
                and filtered several times as fast.

        Raises:
            FileNotFoundError: It is not there (any more).
            StudyError: It is damaged, or the disk refused.
        """
        try:
            with self.filesystem.open_input_file(self.path(name)) as source:
                footer = pq.read_metadata(source) if repeating else None
                there = [n for n in repeating if footer and n in footer.schema.names]
                yield pq.ParquetFile(source, metadata=footer, read_dictionary=there)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            rule = f"must be a whole Parquet file ({error})"
            move = "Restore it from a copy, or delete it and repeat the command to run it again."
            raise StudyError(Fault(self.shown(name), "", "", rule, move)) from error

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a JSON file whole; see `write_bytes`."""
        text = json.dumps(document, indent=2, ensure_ascii=False)
        self.write_bytes(name, f"{text}\n".encode())

    def read_json(self, name: str) -> Any:
        """Read a JSON file.

        Raises:
            StudyError: It is missing or damaged, or the disk refused.
        """
        with (
            disk_faults(self.shown(name)),
            self.filesystem.open_input_file(self.path(name)) as file,
        ):
            data = file.read()
        try:
            return json.loads(data)
        except ValueError as error:  # also what is no UTF-8
            move = "Restore it from a copy; the tables beside it are whole."
            fault = Fault(self.shown(name), "", "", f"must be JSON ({error})", move)
            raise StudyError(fault) from None

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""
        with disk_faults(self.shown(name)):
            if self.local:
                Path(self.path(name)).unlink(missing_ok=True)
                return
            try:
                self.filesystem.delete_file(self.path(name))
            except FileNotFoundError:
                return

    def sweep(self, *folders: str) -> None:
        """Delete temporary files of killed writers; an object store has none."""
        for folder in folders if self.local else ():
            with disk_faults(self.shown(folder)):
                sweep(Path(self.path(folder)))
