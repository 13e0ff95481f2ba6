"""Clients of folders and object stores; their errors become OSError.

Credentials and endpoints come from the providers' environment variables (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, ...), from the role of the machine or pod, or, if
boto3 is installed, from its profiles. They never come from the URL, which is printed and stored.
"""

import errno
import functools
import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import LocalStore, MemoryStore, from_url

from tune_sentcl.errors import Fault, StudyError, first_line

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")
"""The URL schemes of object stores for studies; data in `memory` ends with the process."""

_SETTINGS = ("AWS_", "AZURE_", "GOOGLE_")  # variables that begin so hold keys and endpoints
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_RETRIES = 8  # this many retries bridge an outage of about half a minute
_NUMBER = re.compile(r"\(os error (\d+)\)")
_PERMISSIONS = "Choose another folder, or correct its permissions."
_RULES = {
    errno.ENOSPC: ("the disk must have free space", "Free some space, then repeat the command."),
    errno.EDQUOT: (
        "your disk quota must not be full",
        "Free some space, then repeat the command.",
    ),
    errno.EACCES: ("you must be allowed to read and write this path", _PERMISSIONS),
    errno.EPERM: ("you must be allowed to read and write this path", _PERMISSIONS),
    errno.EROFS: (
        "this path must not be on a read-only disk",
        "Choose another folder for the study.",
    ),
    errno.ENOTDIR: ("must be a folder", "Choose another path for the study."),
    errno.EEXIST: ("must be a folder", "Choose another path for the study."),
    errno.ENOENT: ("must exist", "Check the path; a study must be visible from every node."),
}


class TakenError(OSError):
    """A file to create exists already, or a file to replace has another version."""


@contextmanager
def storage_errors(where: str, *passed: type[OSError]) -> Iterator[None]:
    """Turn errors of the storage into a `StudyError` that names the path or URL `where`.

    Args:
        where: The path or URL.
        passed: Errors to raise unchanged: FileNotFoundError or `TakenError`.
    """
    try:
        with _os_errors():
            yield
    except passed:
        raise
    except (OSError, pa.ArrowException) as error:
        # An error of safetensors has no `errno`, so its number is read from the text.
        stated = _NUMBER.search(str(error))
        number = getattr(error, "errno", None) or (int(stated[1]) if stated else 0)
        rule, move = _RULES.get(
            number,
            (f"cannot be read or written ({error})", "Remove the cause, then repeat the command."),
        )
        raise StudyError(Fault(where, rule=rule, move=move)) from error


@contextmanager
def _os_errors() -> Iterator[None]:
    """Turn errors of a client into OSError, with the system's error number if known.

    The first line of a message leaves out the internal state that obstore appends.
    """
    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        # The kind of store decides which of the two is raised.
        raise FileNotFoundError(errno.ENOENT, first_line(error)) from None
    except (AlreadyExistsError, PreconditionError) as error:
        raise TakenError(first_line(error)) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, first_line(error)) from None
    except BaseError as error:
        text = first_line(error)
        number = _NUMBER.search(text)
        raise (OSError(int(number[1]), text) if number else OSError(text)) from None


def check_url(url: str) -> None:
    """Check the URL of an object store, without a request.

    Raises:
        StudyError: The scheme is unknown.
    """
    if url.partition("://")[0].lower() not in SCHEMES:
        rule = f"must begin with one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        raise StudyError(
            Fault(url, rule=rule, move="Correct the URL, or give the path of a folder.")
        )
    try:
        client_of(url)
    except (BaseError, ValueError) as error:
        rule = f"must be a URL that can be opened ({first_line(error)})"
        raise StudyError(Fault(url, rule=rule, move="Check the address.")) from None


def client_of(where: str) -> Any:
    """The obstore client of a folder or a URL; a URL's client is cached for equal settings.

    Raises:
        FileNotFoundError: The folder is missing.
    """
    if "://" not in where:
        # This raises an error with an `errno`, which obstore's own error lacks.
        Path(where).stat()
        return LocalStore(where)
    if urlsplit(where).scheme == "memory":
        return _opened(where, ())
    settings = ((name, text) for name, text in os.environ.items() if name.startswith(_SETTINGS))
    return _opened(where, tuple(sorted(settings)))


@functools.cache
def _opened(url: str, settings: tuple[tuple[str, str], ...]) -> Any:
    # The client reads the settings from the environment; here they are only part of the cache's
    # key.
    del settings
    options: dict[str, Any] = {"retry_config": {"max_retries": _RETRIES}}
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryStore()
    endpoint = next(filter(None, map(os.environ.get, _ENDPOINTS)), "")
    if scheme.startswith("s3") and endpoint.startswith("http://"):
        # obstore refuses http by default, but the user gave such an endpoint.
        options["client_options"] = {"allow_http": True}
    if scheme.startswith("s3") and _has_profiles():
        from obstore.auth.boto3 import Boto3CredentialProvider

        options["credential_provider"] = Boto3CredentialProvider()
    return from_url(url, **options)


def _has_profiles() -> bool:
    """Whether credentials may be in profiles, which only boto3 reads."""
    given = os.environ.get("AWS_ACCESS_KEY_ID") or not (Path.home() / ".aws").is_dir()
    return not given and importlib.util.find_spec("boto3") is not None
