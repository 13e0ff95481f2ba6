"""The data set that all figures share: one row per configuration, column names without dots."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tune_sentcl.analysis.report.figure import HIGH, LOW, SCORE, SPREAD, rounded
from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.analysis.report.table import Value, time_unit, written
from tune_sentcl.config import UNSET, knobs

_GOLDEN = 0.618033988749895
_CROWDED = 50
_MAGNITUDES = 8
_ENDS = ["configuration", "stages"]
_NUMBERS = {"int": "Int64", "float": "float64"}


@dataclass(frozen=True, eq=False)
class Points:
    """A subject's configurations as figures draw them.

    Columns: `id`, `rank` (1: the best), `n`, `cost` (see `cost_title`), `jitter`, `best` (bool),
    `k0`, `k1` … (knobs, in the subject's order), and for each target `t0`, `t0_sd`, `t0_low`,
    `t0_high` (one standard deviation to each side; null for one seed) and so on.
    """

    subject: Subject

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The rows, the best first."""
        shown = self.subject.over_seeds
        count = len(shown)
        columns: dict[str, Any] = {
            "id": shown["configuration", ""].map(self.subject.brief),
            "rank": np.arange(1, count + 1),
            "n": shown["n", ""].astype(int),
            "cost": shown[self.subject.cost, "mean"] * self._unit[1],
            "jitter": _jitter(count),
            "best": np.arange(count) == 0,
        }
        found = [self.subject.stated(name) for name in shown["configuration", ""]]
        for index, key in enumerate(self.subject.knobs):
            values = [row[index] for row in found]
            kind = None if UNSET in values else _NUMBERS.get(knobs()[key].kind)
            columns[f"k{index}"] = pd.Series(
                values if kind else list(map(_text, values)), shown.index, kind or object
            )
        for index, target in enumerate(self.subject.targets):
            mean, sd = shown[target, "mean"], shown[target, "std"]
            columns |= {f"t{index}": mean, f"t{index}_sd": sd}
            columns |= {f"t{index}_low": mean - sd, f"t{index}_high": mean + sd}
        frame = pd.DataFrame(columns)
        for key in self.subject.knobs:
            frame[self.line(key)] = self._lines(frame, key)
        return rounded(frame, 5)

    @cached_property
    def stopped(self) -> pd.DataFrame:
        """Stopped configurations without a finished trial, with `id`, `jitter` and knobs.

        `last` is the first target at the end of their last stage, after the share `seen` of their
        training; those that another score was compared at are left out. `at` is `last`, but no
        lower than an axis can show beside the finished ones.
        """
        subject, target = self.subject, self.subject.targets[0]
        there = subject.trials["stages"].notna() & (subject.trials["status"] == "pruned")
        there &= ~subject.trials["configuration"].isin(subject.over_seeds["configuration", ""])
        rows = [
            (
                subject.brief(name),
                f"{100 * end['share']:.2g} %",
                end["value"],
                *subject.stated(name),
            )
            for name, ends in subject.trials.loc[there, _ENDS].to_numpy()
            for end in [max(ends, key=lambda one: one["share"])]
            if end["objective"] == target
        ]
        found = pd.DataFrame(
            rows, columns=pd.Index(["id", "seen", "last", *map(self.knob, subject.knobs)])
        )
        for key in subject.knobs:
            own = found[self.knob(key)]
            is_number = self.is_number(key)
            found[own.name] = pd.to_numeric(own, "coerce") if is_number else own.map(_text)
        worst, best = self.floor(target) or self.frame["t0"].min(), self.frame["t0"].max()
        found["at"] = found["last"].clip(lower=2 * worst - best)
        return rounded(found.assign(jitter=_jitter(len(found))), 5)

    def _lines(self, frame: pd.DataFrame, key: str) -> "pd.Series[Any]":
        own = self.knob(key)
        others = [self.knob(other) for other in self.subject.knobs if other != key]
        groups = frame.assign(every=0).groupby([*others, "every"], dropna=False)
        several = groups[own].transform("nunique") > 1
        return groups.ngroup().where(several).astype("Int64")

    def line(self, key: str) -> str:
        """The column with the number of the line that joins configurations in a knob's figure.

        Configurations on one line differ in this knob alone; null: no other one is on the line.
        """
        return f"{self.knob(key)}_line"

    def is_logarithmic(self, key: str, values: "pd.Series[Any]") -> bool:
        """Whether a knob has a logarithmic axis: as the space declares its range, if it does."""
        declared = self.subject.declared_log.get(key)
        return is_logarithmic(values) if declared is None else declared and values.max() > 0

    def is_number(self, key: str) -> bool:
        """Whether a knob has an axis of numbers: it is numeric, and set everywhere."""
        return pd.api.types.is_numeric_dtype(self.frame[self.knob(key)])

    @property
    def cost_title(self) -> str:
        """The display name of the cost, with the unit that suits the dearest configuration."""
        return f"{self.subject.cost_title}, {self._unit[0]}"

    @cached_property
    def _unit(self) -> tuple[str, float]:
        return time_unit(float(self.subject.over_seeds[self.subject.cost, "mean"].max()))

    def knob(self, key: str) -> str:
        """The column of a knob."""
        return f"k{self.subject.knobs.index(key)}"

    def target(self, name: str) -> str:
        """The column of a target."""
        return f"t{self.subject.targets.index(name)}"

    def floor(self, name: str) -> float | None:
        """The lower end of an axis, chosen so that few collapsed trials do not dominate it.

        None: show all values.
        """
        values = self.frame[self.target(name)].dropna().to_numpy(float)
        if len(values) < _CROWDED:
            return None
        low, middle, high = np.quantile(values, [0.01, 0.5, 1])
        return None if middle - values.min() < 4 * (high - middle) else float(np.floor(low))


def _jitter(count: int) -> Any:
    """Places from side to side: the golden ratio spreads neighbours evenly, always alike."""
    return np.round(np.arange(count) * _GOLDEN % 1 - 0.5, 3)


def columns_by_target(index: int) -> dict[str, str]:
    """The columns of one target in the shared data set, by the names that figures use."""
    return {
        SCORE: f"t{index}",
        SPREAD: f"t{index}_sd",
        LOW: f"t{index}_low",
        HIGH: f"t{index}_high",
    }


def is_logarithmic(values: "pd.Series[Any]") -> bool:
    """Whether a knob's values are spread evenly by ratio rather than by difference."""
    numbers = values.dropna().to_numpy(float)
    low, high = numbers.min(), numbers.max()
    if low <= 0 or high / low < _MAGNITUDES:
        return False
    middle = float(np.median(numbers))
    by_ratio = abs(np.log(middle / np.sqrt(low * high))) / np.log(high / low)
    return bool(by_ratio < abs(middle - (low + high) / 2) / (high - low))


def in_order(values: "pd.Series[Any]") -> list[str]:
    """A column's distinct values as text: numbers by size, then names."""
    found = {str(value) for value in values if value is not None and value == value}
    return sorted(found, key=lambda text: (_size(text), text))


def _size(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf


def _text(value: Value) -> str | None:
    return None if value is None else written(value)
