"""A search space: the configurations of its grids, and the ranges of its sampler."""

import difflib
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tune_sentcl.arguments import Location, checked
from tune_sentcl.config import (
    TrialConfig,
    Values,
    belongs,
    completed,
    extras_of,
    flatten,
    knobs,
    parse_dotted,
    shown,
)
from tune_sentcl.config.data_names import own_sources
from tune_sentcl.errors import ConfigError, Fault, SpaceError
from tune_sentcl.plugins import Plugin, activate, load_plugins
from tune_sentcl.space.grids import (
    UNION_NAMES,
    Range,
    check_layout,
    configure,
    expand,
    gathered,
    grid_points,
    override,
    read_ranges,
)

Params = dict[str, Any]
"""One value for each active range, by dotted key."""


@dataclass(frozen=True)
class Space:
    """A search space, as read from a TOML file.

    Attributes:
        name: The path below `search_spaces/` without the suffix.
        paper: Short name of the paper, or an empty string.
        tables: The paper's tables whose rows the space contains.
        summary: One line of text.
        configurations: The distinct grid points, each with seed 0, in the file's order.
        base: Values of `[fixed]`, `[search.fixed]` and `--set`, which sampled values complete.
        ranges: The ranges of a sampler, `method.name` and `optimizer.name` first; may be empty.
        seeds: The seeds of each configuration.
        text: The file's content.
        source: The file's path, for messages.
        overrides: Values of `--set`, which replace the file's values in every trial.
        auto_values: By checkpoint, the values that replace `auto` for the keys of
            `AUTO_FALLBACKS`.
        plugins: The plugins that it loads.
    """

    name: str
    paper: str
    tables: tuple[str, ...]
    summary: str
    configurations: tuple[TrialConfig, ...]
    base: Values
    ranges: tuple[Range, ...]
    seeds: tuple[int, ...]
    text: str = field(repr=False)
    source: str
    overrides: Values = field(default_factory=dict)
    auto_values: Mapping[str, Values] = field(default_factory=dict)
    plugins: tuple[Plugin, ...] = ()

    def with_auto_values(self, auto_values: Mapping[str, Values]) -> "Space":
        """The search space with `auto` replaced by the files' values; see `auto_values`."""
        space = replace(self, auto_values=auto_values)
        explicit = dict.fromkeys(map(space._explicit, self.configurations))
        return replace(space, configurations=tuple(explicit))

    @checked
    def with_overrides(self, overrides: Values) -> "Space":
        """Replace values in every trial, in addition to `self.overrides`.

        Args:
            overrides: Dotted keys and values, as in `--set`.

        Returns:
            The new space.

        Raises:
            SpaceError: The space was not read from a file.
            ConfigError: A trial is not valid.
        """
        if not overrides:
            return self
        if not self.text:
            rule = "overrides need a space that was read from a file"
            move = "Set the values where the configurations of this space are made."
            raise SpaceError(Fault(self.source, value=self.name, rule=rule, move=move))
        activate(self.plugins)
        changed = build_space(self.text, self.source, {**self.overrides, **overrides})
        return replace(changed, plugins=self.plugins)

    def active_ranges(self, values: Values) -> list[Range]:
        """The ranges of hyperparameters that a method and an optimizer have.

        Args:
            values: Dotted values with `method.name` and `optimizer.name`, which default to those
                in `base`. Other keys are ignored.

        Returns:
            The ranges in the order of `ranges`.
        """
        members = {**self.base, **values}
        return [r for r in self.ranges if belongs(r.key, members)]

    def branches(self) -> list[Params]:
        """Every combination of method and optimizer that a sampler may draw, as dotted values."""
        names = [r for r in self.ranges if r.key in UNION_NAMES]
        drawn = itertools.product(*(r.choices for r in names))
        return [dict(zip([r.key for r in names], values, strict=True)) for values in drawn]

    @property
    def paper_rows(self) -> list[tuple[str, TrialConfig]]:
        """The rows of the paper's tables that blocks name, each with its configuration."""
        document = tomllib.loads(self.text)
        fixed = dict(flatten(document.get("fixed", {})))
        return [
            (point.paper_row, configure(point.values, self.source, point.required))
            for point in grid_points(document.get("block", []), fixed, self.source)
            if point.paper_row
        ]

    @property
    def extras(self) -> tuple[str, ...]:
        """The extras of this package that the trials need."""
        asked: list[Values] = [config.dotted() for config in self.configurations]
        asked += [{item.key: value} for item in self.ranges for value in item.ends()]
        return tuple(sorted(frozenset().union(*map(extras_of, asked))))

    def sampled(self, values: Values) -> TrialConfig:
        """The configuration of a sampler's values.

        Args:
            values: One value for each range of `active_ranges(values)`.

        Returns:
            The config with seed 0 or the seed in `base`.

        Raises:
            ConfigError: The values are not valid together.
        """
        return self._explicit(configure({**self.base, **values}, self.source))

    def sampled_values(self, values: Values) -> dict[str, Any]:
        """The dotted values of `sampled(values)`.

        It builds only one config per method and optimizer, so it is fast for thousands of values.
        """
        kind = tuple(values.get(name) for name in UNION_NAMES)
        if kind not in self._built:
            built = configure({**self.base, **values}, self.source)
            self._built[kind] = built.dotted()
        drawn = {key: _stored(value, knobs()[key].kind) for key, value in values.items()}
        return self._filled({**self._built[kind], **drawn})

    def _explicit(self, config: TrialConfig) -> TrialConfig:
        values = config.dotted()
        filled = self._filled(values)
        return config if filled == values else parse_dotted(filled, self.source)

    def _filled(self, values: Values) -> dict[str, Any]:
        return completed(values, self.auto_values.get(values["encoder.checkpoint"], {}))

    @cached_property
    def _built(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        return {}

    def params(self, config: TrialConfig) -> Params | None:
        """A configuration's values in the ranges; other hyperparameters are ignored.

        Args:
            config: The configuration.

        Returns:
            One value for each active range; None if a value is outside its range.
        """
        return self.params_of(config.dotted())

    def params_of(self, values: Values) -> Params | None:
        """`params` for all dotted values of a config, as a study stores them."""
        ranged = {item.key for item in self.ranges}
        for name in UNION_NAMES:
            fixed = self.base.get(name, knobs()[name].default())
            if name not in ranged and values.get(name) != fixed:
                return None
        active = self.active_ranges(values)
        params = {r.key: r.param(values[r.key]) for r in active if r.holds(values[r.key])}
        return params if self.ranges and len(params) == len(active) else None

    def exact_params(self, config: TrialConfig) -> Params | None:
        """The sampled values from which `sampled` makes this configuration.

        Args:
            config: The configuration.

        Returns:
            One value for each active range; None if the ranges do not contain the configuration.
        """
        params = self.params(config)
        if params is None:
            return None
        # The evaluation's other settings may differ, because they do not affect training.
        sampled = self.sampled(params)
        measured = {"every": sampled.evaluation.every, "select": sampled.evaluation.select}
        evaluation = config.evaluation.model_copy(update=measured)
        same = sampled.model_copy(update={"seed": config.seed, "evaluation": evaluation})
        return params if same == config else None


def _stored(value: Any, kind: str) -> Any:
    """Turn a range's value into a config's value; the inverse of `Range.param`."""
    if kind in ("list", "ints"):
        return [value] if value else []
    return float(value) if kind == "float" else value


def build_space(text: str, source: str, overrides: Values) -> Space:
    """Make a space from the content of its file; see `load_space` for the errors.

    Args:
        text: The file's content.
        source: The file's path, for messages.
        overrides: Dotted keys and values that replace the file's in every trial.
    """
    document = tomllib.loads(text)
    check_layout(document, source)
    fixed = dict(flatten(document.get("fixed", {})))
    search = document.get("search", {})
    points = list(grid_points(document["block"], fixed, source))
    declared = expand(points, source)
    ranges = read_ranges(search.get("ranges", {}), source)
    meant = override(points, overrides) if overrides else declared
    base = {**fixed, **dict(flatten(search.get("fixed", {}))), **overrides}
    space = Space(
        name=document.get("name") or _name_of(source),
        paper=document.get("paper", ""),
        tables=tuple(document.get("tables", [])),
        summary=document.get("summary", ""),
        configurations=tuple(dict.fromkeys(c.model_copy(update={"seed": 0}) for c in meant)),
        base=base,
        ranges=tuple(r for r in ranges if r.key not in overrides),
        seeds=(overrides["seed"],) if "seed" in overrides else tuple(document.get("seeds", [0])),
        text=text,
        source=source,
        overrides=overrides,
    )
    _check_own_names(space)
    _check_ranges(space)
    return space


def _name_of(source: str) -> str:
    """The name of a search space: its path in the package, else its file's name."""
    path = Path(source).with_suffix("")
    folder = spaces_folder()
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _check_own_names(space: Space) -> None:
    """Refuse two custom tasks with one name, because scores are stored by the name."""
    entries = {entry for config in space.configurations for entry in config.evaluation.own}
    try:
        own_sources(sorted(entries))
    except ValueError as error:
        rule, move = f"must be {error}, even in different trials", "Rename one of the two tasks."
        raise SpaceError(Fault(space.source, key="evaluation.own", rule=rule, move=move)) from None


def _check_ranges(space: Space) -> None:
    """Validate the ends of every range with each method and optimizer that has the key.

    Choices must differ as configurations: `1` and `1.0` are the same learning rate.
    """
    if space.ranges and "method.name" not in {**space.base, **space.branches()[0]}:
        rule = "must be set for [search.ranges], which take no values from the blocks"
        move = 'Write method.name = "scl" in [search.fixed], or a choice in [search.ranges].'
        raise SpaceError(
            Fault(f"{space.source} [search]", key="method.name", rule=rule, move=move)
        )
    faults: dict[Fault, None] = {}
    where = f"{space.source} [search.ranges]"
    for branch in space.branches() if space.ranges else ():
        for item in space.active_ranges(branch):
            built: dict[TrialConfig, Any] = {}
            for value in item.ends():
                values = {**space.base, **branch, item.key: value}
                with gathered(faults):
                    config = configure(values, where)
                    if config in built:
                        given = f"{shown(built[config])}, {shown(value)}"
                        rule = "two choices must not mean the same configuration"
                        raise ConfigError(
                            Fault(where, key=item.key, value=given, rule=rule, move="Remove one.")
                        )
                    built[config] = value
    if faults:
        raise ConfigError(faults)


def space_names() -> list[str]:
    """The names of the presets, sorted."""
    root = spaces_folder()
    return sorted(
        path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.toml")
    )


def spaces_of(paper: str) -> Iterator[Space]:
    """The presets with rows of a paper's tables, given the paper's short name."""
    for name in space_names():
        # Building a space takes ten times as long as reading its file, so only spaces of this
        # paper are built.
        head = tomllib.loads((spaces_folder() / f"{name}.toml").read_text(encoding="utf-8"))
        if head.get("tables") and paper in head.get("paper", "").split(", "):
            yield load_space(name)


@checked
def load_space(
    name: str | Path, overrides: Values | None = None, plugins: Sequence[Location] = ()
) -> Space:
    """Read and validate a search space, and run the code of its plugins.

    Args:
        name: The name of one of the package's spaces, such as `scl/lambda`, or the path of a TOML
            file.
        overrides: Dotted keys and values that replace the file's in every trial, as in `--set`.
        plugins: Files that end in .py, or names of installed plugins, besides those that the file
            names. A plugin here replaces the file's plugin of the same name.

    Returns:
        The space with its distinct configurations.

    Raises:
        SpaceError: There is no such space, or the file is not a valid space.
        ConfigError: A trial is not valid; the error lists every fault in the file.
        PluginError: A plugin cannot be read or run.
    """
    path = _locate(str(name))
    try:
        # Some editors begin a file with a byte order mark.
        text = path.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
        check_layout(document, str(path))
        loaded = load_plugins(plugins, document.get("plugins", ()), path.parent)
        return replace(build_space(text, str(path), dict(overrides or {})), plugins=loaded)
    except FileNotFoundError:
        move = "Check the path, or name a preset: `tune-sentcl spaces` lists them."
        raise SpaceError(Fault(str(path), rule="this file does not exist", move=move)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        rule = f"must be a readable TOML file ({error})"
        raise SpaceError(Fault(str(path), rule=rule, move="Correct the file.")) from None


def spaces_folder() -> Path:
    """The folder of the presets; in a checkout it is beside the package."""
    package = Path(__file__).parents[1]
    installed = package / "search_spaces"
    return installed if installed.is_dir() else package.parent / "search_spaces"


def _locate(name: str) -> Path:
    if name.endswith(".toml"):
        return Path(name)
    if name in space_names():
        return spaces_folder() / f"{name}.toml"
    near = difflib.get_close_matches(name, space_names(), n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else "`tune-sentcl spaces` lists the presets."
    if Path(name).is_file():
        hint = "The name of a search space's file must end in .toml."
    raise SpaceError(Fault("SPACE", value=name or "''", rule="no preset has this name", move=hint))
