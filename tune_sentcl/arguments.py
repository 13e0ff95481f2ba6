"""Types of arguments of public functions, and their check before heavy imports."""

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from tune_sentcl.errors import BadInputError, ConfigError, Fault, first_line

P = ParamSpec("P")
R = TypeVar("R")
_EMPTY = "must not be empty"


def _not_empty(value: str | Path) -> str | Path:
    if not str(value).strip():
        raise ValueError(_EMPTY)
    return value


def _distinct(seeds: Sequence[int]) -> Sequence[int]:
    if not 0 < len(set(seeds)) == len(seeds):
        raise ValueError("must be one or more distinct numbers")
    return seeds


Text = Annotated[str, AfterValidator(_not_empty)]
Location = Annotated[str | Path, AfterValidator(_not_empty)]
"""A path, a name or a URL."""

Seeds = Annotated[
    # The study stores seeds as 64-bit integers, which hold every integer of 18 digits.
    Sequence[Annotated[int, Field(ge=0, lt=10**18)]],
    BeforeValidator(lambda seeds: tuple(seeds) if isinstance(seeds, range) else seeds),
    AfterValidator(_distinct),
]
"""Seeds of trials, such as `(0, 1, 2)` or `range(3)`."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a public function by their annotations, before it runs.

    The function gets its arguments unchanged. It raises ConfigError with a fault for each argument
    of a wrong type.
    """
    parameters = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = parameters.bind(*args, **kwargs).arguments
        except TypeError:
            # The arguments do not fit the signature; the call raises Python's own error, which
            # names the function.
            return function(*args, **kwargs)
        kinds = {name: parameters.parameters[name].annotation for name in given}
        if faults := list(type_faults(given, kinds)):
            raise ConfigError(faults)
        return function(*args, **kwargs)

    return call


def type_faults(given: Mapping[str, Any], kinds: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a fault for each value that does not fit its annotation; a text is never a number.

    Args:
        given: The values by their names.
        kinds: The annotations by the same names; values without an annotation are not checked.
    """
    for name, value in given.items():
        if kinds[name] is inspect.Parameter.empty:
            continue
        try:
            _adapter(kinds[name]).validate_python(value, strict=True)
        except ValidationError as error:
            # For a union type, pydantic gives one error for each member, so rules may repeat.
            rules = list(dict.fromkeys(map(_rule, error.errors())))
            rule = _EMPTY if _EMPTY in rules else " or ".join(rules).replace(" or must be", " or")
            yield Fault(name, value=first_line(repr(value)), rule=rule, move="Pass such a value.")


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _rule(error: Mapping[str, Any]) -> str:
    """Turn a message of pydantic into the rule of a fault."""
    text = str(error["msg"]).removeprefix("Value error, ").replace("Input should", "must")
    if "Sequence" in text:
        # The value is no sequence, or it is a text, which pydantic does not accept as a sequence.
        return "must be a list or a tuple"
    return text.replace("an instance of", "a")


def renamed(error: BadInputError, names: Mapping[str, str]) -> BadInputError:
    """Rename arguments in an error, for example the options of the command line."""
    longest_first = sorted(map(re.escape, names), key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(longest_first)})(?![\w-])")

    def rename(text: str) -> str:
        return pattern.sub(lambda match: names[match[0]], text)

    return type(error)(
        replace(f, where=rename(f.where), rule=rename(f.rule), move=rename(f.move))
        for f in error.faults
    )
