"""The options that several commands share, and the parsers of their values."""

import copy
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from tune_sentcl.arguments import renamed
from tune_sentcl.config.data_names import own_sources
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.tuning.options import (
    SCORE,
    TIME,
    Declaration,
    SearchOptions,
    declarations,
    flag,
    python_names,
)

if TYPE_CHECKING:
    from tune_sentcl.space import Space

_ONLY = inspect.Parameter.KEYWORD_ONLY
DATA_AND_SPACE = "Data and space"
"""The first group of options in `--help`; `SearchOptions` names the other groups."""

SpaceArgument = Annotated[
    str,
    typer.Argument(
        help="The search space: a TOML file, or a preset such as scl/lambda (`tune-sentcl spaces` "
        "lists them)."
    ),
]
StudyOption = Annotated[
    str,
    typer.Option(
        help="Folder or URL of the study. If the study exists, the search continues it.",
        rich_help_panel=DATA_AND_SPACE,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets, the same on every node. Default: the environment variable "
        "TUNE_SENTCL_DATA.",
        rich_help_panel=DATA_AND_SPACE,
    ),
]
PluginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        help="Python file with custom code, which the command runs, or the name of an installed "
        "plugin (repeatable).",
        rich_help_panel=DATA_AND_SPACE,
    ),
]
RankByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--objective",
        metavar=SCORE,
        help="Score to print (repeatable). Rows are ranked by the first score. Default: the "
        "objectives of the last search.",
    ),
]
OwnOption = Annotated[
    list[str] | None,
    typer.Option("--own", metavar="NAME=PATH", help="Custom task to score (repeatable)."),
]
ColumnsOption = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="ROLE=COLUMN,...",
        help="Which column has which role, such as anchor=question,positive=answer. Default: the "
        "roles that the columns' names say, or the only two columns of text.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the rows as one JSON array.")]

Command = Callable[..., None]
RequestedSearch = tuple["Space", Path | None, tuple[int, ...] | None, SearchOptions]

_INPUTS = {
    "data": DataOption,
    "settings": Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set a hyperparameter to one value in every trial, in place of its grid or range "
            "(repeatable).",
            rich_help_panel=DATA_AND_SPACE,
        ),
    ],
    "plugins": PluginOption,
    "seeds": Annotated[
        str | None,
        typer.Option(
            help="Seeds of the trials, such as 0,1,2. The help of --scheduler says which "
            "configurations train with all seeds. Default: the seeds of the search space.",
            rich_help_panel=DATA_AND_SPACE,
        ),
    ],
}
"""Options of a search that are not fields of `SearchOptions`."""


def with_search_options(
    *names: str, told: Mapping[str, str] | None = None
) -> Callable[[Command], Command]:
    """Replace a command's parameter `**given` by options of a search.

    Args:
        names: The options to add; without names, all.
        told: Help texts that replace those of `search`, by option. A command with such texts shows
            its options without groups.
    """
    hints = get_type_hints(SearchOptions)
    added = {
        name: inspect.Parameter(name, _ONLY, default=None, annotation=hint)
        for name, hint in _INPUTS.items()
    }
    added |= {n: _parameter(n, d, hints[n]) for n, d in declarations().items() if d.group}
    if told is not None:
        added = {name: _alone(added[name], told.get(name)) for name in names}

    def widen(own: Command) -> Command:
        named = inspect.signature(own, eval_str=True).parameters.values()
        kept = [p for p in named if p.kind is not p.VAR_KEYWORD]
        return with_parameters(own, [*kept, *(added[name] for name in names or added)])

    return widen


def _alone(parameter: inspect.Parameter, text: str | None) -> inspect.Parameter:
    """Copy an option without its group, and with another help text if one is given."""
    kind, option = get_args(parameter.annotation)
    own = copy.copy(option)
    own.help = text or own.help
    own.rich_help_panel = None
    return parameter.replace(annotation=Annotated[kind, own])


def with_parameters(own: Command, parameters: Iterable[inspect.Parameter]) -> Command:
    """Let Typer see these parameters as the parameters of a command that takes `**kwargs`."""
    named = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]
    own.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    own.__annotations__ = {p.name: p.annotation for p in named}
    return own


