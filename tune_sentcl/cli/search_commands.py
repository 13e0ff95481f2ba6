"""The commands `search`, `plan`, `check` and `train`."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tune_sentcl.cli.exits import FAILED, say
from tune_sentcl.cli.options import (
    JsonOption,
    RequestedSearch,
    SpaceArgument,
    StudyOption,
    parse_settings,
    requested_search,
    search_options,
    with_search_options,
)
from tune_sentcl.cli.study_tables import print_study
from tune_sentcl.cli.terminal_tables import Layout, line, print_json, print_table
from tune_sentcl.errors import ConfigError, DeviceError, Fault

if TYPE_CHECKING:
    from tune_sentcl.tuning.search import SearchOutcome

OptionalSpace = Annotated[str | None, typer.Argument(help="Search space, as for `search`.")]
OptionalStudy = Annotated[str | None, typer.Option("--study", help="Folder or URL of the study.")]


@with_search_options()
def search(
    space: SpaceArgument,
    study: StudyOption,
    json_rows: JsonOption = False,
    **given: Any,
) -> None:
    """Run the trials that have not finished in the study.

    With --json the command prints the winner, its scores, the verdict and the next commands.
    """
    loaded, data, seeds, options = requested_search(space, given)
    # This import is not at the top, because --help does not need it.
    from tune_sentcl import launch

    # The decorated `search` names Python arguments in its errors; the unwrapped function names
    # command-line options.
    run = inspect.unwrap(launch.search)
    outcome = run(loaded, study, data=data, seeds=seeds, options=options, progress=True)
    tell = say if json_rows else line
    _print_results(study, outcome, json_rows=json_rows)
    if outcome.exhausted:
        tell("The ranges contain no further configuration; the search is complete.")
    late = f", {outcome.timed_out} exceeded the time limit" if outcome.timed_out else ""
    ran = f"{outcome.ran} trials ended in this run, {outcome.failures} of them failed{late}"
    tell(f"{ran}. Study: {study}")
    if outcome.failures:
        raise typer.Exit(FAILED)


def _print_results(study: str, outcome: "SearchOutcome", *, json_rows: bool) -> None:
    if not json_rows:
        print_study(study)
        return
    from tune_sentcl.analysis import read_study
    from tune_sentcl.analysis.report.first_screen import FirstScreen
    from tune_sentcl.analysis.report.report_data import ReportData
    from tune_sentcl.store.study import Study

    frames = read_study(study)
    screen = FirstScreen(ReportData(frames, frames.objectives(), Study.read(study)))
    ended = {"study": study, "ran": outcome.ran, "failed": outcome.failures}
    print_json([{**ended, **screen.row()}])


def _checked_search(space: str, study: str | None, given: Mapping[str, Any]) -> RequestedSearch:
    """`requested_search`, followed by the checks that do not need torch."""
    requested = requested_search(space, given)
    from tune_sentcl.store.files import study_path
    from tune_sentcl.tuning.first_checks import first_checks

    path = None if study is None else study_path(study)
    first_checks(requested[0], requested[3], path, writes=False)
    return requested


@with_search_options()
def plan(
    space: SpaceArgument,
    study: OptionalStudy = None,
    json_rows: JsonOption = False,
    **given: Any,
) -> None:
    """Print a search's trials, and estimate time and disk."""
    loaded, data, seeds, options = _checked_search(space, study, given)
    from tune_sentcl.tuning.plan import make_plan

    made = make_plan(loaded, study, data, seeds, options)
    rows = made.rows(as_stated=not json_rows)
    if json_rows:
        print_json(rows)
    else:
        others = [key for row in rows[:1] for key in row if key != "trial_id"]
        titles = {"trial_id": "trial"}
        layout = Layout(titles=titles, knobs=others, constant=others, of="trials")
        print_table(rows, f"Trials of {space}", layout)
    for text in made.notes:
        (say if json_rows else line)(text)


@with_search_options()
def check(
    space: OptionalSpace = None,
    study: OptionalStudy = None,
    gpu: Annotated[
        bool,
        typer.Option(
            "--gpu",
            help="Check this machine's GPU, which takes about a minute. Give no SPACE then.",
        ),
    ] = False,
    json_rows: JsonOption = False,
    **given: Any,
) -> None:
    """Check a cluster, or this machine's GPU.

    It runs no trial. SPACE names the search that the cluster shall run.
    """
    if gpu == (space is not None):
        rule = "either SPACE or --gpu must be given, but not both"
        raise ConfigError(
            Fault("SPACE", value=space or "", rule=rule, move="See tune-sentcl check --help.")
        )
    if space is None:
        _check_gpu(json_rows=json_rows)
        return
    loaded, data, seeds, options = _checked_search(space, study, given)
    if options.launcher == "local":
        rule = "local uses no cluster, so there is nothing to check"
        move = "Remove --launcher local, or run `tune-sentcl plan`."
        raise ConfigError(Fault("--launcher", value="local", rule=rule, move=move))
    from tune_sentcl.on_ray.environment import prepare_ray
    from tune_sentcl.store.files import study_path
    from tune_sentcl.tuning.question import ask

    question = ask(loaded, data, seeds, options)
    prepare_ray()
    from tune_sentcl.on_ray.cluster import cluster, quiet_ray_logging
    from tune_sentcl.on_ray.preflight import survey

    with quiet_ray_logging(), cluster(options.ray_address, say):
        nodes = survey(question, "" if study is None else study_path(study))
    rows = list(nodes.rows())
    if json_rows:
        print_json(rows)
    else:
        layout = Layout(constant=("accelerator",), of="nodes")
        print_table(rows, f"Nodes for {space}; a trial requests {nodes.trial}", layout)
    for text in nodes.warnings:
        say(text)
    nodes.check()
    if any(row["trials at a time"] for row in rows):
        # Otherwise a warning has already said that trials have to wait.
        (say if json_rows else line)("The cluster can run the search.")


