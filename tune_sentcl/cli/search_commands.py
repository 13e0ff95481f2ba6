"""The commands `search`, `plan`, `check` and `train`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tune_sentcl.cli.exits import FAILED, say
from tune_sentcl.cli.options import (
    LIMITS,
    OUTPUT,
    SAMPLING,
    AcceleratorOption,
    AccumulateOption,
    AddressOption,
    AllowTestOption,
    BudgetOption,
    ConcurrentOption,
    CpusOption,
    DataOption,
    DeterministicOption,
    GpusOption,
    JsonOption,
    KeepOption,
    LearnFromOption,
    MemoryOption,
    ObjectiveOption,
    RetrainOption,
    SamplerOption,
    SchedulerOption,
    SeedsOption,
    SetOption,
    SpaceArgument,
    StatesOption,
    StudyOption,
    TrialsOption,
    parse_duration,
    parse_seeds,
    parse_settings,
)
from tune_sentcl.cli.study_tables import print_study
from tune_sentcl.cli.terminal_tables import Layout, line, print_json, print_table

if TYPE_CHECKING:
    from tune_sentcl.tuning.search_options import SearchOptions


def search(
    space: SpaceArgument,
    study: StudyOption,
    data: DataOption = None,
    settings: SetOption = None,
    seeds: SeedsOption = None,
    trials: TrialsOption = 0,
    budget: BudgetOption = None,
    sampler: SamplerOption = "tpe",
    learn_from: LearnFromOption = None,
    objective: ObjectiveOption = None,
    allow_test_objective: AllowTestOption = False,
    retrain: RetrainOption = False,
    confirm: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="After the search, train winner, baseline and runner-up with N new seeds.",
            rich_help_panel=SAMPLING,
        ),
    ] = 0,
    scheduler: SchedulerOption = "halving",
    states: StatesOption = 20.0,
    max_concurrent: ConcurrentOption = None,
    cpus_per_trial: CpusOption = 1,
    gpus_per_trial: GpusOption = None,
    memory_per_trial: MemoryOption = None,
    accumulate: AccumulateOption = False,
    deterministic: DeterministicOption = False,
    save_every: Annotated[
        float,
        typer.Option(
            metavar="MINUTES",
            help="Minutes between saved states, from which an interrupted trial continues; 0: no "
            "states.",
            rich_help_panel=LIMITS,
        ),
    ] = 10.0,
    trial_timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time after which a trial fails, such as 90s, 30m or 1h30m. Default: no limit.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time after which this run of the search ends, such as 8h. Default: no limit.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    max_gpu_hours: Annotated[
        float | None,
        typer.Option(
            help="GPU hours after which this run of the search ends. Default: no limit.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    address: AddressOption = None,
    accelerator: AcceleratorOption = None,
    keep: KeepOption = 1,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Log trials to mlflow, wandb, tensorboard or trackio too; needs that package "
            "(repeatable).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Run the trials of a space; those that the study holds are not run again."""
    options = search_options(locals())
    from tune_sentcl.space import load_space

    overrides, chosen = parse_settings(settings or []), parse_seeds(seeds)
    loaded = load_space(space, overrides)
    options.check(loaded)
    # Imports torch, for which bad input need not wait.
    from tune_sentcl.launch import search as run_search
    from tune_sentcl.store.provenance import mask_text

    outcome = run_search(loaded, study, data=data, seeds=chosen, options=options)
    print_study(study)
    if outcome.exhausted:
        line("The ranges hold no further configuration; the search is complete.")
    late = f", {outcome.timed_out} ran out of time" if outcome.timed_out else ""
    ran = f"{outcome.ran} trials ran now, {outcome.failures} of them failed{late}"
    line(f"{ran}. Study: {mask_text(study)}")
    if outcome.failures:
        raise typer.Exit(FAILED)


def search_options(given: Mapping[str, Any]) -> "SearchOptions":
    """The search options among a command's parameters, given by name; others are ignored."""
    from tune_sentcl.tuning.search_options import SearchOptions

    named = {field.name for field in fields(SearchOptions)}
    values = {name: value for name, value in given.items() if name in named}
    values["learn_from"] = tuple(given.get("learn_from") or ())
    values["objectives"] = tuple(given.get("objective") or ())
    values["track"] = tuple(given.get("track") or ())
    for name in ("trial_timeout", "max_time"):
        option = f"--{name.replace('_', '-')}"
        values[name] = parse_duration(option, given.get(name))
    return SearchOptions(**values)


def plan(
    space: SpaceArgument,
    study: Annotated[str | None, typer.Option(help="Folder or URL of the study.")] = None,
    data: DataOption = None,
    settings: SetOption = None,
    seeds: SeedsOption = None,
    trials: TrialsOption = 0,
    budget: BudgetOption = None,
    learn_from: LearnFromOption = None,
    scheduler: SchedulerOption = "halving",
    objective: ObjectiveOption = None,
    allow_test_objective: AllowTestOption = False,
    retrain: RetrainOption = False,
    keep: KeepOption = 1,
    max_concurrent: ConcurrentOption = None,
    cpus_per_trial: CpusOption = 1,
    gpus_per_trial: GpusOption = None,
    accumulate: AccumulateOption = False,
    json_rows: JsonOption = False,
) -> None:
    """Print the trials that a search would run, and an estimate of time and disk."""
    options = search_options(locals())
    from tune_sentcl.space import load_space

    loaded = load_space(space, parse_settings(settings or []))
    # Imports torch, for which a misspelt space need not wait.
    from tune_sentcl.tuning.planning.plan import make_plan

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


def check(
    space: SpaceArgument,
    study: Annotated[str | None, typer.Option(help="Folder or URL of the study.")] = None,
    data: DataOption = None,
    settings: SetOption = None,
    seeds: SeedsOption = None,
    trials: TrialsOption = 0,
    budget: BudgetOption = None,
    cpus_per_trial: CpusOption = 1,
    gpus_per_trial: GpusOption = None,
    memory_per_trial: MemoryOption = None,
    accelerator: AcceleratorOption = None,
    address: AddressOption = None,
    accumulate: AccumulateOption = False,
    json_rows: JsonOption = False,
) -> None:
    """Check whether a cluster can run a search, and report all faults; runs no trial."""
    options = search_options(locals())
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
    (say if json_rows else line)("The search can be run there.")


def train(
    settings: SetOption = None,
    data: DataOption = None,
    study: Annotated[str | None, typer.Option(help="Keep the trial in this study.")] = None,
    objective: ObjectiveOption = None,
    allow_test_objective: AllowTestOption = False,
    retrain: RetrainOption = False,
    cpus_per_trial: CpusOption = 1,
    gpus_per_trial: GpusOption = None,
    deterministic: DeterministicOption = False,
    json_rows: JsonOption = False,
) -> None:
    """Train and measure one trial in this process, without Ray."""
    options = search_options(locals())
    from tune_sentcl.launch import train_one

    given = parse_settings(settings or [])
    scores = train_one(given, study=study, data=data, options=options)
    if json_rows:
        print_json(scores)
    else:
        constant = [key for key in scores[0] if key not in ("task", "value")] if scores else []
        whole = [row for row in scores if row["subset"] is None]
        print_table(whole, layout=Layout(constant=constant, of="scores"))
    if study is not None:
        say(f"Study: {study}")
