"""The commands that plan and run trials."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tune_sentcl.cli.exits import FAILED, say
from tune_sentcl.cli.settings import parse_seeds, parse_settings
from tune_sentcl.cli.tables import line, print_json, print_table
from tune_sentcl.config import short_name

SpaceArgument = Annotated[str, typer.Argument(help="A name (scl/lambda, smoke) or a TOML file.")]
StudyOption = Annotated[str, typer.Option(help="Folder or URL of the study.")]
DataOption = Annotated[
    Path | None, typer.Option(help="Data root; else the variable TUNE_SENTCL_DATA.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Replace a config value in every trial."),
]
SeedsOption = Annotated[str | None, typer.Option(help="Seeds of each configuration: 0,1,2.")]
TrialsOption = Annotated[
    int, typer.Option(help="Sampled configurations the study shall hold beyond its grid.")
]
SamplerOption = Annotated[
    Literal["tpe", "random", "grid", "nsga2"], typer.Option(help="Who proposes them.")
]
ObjectiveOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TASK:METRIC[:SPLIT]",
        help="What to maximize (repeatable); default STS-B:spearman:dev.",
    ),
]
AllowTestOption = Annotated[
    bool, typer.Option("--allow-test-objective", help="Let an objective be a test split.")
]
CpusOption = Annotated[int, typer.Option(help="CPU cores a trial; also its torch threads.")]
GpusOption = Annotated[
    float | None, typer.Option(help="GPUs a trial, a share allowed; default 1 where there is any.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON array on stdout.")]


def search(
    space: SpaceArgument,
    study: StudyOption,
    data: DataOption = None,
    settings: SetOption = None,
    seeds: SeedsOption = None,
    trials: TrialsOption = 0,
    sampler: SamplerOption = "tpe",
    scheduler: Annotated[
        Literal["none", "asha"], typer.Option(help="asha stops trials that are behind.")
    ] = "none",
    objective: ObjectiveOption = None,
    allow_test_objective: AllowTestOption = False,
    keep: Annotated[int, typer.Option(help="Checkpoints to keep, the best.")] = 1,
    max_concurrent: Annotated[int | None, typer.Option(help="Trials at a time.")] = None,
    cpus_per_trial: CpusOption = 1,
    gpus_per_trial: GpusOption = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to use, or `local`; default RAY_ADDRESS.")
    ] = None,
) -> None:
    """Run every trial of a space that the study does not hold yet."""
    from tune_sentcl.launch.options import SearchOptions
    from tune_sentcl.launch.search import search as run_search

    options = SearchOptions(
        trials=trials,
        sampler=sampler,
        scheduler=scheduler,
        objectives=tuple(objective or ()),
        allow_test_objective=allow_test_objective,
        keep=keep,
        max_concurrent=max_concurrent,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        address=address,
    )
    outcome = run_search(
        space,
        study,
        data=data,
        overrides=parse_settings(settings or []),
        seeds=parse_seeds(seeds),
        options=options,
    )
    print_study(study)
    if outcome.exhausted:
        line("The ranges hold no further configuration; the search is complete.")
    line(f"{outcome.ran} trials ran now, {outcome.failures} of them failed. Study: {study}")
    if outcome.failures:
        raise typer.Exit(FAILED)


def plan(
    space: SpaceArgument,
    study: Annotated[str | None, typer.Option(help="Folder or URL of the study.")] = None,
    data: DataOption = None,
    settings: SetOption = None,
    seeds: SeedsOption = None,
    trials: TrialsOption = 0,
    keep: Annotated[int, typer.Option(help="Checkpoints to keep, the best.")] = 1,
    cpus_per_trial: CpusOption = 1,
    json_rows: JsonOption = False,
) -> None:
    """Say which trials a search would run, and about what they take; runs none."""
    from tune_sentcl.launch.options import SearchOptions
    from tune_sentcl.launch.plan import make_plan

    options = SearchOptions(trials=trials, keep=keep, cpus_per_trial=cpus_per_trial)
    made = make_plan(
        space, study, data, parse_settings(settings or []), parse_seeds(seeds), options
    )
    if json_rows:
        print_json(made.rows)
    else:
        print_table(made.rows, title=f"Trials of {space}")
    for text in made.notes:
        (say if json_rows else line)(text)


def train(
    settings: SetOption = None,
    data: DataOption = None,
    study: Annotated[str | None, typer.Option(help="Keep the trial in this study.")] = None,
    cpus_per_trial: CpusOption = 1,
    gpus_per_trial: GpusOption = None,
    json_rows: JsonOption = False,
) -> None:
    """Train and measure one trial in this process, without Ray."""
    from tune_sentcl.launch.single import train_one

    scores = train_one(
        parse_settings(settings or []),
        study=study,
        data=data,
        cpus=cpus_per_trial,
        gpus=gpus_per_trial,
    )
    if json_rows:
        print_json(scores)
    else:
        print_table([row for row in scores if row["subset"] is None])
    if study is not None:
        say(f"Study: {study}")


def print_study(path: str) -> None:
    """The table of a study's trials, best first, and that of its configurations over seeds."""
    from tune_sentcl.analysis import configurations, read_study, summary

    frames = read_study(path)
    print_table([_shown(row) for row in summary(frames).to_dict("records")])
    over_seeds = configurations(frames)
    if (over_seeds["objective_n"] > 1).any():
        rows = [_shown_mean(row) for row in over_seeds.to_dict("records")]
        print_table(rows, "Means over seeds, with standard deviations")


def _shown_mean(row: dict[Any, Any]) -> dict[str, Any]:
    return {
        "configuration": row["configuration"],
        **_shown_knobs(row),
        "seeds": row["objective_n"],
        "dev objective": row["objective_mean"],
        "sd": row["objective_sd"],
        "STS average": row["sts_avg_mean"],
        "sd of average": row["sts_avg_sd"],
    }


def _shown(row: dict[Any, Any]) -> dict[str, Any]:
    names = ("seed", "origin", "status")
    return {
        "trial": row["trial_id"],
        **_shown_knobs(row),
        **{name: row[name] for name in names},
        "dev objective": row["objective"],
        "STS average": row["sts_avg"],
        "seconds": row["seconds"],
    }


def _shown_knobs(row: dict[Any, Any]) -> dict[str, Any]:
    return {short_name(key): value for key, value in row.items() if "." in key}
