"""What a report speaks of: trials and configurations with every number that its parts need."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, get_args

import numpy as np
import pandas as pd

from tune_sentcl.analysis.frames import StudyFrames
from tune_sentcl.analysis.papers.paper_results import Paper, paper_results
from tune_sentcl.analysis.report.table import Estimate
from tune_sentcl.analysis.summary import STS_TASKS
from tune_sentcl.config import knobs, short_name
from tune_sentcl.history import CONFIRM_ORIGIN, ranked_data
from tune_sentcl.objective import OFFERS, Objective, objective_named

STS_AVERAGE, TRANSFER_AVERAGE = "STS average", "transfer average"
HOURS, GPU_HOURS = "hours", "GPU hours"
_STEADY = "share without start-up"
_METRICS = {
    **{"spearman": "Spearman", "pearson": "Pearson", "f1": "F1", "macro_f1": "macro F1"},
    **{"ndcg": "nDCG", "mrr": "MRR"},
}
_FACTS = ("space", "started_at", "device", "host", "error_type", "error_text")
_HOUR = 3600.0


@dataclass(frozen=True, eq=False)
class Subject:
    """A study, or several as one, seen through the scores that a search maximized.

    Attributes:
        frames: What was read.
        objectives: What configurations are ranked by, the first first.
    """

    frames: StudyFrames
    objectives: tuple[Objective, ...]

    @cached_property
    def data(self) -> str:
        """Whose evaluation sets the figures show; see `tune_sentcl.history.ranked_data`."""
        scored = self.searched[str(self.objectives[0])].notna()
        return ranked_data(zip(self.searched["data"], scored.to_list(), strict=True))

    @cached_property
    def trials(self) -> pd.DataFrame:
        """`StudyFrames.wide` with the averages and with what each trial took."""
        wide, facts = self.frames.wide(), self.frames.trials  # in one order
        added: dict[str, Any] = {name: facts[name] for name in _FACTS}
        added[HOURS] = facts["wall_seconds"].to_numpy(float, na_value=np.nan) / _HOUR
        added[GPU_HOURS] = facts["gpu_seconds"].to_numpy(float, na_value=np.nan) / _HOUR
        steady = facts["train_seconds"] + facts["evaluation_seconds"]
        added[_STEADY] = (steady / facts["wall_seconds"]).fillna(1.0).to_numpy(float)
        for name in map(str, self.objectives):
            if name not in wide:
                added[name] = np.full(len(wide), np.nan)
        added[STS_AVERAGE] = _average(wide, [_sts(task) for task in STS_TASKS])
        added[TRANSFER_AVERAGE] = _average(wide, self._transfer(list(wide.columns)))
        return pd.concat([wide, pd.DataFrame(added, index=wide.index)], axis=1)

    @cached_property
    def knobs(self) -> list[str]:
        """The knobs in which trials differ, by their dotted keys; the seed never."""
        named = [column for column in self.trials.columns if column in knobs()]
        several = self.trials["method.name"].nunique() > 1
        return [key for key in named if key != "seed" and (several or key != "method.name")]

    @cached_property
    def labels(self) -> dict[str, str]:
        """Each varied knob's name for people: the short one, where no other has it."""
        short = [short_name(key) for key in self.knobs]
        return {
            key: name if short.count(name) == 1 else key
            for key, name in zip(self.knobs, short, strict=True)
        }

    def brief(self, configuration: str) -> str:
        """The beginning of a configuration's name, long enough to be no other's."""
        return configuration[: self._brief]

    @cached_property
    def _brief(self) -> int:
        names = self.trials["configuration"].drop_duplicates()
        lengths = range(8, max(9, int(names.str.len().max() or 0)))
        return next((n for n in lengths if names.str.slice(0, n).is_unique), lengths[-1] + 1)

    def title(self, target: str) -> str:
        """A target as people write it."""
        return next((title_of(o) for o in self.objectives if str(o) == target), target)

    @cached_property
    def targets(self) -> list[str]:
        """What a configuration is judged by: the objectives, then the averages that there are."""
        averages = [name for name in (STS_AVERAGE, TRANSFER_AVERAGE) if self._has(name)]
        return [*map(str, self.objectives), *averages]

    @cached_property
    def cost(self) -> str:
        """What a trial costs: GPU hours where GPUs were used, else hours."""
        return GPU_HOURS if float(self.trials[GPU_HOURS].sum()) > 0 else HOURS

    @cached_property
    def searched(self) -> pd.DataFrame:
        """The finished trials that configurations are ranked by."""
        there = (self.trials["status"] == "finished") & (self.trials["origin"] != CONFIRM_ORIGIN)
        return self.trials[there]

    @cached_property
    def fresh(self) -> "pd.Series[Any]":
        """The first objective over fresh seeds, by configuration and data: the scores of each.

        They were measured once a configuration had been chosen, and choose nothing.
        """
        there = (self.trials["status"] == "finished") & (self.trials["origin"] == CONFIRM_ORIGIN)
        scored = self.trials[there].dropna(subset=[str(self.objectives[0])])
        groups = scored.groupby(["configuration", "data"])[str(self.objectives[0])]
        found: pd.Series[Any] = groups.agg(list)
        return found

    @cached_property
    def over_seeds(self) -> pd.DataFrame:
        """One row a configuration and data: knobs, `n`, and each number's mean, sd and count.

        The columns of numbers are pairs: of a score or a cost, and `mean`, `std` or `count`. The
        order is that of `StudyFrames.configurations`; `lost` counts the seeds that were lost.
        Hours leave out start-up, most of which the first trial of each worker bears, and loading
        for a trial that was measured again.
        """
        trials = self.searched
        hours = {name: trials[name] * trials[_STEADY] for name in (HOURS, GPU_HOURS)}
        groups = trials.assign(**hours).groupby(["configuration", "data"], sort=True)
        numbers = [*self.scores, STS_AVERAGE, TRANSFER_AVERAGE, HOURS, GPU_HOURS]
        found = groups[numbers].agg(["mean", "std", "count"])
        own: Any = groups[self.knobs].first() if self.knobs else pd.DataFrame(index=found.index)
        own.columns = pd.MultiIndex.from_tuples(
            [(key, "") for key in own.columns], names=[None] * 2
        )
        # A copy, for pandas warns of tables that many columns were put into one by one.
        found = pd.concat([own, found], axis=1).copy()
        found["n", ""] = groups.size()
        ranked = self.frames.configurations(self.objectives)
        keys = list(ranked[["configuration", "data"]].itertuples(index=False, name=None))
        order: pd.DataFrame = found.loc[keys].copy()
        order[str(self.objectives[0]), "mean"] = ranked["objective_mean"].to_numpy()
        order["lost", ""] = ranked["lost"].to_numpy() if "lost" in ranked else 0
        return order.reset_index()

    @cached_property
    def shown(self) -> pd.DataFrame:
        """`over_seeds` on the data that the figures show."""
        found = self.over_seeds
        return found[found["data", ""] == self.data].reset_index(drop=True)

    @cached_property
    def scores(self) -> list[str]:
        """Every score that was measured, by its name on the command line."""
        return [column for column in self.trials.columns if ":" in column]

    @cached_property
    def own(self) -> dict[str, Objective]:
        """The scores of the user's own tasks, by their names in `scores`."""
        found = {name: objective_named(name) for name in self.scores}
        return {name: objective for name, objective in found.items() if objective.is_own}

    @cached_property
    def paper(self) -> Paper | None:
        """The paper whose tables the study follows, where its spaces name one."""
        texts = [
            text for manifest in self.frames.manifests.values() for text in manifest.space_texts
        ]
        named = {_paper(text) for text in texts}
        found = named & set(get_args(Paper))
        return cast(Paper, found.pop()) if len(found) == 1 else None

    def printed(self, suite: str) -> list[str]:
        """The tasks of a suite that the study's paper averages, in its order; else all."""
        own = [task for task in OFFERS if Objective(task, "", "", "").suite == suite]
        if self.paper is None:
            return own
        found = paper_results(self.paper)
        named = found[found["metric_suite"] == suite]["task"].drop_duplicates().to_list()
        return [task for task in named if task in own] or own

    def tasks(self, suite: str) -> list[str]:
        """The tasks of a suite, those that the study's paper prints first."""
        printed = self.printed(suite)
        own = [task for task in OFFERS if Objective(task, "", "", "").suite == suite]
        return [*printed, *(task for task in own if task not in printed)]

    def estimate(self, row: "pd.Series[Any]", column: str) -> Estimate:
        """A number of a row of `over_seeds`."""
        return Estimate(
            float(row[column, "mean"]), float(row[column, "std"]), int(row[column, "count"])
        )

    def _has(self, column: str) -> bool:
        return bool(self.trials[column].notna().any())

    def _transfer(self, columns: Sequence[str]) -> list[str]:
        """The columns of the first transfer protocol that was measured."""
        tasks = self.tasks("transfer")
        protocols = dict.fromkeys(name for task in tasks for name in OFFERS[task])
        for protocol in protocols:
            names = [str(Objective(task, "accuracy", "test", protocol)) for task in tasks]
            found = [name for name in names if name in columns]
            if found:
                return found
        return []


def _sts(task: str) -> str:
    return str(Objective(task, "spearman", "test", "cosine"))


def _average(wide: pd.DataFrame, columns: Sequence[str]) -> Any:
    """The mean of some columns, NaN where one is lacking."""
    if not columns or not set(columns) <= set(wide.columns):
        return np.full(len(wide), np.nan)
    return wide[list(columns)].mean(axis=1, skipna=False).to_numpy()


def title_of(objective: Objective) -> str:
    """An objective as people write it."""
    how = "" if objective.is_usual else f", {objective.protocol}"
    name, at, cutoff = objective.metric.partition("@")
    shown = f"{_METRICS.get(name, name)}{at}{cutoff}"
    return f"{objective.task} {shown} ({objective.split}{how})"


def _paper(text: str) -> str:
    try:
        return str(tomllib.loads(text).get("paper", ""))
    except tomllib.TOMLDecodeError:  # of a release whose files were read otherwise
        return ""
