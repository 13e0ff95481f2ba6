"""One spelling for each of the paths and URLs that lead to a study."""

import posixpath
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from tune_sentcl.store.files import StudyFiles


def normalized_location(study: str) -> str:
    """Give one spelling to the URLs and absolute paths that differ in signs alone.

    No disk is asked, because the study may lie on other machines.
    """
    if "://" not in study:
        return posixpath.normpath(study).replace("//", "/")
    parts = urlsplit(study)
    if parts.scheme.lower() == "file":  # as `StudyFiles` reads it
        return posixpath.normpath(f"/{unquote(parts.path)}").replace("//", "/")
    path = posixpath.normpath(f"/{parts.path}").replace("//", "/")
    query = urlencode(sorted(parse_qsl(parts.query, keep_blank_values=True)))
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), path, query, ""))


def study_identity(study: str | Path) -> str:
    """Give one string to every path and URL by which this machine reaches a study.

    Raises:
        StudyError: A `file://` URL names no folder of this machine.
    """
    text = str(study)
    if "://" in text and not text.startswith("file:"):
        return normalized_location(text)
    return str(Path(StudyFiles.at(text).where).resolve())


def distinct_studies(studies: Iterable[str]) -> tuple[str, ...]:
    """Keep the first spelling of each study."""
    found: dict[str, str] = {}
    for study in studies:
        found.setdefault(study_identity(study), study)
    return tuple(found.values())
