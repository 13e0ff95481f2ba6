"""Where a search runs: in this process, on a Ray of this machine, or on a cluster."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import ConfigError, Fault, TrialFailedError
from tune_sentcl.on_ray.environment import prepare_ray
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.reading.study import Study
from tune_sentcl.store.rows import scores_table
from tune_sentcl.store.study_urls import study_identity
from tune_sentcl.tuning.budget import Budget
from tune_sentcl.tuning.fresh_seeds import confirmation_search
from tune_sentcl.tuning.local_launcher import run_locally
from tune_sentcl.tuning.planning.plan import runs_here, with_estimate
from tune_sentcl.tuning.prepare import PreparedSearch, prepare
from tune_sentcl.tuning.resources import gpus_a_trial, this_machine, trials_at_a_time
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import Launch, SearchOutcome, budget_of, run_session
from tune_sentcl.tuning.session import Session
from tune_sentcl.tuning.worker import Attempt, WorkerSettings, study_path, worker_settings
from tune_sentcl.watch.tracking.tracker import check_tracking


def search(
    space: Space | str | Path,
    study: str | Path,
    *,
    data: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    seeds: Sequence[int] | None = None,
    options: SearchOptions | None = None,
) -> SearchOutcome:
    """Run every trial of a space that the study does not hold yet.

    Killed at any moment and called again in the same way, it ends with every trial exactly once.
    Asked for more scores than a finished study holds, it measures kept weights; what would have to
    be trained again is left, unless the options say `retrain`.

    Args:
        space: A loaded space, a shipped name, or a TOML file.
        study: A folder or an object store's URL; made where it is not there.
        data: The data root; None takes TUNE_SENTCL_DATA.
        overrides: Dotted keys that replace the space's values in every trial.
        seeds: Seeds of every configuration; None takes the space's.
        options: Sampler, scheduler, resources and the rest.

    Returns:
        What happened; read the numbers with `read_study(study)`.

    Raises:
        BadInputError: Something asked for cannot be; nothing has been run.
        KeyboardInterrupt: Passed on; what had ended is kept.
    """
    options = options or SearchOptions()
    if not isinstance(space, Space):
        space = load_space(space, overrides)
    elif overrides:
        space = space.with_overrides(overrides)
    path = study_path(study)
    if study_identity(study) in map(study_identity, options.learn_from):
        rule, move = "a search learns from its own study anyway", "Drop it, or name another study."
        raise ConfigError(Fault("--learn-from", "", mask_text(str(study)), rule, move))
    check_tracking(options.track, path)
    if path.startswith("memory:") and options.launcher == "ray":
        rule, move = "lies in one process, and Ray's workers are others", "Name a folder."
        raise ConfigError(Fault("--study", "", path, rule, move))
    return run_and_confirm(prepare(space, data, seeds, options), path)


def run_and_confirm(
    prepared: PreparedSearch, path: str, launch: Launch | None = None
) -> SearchOutcome:
    """Run what a study does not hold yet, and the fresh seeds that the options ask for.

    Args:
        prepared: The search.
        path: The study.
        launch: As for `run_prepared`.
    """
    budget = budget_of(prepared.options)
    outcome = run_prepared(prepared, path, launch, budget)
    # Failures that come back hold nothing up: what could run has run, and its best is known.
    complete = not outcome.ended_by or (budget.failure_reason and not outcome.untried)
    confirmation = confirmation_search(prepared, path) if complete else None
    if confirmation is None:
        return outcome
    budget.reset_failures()
    return outcome.combined_with(run_prepared(confirmation, path, launch, budget))


def run_prepared(
    prepared: PreparedSearch, path: str, launch: Launch | None = None, budget: Budget | None = None
) -> SearchOutcome:
    """Run what a study does not hold yet, and compact it at the end.

    Args:
        prepared: The search.
        path: The study.
        launch: Who runs the trials; None: whom the options name.
        budget: What is left of the search's; None: all that the options give it.
    """
    budget = budget or budget_of(prepared.options)
    with _launcher(prepared, path) if launch is None else nullcontext(launch) as run:
        return run_session(prepared, path, run, budget)


@contextmanager
def _launcher(prepared: PreparedSearch, path: str) -> Iterator[Launch]:
    """Who runs the trials; a cluster that was named is looked at before anything is written."""
    options = prepared.options
    if runs_here(options) or options.launcher == "local":
        machine = this_machine()
        at_a_time = trials_at_a_time(options, [machine])
        prepared.watcher.where = f"{at_a_time} at a time on this machine ({machine})"
    if options.launcher == "local":
        gpus = gpus_a_trial(options.gpus_per_trial, [this_machine()])
        here = worker_settings(path, options, gpus, prepared.loader.early_stopping_objective)
        yield with_estimate(lambda session: run_locally(session, here), prepared, path)
    elif options.ray_address == "local" and not (options.accelerator or options.memory_per_trial):
        # What else there is to ask of this machine has been looked at; Ray starts when needed.
        yield with_estimate(lambda session: _on_ray_here(session, prepared, path), prepared, path)
    else:
        with _on_ray(prepared, path) as run:
            yield run


@contextmanager
def _on_ray(prepared: PreparedSearch, path: str) -> Iterator[Launch]:
    prepare_ray()
    from tune_sentcl.on_ray.launcher import on_ray

    with on_ray(prepared, path) as run:
        yield run


def _on_ray_here(session: Session, prepared: PreparedSearch, path: str) -> None:
    with _on_ray(prepared, path) as run:
        run(session)


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
    (assignment,) = prepared.proposals.assignments()
    name = assignment.trial_id
    if study is None:
        settings_here = WorkerSettings(
            None, False, cpus, share, prepared.loader.early_stopping_objective
        )
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
