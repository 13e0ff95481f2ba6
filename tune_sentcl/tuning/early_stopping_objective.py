"""What steers a search: what it maximizes, and by what its trials are compared while they run."""

from collections.abc import Iterator, Sequence

from tune_sentcl.config import evaluation_data_of
from tune_sentcl.data.tasks.own_task import MtebTask, OwnTask, objectives_of
from tune_sentcl.errors import ConfigError, Fault, ObjectiveError, StudyError
from tune_sentcl.history import History
from tune_sentcl.objective import (
    DEFAULT,
    Objective,
    default_among,
    early_stopping_objective,
    parse_objectives,
    unmeasured,
)
from tune_sentcl.space import Space
from tune_sentcl.trial import InputLoader


def search_objectives(
    space: Space,
    texts: Sequence[str],
    loader: InputLoader,
    *,
    allow_test: bool,
    single_trial: bool,
) -> tuple[tuple[Objective, ...], Objective]:
    """Read what is maximized, and find what trials are compared by.

    Where nothing is asked for it is STS-B dev, and without the suite of that the first dev score
    of the first task of the user's own.

    Args:
        space: What is searched.
        texts: The objectives as on the command line.
        loader: Reads the tasks of the user's own.
        allow_test: Whether a test split may be maximized.
        single_trial: Whether there is one trial and no search. Without points on the way nothing
            steers it, and it may have no dev split: its row then names its first score.

    Raises:
        ObjectiveError: An objective is none, or no trial would measure it.
        ConfigError: What one trial measures would not be compared with what another does.
        DataError: A task cannot be read.
    """
    configs = space.configurations
    objectives = parse_objectives(texts, allow_test=allow_test)
    if not any(config.evaluation.own for config in configs):
        _refuse_unmeasured(objectives, space)
        return objectives, early_stopping_objective(objectives[0])
    if texts:  # before anything is read
        _refuse_unmeasured(objectives, space)
    first, *others = (loader.sets(config).objectives for config in configs)
    measured = [one for one in first if all(one in other for other in others)]
    has_points = any(c.evaluation.every and c.method.takes_steps for c in configs)
    if not texts:
        default = default_among(measured)
        if default is None and single_trial and measured and not has_points:
            default = measured[0]
        if default is None:
            rule = "no task of your own has a dev split, by which a search could be steered"
            move = "Add dev rows, or name an objective."
            raise ObjectiveError(Fault("--objective", "", "", rule, move))
        objectives = (default,)
    if objectives[0].is_own:
        _refuse_mixed_evaluation_data(space)
    early_stopping = early_stopping_objective(objectives[0], measured)
    is_substitute = (
        early_stopping != objectives[0]
    )  # an objective that there is not is refused as such
    lacking = early_stopping not in measured and (
        early_stopping.is_own or early_stopping == DEFAULT
    )
    if has_points and is_substitute and lacking:
        rule = "nothing that takes one pass of the encoder is measured on a dev split"
        move = "Give evaluation.every=0, or add pairs, retrieval or the suite sts."
        raise ObjectiveError(Fault("evaluation.every", "", "", rule, move))
    return objectives, early_stopping


def _refuse_mixed_evaluation_data(space: Space) -> None:
    """Scores on toy sets are not compared with those on real ones, whoever's task it is."""
    drawn = [item for item in space.ranges if item.key in ("evaluation.data", "data.source")]
    changes = [{}, *({item.key: value} for item in drawn for value in item.ends())]
    trials = [config.dotted() for config in space.configurations]
    found = {evaluation_data_of({**trial, **change}) for trial in trials for change in changes}
    if len(found) > 1:
        rule = "trials on toy rows are scored on toy sets, and are not compared with the others"
        move = 'Give all of them one evaluation.data, "root" or "toy".'
        raise ConfigError(Fault(space.source, "evaluation.data", "auto", rule, move))


def _refuse_unmeasured(objectives: Sequence[Objective], space: Space) -> None:
    faults = list(unmeasured(objectives, (c.evaluation for c in space.configurations)))
    if faults:
        raise ObjectiveError(faults)


def other_versions(
    space: Space, loader: InputLoader, history: History
) -> Iterator[tuple[OwnTask, str, str]]:
    """The user's own tasks of which a study has scores on other rows than are here.

    Yields:
        Such a task, a split that differs, and the versions that the study has of it, as text.
    """
    for config in space.configurations:
        for task in loader.sets(config).own:
            for split in dict.fromkeys(score.split for score in objectives_of(task)):
                others = history.versions.get((task.name, split), set()) - {task.version or ""}
                if others:
                    yield task, split, " and ".join(sorted(others))


def check_versions(space: Space, loader: InputLoader, history: History) -> None:
    """See that the user's own tasks are what the study's trials were scored on.

    Raises:
        StudyError: One holds other rows now; its scores could not be told from the old ones.
    """
    faults: dict[Fault, None] = {}
    for task, split, others in other_versions(space, loader, history):
        mteb = isinstance(task, MtebTask)
        whose = "MTEB or its data have" if mteb else "its rows have"
        rule = f"is {task.version} now, and the study's trials were scored on {others}: "
        old = "that version" if mteb else "the old rows"
        move = f"Bring {old} back, give it another name, or begin another study."
        faults[Fault("evaluation.own", task.name, split, f"{rule}{whose} changed", move)] = None
    if faults:
        raise StudyError(faults)
