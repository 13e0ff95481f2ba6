"""Studies whose every number the tests of the analysis know."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from tune_sentcl.analysis.frames import summaries
from tune_sentcl.config import TrialConfig, parse_config
from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.results.standings import Standings, study_objectives
from tune_sentcl.score import Score
from tune_sentcl.space import Space
from tune_sentcl.store import CurvePoint, SearchRecord, Study, StudyDriver, TrialRow
from tune_sentcl.store.manifest import SeedPlan

Data = Literal["toy", "root"]
Status = Literal["finished", "pruned", "failed"]

SUBSET_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16")


def objectives(*names: str) -> tuple[Objective, ...]:
    """As on the command line, with leave to be a test split."""
    return parse_objectives(names, allow_test=True)


DEV, PEARSON, SICK = objectives("STS-B:spearman", "STS-B:pearson", "SICK-R:spearman")


def config(seed: int, name: str = "scl", **tables: Mapping[str, Any]) -> TrialConfig:
    """A trial that is measured on the data root unless `evaluation` says otherwise."""
    return parse_config({"method": {"name": name}, "seed": seed, **tables}, "test")


def score(objective: Objective, value: float | None, data: Data = "root", **more: Any) -> Score:
    """A score of an objective's kind."""
    joined: Any = "all" if objective.task in SUBSET_TASKS else None
    split: Any = objective.split
    named = (objective.suite, objective.task, split, objective.metric, objective.protocol)
    return Score(*named, data, value, 9, **{"aggregation": joined, **more})


@dataclass(frozen=True)
class Trial:
    """One trial for `write_study`; its row says of no objective how it did.

    Its configuration is its method unless it says another.
    """

    trial_id: str
    config: TrialConfig
    scores: Sequence[Score] = ()
    status: Status = "finished"
    configuration: str = ""
    origin: Literal["grid", "sampler", "single", "confirm"] = "grid"
    startup: float = 0.0
    precision: str | None = None
    stages: tuple[tuple[float, float], ...] = ()
    curves: Sequence[CurvePoint] = (CurvePoint(1, 0.5, 8, "loss", 1.0),)


def write_study(
    path: Path,
    trials: Iterable[Trial],
    asked: Sequence[str] = (),
    *,
    text: str = "",
    plan: SeedPlan | None = None,
) -> Study:
    """A study of these trials, whose last search asked for some objectives.

    Args:
        path: Where.
        trials: In this order.
        asked: As on the command line; empty: no search has been recorded.
        text: Of the space's file.
        plan: The seeds that the search was asked for; only with `asked`.
    """
    space = Space("tiny", "", (), "", (config(0),), {}, (), (0,), text, "tiny.toml")
    record = SearchRecord(tuple(asked), "tpe", 0, seed_plan=plan) if asked else None
    with StudyDriver.open(path, space=space, command=["x"]) as driver:
        driver.record(record)
        for trial in trials:
            driver.commit(
                TrialRow(
                    trial.config,
                    trial_id=trial.trial_id,
                    configuration=trial.configuration or trial.config.method.name,
                    space="tiny",
                    origin=trial.origin,
                    status=trial.status,
                    stages=tuple(
                        {"objective": str(DEV), "share": share, "value": value}
                        for share, value in trial.stages
                    )
                    or None,
                    wall_seconds=2.0 + trial.startup,
                    startup_seconds=trial.startup,
                    train_seconds=1.5,
                    evaluation_seconds=0.5,
                    precision_used=trial.precision,
                ),
                trial.scores,
                trial.curves,
            )
    return Study.read(path)


def summaries_of(
    study: Study, objectives: Sequence[Objective] | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The two tables that `show` prints, ranked by these scores or by those of the search."""
    chosen = tuple(objectives or study_objectives(study))
    return summaries(Standings.read(study, chosen[0]), chosen)
