"""A space file says which trials a paper's table needs, and which ranges lie beyond it.

A space is a union of grids (`[[block]]`, each a product of lists over fixed values) and, in
`[search]`, ranges in which a sampler goes on. A knob of a method or an optimizer, in `[fixed]`, in
a range or in `--set`, applies to the trials whose method or optimizer has it; that is all the
conditions there are.
"""

import difflib
import itertools
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tune_sentcl.config import (
    TrialConfig,
    belongs,
    fitting,
    flatten,
    knobs,
    parse_dotted,
    shown,
    unknown_key,
)
from tune_sentcl.errors import ConfigError, Fault, SpaceError

Values = Mapping[str, Any]

_NAMES = ("method.name", "optimizer.name")
"""What tells the members of the unions apart; drawn first, for it decides what else is drawn."""


@dataclass(frozen=True)
class Range:
    """Where a sampler may put one knob.

    Attributes:
        key: The knob's dotted key.
        kind: `float` and `int` lie between `low` and `high`, both included; `choice` is a list.
        low: Lower end, for numbers.
        high: Upper end, for numbers.
        log: Whether equal ratios, not equal differences, are equally likely.
        choices: The values of a choice.
    """

    key: str
    kind: Literal["float", "int", "choice"]
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()

    def holds(self, value: Any) -> bool:
        """Whether a value lies in the range."""
        if self.kind == "choice":
            return value in self.choices
        return isinstance(value, int | float) and self.low <= value <= self.high

    def ends(self) -> tuple[Any, ...]:
        """The values that must be legal if all in the range are."""
        return self.choices if self.kind == "choice" else (self.low, self.high)


@dataclass(frozen=True)
class _Point:
    """One grid point before it is checked.

    Attributes:
        values: Dotted; knobs that its method or optimizer lacks are left out,
        required: but for these, which the point itself names.
    """

    values: Values
    required: tuple[str, ...] = ()


@dataclass(frozen=True)
class Space:
    """The trials of one space file, seeds apart.

    Attributes:
        name: As in `search_spaces/`, without the ending.
        paper: Short name of the paper, or an empty string.
        tables: The paper's tables whose rows are here.
        summary: One line for people.
        configurations: The distinct grid points, each with seed 0, in the file's order.
        base: Values of `[fixed]`, `[search.fixed]` and `--set`, on which sampled values are laid.
        ranges: What a sampler may vary, `method.name` and `optimizer.name` first; empty when there
            is nothing.
        seeds: The seeds that the file asks for.
        text: The whole file.
        source: The file's path, for messages.
        overrides: What replaces the file's values in every trial, as `--set` gave it.
    """

    name: str
    paper: str
    tables: tuple[str, ...]
    summary: str
    configurations: tuple[TrialConfig, ...]
    base: Values
    ranges: tuple[Range, ...]
    seeds: tuple[int, ...]
    text: str = field(repr=False)
    source: str
    overrides: Values = field(default_factory=dict)

    def with_overrides(self, overrides: Values) -> "Space":
        """The space with more of its file's values replaced, on top of those that are.

        Args:
            overrides: Dotted keys and values, as `--set` gives them.

        Raises:
            SpaceError: It was not read from a file.
            ConfigError: A trial of it is not legal.
        """
        if not overrides:
            return self
        if not self.text:
            rule = "a space that was not read from a file has nothing to replace"
            move = "Set the values where its configurations are made."
            raise SpaceError(Fault(self.source, "", self.name, rule, move))
        document = tomllib.loads(self.text)
        return _build(document, self.text, self.source, {**self.overrides, **overrides})

    def active_ranges(self, values: Values) -> list[Range]:
        """The ranges of the knobs that some members of the unions have.

        Args:
            values: Dotted keys and values that name them, `method.name` and `optimizer.name`; the
                base's where they do not. Other keys do not matter.
        """
        members = {**self.base, **values}
        return [r for r in self.ranges if belongs(r.key, members)]

    def branches(self) -> list[dict[str, Any]]:
        """Every combination of the unions' names that a sampler may draw, as dotted values."""
        names = [r for r in self.ranges if r.key in _NAMES]
        drawn = itertools.product(*(r.choices for r in names))
        return [dict(zip([r.key for r in names], point, strict=True)) for point in drawn]

    def sampled(self, values: Values) -> TrialConfig:
        """The configuration that a sampler's values stand for.

        Args:
            values: One value for each range that is active under them.
        """
        return _configure({**self.base, **values}, self.source)

    def place(self, config: TrialConfig) -> dict[str, Any] | None:
        """Where in the ranges a configuration's values lie, whatever its other knobs.

        Returns:
            One value for each active range, or None where one lies outside.
        """
        values = config.dotted()
        active = self.active_ranges(values)
        place = {r.key: values[r.key] for r in active if r.holds(values[r.key])}
        return place if self.ranges and len(place) == len(active) else None

    def point(self, config: TrialConfig) -> dict[str, Any] | None:
        """The sampler's values that stand for exactly this configuration.

        Returns:
            One value for each active range, or None where the ranges do not hold the
            configuration.
        """
        place = self.place(config)
        if place is None:
            return None
        # What is measured, and on what, is no part of where a configuration stands.
        there = self.sampled(place)
        measured = {"every": there.evaluation.every, "select": there.evaluation.select}
        evaluation = config.evaluation.model_copy(update=measured)
        same = there.model_copy(update={"seed": config.seed, "evaluation": evaluation})
        return place if same == config else None


def space_names() -> list[str]:
    """Names of the spaces that come with the package, sorted."""
    root = _shipped()
    return sorted(
        path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.toml")
    )


def load_space(name: str | Path, overrides: Values | None = None) -> Space:
    """Read a space, check all of it, and list its distinct configurations.

    Args:
        name: A shipped name such as `scl/lambda`, or the path of a TOML file.
        overrides: Dotted keys that replace the file's values in every trial, as `--set` does.

    Raises:
        SpaceError: There is no such space, or the file is no space.
        ConfigError: A trial of it is not legal; every fault of the file is listed.
    """
    path = _locate(str(name))
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except FileNotFoundError:
        move = "Check the path, or name a space that comes along: tune-sentcl spaces."
        raise SpaceError(Fault(str(path), "", "", "no such file", move)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        rule = f"must be a readable TOML file ({error})"
        raise SpaceError(Fault(str(path), "", "", rule, "Mend the file.")) from None
    return _build(document, text, str(path), dict(overrides or {}))


def _shipped() -> Path:
    package = Path(__file__).parent
    installed = package / "search_spaces"
    return installed if installed.is_dir() else package.parent / "search_spaces"


def _locate(name: str) -> Path:
    if name.endswith(".toml"):
        return Path(name)
    if name in space_names():
        return _shipped() / f"{name}.toml"
    near = difflib.get_close_matches(name, space_names(), n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else "List them: tune-sentcl spaces."
    if Path(name).is_file():
        hint = "The name of a space file must end in .toml."
    raise SpaceError(Fault("SPACE", "", name or "''", "no space of this name", hint))


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


def _build(document: dict[str, Any], text: str, source: str, overrides: dict[str, Any]) -> Space:
    _check_layout(document, source)
    fixed = dict(flatten(document.get("fixed", {})))
    search = document.get("search", {})
    points = list(_points(document["block"], fixed, source))
    declared = _expand(points, source)
    if len(declared) != document["trials"]:
        rule = f"must be the number of distinct trials, seeds not counted: {len(declared)}"
        raise SpaceError(Fault(source, "trials", str(document["trials"]), rule, "Correct it."))
    ranges = _ranges(search.get("ranges", {}), source)
    meant = _override(points, overrides) if overrides else declared
    base = {**fixed, **dict(flatten(search.get("fixed", {}))), **overrides}
    if "seed" in overrides:
        document["seeds"] = [overrides["seed"]]
    space = Space(
        name=document["name"],
        paper=document.get("paper", ""),
        tables=tuple(document.get("tables", [])),
        summary=document.get("summary", ""),
        configurations=tuple(dict.fromkeys(c.model_copy(update={"seed": 0}) for c in meant)),
        base=base,
        ranges=tuple(r for r in ranges if r.key not in overrides),
        seeds=tuple(document.get("seeds", [0])),
        text=text,
        source=source,
        overrides=overrides,
    )
    _check_ranges(space)
    return space


def _check_layout(document: dict[str, Any], source: str) -> None:
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


def _points(blocks: Sequence[Values], fixed: Values, source: str) -> Iterator[_Point]:
    for block in blocks:
        grid = dict(flatten(block.get("grid", {})))
        for key, values in grid.items():
            if not isinstance(values, list) or not values:
                rule = "must be a list of values, not empty"
                raise SpaceError(Fault(source, key, shown(values), rule, "Write [0.1, 0.3]."))
        own = {**fixed, **dict(flatten(block.get("fixed", {})))}
        for values in itertools.product(*grid.values()):
            yield _Point({**own, **dict(zip(grid, values, strict=True))}, tuple(grid))


def _expand(points: Iterable[_Point], source: str) -> list[TrialConfig]:
    """The points' distinct configurations; every fault of them is listed."""
    configurations: dict[TrialConfig, None] = {}
    faults: dict[Fault, None] = {}
    for point in points:
        with _gathered(faults):
            configurations[_configure(point.values, source, point.required)] = None
    if faults:
        raise ConfigError(faults)
    return list(configurations)


@contextmanager
def _gathered(faults: dict[Fault, None]) -> Iterator[None]:
    """Keep a config's faults, each once, so that those of the next one can be told as well."""
    try:
        yield
    except ConfigError as error:
        faults.update(dict.fromkeys(error.faults))


def _configure(values: Values, source: str, required: Collection[str] = ()) -> TrialConfig:
    """Build a config without the knobs that its method and optimizer lack, unless required."""
    asked = {key: values[key] for key in required}
    return parse_dotted({**fitting(values), **asked}, source)


def _override(points: Iterable[_Point], overrides: Values) -> list[TrialConfig]:
    """The points' configurations under other values, each of a knob that one of them has."""
    where = "--set"
    changed = _expand([_Point({**point.values, **overrides}) for point in points], where)
    held = {key for config in changed for key in config.dotted()}
    lost = [unknown_key(where, key, shown(overrides[key])) for key in overrides if key not in held]
    if lost:
        raise ConfigError(lost)
    return changed


def _ranges(tables: Values, source: str) -> list[Range]:
    known = knobs()
    ranges = []
    for key, spec in _flatten_ranges(tables):
        if key not in known or key == "seed":
            raise ConfigError(unknown_key(f"{source} [search.ranges]", key, shown(spec)))
        kind: Literal["float", "int", "choice"] = "float" if known[key].kind == "float" else "int"
        numeric = set(spec) in ({"low", "high"}, {"low", "high", "log"})
        if set(spec) == {"choices"} and isinstance(spec["choices"], list) and spec["choices"]:
            ranges.append(Range(key, "choice", choices=tuple(spec["choices"])))
        elif numeric and known[key].kind in ("float", "int") and _ordered(spec):
            ranges.append(Range(key, kind, spec["low"], spec["high"], spec.get("log", False)))
        else:
            rule = "must be { low, high[, log] } with low < high (log: low > 0), or { choices }"
            where = f"{source} [search.ranges]"
            raise SpaceError(Fault(where, key, shown(spec), rule, "Mend the range."))
    return sorted(ranges, key=lambda r: _NAMES.index(r.key) if r.key in _NAMES else len(_NAMES))


def _ordered(spec: Values) -> bool:
    low, high = spec["low"], spec["high"]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (low, high))
    log = spec.get("log", False)
    return numbers and isinstance(log, bool) and low < high and (not log or low > 0)


def _flatten_ranges(tables: Values, prefix: str = "") -> Iterator[tuple[str, Values]]:
    for key, value in tables.items():
        if isinstance(value, dict) and not value.keys() & {"low", "high", "choices", "log"}:
            yield from _flatten_ranges(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, dict) else {"value": value}


def _check_ranges(space: Space) -> None:
    """Every end of every range must be legal, for each method and optimizer that have it."""
    if space.ranges and "method.name" not in {**space.base, **space.branches()[0]}:
        rule = "must be given for the ranges, which know nothing of the blocks' methods"
        move = 'Write method.name = "scl" in [search.fixed], or a choice in [search.ranges].'
        raise SpaceError(Fault(f"{space.source} [search]", "method.name", "", rule, move))
    faults: dict[Fault, None] = {}
    for branch in space.branches() if space.ranges else ():
        for item in space.active_ranges(branch):
            for value in item.ends():
                values = {**space.base, **branch, item.key: value}
                with _gathered(faults):
                    _configure(values, f"{space.source} [search.ranges]")
    if faults:
        raise ConfigError(faults)
