"""The trials of one space file: its grids' configurations, and the ranges that lie beyond them."""

import difflib
import itertools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tune_sentcl.config import (
    TrialConfig,
    Values,
    belongs,
    completed,
    extras_of,
    flatten,
    knobs,
    parse_dotted,
)
from tune_sentcl.config.data_names import own_sources
from tune_sentcl.errors import ConfigError, Fault, SpaceError
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


@dataclass(frozen=True)
class Space:
    """The trials of one space file, seeds apart.

    Attributes:
        name: As in `search_spaces/`, without the ending.
        paper: Short name of the paper, or an empty string.
        tables: The paper's tables whose rows are here.
        summary: One line for people.
        configurations: The distinct grid points, each with seed 0, in the file's order.
        base: Values of `[fixed]`, `[search.fixed]` and `--set`, on which sampled values are laid.
        ranges: What a sampler may vary, `method.name` and `optimizer.name` first; empty when there
            is nothing.
        seeds: The seeds that the file asks for.
        text: The whole file.
        source: The file's path, for messages.
        overrides: What replaces the file's values in every trial, as `--set` gave it.
        auto_values: For each checkpoint's name what its files say, by the keys of `UNSAID`.
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

    def with_auto_values(self, auto_values: Mapping[str, Values]) -> "Space":
        """The space with what checkpoints' files say in place of `auto`.

        Args:
            auto_values: As the attribute.
        """
        space = replace(self, auto_values=auto_values)
        explicit = dict.fromkeys(map(space._explicit, self.configurations))
        return replace(space, configurations=tuple(explicit))

    def with_overrides(self, overrides: Values) -> "Space":
        """The space with more of its file's values replaced, on top of those that are.

        Args:
            overrides: Dotted keys and values, as `--set` gives them.

        Raises:
            SpaceError: It was not read from a file.
            ConfigError: A trial of it is not legal.
        """
        if not overrides:
            return self
        if not self.text:
            rule = "a space that was not read from a file has nothing to replace"
            move = "Set the values where its configurations are made."
            raise SpaceError(Fault(self.source, "", self.name, rule, move))
        return build_space(self.text, self.source, {**self.overrides, **overrides})

    def active_ranges(self, values: Values) -> list[Range]:
        """The ranges of the knobs that some members of the unions have.

        Args:
            values: Dotted keys and values that name them, `method.name` and `optimizer.name`; the
                base's where they do not. Other keys do not matter.
        """
        members = {**self.base, **values}
        return [r for r in self.ranges if belongs(r.key, members)]

    def branches(self) -> list[dict[str, Any]]:
        """Every combination of the unions' names that a sampler may draw, as dotted values."""
        names = [r for r in self.ranges if r.key in UNION_NAMES]
        drawn = itertools.product(*(r.choices for r in names))
        return [dict(zip([r.key for r in names], values, strict=True)) for values in drawn]

    @property
    def extras(self) -> tuple[str, ...]:
        """The extras of this package without which some of the trials cannot run."""
        asked: list[Values] = [config.dotted() for config in self.configurations]
        asked += [{item.key: value} for item in self.ranges for value in item.ends()]
        return tuple(sorted(frozenset().union(*map(extras_of, asked))))

    def sampled(self, values: Values) -> TrialConfig:
        """The configuration that a sampler's values stand for.

        Args:
            values: One value for each range that is active under them.
        """
        return self._explicit(configure({**self.base, **values}, self.source))

    def sampled_values(self, values: Values) -> dict[str, Any]:
        """The dotted values of `sampled`, cheap for thousands: only one of a kind is built.

        Args:
            values: One value for each range that is active under them.
        """
        kind = tuple(values.get(name) for name in UNION_NAMES)
        if kind not in self._built:
            built = configure({**self.base, **values}, self.source)
            self._built[kind] = built.dotted()
        all_knobs = knobs()
        drawn = {k: float(v) if all_knobs[k].kind == "float" else v for k, v in values.items()}
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

    def params(self, config: TrialConfig) -> dict[str, Any] | None:
        """Where in the ranges a configuration's values lie, whatever its other knobs.

        Returns:
            One value for each active range, or None where one lies outside.
        """
        return self.params_of(config.dotted())

    def params_of(self, values: Values) -> dict[str, Any] | None:
        """`params` for the dotted values of a whole config, as a study stores them."""
        ranged = {item.key for item in self.ranges}
        for name in UNION_NAMES:
            fixed = self.base.get(name, knobs()[name].default())
            if name not in ranged and values.get(name) != fixed:
                return None
        active = self.active_ranges(values)
        params = {r.key: values[r.key] for r in active if r.holds(values[r.key])}
        return params if self.ranges and len(params) == len(active) else None

    def exact_params(self, config: TrialConfig) -> dict[str, Any] | None:
        """The sampler's values that stand for exactly this configuration.

        Returns:
            One value for each active range, or None where the ranges do not hold the
            configuration.
        """
        params = self.params(config)
        if params is None:
            return None
        # What is measured, and on what, is no part of where a configuration stands.
        sampled = self.sampled(params)
        measured = {"every": sampled.evaluation.every, "select": sampled.evaluation.select}
        evaluation = config.evaluation.model_copy(update=measured)
        same = sampled.model_copy(update={"seed": config.seed, "evaluation": evaluation})
        return params if same == config else None


