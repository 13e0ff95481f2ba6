"""The commands `search`, `plan`, `check` and `train`."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tune_sentcl.cli.exits import FAILED, say
from tune_sentcl.cli.option_values import (
    parse_duration,
    parse_seeds,
    parse_settings,
)
from tune_sentcl.cli.study_tables import print_study
from tune_sentcl.cli.terminal_tables import Layout, line, print_json, print_table

if TYPE_CHECKING:
    from tune_sentcl.tuning.search_options import SearchOptions

# The groups of options in `--help`, in this order.
DATA_AND_SPACE = "Data and space"
SAMPLING = "Sampling"
EARLY_STOPPING = "Early stopping"
RESOURCES = "Resources"
LIMITS = "Limits"
CLUSTER = "Cluster"
OUTPUT = "Output"

SpaceArgument = Annotated[
    str,
    typer.Argument(help="Name of a shipped space (scl/lambda, smoke), or path of a TOML file."),
]
StudyOption = Annotated[
    str,
    typer.Option(
        help="Folder or object store URL that holds the study's tables.",
        rich_help_panel=DATA_AND_SPACE,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets. Default: the variable TUNE_SENTCL_DATA.",
        rich_help_panel=DATA_AND_SPACE,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a config value in every trial (repeatable).",
        rich_help_panel=DATA_AND_SPACE,
    ),
]
SeedsOption = Annotated[
    str | None,
    typer.Option(
        help="Seeds of each configuration, such as 0,1,2. Default: the space's.",
        rich_help_panel=DATA_AND_SPACE,
    ),
]
TrialsOption = Annotated[
    int,
    typer.Option(
        help="Number of sampled configurations beyond the grid, earlier ones included.",
        rich_help_panel=SAMPLING,
    ),
]
SamplerOption = Annotated[
    Literal["tpe", "gp", "random", "grid"],
    typer.Option(
        help="Optuna sampler of the configurations beyond the grid; grid samples none.",
        rich_help_panel=SAMPLING,
    ),
]
ObjectiveOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TASK:METRIC[:SPLIT[:PROTOCOL]]",
        help="Score to maximize (repeatable). Default: STS-B:spearman:dev.",
        rich_help_panel=SAMPLING,
    ),
]
AllowTestOption = Annotated[
    bool,
    typer.Option(
        "--allow-test-objective",
        help="Allow an objective on a test split.",
        rich_help_panel=SAMPLING,
    ),
]
RetrainOption = Annotated[
    bool,
    typer.Option(
        "--retrain",
        help="Train finished trials again when a score is missing and no weights were kept.",
        rich_help_panel=SAMPLING,
    ),
]
SchedulerOption = Annotated[
    Literal["none", "asha"],
    typer.Option(
        help="asha stops trials that rank low at a rung; none trains every trial to its end.",
        rich_help_panel=EARLY_STOPPING,
    ),
]
GraceOption = Annotated[
    int | None,
    typer.Option(
        metavar="ROWS",
        help="Do not stop a trial before it has seen this many training rows. "
        "Default: where every configuration has been evaluated once.",
        rich_help_panel=EARLY_STOPPING,
    ),
]
MemoryOption = Annotated[
    float | None,
    typer.Option(
        metavar="GB",
        help="Memory in GB that Ray reserves for each trial. Default: none.",
        rich_help_panel=RESOURCES,
    ),
]
AcceleratorOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Run trials only on GPUs of this type, such as H200, A100 or L4.",
        rich_help_panel=CLUSTER,
    ),
]
CpusOption = Annotated[
    int,
    typer.Option(help="CPU cores, and torch threads, of each trial.", rich_help_panel=RESOURCES),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        help="GPUs of each trial; 0.25 runs four on one GPU. Default: 1 if a GPU is visible.",
        rich_help_panel=RESOURCES,
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster, or local for this machine. Default: RAY_ADDRESS.",
        rich_help_panel=CLUSTER,
    ),
]
AccumulateOption = Annotated[
    bool,
    typer.Option(
        "--accumulate",
        help="Split a batch that does not fit the device's memory, if the loss allows it.",
        rich_help_panel=RESOURCES,
    ),
]
KeepOption = Annotated[
    int, typer.Option(help="Number of best checkpoints to keep.", rich_help_panel=OUTPUT)
]
ConcurrentOption = Annotated[
    int | None,
    typer.Option(help="Largest number of trials that run at a time.", rich_help_panel=RESOURCES),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON array.")]


def search(
    space: SpaceArgument,
    study: StudyOption,
    data: DataOption = None,
    settings: SetOption = None,
    seeds: SeedsOption = None,
    trials: TrialsOption = 0,
    sampler: SamplerOption = "tpe",
    learn_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STUDY",
            help="Give the sampler the finished trials of this study (repeatable).",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    objective: ObjectiveOption = None,
    allow_test_objective: AllowTestOption = False,
    retrain: RetrainOption = False,
    confirm: Annotated[
        int,
        typer.Option(
            metavar="SEEDS",
            help="After the search, run the best configuration on this many new seeds.",
            rich_help_panel=SAMPLING,
        ),
    ] = 0,
    scheduler: SchedulerOption = "none",
    grace: GraceOption = None,
    max_concurrent: ConcurrentOption = None,
    cpus_per_trial: CpusOption = 1,
    gpus_per_trial: GpusOption = None,
    memory_per_trial: MemoryOption = None,
    accumulate: AccumulateOption = False,
    save_every: Annotated[
        float,
        typer.Option(
            metavar="MINUTES",
            help="Minutes between two saved states of a running trial.",
            rich_help_panel=LIMITS,
        ),
    ] = 10.0,
    trial_timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time limit of each trial, such as 90s, 30m or 1h30m.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time limit of the search, such as 8h.", rich_help_panel=LIMITS
        ),
    ] = None,
    max_gpu_hours: Annotated[
        float | None,
        typer.Option(help="End the search after this many GPU hours.", rich_help_panel=LIMITS),
    ] = None,
    address: AddressOption = None,
    accelerator: AcceleratorOption = None,
    keep: KeepOption = 1,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Log trials to mlflow, wandb, tensorboard or trackio (repeatable).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Run the trials of a space that the study does not hold yet."""
    options = search_options(locals())
    from tune_sentcl.on_ray.ahead import ray_ahead
    from tune_sentcl.space import load_space

    overrides, chosen = parse_settings(settings or []), parse_seeds(seeds)
    loaded = load_space(space, overrides)
    with ray_ahead(loaded, study, data, options):
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
    scheduler: SchedulerOption = "none",
    grace: GraceOption = None,
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
    from tune_sentcl.tuning.planning.plan import make_plan

    made = make_plan(
        space, study, data, parse_settings(settings or []), parse_seeds(seeds), options
    )
    if json_rows:
        print_json(made.rows)
    else:
        others = list(made.rows[0])[1:] if made.rows else []
        titles = {"trial_id": "trial"}
        layout = Layout(titles=titles, knobs=others, settled=others, of="trials")
        print_table(made.rows, f"Trials of {space}", layout)
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
        layout = Layout(settled=("accelerator",), of="nodes")
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
    cpus_per_trial: CpusOption = 1,
    gpus_per_trial: GpusOption = None,
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
        settled = [key for key in scores[0] if key not in ("task", "value")] if scores else []
        whole = [row for row in scores if row["subset"] is None]
        print_table(whole, layout=Layout(settled=settled, of="scores"))
    if study is not None:
        say(f"Study: {study}")
