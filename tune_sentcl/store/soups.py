"""What is known of the averages that were made of a study's weights: one JSON file each.

A soup is no trial: nobody trained it, and it stands in no table. Whoever exports one leaves its
record here, whole or not at all; no search reads it.
"""

import re
from collections.abc import Mapping, Set
from typing import Any

from tune_sentcl.errors import DamagedError, Fault
from tune_sentcl.store.files import StudyFiles

SOUPS = "soups"
"""Where the records lie in a study."""

_ROWS = {
    "members": {"trial_id"},
    "tried": {"trial_id"},
    "scores": {"task", "metric", "split", "protocol", "subset", "aggregation", "value"},
}
"""What each row of a record's lists must say, for its readers."""

_NAME = re.compile(r"(?P<soup>soup-[0-9a-f]{16})\.json")


def write_soup(files: StudyFiles, soup: Mapping[str, Any]) -> None:
    """Write a soup's record, in place of an older one of the same members.

    Args:
        files: The study.
        soup: Its record, `soup_id` included; values that JSON can hold.

    Raises:
        StudyError: The disk refused.
    """
    name = f"{soup['soup_id']}.json"
    if not _NAME.fullmatch(name):
        raise ValueError(f"no name of a soup: {soup['soup_id']}")
    files.refuse_links(SOUPS)
    files.make_folders(SOUPS)
    files.write_json(f"{SOUPS}/{name}", soup)


def read_soups(files: StudyFiles) -> list[dict[str, Any]]:
    """The records of a study's soups, by their names.

    Raises:
        DamagedError: A file is not what was written.
        StudyError: The disk refused.
    """
    found = []
    for name in files.names(SOUPS):
        match = _NAME.fullmatch(name)
        if match:
            record = files.read_json(f"{SOUPS}/{name}")
            if not _is_record(record, match["soup"]):
                rule, move = "must be the record of this soup", "Delete it, or export it again."
                raise DamagedError(Fault(files.shown(f"{SOUPS}/{name}"), "", "", rule, move))
            found.append(record)
    return found


def _is_record(record: Any, soup: str) -> bool:
    """Whether a document says of this soup what its readers need."""
    if not isinstance(record, dict) or record.get("soup_id") != soup:
        return False
    if not isinstance(record.get("objective"), str) or "value" not in record:
        return False
    return all(_are_rows(record.get(key), needed) for key, needed in _ROWS.items())


def _are_rows(found: Any, needed: Set[str]) -> bool:
    return isinstance(found, list) and all(
        isinstance(one, dict) and needed <= one.keys() for one in found
    )