def _parameter(name: str, declared: Declaration, kind: Any) -> inspect.Parameter:
    """Declare a field of `SearchOptions` as an option for Typer."""
    default = getattr(SearchOptions, name)
    if isinstance(default, tuple):
        kind, default = list[str] | None, None
    elif declared.metavar == TIME:
        kind = str | None
    option = typer.Option(
        flag(name),
        help=declared.help,
        metavar=declared.metavar,
        rich_help_panel=declared.group,
    )
    annotation = Annotated[kind, option]
    return inspect.Parameter(declared.name or name, _ONLY, default=default, annotation=annotation)


def requested_search(space: str, given: Mapping[str, Any]) -> RequestedSearch:
    """The search space, data root, seeds and options that a command's parameters ask for.

    Raises:
        BadInputError: An option or the search space is wrong.
    """
    options = search_options(given)
    # This import is not at the top, because --help does not need it.
    from tune_sentcl.space import load_space

    overrides, seeds = parse_settings(given["settings"] or []), parse_seeds(given["seeds"])
    loaded = load_space(space, overrides, given["plugins"] or ())
    return loaded, given["data"], seeds, options


def search_options(given: Mapping[str, Any]) -> SearchOptions:
    """The `SearchOptions` among a command's parameters; other parameters are ignored.

    Raises:
        ConfigError: An option is wrong, or a time has no unit.
    """
    values: dict[str, Any] = {}
    for name, declared in declarations().items():
        own = declared.name or name
        if own not in given:
            continue
        value = given[own]
        if isinstance(getattr(SearchOptions, name), tuple):
            value = tuple(value or ())
        elif declared.metavar == TIME:
            value = parse_duration(flag(name), value)
        values[name] = value
    try:
        return SearchOptions(**values)
    except ConfigError as error:
        names = {theirs: option for option, theirs in python_names().items()}
        raise renamed(error, names) from None


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE pairs; the last value of a repeated key counts."""
    faults = [
        Fault("--set", value=text, rule="must be KEY=VALUE", move="Write --set method.lambda=0.3.")
        for text in texts
        if not text.partition("=")[0].strip() or "=" not in text
    ]
    if faults:
        raise ConfigError(faults)
    pairs = (text.partition("=") for text in texts)
    return {key.strip(): parse_value(value.strip()) for key, _, value in pairs}


def parse_value(text: str) -> Any:
    """Parse TOML; other text that begins with `[` is a list of strings, any other a string."""
    try:
        # `tomllib` would ignore a comment or a second line after the value; inside brackets, it
        # refuses the text.
        tomllib.loads(f"value = [{text}]")
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        # The text is no TOML, or an integer with more digits than Python converts.
        if text.startswith("[") and text.endswith("]"):
            items = (item.strip().strip("\"'") for item in text[1:-1].split(","))
            return [item for item in items if item]
        return text


def parse_seeds(text: str | None) -> tuple[int, ...] | None:
    """Parse `0,1,2`: distinct whole numbers of 0 or more."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    # The study stores seeds as 64-bit integers, which hold every integer of 18 digits.
    seeds = tuple(int(part) for part in parts if part.isdecimal() and len(part) <= 18)
    if len(set(seeds)) < len(parts):
        rule = "must be distinct whole numbers of 0 or more, separated by commas"
        raise ConfigError(Fault("--seeds", value=text, rule=rule, move="Write --seeds 0,1,2."))
    return seeds


def own_entries(given: Sequence[str] | None) -> tuple[str, ...]:
    """Check entries of `evaluation.own`."""
    entries = tuple(given or ())
    try:
        own_sources(entries)
    except ValueError as error:
        shown = ", ".join(entries)
        move = "Write --own support=path/to/folder."
        raise ConfigError(
            Fault("--own", value=shown, rule=f"must be {error}", move=move)
        ) from None
    return entries


_PARTS = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?"
)
_SECONDS = (24 * 3600, 3600, 60, 1)


def parse_duration(option: str, text: str | None) -> float | None:
    """Parse `90s`, `30m`, `1h30m` or `2d` as seconds; a number without a unit is refused."""
    if text is None:
        return None
    match = _PARTS.fullmatch(text.strip().lower().replace(" ", ""))
    if match is None or not any(match.groups()):
        rule = "must be a time with units: d, h, m or s"
        raise ConfigError(Fault(option, value=text, rule=rule, move=f"Write {option} 1h30m."))
    return sum(
        float(part or 0) * unit for part, unit in zip(match.groups(), _SECONDS, strict=True)
    )
