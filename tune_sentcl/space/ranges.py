"""Where a sampler may put a knob, and how `[search.ranges]` says so."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tune_sentcl.config import UNSAID, Values, knobs, shown, unknown_key
from tune_sentcl.errors import ConfigError, Fault, SpaceError

UNION_NAMES = ("method.name", "optimizer.name")
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


def read_ranges(tables: Values, source: str) -> list[Range]:
    """The ranges of a space file's table, those of the unions' names first.

    Raises:
        ConfigError: A key is no knob.
        SpaceError: A range is none.
    """
    known = knobs()
    ranges = []
    for key, spec in _flatten_ranges(tables):
        if key not in known or key == "seed":
            raise ConfigError(unknown_key(f"{source} [search.ranges]", key, shown(spec)))
        kind: Literal["float", "int", "choice"] = "float" if known[key].kind == "float" else "int"
        numeric = set(spec) in ({"low", "high"}, {"low", "high", "log"})
        if set(spec) == {"choices"} and _are_choices(key, spec["choices"]):
            ranges.append(Range(key, "choice", choices=tuple(spec["choices"])))
        elif numeric and known[key].kind in ("float", "int") and _ordered(spec):
            ranges.append(Range(key, kind, spec["low"], spec["high"], spec.get("log", False)))
        else:
            rule = (
                "must be { low, high[, log] } with low < high (log: low > 0), or { choices }, "
                "none of them a list or a table, nor auto where a checkpoint says what that is"
            )
            where = f"{source} [search.ranges]"
            raise SpaceError(Fault(where, key, shown(spec), rule, "Mend the range."))
    return sorted(
        ranges,
        key=lambda r: UNION_NAMES.index(r.key) if r.key in UNION_NAMES else len(UNION_NAMES),
    )


def _are_choices(key: str, values: Any) -> bool:
    """Whether a sampler can tell values apart; sources and columns are texts there."""
    if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
        return False
    return bool(values) and not (key in UNSAID and "auto" in values)


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