def _check_gpu(*, json_rows: bool) -> None:
    """Print the findings of a GPU's checks; exit with 1 if a check failed."""
    import torch

    from tune_sentcl.gpu_check import check_gpu

    if not torch.cuda.is_available():
        found = f"torch {torch.__version__} finds no CUDA device here, so nothing was checked"
        raise DeviceError(f"{found}. Install a build of torch for this GPU's driver")
    say("The checks take about a minute.")
    rows = [finding.row() for finding in check_gpu(torch.device("cuda", 0))]
    if json_rows:
        print_json(rows)
    else:
        print_table(rows, "This machine's GPU", Layout(constant=("means",), of="checks"))
    if any(row["result"] == "FAIL" for row in rows):
        raise typer.Exit(FAILED)


@with_search_options(
    *("settings", "plugins", "data", "objectives", "allow_test_objective", "stage_objective"),
    *("cpus_per_trial", "gpus_per_trial", "deterministic"),
    told={
        "settings": "Set a hyperparameter of the trial (repeatable).",
        "data": "Folder of the data sets. Default: the environment variable TUNE_SENTCL_DATA.",
        "objectives": "Score or cost to measure (repeatable). Default: STS-B:spearman:dev, else "
        "the first dev score of your custom tasks.",
        "stage_objective": "Dev score of pairs, retrieval or a plugin that is measured during "
        "training. With evaluation.select = best, the weights with the highest score are kept. "
        "Default: the first objective.",
        "cpus_per_trial": "CPU cores for the trial, which is also its number of torch threads.",
        "gpus_per_trial": "GPUs for the trial, 0 or 1. Default: 1 if this machine has a GPU, else "
        "0.",
    },
)
def train(
    study: Annotated[str | None, typer.Option(help="Store the trial in this study.")] = None,
    json_rows: JsonOption = False,
    **given: Any,
) -> None:
    """Train and score one trial in this process."""
    options = search_options(given)
    from tune_sentcl import launch

    values = parse_settings(given["settings"] or [])
    plugins = given["plugins"] or ()
    run, inputs = inspect.unwrap(launch.train_one), {"data": given["data"], "plugins": plugins}
    scores = run(values, study=study, options=options, progress=True, **inputs)
    if json_rows:
        print_json(scores)
    else:
        constant = [key for key in scores[0] if key not in ("task", "value")] if scores else []
        whole = [row for row in scores if row["subset"] is None]
        print_table(whole, layout=Layout(constant=constant, of="scores"))
    if study is not None:
        say(f"Study: {study}")


@with_search_options(
    *("settings", "plugins", "data", "max_concurrent", "cpus_per_trial", "gpus_per_trial"),
    *("memory_per_trial", "deterministic", "trial_timeout", "max_time", "max_gpu_hours"),
    *("address", "accelerator", "launcher"),
    told={
        "settings": "Tasks or scores to add, such as evaluation.suites=[transfer] (repeatable).",
        "data": "Folder of the data sets. Default: the environment variable TUNE_SENTCL_DATA.",
    },
)
def measure(
    study: Annotated[str, typer.Argument(help="Folder or URL of the study.")],
    train: Annotated[
        bool,
        typer.Option(
            "--train",
            help="Train the winner, the baseline and the runner-up again with all their seeds if "
            "the study has not kept their weights. The new weights are kept.",
        ),
    ] = False,
    best: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Train the N best configurations instead of those three (with --train).",
        ),
    ] = 0,
    json_rows: JsonOption = False,
    **given: Any,
) -> None:
    """Score every kept model of a study by added tasks."""
    options = search_options(given)
    from tune_sentcl import launch

    run, values = inspect.unwrap(launch.measure), parse_settings(given["settings"] or [])
    others = {"data": given["data"], "plugins": given["plugins"] or ()}
    outcome = run(study, values, options=options, train=train, best=best, progress=True, **others)
    _print_results(study, outcome, json_rows=json_rows)
    told = (
        f"{outcome.ran} trials were scored in this run, {outcome.failures} failed. Study: {study}"
    )
    (say if json_rows else line)(told)
    if outcome.failures:
        raise typer.Exit(FAILED)
