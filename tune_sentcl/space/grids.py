"""The keys of a search space's file, the points of its grids, and the ranges of its sampler."""

import difflib
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from tune_sentcl.config import (
    AUTO_FALLBACKS,
    TrialConfig,
    Values,
    fitting,
    flatten,
    knobs,
    parse_dotted,
    shown,
    unknown_key,
)
from tune_sentcl.errors import ConfigError, Fault, SpaceError

_TABLE: Any = Field({}, description="must be a table")
_TEXTS: Any = Field([], description="must be a list of texts")


def _distinct(seeds: list[int]) -> list[int]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("a seed occurs twice")
    return seeds


class _Layout(BaseModel):
    """A table of a search space's file; the description of a key is its rule."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Block(_Layout):
    paper_rows: list[str] = _TEXTS
    fixed: dict[str, Any] = _TABLE
    grid: dict[str, Any] = _TABLE


class _Search(_Layout):
    fixed: dict[str, Any] = _TABLE
    ranges: dict[str, Any] = _TABLE


class _SpaceFile(_Layout):
    name: str = Field("unnamed", pattern=r"\S", description="must be text, not empty")
    paper: str = Field("", description="must be text")
    tables: list[str] = _TEXTS
    summary: str = Field("", description="must be text")
    seeds: Annotated[
        list[Annotated[int, Field(ge=0, lt=2**63)]], Field(min_length=1), AfterValidator(_distinct)
    ] = Field([0], description="must be a list of distinct whole numbers of 0 or more, not empty")
    plugins: list[str] = _TEXTS
    fixed: dict[str, Any] = _TABLE
    block: list[_Block] = Field(min_length=1, description="must be one or more [[block]] tables")
    search: _Search = Field(_Search(), description="must be a table")


_INNER: dict[str, type[_Layout]] = {"block": _Block, "search": _Search}


def check_layout(document: Values, source: str) -> None:
    """Raise SpaceError with all faults in the keys and value types of a search space's file."""
    try:
        _SpaceFile.model_validate(document)
    except ValidationError as error:
        faults = {fault.key: fault for fault in _layout_faults(error, document, source)}
        raise SpaceError(faults.values()) from None


def _layout_faults(error: ValidationError, document: Values, source: str) -> Iterator[Fault]:
    for item in error.errors():
        top, *below = [part for part in item["loc"] if isinstance(part, str)]
        inner = _INNER.get(top) if below else None
        fields, last = (inner or _SpaceFile).model_fields, below[0] if inner else top
        key = f"{top}.{last}" if inner else top
        value = shown(item["input"] if inner else document.get(top))
        if item["type"] == "extra_forbidden":
            names = sorted(f"{top}.{name}" if inner else name for name in fields)
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
            hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(names)}."
            yield Fault(source, key=key, value=value, rule="no such key", move=hint)
        elif item["type"] == "missing":
            yield Fault(
                source, key=key, rule="must be given", move="See search_spaces/smoke.toml."
            )
        else:
            rule = fields[last].description or ""
            yield Fault(
                source, key=key, value=value, rule=rule, move="See search_spaces/smoke.toml."
            )


UNION_NAMES = ("method.name", "optimizer.name")
"""The hyperparameters that select a method or an optimizer.

A sampler draws them first, because the other ranges depend on them.
"""


@dataclass(frozen=True)
class Range:
    """The values that a sampler may give to one hyperparameter.

    Attributes:
        key: The hyperparameter's dotted key.
        kind: `float` and `int` for numbers from `low` to `high`, both included; `choice` for one
            of `choices`.
        low: The lowest number.
        high: The highest number.
        log: Whether the sampler draws numbers uniformly on a log scale.
        choices: The values of a choice.
        prior: The value in the configuration that a search tries first; None: no prior.
    """

    key: str
    kind: Literal["float", "int", "choice"]
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()
    prior: Any = None

    def param(self, value: Any) -> Any:
        """Turn a config's value into the range's form: `[n]` becomes n, and `[]` becomes 0."""
        is_short = isinstance(value, list | tuple) and len(value) < 2
        return next(iter(value), 0) if is_short else value

    def holds(self, value: Any) -> bool:
        """Whether the range contains a config's value."""
        if self.kind == "choice":
            return self.param(value) in self.choices
        return isinstance(value, int | float) and self.low <= value <= self.high

    def ends(self) -> tuple[Any, ...]:
        """The values to validate for the whole range: its ends, or all its choices."""
        return self.choices if self.kind == "choice" else (self.low, self.high)


def read_ranges(tables: Values, source: str) -> list[Range]:
    """Parse `[search.ranges]`; `UNION_NAMES` come first.

    Raises:
        ConfigError: A key is not a hyperparameter.
        SpaceError: A range has no valid form.
    """
    all_knobs = knobs()
    ranges = []
    for key, table in _flatten_ranges(tables):
        spec = {name: value for name, value in table.items() if name != "prior"}
        if key == "seed":
            rule = "the seed cannot be sampled"
            move = "Write seeds = [0, 1] at the top, or give --seeds."
            raise SpaceError(Fault(f"{source} [search.ranges]", key=key, rule=rule, move=move))
        if key not in all_knobs:
            raise ConfigError(unknown_key(f"{source} [search.ranges]", key, shown(table)))
        kind: Literal["float", "int", "choice"] = (
            "float" if all_knobs[key].kind == "float" else "int"
        )
        numeric = set(spec) in ({"low", "high"}, {"low", "high", "log"})
        if set(spec) == {"choices"} and _are_choices(key, spec["choices"]):
            ranges.append(Range(key, "choice", choices=tuple(spec["choices"])))
        elif numeric and all_knobs[key].kind in ("float", "int") and _ordered(spec):
            ranges.append(Range(key, kind, spec["low"], spec["high"], spec.get("log", False)))
        else:
            rule = (
                "must be { low, high[, log] } with low < high (with log: low > 0), or "
                "{ choices }; choices must not be lists or tables, or auto for a checkpoint's "
                "setting"
            )
            where = f"{source} [search.ranges]"
            move = "Correct the range. Lists go into the grid of a [[block]]."
            raise SpaceError(Fault(where, key=key, value=shown(table), rule=rule, move=move))
        if "prior" in table:
            ranges[-1] = _with_prior(ranges[-1], table["prior"], source)
    return sorted(
        ranges,
        key=lambda r: UNION_NAMES.index(r.key) if r.key in UNION_NAMES else len(UNION_NAMES),
    )


