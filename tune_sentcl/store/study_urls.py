"""Normalized paths and URLs of studies, to tell whether two of them name the same study."""

import posixpath
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.store.files import StudyFiles


def normalized_location(study: str) -> str:
    """Normalize a URL or an absolute path by its text, because it may be on other machines."""
    if "://" not in study:
        return posixpath.normpath(study).replace("//", "/")
    parts = urlsplit(study)
    if parts.scheme.lower() == "file":  # as in `StudyFiles.at`
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
        rule, move = "a search learns from its own study anyway", "Drop it, or name another study."
        raise ConfigError(Fault("--learn-from", "", str(study), rule, move))


def refuse_memory(where: str, location: str) -> None:
    """Raise ConfigError if a location that Ray's workers must read lies in this process."""
    if location.startswith("memory:"):
        rule = "lies in one process, and Ray's workers cannot read it"
        raise ConfigError(Fault(where, "", location, rule, "Name a folder."))


def distinct_studies(studies: Iterable[str]) -> tuple[str, ...]:
    """Keep the first path or URL of each study."""
    found: dict[str, str] = {}
    for study in studies:
        found.setdefault(study_identity(study), study)
    return tuple(found.values())
