"""What plugins define besides methods: tasks, watchers and sources of examples."""

import dis
import inspect
import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal, TypeVar

from tune_sentcl.errors import Fault, PluginError, first_line

T = TypeVar("T", bound=Callable[..., Any])
Split = Literal["dev", "test"]

MARK = "_tune_sentcl_defines"
"""The attribute that stores the definition on a decorated function or class."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_METRIC, _SPLIT = re.compile(r"[a-z][a-z0-9_@.-]*"), re.compile("dev|test")


@dataclass(frozen=True)
class Extension:
    """A plugin's definition of something other than a method.

    Attributes:
        kind: The kind of the definition.
        name: Its name, unique within its kind.
        value: The decorated function or class.
        metrics: For a task, the metrics that it returns.
        splits: For a task, the splits on which it scores.
        plugin: The plugin that defines it.
        fingerprint: A hash of the plugin's code.
    """

    kind: Literal["task", "watcher", "source", "trainer"]
    name: str
    value: Callable[..., Any]
    metrics: tuple[str, ...] = ()
    splits: tuple[Split, ...] = ()
    plugin: str = ""
    fingerprint: str = ""

    @property
    def _code(self) -> CodeType:
        code: CodeType = getattr(self.value, "begin", self.value).__code__
        return code

    def _passed(self, error: BaseException) -> list[int]:
        """The lines of its own file that an error has passed; 0 for each line of other files."""
        frames = traceback.extract_tb(error.__traceback__)
        own = self._code.co_filename
        return [(frame.lineno or 0) if frame.filename == own else 0 for frame in frames]

    def has_raised(self, error: BaseException) -> bool:
        """Whether an error, or the one that it hides, has passed its own file."""
        return any(self._passed(self._hidden(error)))

    def _hidden(self, error: BaseException) -> BaseException:
        """The error of its own code that a library has replaced, or else the error itself."""
        cause, passed = error.__cause__, self._passed(error)
        was_replaced = cause is not None and any(self._passed(cause)) and not any(passed[-1:])
        return self._hidden(cause) if cause is not None and was_replaced else error

    def line(self, error: BaseException) -> int:
        """The last line of its own file that an error has passed, or its first line."""
        return next(filter(None, reversed(self._passed(error))), self._code.co_firstlineno)

    def _line_naming(self, rule: str) -> int:
        """The first line of its code with one of the identifiers of a rule, or its first line."""
        names = {*re.findall(r"\w*[A-Z_]\w*", rule)}
        for instruction in dis.get_instructions(self._code):
            value, place = instruction.argval, instruction.positions
            used = value if isinstance(value, tuple) else (value,)
            if place and place.lineno and any(isinstance(u, str) and u in names for u in used):
                return place.lineno
        return self._code.co_firstlineno

    def failure(self, what: str, fault: BaseException | str) -> PluginError:
        """An error for what it raised, or for a rule that it breaks, with the plugin's line."""
        where = f"{self.plugin}: {self.kind} {self.name}"
        if isinstance(fault, BaseException):
            hidden = self._hidden(fault)
            text = first_line(str(hidden)) or "no message"
            rule, line = f"raises {type(hidden).__name__} ({text})", self.line(hidden)
        else:
            rule, line = fault, self._line_naming(fault)
        rule += f": line {line}"
        return PluginError(
            Fault(where, key=what, rule=rule, move="Correct the plugin in that line.")
        )


EXTENSIONS: dict[tuple[str, str], Extension] = {}
"""The definitions of the loaded plugins besides methods, by kind and name."""


def check_name(kind: str, name: object) -> None:
    """Raise PluginError if a definition's name is not lower case with digits and underscores."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        rule = "must be lower-case letters, digits and underscores, starting with a letter"
        raise PluginError(
            Fault(kind, value=repr(name), rule=rule, move='Write "mine", for example.')
        )


def task(
    name: str, *, metrics: Sequence[str], splits: Sequence[Split] = ("dev",)
) -> Callable[[T], T]:
    """Declare a function `score(encode, split)` as the evaluation task `plugin:NAME`.

    The function returns a mapping from each metric to a number from 0 to 1. `encode` maps n texts
    to their embeddings, a float32 array of shape (n, dim).

    Args:
        name: The task's name in `evaluation.own`.
        metrics: The names of its metrics.
        splits: The splits on which the function is called: `dev`, `test` or both.

    Raises:
        PluginError: One of these rules is broken.
    """

    def declare(function: T) -> T:
        for key, names, fits in (("metrics", metrics, _METRIC), ("splits", splits, _SPLIT)):
            good = isinstance(names, list | tuple) and len({*names}) == len(names) > 0
            if not good or not all(fits.fullmatch(str(one)) for one in names):
                rule, move = "must be a tuple of different names", "Correct the decorator."
                raise PluginError(
                    Fault(f"task {name}", key=key, value=repr(names), rule=rule, move=move)
                )
        own = Extension("task", name, function, tuple(metrics), tuple(sorted(splits)))
        return _marked(own, function, _takes(function, 2), "a function of (encode, split)")

    return declare


def watcher(name: str) -> Callable[[T], T]:
    """Declare a class with the methods of `tune_sentcl.watch.trackers.Tracker` for `--track NAME`.

    Raises:
        PluginError: The class lacks a method, or its name exists.
    """

    def declare(value: T) -> T:
        methods = {"__init__": 4, "begin": 4, "point": 4, "end": 5}
        fits = all(_takes(getattr(value, one, None), n) for one, n in methods.items())
        wanted = "a class with __init__, begin, point and end as in docs/plugins.md"
        return _marked(Extension("watcher", name, value), value, fits, wanted)

    return declare


def source(name: str) -> Callable[[T], T]:
    """Declare a function that yields rows, dicts with the columns of docs/data.md, as a source.

    Raises:
        PluginError: It is not a function without arguments, or its name exists.
    """

    def declare(value: T) -> T:
        own = Extension("source", name, value)
        return _marked(own, value, _takes(value, 0), "a function without arguments")

    return declare


def _takes(value: Any, count: int) -> bool:
    """Whether a function accepts this many positional arguments."""
    try:
        inspect.signature(value).bind(*range(count))
    except TypeError:
        return False
    return inspect.isfunction(value)


def _marked(own: Extension, value: T, fits: bool, wanted: str) -> T:
    check_name(own.kind, own.name)
    if not fits:
        where, shown = f"{own.kind} {own.name}", getattr(value, "__name__", repr(value))
        raise PluginError(
            Fault(where, value=shown, rule=f"must be {wanted}", move="Decorate such an object.")
        )
    setattr(value, MARK, own)
    return value