def _with_prior(item: Range, prior: Any, source: str) -> Range:
    """The range with a prior; SpaceError if the range does not contain it."""
    if item.kind == "choice":
        holds = any(type(value) is type(prior) and value == prior for value in item.choices)
    else:
        holds = type(prior) in ((int,) if item.kind == "int" else (int, float))
        holds = holds and item.holds(prior)
    if not holds:
        where, rule = f"{source} [search.ranges]", "must be a value of the range"
        move = "Correct the prior or the range."
        raise SpaceError(
            Fault(where, key=f"{item.key}.prior", value=shown(prior), rule=rule, move=move)
        )
    return replace(item, prior=float(prior) if item.kind == "float" else prior)


def _are_choices(key: str, values: Any) -> bool:
    """Whether values may be choices: no lists, no tables, and no `auto` of a checkpoint."""
    if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
        return False
    return bool(values) and not (key in AUTO_FALLBACKS and "auto" in values)


def _ordered(spec: Values) -> bool:
    low, high = spec["low"], spec["high"]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (low, high))
    log = spec.get("log", False)
    return numbers and isinstance(log, bool) and low < high and (not log or low > 0)


def _flatten_ranges(tables: Values, prefix: str = "") -> Iterator[tuple[str, Values]]:
    for key, value in tables.items():
        if isinstance(value, dict) and not value.keys() & {
            "low",
            "high",
            "choices",
            "log",
            "prior",
        }:
            yield from _flatten_ranges(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, dict) else {"value": value}


@dataclass(frozen=True)
class Point:
    """One grid point before its validation.

    Attributes:
        values: Dotted values. Hyperparameters that the point's method or optimizer lacks are
            ignored.
        required: The keys of the grid; an error is raised if the method or optimizer lacks one.
        paper_row: The name of the row of the paper's tables that the point fills; empty for none.
    """

    values: Values
    required: tuple[str, ...] = ()
    paper_row: str = ""


def grid_points(blocks: Sequence[Values], fixed: Values, source: str) -> Iterator[Point]:
    """Yield every point of every block, with duplicates; SpaceError if values are not lists."""
    for block in blocks:
        grid = dict(flatten(block.get("grid", {})))
        for key, values in grid.items():
            if not isinstance(values, list) or not values:
                rule = "must be a list of values, not empty"
                raise SpaceError(
                    Fault(
                        source, key=key, value=shown(values), rule=rule, move="Write [0.1, 0.3]."
                    )
                )
        own = {**fixed, **dict(flatten(block.get("fixed", {})))}
        points = list(itertools.product(*grid.values()))
        paper_rows = block.get("paper_rows", [""] * len(points))
        if len(paper_rows) != len(points):
            rule = f'must name a row, or "", for each of the {len(points)} points of the grid'
            move = (
                "Write the rows in the order of the grid points: the values of the last key "
                "change fastest."
            )
            raise SpaceError(
                Fault(
                    source, key="block.paper_rows", value=shown(paper_rows), rule=rule, move=move
                )
            )
        for values, paper_row in zip(points, paper_rows, strict=True):
            yield Point({**own, **dict(zip(grid, values, strict=True))}, tuple(grid), paper_row)


def expand(points: Iterable[Point], source: str) -> list[TrialConfig]:
    """The points' distinct configurations; ConfigError with all faults."""
    configurations: dict[TrialConfig, None] = {}
    faults: dict[Fault, None] = {}
    for point in points:
        with gathered(faults):
            configurations[configure(point.values, source, point.required)] = None
    if faults:
        raise ConfigError(faults)
    return list(configurations)


def override(points: Iterable[Point], overrides: Values) -> list[TrialConfig]:
    """The points' configurations with overrides; ConfigError if no point has an overridden key."""
    where = "--set"
    changed = expand([Point({**point.values, **overrides}) for point in points], where)
    existing_keys = {key for config in changed for key in config.dotted()}
    missing = [
        unknown_key(where, key, shown(overrides[key]))
        for key in overrides
        if key not in existing_keys
    ]
    if missing:
        raise ConfigError(missing)
    return changed


def configure(values: Values, source: str, required: Collection[str] = ()) -> TrialConfig:
    """Build a config without values that its method and optimizer lack, unless required."""
    asked = {key: values[key] for key in required}
    return parse_dotted({**fitting(values), **asked}, source)


@contextmanager
def gathered(faults: dict[Fault, None]) -> Iterator[None]:
    """Collect the faults of a config, each once, instead of raising at the first config."""
    try:
        yield
    except ConfigError as error:
        faults.update(dict.fromkeys(error.faults))
