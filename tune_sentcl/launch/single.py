"""One trial in this process."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import TrialFailedError
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.prepared import prepare
from tune_sentcl.launch.search import run_prepared
from tune_sentcl.launch.worker import Attempt, WorkerSettings, study_path
from tune_sentcl.space import Space
from tune_sentcl.store.rows import scores_table
from tune_sentcl.store.study import Study

Row = dict[str, Any]


def train_one(
    settings: Mapping[str, Any],
    *,
    study: str | Path | None,
    data: str | Path | None,
    options: SearchOptions | None = None,
) -> list[Row]:
    """Train and measure one trial, without Ray.

    Args:
        settings: Dotted keys of its config; `method.name` is `scl` unless given.
        study: Where to keep it: a study that holds single trials only; None keeps nothing.
        data: The data root; None takes TUNE_SENTCL_DATA.
        options: Of a search, as far as they are about what steers it and what a trial takes; the
            objectives are those that its evaluation points are compared by, and its row has.

    Returns:
        The trial's rows of the scores table; of a trial that the study held already, those.

    Raises:
        BadInputError: Something asked for cannot be.
        TuneSentclError: The trial failed; with a study, its row says so too.
    """
    config = parse_dotted({"method.name": "scl", **settings}, "--set")
    options = options or SearchOptions()
    share, cpus = options.gpus_per_trial, options.cpus_per_trial
    if share is None:
        share = float(torch.cuda.is_available())
    options = replace(options, launcher="local", gpus_per_trial=share)
    prepared = prepare(_single(config), data, (config.seed,), options, origin="single")
    (assignment,) = prepared.proposals.known()
    name = assignment.trial_id
    if study is None:
        settings_here = WorkerSettings(None, False, cpus, share, prepared.loader.compared_by)
        with closing(Attempt(assignment, prepared.loader, settings_here).points()) as points:
            *_, last = points
        return list(scores_table(name, last.scores).to_pylist())
    run_prepared(prepared, study_path(study))
    kept = Study.read(study_path(study))
    _raise_failure(kept, name)
    return list(kept.scores(where=pc.field("trial_id") == name).to_pylist())


def _single(config: TrialConfig) -> Space:
    return Space(
        name="single",
        paper="",
        tables=(),
        summary="trials run one by one",
        configurations=(config.model_copy(update={"seed": 0}),),
        base={},
        ranges=(),
        seeds=(config.seed,),
        text="",
        source="--set",
    )


def _raise_failure(study: Study, trial_id: str) -> None:
    rows = study.trials(["trial_id", "status", "error_type", "error_text"])
    for row in rows.filter(pc.field("trial_id") == trial_id).to_pylist():
        if row["status"] == "failed":
            raise TrialFailedError(f"{row['error_type']}: {row['error_text']}")
