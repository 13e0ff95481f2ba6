"""The commands `spaces`, `show` and `data check`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tune_sentcl.cli.exits import BAD_INPUT, say
from tune_sentcl.cli.options import (
    ColumnsOption,
    JsonOption,
    OwnOption,
    PluginOption,
    RankByOption,
    own_entries,
)
from tune_sentcl.cli.study_tables import SHOWN, print_study
from tune_sentcl.cli.terminal_tables import (
    Layout,
    knob_cell,
    line,
    print_json,
    print_table,
)
from tune_sentcl.config import stated, varied
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.space import Space, load_space, space_names


def spaces(
    space: Annotated[str | None, typer.Argument(help="Search space to show in full.")] = None,
    plugins: PluginOption = None,
    json_rows: JsonOption = False,
) -> None:
    """List the presets, or show one search space in full."""
    names = space_names() if space is None else [space]
    loaded = [load_space(name, plugins=plugins or ()) for name in names]
    rows = [
        {"name": each.name, "paper": each.paper, "tables": list(each.tables)}
        | {"trials": len(each.configurations)}
        for each in loaded
    ]
    if json_rows:
        print_json(rows)
    elif space is not None:
        _show_space(loaded[0])
    else:
        listed = zip(rows, loaded, strict=True)
        print_table([{**row, "what": each.summary} for row, each in listed])


def _show_space(space: Space) -> None:
    tables = f" ({', '.join(space.tables)})" if space.tables else ""
    line(f"{space.name}: {space.summary}")
    line(f"paper: {space.paper or 'none'}{tables}")
    line(f"trials: {len(space.configurations)}, seeds {', '.join(map(str, space.seeds))}")
    configs = [config.dotted() for config in space.configurations]
    shown = varied(configs)
    grid = [{key: stated(key, config) for key in shown} for config in configs]
    line("")
    print_table(grid, "Grid", Layout(knobs=shown))
    constant: dict[str, Any] = {}
    for key, value in (item for config in configs for item in config.items()):
        if value is not None and key not in (*shown, "seed"):
            constant.setdefault(key, value)
    rows = [{"key": key, "value": knob_cell(value)} for key, value in constant.items()]
    line("")
    print_table(rows, "Constant knobs")
    ranges = [{"key": r.key, "range": range_text(r)} for r in space.ranges]
    if ranges:
        line("")
    print_table(ranges, "Ranges that the search samples from")


def range_text(item: Any) -> str:
    """A range as text: its ends or its choices, then its prior."""
    prior = "" if item.prior is None else f", prior {item.prior}"
    if item.kind == "choice":
        return " | ".join(map(str, item.choices)) + prior
    return f"{item.low:g} .. {item.high:g}{' (log)' if item.log else ''}{prior}"


def show(
    study: Annotated[str, typer.Argument(help="Folder or URL of the study.")],
    objective: RankByOption = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Largest number of rows in a table; 0: all rows.")
    ] = SHOWN,
    json_rows: JsonOption = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print all trials as CSV, with every column.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the search's progress until it ends.")
    ] = False,
) -> None:
    """Print a study's trials and configurations, best first.

    `seconds` is the time for which a trial ran. `lost` counts the seeds that failed or were
    stopped. `Pareto` has a * if no other trial is better in one objective and as good in the
    others. `search dev` is the mean over search seeds, `confirm dev` over confirmation seeds.
    A line above the table explains each other short title.
    """
    if json_rows + csv + watch > 1:
        raise ConfigError(
            Fault(
                "--json, --csv, --watch",
                rule="only one of these options can be given",
                move="Remove the others.",
            )
        )
    if watch:
        from tune_sentcl.cli.watch_command import watch as follow

        follow(study, objective or (), limit)
        return
    if not json_rows and not csv:
        print_study(study, objective or (), limit)
        return
    from tune_sentcl.analysis.frames import rows_of, trials_by
    from tune_sentcl.results.standings import asked_objectives, study_objectives
    from tune_sentcl.store.study import Study

    kept = Study.read(study)
    chosen = asked_objectives(kept, objective) if objective else study_objectives(kept)
    trials = trials_by(kept, chosen)
    if csv:
        trials.to_csv(sys.stdout, index=False)
    else:
        print_json(rows_of(trials))


def check(
    directory: Annotated[
        Path | None, typer.Argument(help="Data root: the folder of the data sets.")
    ] = None,
    own: OwnOption = None,
    rows_file: Annotated[
        Path | None,
        typer.Option(
            "--rows",
            help="Training examples to compare with the --own tasks: a file, or a plugin's "
            "source.",
        ),
    ] = None,
    columns: ColumnsOption = "",
    plugins: PluginOption = None,
    json_rows: JsonOption = False,
) -> None:
    """Count rows, and say what is wrong with them."""
    from tune_sentcl.data.check import check_own, check_root
    from tune_sentcl.init.own_rows import check_rows
    from tune_sentcl.plugins import load_plugins

    load_plugins(plugins or ())
    entries = own_entries(own)
    if directory is None and not entries and rows_file is None:
        rule = "needs a data root, a custom task or training examples"
        move = "Give a folder as the data root, or give --own or --rows."
        raise ConfigError(Fault("data check", rule=rule, move=move))
    sets = check_root(directory) if directory is not None else []
    sets += map(check_own, entries)
    if rows_file is not None:
        sets.append(check_rows(rows_file, columns, entries))
    names = ("name", "status", "rows", "expected", "problem", "repair")
    rows = [{name: getattr(each, name) for name in names} for each in sets]
    if json_rows:
        print_json(rows)
    else:
        print_table(rows, layout=Layout(constant=("problem", "repair"), of="sets"))
    for each in sets:
        if each.status == "ok" and each.problem:
            say(f"note: {each.name}: {each.problem}")
        if each.status == "wrong":
            say(f"error: {each.name}: {each.problem}. {each.repair}")
    if any(each.status == "wrong" for each in sets):
        raise typer.Exit(BAD_INPUT)
