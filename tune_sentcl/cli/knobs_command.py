"""The command `knobs`: hyperparameters with their defaults and usual ranges."""

from collections.abc import Mapping
from typing import Annotated

import typer

from tune_sentcl.cli.options import JsonOption, PluginOption
from tune_sentcl.cli.study_commands import range_text
from tune_sentcl.cli.terminal_tables import Layout, knob_cell, line, print_json, print_table
from tune_sentcl.config import METHODS
from tune_sentcl.config import knobs as all_knobs
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.plugins import load_plugins
from tune_sentcl.space import load_space, space_names


def knobs(
    method: Annotated[
        str | None,
        typer.Argument(help="Method whose hyperparameters are listed. Default: all methods."),
    ] = None,
    plugins: PluginOption = None,
    json_rows: JsonOption = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """List hyperparameters with defaults and the presets' ranges."""
    load_plugins(plugins or ())
    if method is not None and method not in METHODS:
        rule = f"must be one of {', '.join(METHODS)}"
        move = "Choose one of these, or name its plugin by --plugin."
        raise ConfigError(Fault("METHOD", value=method, rule=rule, move=move))
    rows = _rows(method)
    if json_rows:
        print_json(rows)
    elif markdown:
        for cells in (list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)):
            line(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    else:
        print_table(rows, layout=Layout(of="knobs"))


def _rows(method: str | None) -> list[dict[str, str]]:
    ranges: dict[str, tuple[str, str]] = {}
    for space in map(load_space, space_names()):
        sampled = {branch.get("method.name") for branch in space.branches()}
        if method is None or method in sampled:
            for item in space.ranges:
                ranges.setdefault(item.key, (range_text(item), space.name))
    rows = []
    for key, knob in all_knobs().items():
        of_method = knob.section == "method"
        if method is None or (of_method and method in knob.owners):
            usual, name = ranges.get(key, ("", ""))
            row = {} if method is not None else {"methods": ", ".join(knob.owners) * of_method}
            defaults = {owner: knob_cell(value) for owner, value in knob.defaults.items()}
            row |= {"default": _by_owner(defaults, method), "range": usual, "space": name}
            rows.append({"knob": key, **row, "meaning": _by_owner(knob.meanings, method)})
    return rows


def _by_owner(texts: Mapping[str, str], method: str | None) -> str:
    """The text for a method; else all different texts, each with the methods that have it."""
    if method is not None and method in texts:
        return texts[method]
    owners: dict[str, list[str]] = {}
    for owner, text in texts.items():
        owners.setdefault(text, []).append(owner)
    if len(owners) == 1:
        return next(iter(owners))
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in owners.items())
