"""A study's files in a local folder, on a shared disk or in an object store, by one interface."""

import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import unquote, urlsplit

import obstore

from tune_sentcl.errors import ConfigError, Fault, StudyError, first_line, refuse_credentials
from tune_sentcl.store.disk import make_folder
from tune_sentcl.store.objects import (
    TakenError,
    check_url,
    client_of,
    storage_errors,
)

T = TypeVar("T")
Version = Mapping[str, str | None]
"""Distinguishes the versions of an object."""

_VERSION: Final = ("e_tag", "version")
_AT_ONCE = 8  # the number of parallel requests


@dataclass(frozen=True)
class StudyFiles:
    """The files of one study; errors of the storage become `StudyError`. Can be pickled.

    Names are relative to the study, with `/` between parts. Files that must survive a crash of the
    machine are written by `DriverFiles` and `trial_folders` instead, because obstore does not sync
    a disk.

    Attributes:
        where: The folder or the URL, without credentials.
    """

    where: str

    @classmethod
    def at(cls, path: str | Path) -> Self:
        """Make the files of a study from its folder, `file://` URL or object-store URL.

        Raises:
            ConfigError: The URL has credentials.
            StudyError: The URL has an unknown scheme.
        """
        text = str(path)
        refuse_credentials("study", "", text)
        if text.startswith("file:"):
            text = _path_of(text)
        if "://" in text:
            check_url(text)
            return cls(text.rstrip("/"))
        return cls(str(Path(text).expanduser().absolute()))

    @property
    def folder(self) -> Path | None:
        """The folder on a disk that this machine mounts; None for an object store."""
        return None if "://" in self.where else Path(self.where)

    @property
    def client(self) -> Any:
        """The obstore client; raises FileNotFoundError if the folder is missing."""
        return client_of(self.where)

    def refuse_links(self, *names: str) -> None:
        """Refuse symbolic links, through which this package would write outside the study."""
        if self.folder is None:
            return
        for name in names:
            if (self.folder / name).is_symlink():
                rule = "must not be a symbolic link"
                move = "Replace the link by the file or folder that it points to."
                raise StudyError(Fault(self.display_path(name), rule=rule, move=move))

    def display_path(self, name: str) -> str:
        """A file's path or URL for messages."""
        return f"{self.where}/{name}" if name else self.where

    def make_folders(self, *names: str) -> None:
        """On a disk, make the study's folder and these folders in it, if they are missing."""
        for name in ("", *names):
            with storage_errors(self.display_path(name)):
                if self.folder is not None:
                    make_folder(self.folder / name)

    def is_folder(self) -> bool:
        """Whether the study's folder exists; raises StudyError if a file is in its place."""
        if self.folder is None:
            return bool(self.versions(""))
        with storage_errors(self.where), suppress(FileNotFoundError):
            if self.folder.is_dir():
                return True
            self.folder.stat()
            move = "Choose another path for the study."
            raise StudyError(Fault(self.where, rule="must be a folder", move=move))
        return False

    def exists(self, name: str) -> bool:
        """Whether a file exists."""
        with suppress(FileNotFoundError), self._reading(name):
            obstore.head(self.client, name)
            return True
        return False

    def inside_of(self, name: str) -> str | None:
        """The nearest parent of the study that holds a file and can be read; else None."""
        is_local = self.folder is not None
        parts = study_identity(self.where).split("/")
        for count in range(len(parts) - 1, 1 if is_local else 2, -1):
            outer = StudyFiles("/".join(parts[:count]))
            with suppress(StudyError):
                # A key may allow access to the study only, not to the folders above.
                if outer.exists(name):
                    return outer.where
        return None

    def names(self, folder: str = "") -> list[str]:
        """The sorted names in a folder, with dot files; empty if the folder does not exist."""
        return sorted(self.versions(folder))

    def versions(self, folder: str) -> dict[str, Any]:
        """List a folder: by name, the ETag of a file; None for a folder."""
        with suppress(FileNotFoundError), self._reading(folder):
            listed = obstore.list_with_delimiter(self.client, folder or None)
            folders: dict[str, Any] = {_base(name): None for name in listed["common_prefixes"]}
            files = {_base(item["path"]): item["e_tag"] for item in listed["objects"]}
            # Consoles and file browsers mark a folder by an object of one of these names.
            for mark in ("", _base(folder)):
                files.pop(mark, None)
            return folders | files
        return {}

    def below(self, folder: str) -> list[str]:
        """List the files in a folder, recursively.

        obstore refuses names with `..`, so no listed name leads out of the folder.
        """
        # The slash leaves out an object with exactly this name, by which a console marks a folder.
        start = f"{folder}/"
        with self._reading(folder):
            chunks = obstore.list(self.client, start)
            paths = [item["path"] for chunk in chunks for item in chunk]
        return [path for path in paths if path.startswith(start)]

    def read(self, name: str) -> tuple[bytes, Version]:
        """Read a file and its version; raises FileNotFoundError if the file is missing."""
        with self._reading(name):
            file = obstore.get(self.client, name)
            return bytes(file.bytes()), {key: file.meta[key] for key in _VERSION}

    def read_bytes(self, name: str) -> bytes | None:
        """Read a file; None if it is missing."""
        with suppress(FileNotFoundError):
            return self.read(name)[0]
        return None

    def write_bytes(self, name: str, data: bytes) -> None:
        """Replace a file atomically."""
        with storage_errors(self.display_path(name)):
            obstore.put(self.client, name, data)

    def replace(self, name: str, data: bytes, version: Version | None) -> Version:
        """Replace a version of a file, or create the file; return the new version.

        On a disk, this function can only create files.

        Args:
            name: The file.
            data: Its content.
            version: The version that `read` or this function returned; None: no file exists.

        Raises:
            TakenError: The file has another version.
            StudyError: The storage cannot be written.
        """
        mode: Any = "create"
        if version is not None:
            mode = {key: value for key, value in version.items() if value is not None}
        try:
            with self._reading(name):
                done = obstore.put(self.client, name, data, mode=mode)
        except TakenError:
            # The client repeats a request if the answer was lost, and may then find the object
            # that it wrote itself.
            stored, current = self.read(name)
            if stored != data:
                raise
            return current
        return {key: done[key] for key in _VERSION}

    def each(self, act: Callable[[str], T], names: Iterable[str]) -> list[T]:
        """Call a function for each name; on an object store in parallel, to hide its latency."""
        if self.folder is not None:
            # On a disk, threads would only wait for each other.
            return list(map(act, names))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(act, names))

    def delete(self, names: str | Collection[str]) -> None:
        """Delete files that exist; one request deletes up to a thousand objects."""
        listed = [names] if isinstance(names, str) else list(names)
        if listed:
            where = self.display_path(listed[0])
            with suppress(FileNotFoundError), storage_errors(where, FileNotFoundError):
                obstore.delete(self.client, listed)

    def _reading(self, name: str) -> AbstractContextManager[None]:
        return storage_errors(self.display_path(name), FileNotFoundError, TakenError)


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    here = url.startswith("file:///") or parts.netloc == "localhost"
    if not here or not parts.path.strip("/"):
        rule = "must name a folder of this machine as file:///PATH"
        raise StudyError(Fault(url, rule=rule, move="Correct the URL, or give a plain path."))
    return unquote(parts.path)


