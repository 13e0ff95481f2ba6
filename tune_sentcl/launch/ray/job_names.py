"""What a study's jobs are called on a cluster: by the study alone, so that a second is noticed."""

import hashlib
import posixpath
import re
from urllib.parse import urlsplit

from tune_sentcl.store.files import plain_place

_PREFIX = "tune-sentcl"
_LONGEST_WORD = 32
_DIGEST = 8


def jobs_name(study: str) -> str:
    """The part that a study's jobs share: readable, and its own.

    Args:
        study: A URL or an absolute path. Spellings that mean the same give the same name: slashes
            too many, `.` and `..`, `file://`, the case of a host, the order of a query.
    """
    meant = plain_place(study)
    word = re.sub(r"[^a-z0-9]+", "-", posixpath.basename(urlsplit(meant).path).lower())
    word = word[:_LONGEST_WORD].strip("-") or "study"
    digest = hashlib.sha256(meant.encode()).hexdigest()[:_DIGEST]
    return f"{_PREFIX}-{word}-{digest}"


def job_id(study: str, run: int | str) -> str:
    """The id under which a run of a study's search is submitted, runs counted from 1."""
    return f"{jobs_name(study)}-run{run}"


def run_number(study: str, submission_id: str | None) -> int | None:
    """Which run of a study a submission is; None where it belongs to another."""
    name, _, number = (submission_id or "").rpartition("-run")
    return int(number) if name == jobs_name(study) and number.isdecimal() else None
