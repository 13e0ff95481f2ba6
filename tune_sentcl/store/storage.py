"""Errors of a disk or an object store as a `StudyError` with the next move."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from tune_sentcl.errors import Fault, StudyError

_PERMISSIONS = "Choose another folder, or correct its permissions."
_RULES = {
    errno.ENOSPC: ("the disk must have free space", "Free some space, then repeat the command."),
    errno.EDQUOT: (
        "your disk quota must not be full",
        "Free some space, then repeat the command.",
    ),
    errno.EACCES: ("you must be allowed to read and write it", _PERMISSIONS),
    errno.EPERM: ("you must be allowed to read and write it", _PERMISSIONS),
    errno.EROFS: ("must not be on a read-only disk", "Choose another folder for the study."),
    errno.ENOTDIR: ("must be a folder", "Choose another path for the study."),
    errno.EEXIST: ("must be a folder", "Choose another path for the study."),
    errno.ENOENT: ("must exist", "Check the path; a study must be visible from every node."),
}


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turn errors of the storage into a `StudyError` that names the path or URL `where`."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        number = error.errno if isinstance(error, OSError) else None
        rule, move = _RULES.get(
            number or 0,
            (f"cannot be read or written ({error})", "Correct that, then repeat the command."),
        )
        raise StudyError(Fault(where, "", "", rule, move)) from error
