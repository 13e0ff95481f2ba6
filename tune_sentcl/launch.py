"""`search`, `measure` and `train_one`, the public Python calls.

They refuse bad input before they import torch and Ray. Their errors name Python's arguments. The
command line calls the functions that `inspect.unwrap` returns, whose errors name its options.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import InstanceOf, NonNegativeInt

from tune_sentcl.arguments import Location, Seeds, checked, renamed
from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import BadInputError, ConfigError, Fault, TrialFailedError
from tune_sentcl.plugins import Plugin, activate, load_plugins
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.files import study_path
from tune_sentcl.tuning.first_checks import first_checks
from tune_sentcl.tuning.options import SearchOptions, python_names
from tune_sentcl.watch.terminal import terminal_watcher
from tune_sentcl.watch.watcher import Watcher

if TYPE_CHECKING:
    from tune_sentcl.tuning.search import SearchOutcome

_NAMES = {
    "SPACE": "space",
    "--study": "study",
    "--data": "data",
    "--set": "overrides",
    "--seeds": "seeds",
    "--plugin": "plugins",
    "--best": "best",
}
"""Python's names of the command line's arguments that are not fields of SearchOptions."""


@contextmanager
def _python_names(**others: str) -> Iterator[None]:
    places = {**_NAMES, **others}
    try:
        yield
    except BadInputError as error:
        faults = renamed(error, python_names()).faults
        named = [replace(fault, where=places.get(fault.where, fault.where)) for fault in faults]
        raise type(error)(named) from None


@_python_names()
@checked
def search(
    space: InstanceOf[Space] | Location,
    study: Location,
    *,
    data: Location | None = None,
    overrides: Mapping[str, Any] | None = None,
    seeds: Seeds | None = None,
    options: InstanceOf[SearchOptions] | None = None,
    watcher: InstanceOf[Watcher] | None = None,
    progress: bool = False,
) -> "SearchOutcome":
    """Run every trial of a space that the study does not hold yet.

    If a search was killed, call it again with the same arguments: the study then holds every trial
    exactly once. A study measures what its first search asked for; `measure` adds tasks and scores
    to it.

    Args:
        space: A loaded search space, the name of a preset, or a TOML file.
        study: A folder or an object store's URL; created if it does not exist.
        data: The data root; None takes TUNE_SENTCL_DATA.
        overrides: Dotted keys that replace the space's values in every trial.
        seeds: Search seeds of every configuration; None takes those of the space.
        options: Sampler, scheduler, resources and other options.
        watcher: Receives the events of the search. An exception that it raises ends the search.
        progress: Whether to print on stderr what the command prints there.

    Returns:
        Counts of trials, the reason of an early end, and the messages of the search, which also go
        to the logger `tune_sentcl`. `read_study(study)` reads the scores.

    Raises:
        BadInputError: An argument or an input is wrong; no trial has run.
        KeyboardInterrupt: The search was interrupted; ended trials are kept.
    """
    path, options = study_path(study), options or SearchOptions()
    if not isinstance(space, Space):
        space = load_space(space, overrides)
    elif overrides:
        space = space.with_overrides(overrides)
    first_checks(space, options, path)
    from tune_sentcl.launchers import launcher
    from tune_sentcl.tuning.question import ask
    from tune_sentcl.tuning.search import run_and_confirm

    shown = terminal_watcher(watcher, shown=progress)
    question = ask(space, data, seeds, options, path, watcher=shown)
    outcome = run_and_confirm(question, path, launcher)
    return replace(outcome, notes=tuple(shown.notes))


@_python_names(**{"--set": "settings"})
@checked
def measure(
    study: Location,
    settings: Mapping[str, Any] | None = None,
    *,
    data: Location | None = None,
    options: InstanceOf[SearchOptions] | None = None,
    train: bool = False,
    best: NonNegativeInt = 0,
    plugins: Sequence[Location] = (),
    progress: bool = False,
) -> "SearchOutcome":
    """Score every kept model of a study, and add tasks and scores to the study.

    After an interruption, a repeated call continues. Later searches of the study measure the added
    tasks and scores, too.

    Args:
        study: A folder or an object store's URL.
        settings: Dotted keys of `evaluation` that add tasks and scores, such as
            `{"evaluation.suites": ["transfer"]}`; None adds none.
        data: The data root; None takes TUNE_SENTCL_DATA.
        options: Resources and limits; other options have no effect.
        train: Train a trial of the best configurations again if its weights were not kept.
        best: How many configurations `train` covers, best first; 0: winner, baseline and
            runner-up.
        plugins: Files that end in .py, or names of installed plugins.
        progress: Whether to print on stderr what the command prints there.

    Returns:
        Counts of trials, the reason of an early end, and the messages.

    Raises:
        BadInputError: An argument or an input is wrong.
    """
    if best and not train:
        raise ConfigError(
            Fault(
                "--best",
                value=str(best),
                rule="applies only to trials that are trained again",
                move="Add --train.",
            )
        )
    path, loaded = study_path(study), load_plugins(plugins)
    activate(loaded)
    from tune_sentcl.launchers import launcher
    from tune_sentcl.tuning.measuring import Request, measure_study

    shown = terminal_watcher(shown=progress)
    request = Request(settings or {}, best if train else None, loaded)
    options = options or SearchOptions()
    outcome = measure_study(path, request, data, options, launcher, shown)
    return replace(outcome, notes=tuple(shown.notes))


Row = dict[str, Any]


@_python_names(**{"--set": "settings"})
@checked
def train_one(
    settings: Mapping[str, Any],
    *,
    study: Location | None,
    data: Location | None,
    options: InstanceOf[SearchOptions] | None = None,
    plugins: Sequence[Location] = (),
    progress: bool = False,
) -> list[Row]:
    """Train and measure one trial in this process, without Ray.

    Args:
        settings: Dotted keys of the trial's config; `method.name` defaults to `scl`.
        study: The study of single trials that stores the trial; None stores nothing.
        data: The data root; None takes TUNE_SENTCL_DATA.
        options: Objectives and resources of the trial; other options have no effect.
        plugins: Files that end in .py, or names of installed plugins.
        progress: Whether to print on stderr what the command prints there.

    Returns:
        The trial's rows of the scores table, also if the study already held the trial.

    Raises:
        BadInputError: An argument or an input is wrong.
        TuneSentclError: The trial failed; the study holds its row.
    """
    loaded = load_plugins(plugins)
    config = parse_dotted({"method.name": "scl", **settings}, "--set")
    space, path = _single(config, loaded), None if study is None else study_path(study)
    options = (options or SearchOptions()).without_ray()
    first_checks(space, options, path)
    import pyarrow.compute as pc
    import torch

    from tune_sentcl.history import History
    from tune_sentcl.launchers import launcher
    from tune_sentcl.store.rows import scores_table
    from tune_sentcl.store.study import Study
    from tune_sentcl.tuning.question import ask
    from tune_sentcl.tuning.queue import Queue
    from tune_sentcl.tuning.search import run_search
    from tune_sentcl.tuning.worker import Attempt, worker_settings

    share = options.gpus_per_trial
    if share is None:
        share = float(torch.cuda.is_available())
    options = replace(options, gpus_per_trial=share)
    watcher, seeds = terminal_watcher(shown=progress), (config.seed,)
    question = ask(space, data, seeds, options, path, "single", watcher=watcher)
    (assignment,) = Queue(question, History(question.objectives)).assignments()
    name = assignment.trial_id
    if path is None:
        settings_here = worker_settings(
            None,
            replace(options, keep=0, save_every=0),
            share,
            question.loader.stage_objective,
        )
        with closing(Attempt(assignment, question.loader, settings_here).points()) as points:
            *_, last = points
        return list(scores_table(name, last.scores).to_pylist())
    run_search(question, path, launcher)
    kept = Study.read(path)
    rows = kept.trials(["trial_id", "status", "error_type", "error_text"])
    for row in rows.filter(pc.field("trial_id") == name).to_pylist():
        if row["status"] == "failed":
            raise TrialFailedError(f"{row['error_type']}: {row['error_text']}")
    return list(kept.scores(where=pc.field("trial_id") == name).to_pylist())


def _single(config: TrialConfig, plugins: tuple[Plugin, ...]) -> Space:
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
        plugins=plugins,
    )
