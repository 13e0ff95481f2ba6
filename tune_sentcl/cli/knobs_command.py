"""The command `knobs`: what can be set, its defaults and usual ranges."""

from typing import Annotated, Any

import typer

from tune_sentcl.cli.options import JsonOption, PluginOption
from tune_sentcl.cli.study_commands import range_text
from tune_sentcl.cli.terminal_tables import Layout, knob_cell, print_json, print_table
from tune_sentcl.config import METHODS
from tune_sentcl.config import knobs as all_knobs
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.plugins import load_plugins
from tune_sentcl.space import load_space, space_names


def knobs(
    method: Annotated[
        str | None, typer.Argument(help="Show the knobs of this method alone.")
    ] = None,
    plugins: PluginOption = None,
    json_rows: JsonOption = False,
) -> None:
    """List the knobs of a method, or all, with defaults and the ranges of the shipped spaces."""
    load_plugins(plugins or ())
    if method is not None and method not in METHODS:
        rule, move = f"must be one of {', '.join(METHODS)}", "Choose one, or give its --plugin."
        raise ConfigError(Fault("METHOD", "", method, rule, move))
    ranges: dict[str, tuple[str, str]] = {}
    for space in map(load_space, space_names()):
        sampled = {branch.get("method.name") for branch in space.branches()}
        if method is None or method in sampled:
            for item in space.ranges:
                ranges.setdefault(item.key, (range_text(item), space.name))
    rows: list[dict[str, Any]] = []
    for key, knob in all_knobs().items():
        if method is None or (knob.section == "method" and method in knob.owners):
            usual, name = ranges.get(key, ("", ""))
            row = {"knob": key, "default": knob_cell(knob.default(method or "")), "range": usual}
            rows.append({**row, "space": name, "meaning": knob.description})
    if json_rows:
        print_json(rows)
    else:
        print_table(rows, layout=Layout(of="knobs"))
