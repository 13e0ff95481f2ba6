"""A study's files on an object store: atomic puts, and conditional puts of new objects.

Credentials and endpoints come from the providers' environment variables (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, ...), from the role of the machine or pod, or, if
boto3 is installed, from its profiles. They never come from the URL, which is printed and stored.
"""

import errno
import functools
import importlib.util
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from tune_sentcl.errors import Fault, StudyError

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")
"""The URL schemes of object stores for studies; `memory` ends with its process."""

_SETTINGS = ("AWS_", "AZURE_", "GOOGLE_")  # variables with keys and endpoints
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_NOT_FOUND = (NotFoundError, FileNotFoundError)  # which one depends on the store
_RETRIES = 8  # bridges an outage of half a minute


@dataclass(frozen=True)
class ObjectStorage:
    """The objects under a URL, which has no credentials; see `Storage`.

    Can be pickled; each process makes its own connection.
    """

    url: str

    def make_folder(self, name: str) -> None:
        """Do nothing: folders are prefixes of names."""

    def kind(self, name: str) -> str | None:
        """See `Storage`."""
        with _as_os_errors():
            if name and _found(functools.partial(obstore.head, self._store, name)):
                return "file"
            for chunk in obstore.list(self._store, f"{name}/" if name else None, chunk_size=1):
                if chunk:
                    return "folder"
        return None

    def is_file(self, name: str) -> bool:
        """See `Storage`."""
        with _as_os_errors():
            return _found(functools.partial(obstore.head, self._store, name))

    def versions(self, folder: str) -> dict[str, Any]:
        """See `Storage`; a version is the ETag, None for folders."""
        with _as_os_errors():
            found = obstore.list_with_delimiter(self._store, folder or None)
        folders: dict[str, Any] = {_base(name): None for name in found["common_prefixes"]}
        files = {_base(item["path"]): item["e_tag"] for item in found["objects"]}
        for mark in ("", _base(folder)):  # consoles and file browsers make such objects
            files.pop(mark, None)
        return folders | files

    def read(self, name: str) -> bytes:
        """See `Storage`."""
        with _as_os_errors():
            return bytes(obstore.get(self._store, name).bytes())

    def open(self, name: str) -> Any:
        """See `Storage`; downloads the whole object, because one request is cheaper than many."""
        with _as_os_errors():
            return pa.BufferReader(pa.py_buffer(obstore.get(self._store, name).bytes()))

    @contextmanager
    def writing(self, name: str, *, new: bool = False) -> Iterator[IO[bytes]]:
        """See `Storage`; with `new`, TakenError if the object exists with other bytes."""
        with tempfile.TemporaryFile(prefix="tune_sentcl_") as file:
            yield file
            file.seek(0)
            self._put(name, file.read(), new=new)

    def create(self, name: str, data: bytes) -> bool:
        """See `Storage`."""
        try:
            self._put(name, data, new=True)
        except TakenError:
            return False
        return True

    def delete(self, name: str) -> None:
        """See `Storage`."""
        with _as_os_errors():
            _found(functools.partial(obstore.delete, self._store, name))

    def delete_all(self, names: Collection[str]) -> None:
        """See `Storage`; one request deletes up to a thousand objects if the store can do so."""
        with _as_os_errors():
            if names:
                _found(functools.partial(obstore.delete, self._store, list(names)))

    def delete_folder(self, name: str) -> None:
        """Delete all objects in a folder."""
        self.delete_all(self.below(name))

    def upload(self, source: Path, name: str) -> None:
        """Upload a local folder, recursively, under a name."""
        with _as_os_errors():
            for path in sorted(source.rglob("*")):
                if path.is_file():
                    obstore.put(self._store, f"{name}/{path.relative_to(source).as_posix()}", path)

    def download(self, name: str, target: Path) -> None:
        """Download the objects under a name into a local folder."""
        with _as_os_errors():
            for found in self.below(name):
                path = target / found.removeprefix(f"{name}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    for chunk in obstore.get(self._store, found).stream():
                        file.write(chunk)

    def below(self, name: str) -> list[str]:
        """List the objects in a folder, recursively, a thousand per request.

        obstore refuses names with `..`, so no listed name leads out of the folder.
        """
        start = f"{name}/"  # the object of this very name is a console's folder mark
        with _as_os_errors():
            chunks = obstore.list(self._store, start)
            paths = [item["path"] for chunk in chunks for item in chunk]
        return [path for path in paths if path.startswith(start)]

    def _put(self, name: str, data: bytes, *, new: bool) -> None:
        try:
            with _as_os_errors():
                obstore.put(self._store, name, data, mode="create" if new else "overwrite")
        except TakenError:
            # The client repeats a request whose answer was lost, and then finds its own object.
            if self.read(name) != data:
                raise

    @property
    def _store(self) -> Any:
        return _store(self.url)


class TakenError(OSError):
    """An object exists that was to be created."""


def objects_at(url: str) -> ObjectStorage:
    """Check the URL of an object store, without a request.

    Raises:
        StudyError: The scheme is unknown.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in SCHEMES:
        rule = f"must begin with one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        raise StudyError(Fault(url, "", "", rule, "Correct it, or give the path of a folder."))
    found = ObjectStorage(url.rstrip("/"))
    try:
        _store(found.url)
    except (BaseError, ValueError) as error:
        rule = f"must be a URL that can be opened ({_first_line(error)})"
        raise StudyError(Fault(url, "", "", rule, "Check the address.")) from None
    return found


def _store(url: str) -> Any:
    """The client of a URL, cached by the environment variables that configure it."""
    if urlsplit(url).scheme == "memory":
        return _opened(url, ())
    settings = ((name, text) for name, text in os.environ.items() if name.startswith(_SETTINGS))
    return _opened(url, tuple(sorted(settings)))


@functools.cache
def _opened(url: str, settings: tuple[tuple[str, str], ...]) -> Any:
    del settings  # the client reads them from the environment
    options: dict[str, Any] = {"retry_config": {"max_retries": _RETRIES}}
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return obstore.store.MemoryStore()
    endpoint = next(filter(None, map(os.environ.get, _ENDPOINTS)), "")
    if scheme.startswith("s3") and endpoint.startswith("http://"):
        options["client_options"] = {"allow_http": True}  # the user named an http endpoint
    if scheme.startswith("s3") and _has_profiles():
        from obstore.auth.boto3 import Boto3CredentialProvider

        options["credential_provider"] = Boto3CredentialProvider()
    return from_url(url, **options)


def _has_profiles() -> bool:
    """Whether keys may be in the profiles that only boto3 reads."""
    given = os.environ.get("AWS_ACCESS_KEY_ID") or not (Path.home() / ".aws").is_dir()
    return not given and importlib.util.find_spec("boto3") is not None


def _found(act: Any) -> bool:
    try:
        act()
    except _NOT_FOUND:
        return False
    return True


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except _NOT_FOUND as error:
        raise FileNotFoundError(errno.ENOENT, _first_line(error)) from None
    except (AlreadyExistsError, PreconditionError) as error:
        raise TakenError(_first_line(error)) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, _first_line(error)) from None
    except BaseError as error:
        raise OSError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    """An error's message without the internal state that obstore appends."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
