"""The data set that all figures share: one row per configuration, columns without dots."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tune_sentcl.analysis.report.figure import rounded
from tune_sentcl.analysis.report.report_data import ReportData
from tune_sentcl.analysis.report.table import time_unit, written
from tune_sentcl.config import UNSET, knobs

_GOLDEN = 0.618033988749895
_CROWDED = 50
_MAGNITUDES = 8
_NUMBERS = {"int": "Int64", "float": "float64"}


@dataclass(frozen=True, eq=False)
class Points:
    """The configurations of a `ReportData`, as figures draw them.

    Columns: `id`, `n`, `cost` (see `cost_title`), `jitter`, `best` (the winner), `k0`, `k1` …
    (hyperparameters, in the subject's order), and for each target `t0`, `t0_sd`, `t0_low`,
    `t0_high` (the mean minus and plus one sd; null for one seed), and so on.
    """

    subject: ReportData

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per configuration, the best first."""
        subject, names = self.subject, [*self.subject.seeds]
        columns: dict[str, Any] = {
            "id": [subject.brief(name) for name in names],
            "n": [*subject.seeds.values()],
            "cost": _over_seeds(subject, subject.cost)["mean"] * self._unit[1],
            "jitter": _jitter(len(names)),
            "best": [subject.standings.mark(name) == "winner" for name in names],
        }
        for index, target in enumerate(subject.targets):
            found = _over_seeds(subject, target)
            mean, sd = found["mean"], found["sd"]
            columns |= {f"t{index}": mean, f"t{index}_sd": sd}
            columns |= {f"t{index}_low": mean - sd, f"t{index}_high": mean + sd}
        frame = pd.DataFrame(columns, index=names).assign(**self._knobs(names))
        for key in subject.knobs:
            frame[self.line(key)] = self._lines(frame, key)
        return rounded(frame)

    def _knobs(self, names: Iterable[str]) -> dict[str, "pd.Series[Any]"]:
        """The columns of the hyperparameters; numbers where `is_number`, else text."""
        rows = {name: self.subject.stated(name) for name in names}
        found: dict[str, pd.Series[Any]] = {}
        for index, key in enumerate(self.subject.knobs):
            values: Any = [row[index] for row in rows.values()]
            if self.is_number(key):
                numbers: Any = pd.to_numeric(pd.Series(values, list(rows), object), "coerce")
                found[self.knob(key)] = numbers.astype(_NUMBERS[knobs()[key].kind])
            else:
                values = [None if value is None else written(value) for value in values]
                found[self.knob(key)] = pd.Series(values, list(rows), object)
        return found

    @cached_property
    def stopped(self) -> pd.DataFrame:
        """Stopped configurations without a finished trial: `id`, `jitter` and hyperparameters.

        `last` is the first target's value at the end of their last stage, `seen` the share of the
        training until then. Configurations that were compared by another score are left out. `t0`
        is `last`, raised to the lowest value that the axis of the finished configurations shows.
        """
        subject, target = self.subject, self.subject.targets[0]
        trials = subject.trials[subject.trials["stages"].notna()]
        trials = trials[trials["status"] == "pruned"].set_index("configuration")
        ends = trials["stages"].map(lambda stages: max(stages, key=lambda end: end["share"]))
        ends = ends[~ends.index.isin(self.frame.index)]
        ends = ends[[end["objective"] == target for end in ends]]
        last = pd.Series([float(end["value"]) for end in ends], ends.index, "float64")
        worst, best = self.floor(target) or self.frame["t0"].min(), self.frame["t0"].max()
        columns: dict[str, Any] = {
            "id": ends.index.map(subject.brief),
            "seen": [f"{100 * end['share']:.2g} %" for end in ends],
            "last": last,
            "t0": last.clip(lower=2 * worst - best),
            "jitter": _jitter(len(ends)),
        }
        found = pd.DataFrame(columns, index=ends.index).join(pd.DataFrame(self._knobs(ends.index)))
        return rounded(found)

    def _lines(self, frame: pd.DataFrame, key: str) -> "pd.Series[Any]":
        own = self.knob(key)
        others = [self.knob(other) for other in self.subject.knobs if other != key]
        groups = frame.assign(every=0).groupby([*others, "every"], dropna=False)
        several = groups[own].transform("nunique") > 1
        return groups.ngroup().where(several).astype("Int64")

    def line(self, key: str) -> str:
        """The column that numbers the lines in a hyperparameter's figure.

        A line joins configurations that differ in this hyperparameter alone. It is null for
        a configuration that no line joins with another.
        """
        return f"{self.knob(key)}_line"

    def is_logarithmic(self, key: str, values: "pd.Series[Any]") -> bool:
        """Whether a hyperparameter's axis is logarithmic: by declared range, else by values."""
        declared = self.subject.declared_log.get(key)
        if not self.is_number(key):
            return False
        return is_logarithmic(values) if declared is None else declared and values.max() > 0

    def is_number(self, key: str) -> bool:
        """Whether a hyperparameter's axis shows numbers: all its values are set and numeric."""
        return key in self._numbers

    @cached_property
    def _numbers(self) -> set[str]:
        rows = [self.subject.stated(name) for name in self.subject.seeds]
        columns = zip(self.subject.knobs, zip(*rows, strict=True), strict=bool(rows))
        found = {key for key, values in columns if UNSET not in values}
        return {key for key in found if knobs()[key].kind in _NUMBERS}

    @property
    def cost_title(self) -> str:
        """The cost's display name, in the unit that suits the highest cost."""
        return f"{self.subject.cost_title}, {self._unit[0]}"

    @cached_property
    def _unit(self) -> tuple[str, float]:
        return time_unit(_over_seeds(self.subject, self.subject.cost)["mean"].max())

    def knob(self, key: str) -> str:
        """The column of a hyperparameter."""
        return f"k{self.subject.knobs.index(key)}"

    def target(self, name: str) -> str:
        """The column of a target."""
        return f"t{self.subject.targets.index(name)}"

    def floor(self, name: str) -> float | None:
        """The lower end of a score's axis, so that a few collapsed trials do not stretch the axis.

        None: show all values.
        """
        values = self.frame[self.target(name)].dropna().to_numpy(float)
        if len(values) < _CROWDED:
            return None
        low, middle, high = np.quantile(values, [0.01, 0.5, 1])
        return None if middle - values.min() < 4 * (high - middle) else float(np.floor(low))

    @property
    def scores(self) -> list[dict[str, Any]]:
        """The values of `@score` and the other placeholders of a figure, by target."""
        return [
            {
                "score": f"t{index}",
                **{key: f"t{index}_{key}" for key in ("sd", "low", "high")},
                "title": self.subject.title(name),
                "floor": self.floor(name),
            }
            for index, name in enumerate(self.subject.targets)
        ]


def _over_seeds(subject: ReportData, number: str) -> pd.DataFrame:
    """Mean and sd of a number, by the names of the shown configurations."""
    found = subject.over_seeds(number)
    rows = {name: (one.mean, one.sd) for name, one in found.items()}
    frame = pd.DataFrame.from_dict(rows, "index", columns=["mean", "sd"], dtype=float)
    return frame.reindex([*subject.seeds])


def _jitter(count: int) -> Any:
    """Horizontal positions in [-0.5, 0.5] that spread neighbours evenly, by the golden ratio."""
    return np.round(np.arange(count) * _GOLDEN % 1 - 0.5, 3)


def evenly(count: int, most: int) -> list[int]:
    """At most `most` of `count` positions, evenly spaced, including the first and the last."""
    return [int(place) for place in np.linspace(0, count - 1, min(most, count)).round()]


def is_logarithmic(values: "pd.Series[Any]") -> bool:
    """Whether a hyperparameter's values are spaced by ratio rather than by difference."""
    numbers = values.dropna().to_numpy(float)
    low, high = numbers.min(), numbers.max()
    if low <= 0 or high / low < _MAGNITUDES:
        return False
    middle = float(np.median(numbers))
    by_ratio = abs(np.log(middle / np.sqrt(low * high))) / np.log(high / low)
    return bool(by_ratio < abs(middle - (low + high) / 2) / (high - low))


def in_order(values: "pd.Series[Any]") -> list[str]:
    """A column's distinct values as text: numbers by size, then names."""
    return sorted(map(str, values.dropna().unique()), key=lambda text: (_size(text), text))


def _size(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf
