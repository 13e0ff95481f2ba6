"""The trials and configurations that a report covers, with the numbers for tables and figures."""

import contextlib
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tune_sentcl.analysis.frames import STS_TASKS, StudyFrames
from tune_sentcl.analysis.papers.paper_results import PAPERS, Paper, paper_results
from tune_sentcl.analysis.report.table import Value
from tune_sentcl.config import Values, knobs, naming_knobs, short_name, stated, title
from tune_sentcl.errors import BadInputError
from tune_sentcl.history import Configuration
from tune_sentcl.objective import OFFERS, Objective, objective_named, tasks_of
from tune_sentcl.results.standings import Estimate, Standings
from tune_sentcl.space.grids import read_ranges
from tune_sentcl.store.study import Study

STS_AVERAGE, TRANSFER_AVERAGE = "STS average", "transfer average"
HOURS, GPU_HOURS = "hours", "GPU hours"
_STEADY = "share without start-up"
_METRICS = {
    **{"spearman": "Spearman", "pearson": "Pearson", "f1": "F1", "macro_f1": "macro F1"},
    **{"ndcg": "nDCG", "mrr": "MRR"},
    **{"milliseconds_1": "ms a text", "milliseconds_64": "ms a text in batches of 64"},
    **{"megabytes": "MB of weights", "embedding_bytes": "bytes an embedding"},
}
_TRIAL_COLUMNS = ("space", "started_at", "device", "host", "error_type", "error_text", "stages")
_HOUR = 3600.0


@dataclass(frozen=True, eq=False)
class ReportData:
    """One or several studies with the objectives to report.

    Attributes:
        frames: The studies.
        objectives: The scores to report; the first ranks the configurations.
        study: The study if the report covers only one; it gives the scores of single items.
    """

    frames: StudyFrames
    objectives: tuple[Objective, ...]
    study: Study | None = None

    @cached_property
    def standings(self) -> Standings:
        """The configurations, ordered by the first objective."""
        return self.frames.standings(self.objectives[0])

    @cached_property
    def shown(self) -> list[Configuration]:
        """The configurations in order, without those of a plugin's older code."""
        older = self.standings.older
        return [one for one in self.standings.ordered if one.name not in older]

    @cached_property
    def trials(self) -> pd.DataFrame:
        """`StudyFrames.wide` with averages, times and errors of each trial."""
        wide, own = self._wide, self.frames.trials  # both frames have their rows in the same order
        added: dict[str, Any] = {name: own[name] for name in _TRIAL_COLUMNS}
        for name, seconds in ((HOURS, "wall_seconds"), (GPU_HOURS, "gpu_seconds")):
            added[name] = own[seconds].to_numpy(float, na_value=np.nan) / _HOUR
        steady = own["train_seconds"] + own["evaluation_seconds"]
        added[_STEADY] = (steady / own["wall_seconds"]).fillna(1.0).to_numpy(float)
        added |= {name: np.nan for name in map(str, self.objectives) if name not in wide}
        for name, columns in self.averages.items():
            there = columns and set(columns) <= set(wide.columns)
            added[name] = wide[columns].mean(axis=1, skipna=False) if there else np.nan
        return pd.concat([wide, pd.DataFrame(added, index=wide.index)], axis=1)

    @cached_property
    def _wide(self) -> pd.DataFrame:
        return self.frames.wide()

    @cached_property
    def averages(self) -> dict[str, list[str]]:
        """By the name of an average, the scores that it averages."""
        sts = [str(Objective(task, "spearman", "test", "cosine")) for task in STS_TASKS]
        return {STS_AVERAGE: sts, TRANSFER_AVERAGE: self._transfer(list(self._wide.columns))}

    def averaged(self, names: Iterable[str]) -> str:
        """One sentence for each average among some names: the tasks that it averages."""
        return "".join(f" {mean_of(n, self.averages[n])}" for n in names if n in self.averages)

    def average(self, columns: Sequence[str]) -> str:
        """The name of the average of these scores; a partial average also gets their number."""
        name = STS_AVERAGE if objective_named(columns[0]).suite == "sts" else TRANSFER_AVERAGE
        return name if set(columns) == set(self.averages[name]) else f"{name} of {len(columns)}"

    @cached_property
    def knobs(self) -> list[str]:
        """The dotted keys of the hyperparameters in which trials differ, without the seed."""
        named = [column for column in self.trials.columns if column in knobs()]
        several = self.trials["method.name"].nunique() > 1
        return [key for key in named if key != "seed" and (several or key != "method.name")]

    @cached_property
    def labels(self) -> dict[str, str]:
        """A label for each varied hyperparameter: its short name if unique, else its key."""
        short = [short_name(key) for key in self.knobs]
        return {
            key: name if short.count(name) == 1 else key
            for key, name in zip(self.knobs, short, strict=True)
        }

    @cached_property
    def declared_log(self) -> dict[str, bool]:
        """By hyperparameter, whether the search spaces declare its range as logarithmic."""
        found: dict[str, bool] = {}
        for space in self._spaces:
            # Another release may have written a search space with other hyperparameters or in
            # another format; its ranges are ignored.
            with contextlib.suppress(BadInputError, ValueError, TypeError, AttributeError):
                ranges = space.get("search", {}).get("ranges", {})
                found |= {r.key: r.log for r in read_ranges(ranges, "") if not r.choices}
        return found

    @cached_property
    def _spaces(self) -> list[dict[str, Any]]:
        found = []
        for manifest in self.frames.manifests.values():
            for text in manifest.space_texts:
                with contextlib.suppress(tomllib.TOMLDecodeError):
                    # This release may not be able to read the TOML of another release.
                    found.append(tomllib.loads(text))
        return found

    def stated(self, configuration: str) -> list[Value]:
        """A configuration's values of `knobs`, formatted by `tune_sentcl.config.stated`."""
        found = (stated(key, self._values(configuration)) for key in self.knobs)
        return [", ".join(map(str, one)) if isinstance(one, list) else one for one in found]

    def named(self, names: Sequence[str]) -> list[str]:
        """Name configurations by the hyperparameters in which they differ.

        A single configuration is named by the hyperparameters in which all of the study differ.
        """
        rows = [self._values(name) for name in names]
        among = rows if len(rows) > 1 else [one.values for one in self.standings.tried.values()]
        keys = [key for key in naming_knobs(among) if key in self.knobs] or ["method.name"]
        return [title(row, keys) for row in rows]

    def _values(self, configuration: str) -> Values:
        return self.standings.tried[configuration].values

    def brief(self, configuration: str) -> str:
        """A configuration's id, shortened to the fewest digits (from 8) that keep ids distinct."""
        return configuration[: self._brief]

    @cached_property
    def _brief(self) -> int:
        names = self.trials["configuration"].drop_duplicates()
        lengths = range(8, max(9, int(names.str.len().max() or 0)))
        return next((n for n in lengths if names.str.slice(0, n).is_unique), lengths[-1] + 1)

    def title(self, target: str) -> str:
        """A target's display name."""
        return next((title_of(o) for o in self.objectives if str(o) == target), target)

    @cached_property
    def targets(self) -> list[str]:
        """The scores to report: the objectives, then the measured averages."""
        averages = [
            name for name in (STS_AVERAGE, TRANSFER_AVERAGE) if self.trials[name].notna().any()
        ]
        return [*map(str, self.objectives), *averages]

    @cached_property
    def cost(self) -> str:
        """The column of a trial's cost: GPU hours if GPUs were used, else hours."""
        return GPU_HOURS if float(self.trials[GPU_HOURS].sum()) > 0 else HOURS

    @cached_property
    def costs_in_use(self) -> list[str]:
        """The objectives that are minimized."""
        return [str(objective) for objective in self.objectives if objective.is_cost]

    @property
    def cost_title(self) -> str:
        """A display name of the cost, without a unit."""
        return "GPU time a trial" if self.cost == GPU_HOURS else "time a trial"

    @cached_property
    def seeds(self) -> dict[str, int]:
        """The number of search seeds with the first objective of each shown configuration."""
        return {one.name: len(one.chosen_scores()) for one in self.shown}

    @cached_property
    def _finished(self) -> pd.DataFrame:
        return self.trials[self.trials["status"] == "finished"].set_index("trial_id")

    def over_seeds(self, number: str) -> dict[str, Estimate]:
        """A column of `trials`, averaged for each configuration over its finished search seeds.

        Hours leave out start-up, which falls mostly on the first trial of each worker, and the
        loading of trials that were measured again.
        """
        trials = self.trials[self.trials["status"] == "finished"]
        values = (
            trials[number] * trials[_STEADY] if number in (HOURS, GPU_HOURS) else trials[number]
        )
        return self.standings.over_seeds(dict(zip(trials["trial_id"], values, strict=True)))

    @cached_property
    def scores(self) -> list[str]:
        """Every measured score, by its name on the command line."""
        return [column for column in self.trials.columns if ":" in column]

    @cached_property
    def own(self) -> dict[str, Objective]:
        """The scores of custom tasks, by their names in `scores`."""
        found = {name: objective_named(name) for name in self.scores}
        return {name: objective for name, objective in found.items() if objective.is_own}

    @cached_property
    def paper(self) -> Paper | None:
        """The paper that the study's search spaces name; None unless there is exactly one."""
        found = [paper for paper in PAPERS if any(s.get("paper") == paper for s in self._spaces)]
        return found[0] if len(found) == 1 else None

    def printed(self, suite: str) -> list[str]:
        """The tasks that the study's paper averages in a suite, in order; else all its tasks."""
        own = tasks_of([suite])
        if self.paper is None:
            return own
        found = paper_results(self.paper)
        named = found[found["metric_suite"] == suite]["task"].drop_duplicates()
        return [task for task in named if task in own] or own

    def tasks(self, suite: str) -> list[str]:
        """The tasks of a suite; those that the study's paper averages come first."""
        return list(dict.fromkeys([*self.printed(suite), *tasks_of([suite])]))

    def _transfer(self, columns: Sequence[str]) -> list[str]:
        tasks = self.tasks("transfer")
        every = [
            [str(Objective(task, "accuracy", "test", protocol)) for task in tasks]
            for protocol in dict.fromkeys(name for task in tasks for name in OFFERS[task])
        ]
        found = ([name for name in names if name in columns] for names in every)
        return next(filter(None, found), [])


def mean_of(name: str, columns: Sequence[str]) -> str:
    """A sentence that lists the tasks of an average."""
    tasks = [objective_named(column).task for column in columns]
    return f"{name[:1].upper()}{name[1:]} is the mean of {', '.join(tasks)}."


def measure_of(objective: Objective) -> str:
    """An objective in a sentence: its metric and split, and the task of a suite."""
    if objective.is_cost:
        return metric_of(objective)
    task = "" if objective.is_own else f"{objective.task} "
    return f"{task}{metric_of(objective)} on {objective.split}"


def metric_of(objective: Objective) -> str:
    """A metric's display name."""
    name, at, cutoff = objective.metric.partition("@")
    return f"{_METRICS.get(name, name)}{at}{cutoff}"


def title_of(objective: Objective) -> str:
    """An objective's display name."""
    how = "" if objective.is_usual else f", {objective.protocol}"
    shown = metric_of(objective)
    if objective.is_cost:
        return shown
    return f"{objective.task} {shown} ({objective.split}{how})"
