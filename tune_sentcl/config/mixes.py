"""Several sources in one `data.source`: how their names are joined, and told apart again."""

from pydantic_core import PydanticCustomError

_JOIN = " + "


def joined_names(value: object) -> object:
    """A list of sources as the text that a config holds; anything else as it is.

    Raises:
        PydanticCustomError: There is nothing on one side of a plus.
    """
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        value = _JOIN.join(value)
    if not isinstance(value, str) or _JOIN.strip() not in value.split():
        return value
    names = [name.strip() for name in f" {value} ".split(_JOIN)]
    if not all(names):
        rule = "Input should be a source, or several with ' + ' between them"
        raise PydanticCustomError("sources", rule)
    return _JOIN.join(names)


def source_names(source: str) -> tuple[str, ...]:
    """The sources that a `data.source` names, one or more."""
    return tuple(source.split(_JOIN))


def is_toy(source: str) -> bool:
    """Whether a `data.source` names nothing but the toy."""
    return set(source_names(source)) == {"toy"}
