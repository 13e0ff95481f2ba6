"""Trials that a search takes over: from older studies, and interrupted ones of its own."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.config import TrialConfig, evaluation_data_of, flatten
from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.history import History
from tune_sentcl.objective import Objective
from tune_sentcl.space import Space
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.reading.study import Study
from tune_sentcl.store.study_urls import distinct_studies
from tune_sentcl.trial import InputLoader
from tune_sentcl.trial.output import config_of
from tune_sentcl.tuning.configuration_groups import mean_if_complete
from tune_sentcl.tuning.early_stopping_objective import other_versions
from tune_sentcl.tuning.sampling import frozen_trial
from tune_sentcl.tuning.worker import study_path


def past_trials_of(
    studies: Sequence[str], space: Space, objectives: Sequence[Objective], loader: InputLoader
) -> list[FrozenTrial]:
    """Every finished configuration of some studies that the ranges of a space hold.

    A configuration counts by its numbers on the sets that the search means; one that was measured
    on others is left out.

    Raises:
        StudyError: One of them cannot be read, or was scored on other rows of a task of the user's
            own that an objective names.
    """
    found = (
        frozen_trial(space, params, TrialState.COMPLETE, values, {}, user_attrs)
        for study in map(study_path, distinct_studies(studies))
        for params, values, user_attrs in _finished_configurations(
            study, space, objectives, loader
        )
    )
    return [trial for trial in found if trial is not None]


def _finished_configurations(
    path: str, space: Space, objectives: Sequence[Objective], loader: InputLoader
) -> Iterator[tuple[dict[str, Any], list[float], dict[str, Any]]]:
    study = Study.read(path)
    history = History.read(study, objectives)
    _check_versions(path, space, loader, history)
    for stored in history.configurations():
        params = space.params_of(dict(flatten(json.loads(stored.config))))
        if params is None:
            continue
        data = evaluation_data_of(space.sampled_values(params))
        seeds = [
            history.values(name, data)
            for name in stored.trial_ids
            if history.status(name) == "finished"
        ]
        means = [mean_if_complete(column) for column in zip(*seeds, strict=True)]
        values = [value for value in means if value is not None]
        if seeds and len(values) == len(objectives):
            user_attrs = {"configuration": stored.name, "learned_from": mask_text(path)}
            yield params, values, user_attrs


def _check_versions(path: str, space: Space, loader: InputLoader, history: History) -> None:
    """See that the objectives of both are scores on the same rows.

    Raises:
        StudyError: They are not: a number on other rows says nothing of one on these.
    """
    faults: dict[Fault, None] = {}
    for task, split, others in other_versions(space, loader, history):
        for objective in history.objectives:
            if (objective.task, objective.split) == (task.name, split):
                rule = f"{objective} is of version {task.version} here and was of {others} there: "
                move = "Leave that study out, or bring its rows back."
                where = mask_text(path)
                faults[Fault("--learn-from", "", where, f"{rule}its rows are others", move)] = None
    if faults:
        raise StudyError(faults)


def interrupted_trials(study: Study, history: History) -> dict[str, TrialConfig]:
    """What the trials are that have a state to go on from and no row, by their names.

    Raises:
        StudyError: The disk refused.
    """
    names = sorted(name for name in study.states() if name not in history)
    found = {name: config_of(study, name) for name in names}
    return {name: config for name, config in found.items() if config is not None}
