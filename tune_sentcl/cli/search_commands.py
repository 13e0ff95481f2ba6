"""The commands `search`, `plan`, `check` and `train`."""

from typing import Annotated, Any

import typer

from tune_sentcl.cli.exits import FAILED, say
from tune_sentcl.cli.options import (
    DataOption,
    JsonOption,
    SeedsOption,
    SetOption,
    SpaceArgument,
    StudyOption,
    parse_seeds,
    parse_settings,
    search_options,
    with_search_options,
)
from tune_sentcl.cli.study_tables import print_study
from tune_sentcl.cli.terminal_tables import Layout, line, print_json, print_table

OptionalStudy = Annotated[str | None, typer.Option("--study", help="Folder or URL of the study.")]


@with_search_options()
def search(
    space: SpaceArgument,
    study: StudyOption,
    data: DataOption = None,
    settings: SetOption = None,
    seeds: SeedsOption = None,
    **given: Any,
) -> None:
    """Run the trials of a space; those that the study holds are not run again."""
    options = search_options(given)
    from tune_sentcl.space import load_space

    overrides, chosen = parse_settings(settings or []), parse_seeds(seeds)
    loaded = load_space(space, overrides)
    options.check(loaded)
    # Imports torch, for which bad input need not wait.
    from tune_sentcl.launch import search as run_search

    outcome = run_search(loaded, study, data=data, seeds=chosen, options=options)
    print_study(study)
    if outcome.exhausted:
        line("The ranges hold no further configuration; the search is complete.")
    late = f", {outcome.timed_out} ran out of time" if outcome.timed_out else ""
    ran = f"{outcome.ran} runs ended now, {outcome.failures} of them failed{late}"
    line(f"{ran}. Study: {study}")
    if outcome.failures:
        raise typer.Exit(FAILED)


@with_search_options()
def plan(
    space: SpaceArgument,
    study: OptionalStudy = None,
    data: DataOption = None,
    settings: SetOption = None,
    seeds: SeedsOption = None,
    json_rows: JsonOption = False,
    **given: Any,
) -> None:
    """Print the trials that a search would run, and an estimate of time and disk."""
    options = search_options(given)
    from tune_sentcl.space import load_space

    loaded = load_space(space, parse_settings(settings or []))
    # Imports torch, for which a misspelt space need not wait.
    from tune_sentcl.tuning.plan import make_plan

    made = make_plan(loaded, study, data, parse_seeds(seeds), options)
    if json_rows:
        print_json(made.rows)
    else:
        others = list(made.stated[0])[1:] if made.stated else []
        titles = {"trial_id": "trial"}
        layout = Layout(titles=titles, knobs=others, constant=others, of="trials")
        print_table(made.stated, f"Trials of {space}", layout)
    for text in made.notes:
        (say if json_rows else line)(text)
    if made.refused is not None:  # so that `plan && search` stops
        raise made.refused


@with_search_options()
def check(
    space: SpaceArgument,
    study: OptionalStudy = None,
    data: DataOption = None,
    settings: SetOption = None,
    seeds: SeedsOption = None,
    json_rows: JsonOption = False,
    **given: Any,
) -> None:
    """Check whether a cluster can run a search, and report all faults; runs no trial."""
    options = search_options(given)
    from tune_sentcl.on_ray.environment import prepare_ray
    from tune_sentcl.space import load_space
    from tune_sentcl.tuning.prepare import prepare
    from tune_sentcl.tuning.worker import study_path

    searched = load_space(space, parse_settings(settings or []))
    prepared = prepare(searched, data, parse_seeds(seeds), options)
    prepare_ray()
    from tune_sentcl.on_ray.cluster import cluster, quiet_ray_logging
    from tune_sentcl.on_ray.survey import survey

    with quiet_ray_logging(), cluster(options.ray_address):
        found = survey(prepared, "" if study is None else study_path(study))
    rows = list(found.rows())
    if json_rows:
        print_json(rows)
    else:
        layout = Layout(constant=("accelerator",), of="nodes")
        print_table(rows, f"Nodes for {space}, a trial takes {found.trial}", layout)
    for text in found.warnings:
        say(text)
    found.check()
    if any(row["trials at a time"] for row in rows):  # else a warning says that trials wait
        (say if json_rows else line)("The search can be run there.")


@with_search_options(
    *("objectives", "allow_test_objective", "retrain"),
    *("cpus_per_trial", "gpus_per_trial", "deterministic"),
)
def train(
    settings: SetOption = None,
    data: DataOption = None,
    study: Annotated[str | None, typer.Option(help="Keep the trial in this study.")] = None,
    json_rows: JsonOption = False,
    **given: Any,
) -> None:
    """Train and measure one trial in this process, without Ray."""
    options = search_options(given)
    from tune_sentcl.launch import train_one

    values = parse_settings(settings or [])
    scores = train_one(values, study=study, data=data, options=options)
    if json_rows:
        print_json(scores)
    else:
        constant = [key for key in scores[0] if key not in ("task", "value")] if scores else []
        whole = [row for row in scores if row["subset"] is None]
        print_table(whole, layout=Layout(constant=constant, of="scores"))
    if study is not None:
        say(f"Study: {study}")