def study_path(path: str | Path) -> str:
    """A study's location for workers on other machines: a URL unchanged, a local path absolute.

    Raises:
        StudyError: The path is empty, or not a valid path.
    """
    text = str(path)
    rule = "must not be empty" if not text.strip() else ""
    rule = "must not hold a null character" if "\0" in text else rule
    if rule:
        raise StudyError(
            Fault("--study", value=repr(text), rule=rule, move="Name a folder or a URL.")
        )
    try:
        return text if "://" in text else str(Path(text).expanduser().absolute())
    except RuntimeError as error:
        # `expanduser` raises this if `~user` names no user.
        rule, move = f"cannot be found ({first_line(error)})", "Write the absolute path."
        raise StudyError(Fault("--study", value=text, rule=rule, move=move)) from None


def normalized_location(study: str) -> str:
    """Normalize a URL or an absolute path as text, because it may be on another machine."""
    if "://" not in study:
        return posixpath.normpath(study).replace("//", "/")
    parts = urlsplit(study)
    if parts.scheme.lower() == "file":
        # `StudyFiles.at` also reads a file URL as a local path.
        return posixpath.normpath(f"/{unquote(parts.path)}").replace("//", "/")
    path = posixpath.normpath(f"/{parts.path}").replace("//", "/")
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{path}"


def study_identity(study: str | Path) -> str:
    """Return the same string for all paths and URLs that name one study on this machine.

    Raises:
        StudyError: A `file://` URL does not name a folder of this machine.
    """
    text = str(study)
    if "://" in text and not text.startswith("file:"):
        return normalized_location(text)
    return str(Path(StudyFiles.at(text).where).resolve())


def refuse_itself(study: str | Path, learn_from: Iterable[str]) -> None:
    """Raise ConfigError if a search is told to learn from its own study."""
    if study_identity(study) in map(study_identity, learn_from):
        rule = "a search learns from its own study in any case"
        move = "Remove --learn-from, or name another study."
        raise ConfigError(Fault("--learn-from", value=str(study), rule=rule, move=move))


def refuse_memory(where: str, location: str) -> None:
    """Raise ConfigError if Ray's workers must read a location that exists only in this process."""
    if location.startswith("memory:"):
        rule = "memory: lies in one process, so Ray's workers cannot read it"
        raise ConfigError(
            Fault(where, value=location, rule=rule, move="Name a folder or another URL.")
        )


def distinct_studies(studies: Iterable[str]) -> tuple[str, ...]:
    """Keep the first path or URL of each study."""
    first: dict[str, str] = {}
    for study in studies:
        first.setdefault(study_identity(study), study)
    return tuple(first.values())
