"""Checks of a search that need neither torch nor Ray, so that bad input is refused at once."""

from tune_sentcl.config.data_names import own_sources
from tune_sentcl.data.tasks.own import own_path
from tune_sentcl.errors import Fault, ObjectiveError, ResourceError
from tune_sentcl.objective import parse_objectives, unmeasured
from tune_sentcl.plugins import activate
from tune_sentcl.space import Space
from tune_sentcl.store.driver import refuse_foreign
from tune_sentcl.store.files import StudyFiles, refuse_itself, refuse_memory, study_path
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.study import Study
from tune_sentcl.store.writer_lock import refuse_held
from tune_sentcl.tuning.machine import this_machine
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.watch.trackers import check_tracking


def first_checks(
    space: Space, options: SearchOptions, study: str | None = None, *, writes: bool = True
) -> None:
    """Check everything that needs no torch; `tuning.question` checks the rest.

    Args:
        space: The search space.
        options: The options of the search.
        study: The path or URL of the study; None without one.
        writes: Whether the study will be written; then no other driver may have it.

    Raises:
        BadInputError: An option, an objective, a custom task or the study is wrong.
    """
    activate(space.plugins)  # another space may have loaded another version of a plugin meanwhile
    options.check(space)
    if study is not None:
        refuse_itself(study, options.learn_from)
        study_at(study, space)
        if writes:
            check_tracking(options.track, study)
            refuse_held(StudyFiles.at(study))
        if writes and options.launcher == "ray":
            refuse_memory("--study", study)
    for other in options.learn_from:
        Study.read(study_path(other))
    evaluations = dict.fromkeys(config.evaluation for config in space.configurations)
    objectives = parse_objectives(options.objectives, allow_test=True)
    if options.objectives and (faults := list(unmeasured(objectives, evaluations))):
        raise ObjectiveError(faults)
    for source in own_sources(list({entry: None for one in evaluations for entry in one.own})):
        if not (source.task or source.plugin):
            own_path(source)
    _check_this_machine(options)


def study_at(path: str, space: Space) -> Study | None:
    """The study of a search; None if it does not exist yet.

    Raises:
        StudyError: The folder holds something else, or the study of another search space.
    """
    files = StudyFiles.at(path)
    refuse_foreign(files)
    if not files.exists(MANIFEST):
        return None
    study = Study.read(path)
    study.manifest.check_space(space, study.files.where)
    return study


def _check_this_machine(options: SearchOptions) -> None:
    """Refuse options that this machine cannot meet, before a local cluster or a study exists."""
    if not options.is_here:
        return
    machine = this_machine()
    memory = machine.memory / 1e9
    gpus, room = options.gpus_per_trial or 0, options.memory_per_trial or 0
    asked = (
        ("--cpus-per-trial", options.cpus_per_trial, machine.cpus, f"{machine.cpus:g} cores"),
        ("--gpus-per-trial", gpus, machine.gpus, f"{machine.gpus:g} GPUs"),
        ("--memory-per-trial", room, memory, f"{memory:.3g} GB for trials"),
    )
    move = "Lower this option, or name a cluster by --address."
    faults = [
        Fault(
            option, value=f"{wanted:g}", rule=f"must fit this machine, which has {has}", move=move
        )
        for option, wanted, available, has in asked
        if wanted > available
    ]
    if faults:
        raise ResourceError(faults)