def build_space(text: str, source: str, overrides: Values) -> Space:
    """Make a space of a file's text.

    Args:
        text: The whole file.
        source: Its path, for messages.
        overrides: Dotted keys that replace the file's values in every trial.

    Raises:
        tomllib.TOMLDecodeError: It is no TOML.
        SpaceError: It is no space.
        ConfigError: A trial of it is not legal; every fault of the file is listed.
    """
    document = tomllib.loads(text)
    check_layout(document, source)
    fixed = dict(flatten(document.get("fixed", {})))
    search = document.get("search", {})
    points = list(grid_points(document["block"], fixed, source))
    declared = expand(points, source)
    if len(declared) != document["trials"]:
        rule = f"must be the number of distinct trials, seeds not counted: {len(declared)}"
        raise SpaceError(Fault(source, "trials", str(document["trials"]), rule, "Correct it."))
    ranges = read_ranges(search.get("ranges", {}), source)
    meant = override(points, overrides) if overrides else declared
    base = {**fixed, **dict(flatten(search.get("fixed", {}))), **overrides}
    space = Space(
        name=document["name"],
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


def _check_own_names(space: Space) -> None:
    """One name is one task in all trials, for their scores go by it."""
    entries = {entry for config in space.configurations for entry in config.evaluation.own}
    try:
        own_sources(sorted(entries))
    except ValueError as error:
        rule, move = f"must be {error}, in one trial or in two", "Give the other one another name."
        raise SpaceError(Fault(space.source, "evaluation.own", "", rule, move)) from None


def _check_ranges(space: Space) -> None:
    """Every end of every range must be legal, for each method and optimizer that have it."""
    if space.ranges and "method.name" not in {**space.base, **space.branches()[0]}:
        rule = "must be given for the ranges, which know nothing of the blocks' methods"
        move = 'Write method.name = "scl" in [search.fixed], or a choice in [search.ranges].'
        raise SpaceError(Fault(f"{space.source} [search]", "method.name", "", rule, move))
    faults: dict[Fault, None] = {}
    for branch in space.branches() if space.ranges else ():
        for item in space.active_ranges(branch):
            for value in item.ends():
                values = {**space.base, **branch, item.key: value}
                with gathered(faults):
                    configure(values, f"{space.source} [search.ranges]")
    if faults:
        raise ConfigError(faults)


def space_names() -> list[str]:
    """Names of the spaces that come with the package, sorted."""
    root = spaces_folder()
    return sorted(
        path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.toml")
    )


def spaces_of(paper: str) -> Iterator[Space]:
    """The spaces that come with the package and hold rows of a paper's tables.

    Args:
        paper: Its short name, as in the files.
    """
    for name in space_names():
        # The others are not built: that takes ten times as long as reading them.
        head = tomllib.loads((spaces_folder() / f"{name}.toml").read_text(encoding="utf-8"))
        if head.get("tables") and paper in head.get("paper", "").split(", "):
            yield load_space(name)


def load_space(name: str | Path, overrides: Values | None = None) -> Space:
    """Read a space, check all of it, and list its distinct configurations.

    Args:
        name: A shipped name such as `scl/lambda`, or the path of a TOML file.
        overrides: Dotted keys that replace the file's values in every trial, as `--set` does.

    Raises:
        SpaceError: There is no such space, or the file is no space.
        ConfigError: A trial of it is not legal; every fault of the file is listed.
    """
    path = _locate(str(name))
    try:
        return build_space(path.read_text(encoding="utf-8"), str(path), dict(overrides or {}))
    except FileNotFoundError:
        move = "Check the path, or name a space that comes along: tune-sentcl spaces."
        raise SpaceError(Fault(str(path), "", "", "no such file", move)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        rule = f"must be a readable TOML file ({error})"
        raise SpaceError(Fault(str(path), "", "", rule, "Mend the file.")) from None


def spaces_folder() -> Path:
    """Where the spaces lie that come with the package; in a checkout, beside it."""
    package = Path(__file__).parents[1]
    installed = package / "search_spaces"
    return installed if installed.is_dir() else package.parent / "search_spaces"


def _locate(name: str) -> Path:
    if name.endswith(".toml"):
        return Path(name)
    if name in space_names():
        return spaces_folder() / f"{name}.toml"
    near = difflib.get_close_matches(name, space_names(), n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else "List them: tune-sentcl spaces."
    if Path(name).is_file():
        hint = "The name of a space file must end in .toml."
    raise SpaceError(Fault("SPACE", "", name or "''", "no space of this name", hint))
