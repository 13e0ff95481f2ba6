"""`study.json`: a study's space, searches and provenance."""

import dataclasses
import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from tune_sentcl.errors import DamagedError, Fault, StudyError
from tune_sentcl.plugins.stored import StoredMethod, stored_methods, stored_names
from tune_sentcl.space import Space
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.rows import SCHEMA_VERSION, library_versions

MANIFEST = "study.json"
"""The file's name; a folder without it is not a study."""

_STRICT = ConfigDict(strict=True, extra="ignore")


@dataclass(frozen=True, config=_STRICT)
class Confirmation:
    """A confirmation: its seeds, none of which an earlier trial had used.

    Attributes:
        seeds: The seeds with which every configuration trains.
        configurations: Winner, baseline and runner-up, the winner first.
    """

    seeds: tuple[int, ...]
    configurations: tuple[str, ...]


@dataclass(frozen=True, config=_STRICT)
class SeedPlan:
    """The seeds that a study planned before it had a score of these seeds.

    Attributes:
        seeds: The search seeds of every configuration.
        configurations: How many configurations were planned; None if scores decided that.
        grid: The planned configurations of the grid, its first point first.
        confirmations: The confirmations, the first one first.
    """

    seeds: tuple[int, ...]
    configurations: Annotated[int, Field(gt=0)] | None
    grid: tuple[str, ...] = ()
    confirmations: tuple[Confirmation, ...] = ()


@dataclass(frozen=True, config=_STRICT)
class HalvingRecord:
    """A successive halving of sampled configurations.

    Attributes:
        budget: The number of whole trainings that its stages may take.
        sizes: How many configurations run each stage.
        shares: The shares of a whole training at the ends of stages.
        parts: How many configurations are drawn at a time.
        further: How many configurations beyond the best quarter run the last stage.
        first_seed: The seed with which its configurations train.
        objective: The score at the ends of stages.
        sampled: For each part that has begun, its configurations, as values of the ranges.
    """

    budget: float
    sizes: tuple[Annotated[int, Field(ge=0)], ...]
    shares: tuple[Annotated[float, Field(gt=0, le=1)], ...]
    parts: tuple[Annotated[int, Field(ge=0)], ...]
    further: Annotated[int, Field(ge=0)]
    first_seed: int
    objective: str
    sampled: tuple[tuple[Mapping[str, Any], ...], ...] = ()


@dataclass(frozen=True, config=_STRICT)
class SearchRecord:
    """The settings and reports of a search.

    Attributes:
        objectives: The scores that it maximized, in order.
        sampler: The sampler's name.
        stage_objective: The stage objective, which later added tasks do not change; empty if it
            was not recorded.
        sampler_seed: The sampler's seed.
        learned_from: Other studies from which the sampler got trials.
        budget: The number of whole trainings for `halvings`, without those of the grid.
        halvings: The halvings in the order in which they begin. A recorded halving never changes.
        whole: The sampled configurations that train to the end without a halving, as values of the
            ranges.
        seed_plan: The seeds of the study's first search; None if the study had scores before.
    """

    objectives: tuple[str, ...]
    sampler: str
    sampler_seed: int
    learned_from: tuple[str, ...] = ()
    stage_objective: str = ""
    budget: float = 0.0
    halvings: tuple[HalvingRecord, ...] = ()
    whole: tuple[Mapping[str, Any], ...] = ()
    seed_plan: SeedPlan | None = None


