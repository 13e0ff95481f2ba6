"""`data.columns`: which of a file's columns is read as what, as one text."""

import re
from collections.abc import Mapping

from pydantic_core import PydanticCustomError

_ROLES = (
    *("anchor", "positive", "negative", "negatives", "sentence1", "sentence2", "score"),
    *("premise", "hypothesis", "label", "text"),
)
_NUMBERED = re.compile(r"negative_[1-9]\d*")


def joined_columns(value: object) -> object:
    """A mapping of columns as the text that a config holds: `anchor=question,positive=answer`.

    Args:
        value: A mapping of roles to a file's columns, or the text of one.

    Returns:
        The text with the roles sorted; another kind of value as it is.

    Raises:
        PydanticCustomError: A role is none, or a column has two roles.
    """
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {role.strip(): column for role, _, column in parts}
    if not isinstance(value, Mapping):
        return value
    if not all(isinstance(c, str) and c and "," not in c for c in value.values()):
        raise _refused("a mapping of roles to names of columns, and no comma in a name")
    strange = [role for role in value if role not in _ROLES and not _NUMBERED.fullmatch(role)]
    if strange:
        known = ", ".join((*_ROLES, "negative_1, negative_2 ..."))
        raise _refused(f"a mapping of roles, and {strange[0]} is none: the roles are {known}")
    names = list(value.values())
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise _refused(f"a mapping of one role to one column, and {twice[0]} has two roles")
    return ",".join(f"{role}={value[role]}" for role in sorted(value))


def columns_of(text: str) -> dict[str, str]:
    """The file's column of each role, from the text of a config."""
    return dict(part.split("=", 1) for part in text.split(",") if part)


def _refused(rule: str) -> PydanticCustomError:
    return PydanticCustomError("columns", "Input should be {rule}", {"rule": rule})
