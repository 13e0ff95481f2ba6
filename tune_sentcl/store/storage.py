"""What a place of storage can do, and what it refuses, said as a `StudyError`."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from tune_sentcl.errors import Fault, StudyError

_ELSEWHERE = "Choose another folder, or mend its permissions."
_RULES = {
    errno.ENOSPC: ("the disk must have room", "Free some space, then repeat the command."),
    errno.EDQUOT: ("your quota must have room", "Free some space, then repeat the command."),
    errno.EACCES: ("you must be allowed to read and write it", _ELSEWHERE),
    errno.EPERM: ("you must be allowed to read and write it", _ELSEWHERE),
    errno.EROFS: ("must not lie on a read-only disk", "Choose another folder for the study."),
    errno.ENOTDIR: ("must be a folder", "Choose another path for the study."),
    errno.EEXIST: ("must be a folder", "Choose another path for the study."),
    errno.ENOENT: ("must exist", "Check the path; a study must be visible from every node."),
}


@contextmanager
def disk_faults(where: str) -> Iterator[None]:
    """Turn what the file system raises into a `StudyError` that names the path.

    Args:
        where: The path or URL, as the message shall name it.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        number = error.errno if isinstance(error, OSError) else None
        rule, move = _RULES.get(
            number or 0,
            (f"cannot be read or written ({error})", "Mend that, then repeat the command."),
        )
        raise StudyError(Fault(where, "", "", rule, move)) from error