@dataclass(frozen=True, config=_STRICT)
class Manifest:
    """The contents of `study.json`.

    Attributes:
        schema: The schema version of the tables.
        space: Name of the space.
        space_texts: The distinct contents of the search space's file; the last used content is
            last.
        created: Creation time, in ISO format, UTC.
        updated: The time when it was last opened for writing, in ISO format, UTC.
        versions: The last driver's versions of libraries.
        git_commit: The commit of the last driver's working directory; None outside a checkout.
        commands: The distinct command lines of its drivers; the last command is last.
        search: The last search; None before the first.
        measured: The hyperparameters of `evaluation` that say which scores each trial gets; None
            before the first search.
        epoch: The number of the last driver, which is part of its file names.
        methods: The methods of plugins that its searches have loaded.
        plugins: The plugin of each task (`plugin:NAME`) and source that its searches have loaded.
    """

    schema: Annotated[int, Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)]
    space: str
    space_texts: tuple[str, ...]
    created: str
    updated: str
    versions: Mapping[str, str]
    git_commit: str | None
    commands: tuple[str, ...]
    search: SearchRecord | None = None
    measured: Mapping[str, Any] | None = None
    epoch: int = 0
    methods: tuple[StoredMethod, ...] = ()
    plugins: Mapping[str, str] = Field(default_factory=dict)

    @classmethod
    def read(cls, files: StudyFiles) -> Self:
        """Read and check a study's manifest.

        Raises:
            DamagedError: `study.json` is not valid.
            StudyError: `study.json` is missing, or has another schema.
        """
        data = files.read_bytes(MANIFEST) if files.is_folder() else None
        if data is None:
            rule = f"must be a study: a folder that holds {MANIFEST}"
            raise StudyError(Fault(files.where, rule=rule, move="Check the path."))
        return cls.parse(data, files)

    @classmethod
    def parse(cls, data: bytes, files: StudyFiles) -> Self:
        """Parse and check the content of `study.json`; errors as for `read`."""
        try:
            return TypeAdapter(cls).validate_json(data)
        except ValidationError as error:
            faults = list(_faults(error, files.display_path(MANIFEST)))
        if faults[0].key == "schema" and faults[0].value:
            raise StudyError(faults[0])
        raise DamagedError(faults)

    @classmethod
    def new(cls, space: Space) -> Self:
        """The manifest of a new study."""
        begun = now()
        return cls(SCHEMA_VERSION, space.name, (), begun, begun, {}, None, ())

    def continued(self, space: Space, command: Sequence[str], least: int = 0) -> "Manifest":
        """The manifest for the next driver.

        Args:
            space: The next driver's search space, of the same name.
            command: The next driver's command line.
            least: The smallest allowed epoch.
        """
        names = [plugin.name for plugin in space.plugins]
        loaded = (*self.methods, *stored_methods(names))
        return dataclasses.replace(
            self,
            space_texts=_with_last(self.space_texts, space.text),
            updated=now(),
            versions=dict(library_versions()),
            git_commit=git_commit(),
            commands=_with_last(self.commands, as_typed(command)),
            epoch=max(self.epoch + 1, least),
            methods=tuple({method.name: method for method in loaded}.values()),
            plugins={**self.plugins, **stored_names(names)},
        )

    def is_older(self, method: str, code: str | None) -> bool:
        """Whether a method's plugin has other code now than when a trial ran."""
        now = {one.name: one.fingerprint for one in self.methods}
        return method in now and code != now[method]

    def has_method(self, method: str) -> bool:
        """Whether the study's searches have loaded a plugin's method with this name."""
        return any(one.name == method for one in self.methods)

    def check_space(self, space: Space, where: str) -> None:
        """Raise StudyError if a search space has another name than the study's."""
        if self.space != space.name:
            rule = f"belongs to the search space {self.space!r}, not to {space.name!r}"
            move = "Choose another folder for the study, or run the study's own search space."
            raise StudyError(Fault(where, rule=rule, move=move))

    def encoded(self) -> bytes:
        """The content of `study.json`."""
        text = json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False)
        # A path in a command may not be valid UTF-8.
        return f"{text}\n".encode(errors="backslashreplace")


def as_typed(command: Sequence[str]) -> str:
    """A command line as a user types it."""
    ours = bool(command) and PurePath(command[0]).name in ("__main__.py", "tune-sentcl")
    return shlex.join(["tune-sentcl", *command[1:]] if ours else command)


def _with_last(texts: Sequence[str], last: str) -> tuple[str, ...]:
    return (*(text for text in texts if text != last), last)


def _faults(error: ValidationError, where: str) -> Iterator[Fault]:
    """One fault for each of pydantic's errors; a schema number that is not read is its value."""
    move = "Restore the file from a copy; the tables beside it are intact."
    for item in error.errors():
        key = ".".join(map(str, item["loc"]))
        rule = (
            item["msg"].replace("Input should", "must").replace("Field required", "must be given")
        )
        if key == "schema" and item["type"].endswith("than_equal"):
            rule = f"this release reads only studies of schema {SCHEMA_VERSION}"
            move = "Read the study with the release of tune_sentcl that wrote it."
            yield Fault(where, key=key, value=str(item["input"]), rule=rule, move=move)
        elif item["type"] == "json_invalid":
            yield Fault(where, rule=f"must be JSON ({item['ctx']['error']})", move=move)
        else:
            yield Fault(where, key=key, rule=rule, move=move)


def now() -> str:
    """The current time in ISO format, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_commit() -> str | None:
    """The commit checked out in the working directory, with `-dirty` if a tracked file changed.

    Returns:
        40 hexadecimal digits and the suffix; None outside a checkout or without git.
    """
    commit = _git("rev-parse", "--verify", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    if not commit or changes is None:
        return None
    return f"{commit}-dirty" if changes else commit


def _git(*arguments: str) -> str | None:
    # `git status` would otherwise write into the user's checkout to refresh its index.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=20, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
