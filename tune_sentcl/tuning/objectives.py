"""The objectives of a search, and the score that compares its running trials."""

from collections.abc import Iterator, Sequence

from tune_sentcl.config import evaluation_data, evaluation_data_of
from tune_sentcl.data.tasks.own_task import ForeignTask, OwnTask, objectives_of
from tune_sentcl.errors import ConfigError, Fault, ObjectiveError, StudyError
from tune_sentcl.history import History
from tune_sentcl.objective import (
    DEFAULT,
    Objective,
    default_among,
    early_stopping_objective,
    unmeasured,
)
from tune_sentcl.space import Space
from tune_sentcl.trial import InputLoader


def search_objectives(
    space: Space, loader: InputLoader, *, named: bool, single_trial: bool, halves: bool = False
) -> tuple[tuple[Objective, ...], Objective]:
    """Check the loader's objectives and choose the early-stopping objective.

    The default objective is STS-B dev; without the suite `sts` it is the first dev score of the
    first own task. A single trial without evaluation points needs no dev split: its row then names
    its first score. `named` tells whether the user named the objectives, and `halves` whether
    stages of trials are scored.
    """
    _refuse_mixed_evaluation_data(space)
    configs = space.configurations
    objectives = loader.objectives
    if not any(config.evaluation.own for config in configs):
        _refuse_unmeasured(objectives, space)
        return objectives, early_stopping_objective(objectives[0])
    first, *others = (loader.sets(config).objectives for config in configs)
    measured = [score for score in first if all(score in other for other in others)]
    has_points = any((c.evaluation.every or halves) and c.method.takes_steps for c in configs)
    if not named:
        default = default_among(measured)
        if default is None and single_trial and measured and not has_points:
            default = measured[0]
        if default is None:
            rule = "no own task has a dev split whose score a search could maximize"
            move = "Add dev rows, or name an objective."
            raise ObjectiveError(Fault("--objective", "", "", rule, move))
        objectives = (default,)
    early_stopping = early_stopping_objective(objectives[0], measured)
    is_substitute = (
        early_stopping != objectives[0]
    )  # a missing objective itself is refused elsewhere
    lacking = early_stopping not in measured and (
        early_stopping.is_own or early_stopping == DEFAULT
    )
    if has_points and is_substitute and lacking:
        rule = "no dev score that needs only one encoder pass can be measured during a training"
        move = "Add pairs, retrieval or the suite sts, or give evaluation.every=0"
        move += " and --scheduler none." if halves else "."
        raise ObjectiveError(Fault("evaluation.every", "", "", rule, move))
    return objectives, early_stopping


def _refuse_mixed_evaluation_data(space: Space) -> None:
    """Raise if some trials would be scored on toy sets and others on real ones."""
    drawn = [item for item in space.ranges if item.key in ("evaluation.data", "data.source")]
    changes = [{}, *({item.key: value} for item in drawn for value in item.ends())]
    trials = [config.dotted() for config in space.configurations]
    kinds = {evaluation_data_of({**trial, **change}) for trial in trials for change in changes}
    if len(kinds) > 1:
        rule = "trials on toy rows are scored on toy sets, other trials on real ones"
        move = 'Give all of them one evaluation.data, "root" or "toy".'
        raise ConfigError(Fault(space.source, "evaluation.data", "auto", rule, move))


def _refuse_unmeasured(objectives: Sequence[Objective], space: Space) -> None:
    faults = list(unmeasured(objectives, (c.evaluation for c in space.configurations)))
    if faults:
        raise ObjectiveError(faults)


def other_versions(
    space: Space, loader: InputLoader, history: History
) -> Iterator[tuple[OwnTask, str, str]]:
    """Yield own tasks that a study scored on other rows, with split and the study's versions."""
    for config in space.configurations:
        for task in loader.sets(config).own:
            for split in dict.fromkeys(score.split for score in objectives_of(task)):
                others = history.versions.get((task.name, split), set()) - {task.version or ""}
                if others:
                    yield task, split, " and ".join(sorted(others))


def check_evaluation_data(space: Space, history: History) -> None:
    """Raise if the study's trials were scored on other evaluation data than the search's."""
    wanted = evaluation_data(space.configurations[0])
    if history.data not in (None, wanted):
        rule = f"the trials of this study were scored on {history.data} data, and a study has one"
        move = f"Choose another folder for the study, or set evaluation.data={history.data}."
        raise StudyError(Fault("evaluation.data", "", wanted, rule, move))


def check_versions(space: Space, loader: InputLoader, history: History) -> None:
    """Raise if rows of own tasks have changed since the study's trials were scored on them."""
    faults: dict[Fault, None] = {}
    for task, split, others in other_versions(space, loader, history):
        foreign = isinstance(task, ForeignTask)
        whose = "its code or data have" if foreign else "its rows have"
        rule = f"is {task.version} now, and the study's trials were scored on {others}: "
        old = "that version" if foreign else "the old rows"
        move = f"Restore {old}, or start another study."
        faults[Fault("evaluation.own", task.name, split, f"{rule}{whose} changed", move)] = None
    if faults:
        raise StudyError(faults)
