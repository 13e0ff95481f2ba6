"""The keys of a space file, and what they may hold."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tune_sentcl.config import Values, shown
from tune_sentcl.errors import Fault, SpaceError


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_seeds(value: Any) -> bool:
    counts = isinstance(value, list) and all(map(_is_count, value))
    return counts and 0 < len(value) == len(set(value))


def _are_blocks(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_table, value))


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (_is_name, "must be text, not empty"),
    "paper": (_is_text, "must be text"),
    "tables": (_are_texts, "must be a list of texts"),
    "summary": (_is_text, "must be text"),
    "trials": (_is_count, "must be a whole number"),
    "seeds": (_are_seeds, "must be a list of distinct whole numbers of 0 or more, not empty"),
    "fixed": (_is_table, "must be a table"),
    "block": (_are_blocks, "must be one or more [[block]] tables"),
    "search": (_is_table, "must be a table"),
}
"""The keys of a space file, and what they hold."""

_REQUIRED = ("name", "trials", "block")
_PARTS = {"block": ("fixed", "grid"), "search": ("fixed", "ranges")}
_MODEL = "See search_spaces/smoke.toml."


def check_layout(document: Values, source: str) -> None:
    """See that a file has the keys of a space, each with a value of its kind.

    Raises:
        SpaceError: It has not; every fault is listed.
    """
    faults = [_no_such(source, key, document[key], _RULES) for key in document.keys() - _RULES]
    for key, (fits, rule) in _RULES.items():
        if key not in document:
            if key in _REQUIRED:
                faults.append(Fault(source, key, "", "must be given", _MODEL))
        elif not fits(document[key]):
            faults.append(Fault(source, key, shown(document[key]), rule, _MODEL))
    if not faults:
        tables = [("block", block) for block in document["block"]]
        for name, table in [*tables, ("search", document.get("search", {}))]:
            faults += _part_faults(name, table, source)
    if faults:
        raise SpaceError(faults)


def _part_faults(name: str, table: Values, source: str) -> Iterator[Fault]:
    for key, value in table.items():
        if key not in _PARTS[name]:
            yield _no_such(source, f"{name}.{key}", value, [f"{name}.{p}" for p in _PARTS[name]])
        elif not _is_table(value):
            yield Fault(source, f"{name}.{key}", shown(value), "must be a table", _MODEL)


def _no_such(source: str, key: str, value: Any, known: Iterable[str]) -> Fault:
    names = sorted(known)
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(names)}."
    return Fault(source, key, shown(value), "no such key", hint)
