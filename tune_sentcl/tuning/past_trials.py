"""Past trials for a search: those of other studies, and its own interrupted ones."""

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
    """The finished configurations of other studies that lie in the ranges of a space.

    A configuration counts by its scores on the evaluation data of this search; without such scores
    it is ignored.
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
    """Raise if a study's objectives were scored on other rows: such values cannot be compared."""
    faults: dict[Fault, None] = {}
    for task, split, others in other_versions(space, loader, history):
        for objective in history.objectives:
            if (objective.task, objective.split) == (task.name, split):
                rule = f"has {objective} of version {others}, and the rows here are {task.version}"
                move = "Leave that study out, or restore its rows."
                faults[Fault("--learn-from", "", mask_text(path), rule, move)] = None
    if faults:
        raise StudyError(faults)


def interrupted_trials(study: Study, history: History) -> dict[str, TrialConfig]:
    """Configs by trial id of the trials that have a saved state and no row."""
    names = sorted(name for name in study.states() if name not in history)
    found = {name: config_of(study, name) for name in names}
    return {name: config for name, config in found.items() if config is not None}
