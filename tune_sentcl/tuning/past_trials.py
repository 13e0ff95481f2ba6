"""Past trials for a search: those of other studies, and its own interrupted ones."""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.config import TrialConfig, evaluation_data_of, flatten, varied
from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.history import History, estimates
from tune_sentcl.objective import Objective
from tune_sentcl.space import Space
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.reading.study import Study
from tune_sentcl.store.study_urls import distinct_studies
from tune_sentcl.trial import InputLoader
from tune_sentcl.trial.output import config_of
from tune_sentcl.tuning.configuration_groups import Group
from tune_sentcl.tuning.early_stopping_objective import other_versions
from tune_sentcl.tuning.first_rung import Curve
from tune_sentcl.tuning.sampler.past_scale import PAST_NAME, standardized
from tune_sentcl.tuning.sampler.sampling import frozen_trial
from tune_sentcl.tuning.worker import study_path


@dataclass(frozen=True)
class PastStudies:
    """The configurations and curves of other studies.

    Attributes:
        trials: The configurations that lie in the ranges, as they ended there.
        curves: The evaluation points of their finished trials, of studies of the same space. In
            another one, equally many rows may be another part of a training.
    """

    trials: list[FrozenTrial] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)


def past_studies(
    studies: Sequence[str], space: Space, objectives: Sequence[Objective], loader: InputLoader
) -> PastStudies:
    """Read the configurations of other studies that lie in the ranges of a space.

    A knob of method or optimizer that a study varied and the space fixes must have the same value.
    All else may differ, such as encoder and data.

    The seeds that a configuration has there are all that it needs. It counts by its scores on the
    evaluation data of this search, standardized within its study. It is pruned if a seed was
    pruned, because its other seeds may be lucky ones. If a seed failed through the settings, the
    configuration is pruned before its first row. After any other failure it is left out.

    Raises:
        StudyError: A study has no finished configuration with these objectives in the ranges, or
            an objective was scored on other rows there.
    """
    found = PastStudies()
    faults: list[Fault] = []
    for study in map(study_path, distinct_studies(studies)):
        groups, curves = _groups(study, space, objectives, loader)
        trials = list(_trials(study, space, groups, len(objectives)))
        if not any(trial.state == TrialState.COMPLETE for trial in trials):
            names = " and ".join(map(str, objectives))
            rule = f"has no configuration in the ranges of {space.name}"
            if groups:
                rule += f" that has finished with {names}"
            move = "Leave that study out, or name one of the same space and objective."
            faults.append(Fault("--learn-from", "", mask_text(study), rule, move))
        found.trials.extend(trials)
        found.curves.extend(curves)
    if faults:
        raise StudyError(faults)
    return found


def _groups(
    path: str, space: Space, objectives: Sequence[Objective], loader: InputLoader
) -> tuple[dict[str, Group], list[Curve]]:
    """The configurations of a study in the ranges by name, and the curves of finished trials."""
    compared = loader.early_stopping_objective
    study = Study.read(path)
    history = History.read(study, objectives, points=True, early_stopping_objective=compared)
    _check_versions(path, space, loader, history)
    groups = {}
    read = [(one, dict(flatten(json.loads(one.config)))) for one in history.configurations()]
    ranged = {item.key for item in space.ranges}
    others = [key for key in varied([values for _, values in read]) if key not in ranged]
    others = [key for key in others if key.startswith(("method.", "optimizer."))]
    for stored, values in read:
        params = space.params_of(values)
        if params is None:
            continue
        sampled = space.sampled_values(params)
        if all(values[k] == sampled[k] for k in others if k in values and k in sampled):
            data = evaluation_data_of(sampled)
            results = {name: history.result(name, data) for name in stored.trial_ids}
            groups[stored.name] = Group("grid", tuple(results), params, results=results)
    finished = {m for g in groups.values() for m, r in g.results.items() if r.status == "finished"}
    curves: dict[str, list[tuple[int, float]]] = {}
    for trial_id, rows, score in history.points() if study.manifest.space == space.name else ():
        if trial_id in finished:
            curves.setdefault(trial_id, []).append((rows, score))
    return groups, [curve for curve in curves.values() if len(curve) > 1]


def _trials(
    path: str, space: Space, groups: Mapping[str, Group], num_objectives: int
) -> Iterator[FrozenTrial]:
    found = ((name, _state(group)) for name, group in groups.items())
    states = {name: state for name, state in found if state is not None}
    finished = {name for name, state in states.items() if state == TrialState.COMPLETE}
    known = {name: groups[name] for name in states}
    columns = [_standardized_scores(known, finished, number) for number in range(num_objectives)]
    for name, group in known.items():
        was_stopped = group.outcome()[0] == TrialState.PRUNED and num_objectives == 1
        stops = group.intermediate_values() if was_stopped else {}
        values = [column[name] for column in columns] if name in finished else None
        user_attrs = {PAST_NAME: name, "learned_from": mask_text(path)}
        trial = frozen_trial(space, group.params or {}, states[name], values, stops, user_attrs)
        if trial is not None:
            yield trial


def _state(group: Group) -> TrialState | None:
    """Complete or pruned; None for a configuration that failed for another reason."""
    state = group.outcome()[0]
    if state != TrialState.FAIL:
        return state
    return None if group.failed_values(group.results) is None else TrialState.PRUNED


def _standardized_scores(
    groups: Mapping[str, Group], finished: Collection[str], number: int
) -> dict[str, float]:
    """The standardized objective of each configuration, by this number."""
    scores = {
        name: [v for r in groups[name].results.values() if (v := r.values[number]) is not None]
        for name in finished
    }
    return standardized({**dict.fromkeys(groups, -math.inf), **estimates(scores)})


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
