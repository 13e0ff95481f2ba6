"""`study.json`: a study's space, searches and provenance."""

import dataclasses
import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from tune_sentcl.errors import DamagedError, Fault, StudyError
from tune_sentcl.space import Space
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.provenance import git_commit, library_versions
from tune_sentcl.store.schema import SCHEMA_VERSION

MANIFEST = "study.json"
"""The file's name; a folder without it is not a study."""


@dataclass(frozen=True)
class SeedPlan:
    """The seeds that a study was asked for before it saw a score of theirs.

    Attributes:
        seeds: Of every configuration.
        configurations: How many configurations were to run; None if their scores decided that.
        grid: Those of them that the grid holds.
        raced: Whether a later search gave further seeds to the best configurations alone.
        fresh_seeds: The seeds of the first confirmation; empty without one.
        fresh: The configurations that it compares, the winner first.
    """

    seeds: tuple[int, ...]
    configurations: int | None
    grid: tuple[str, ...] = ()
    raced: bool = False
    fresh_seeds: tuple[int, ...] = ()
    fresh: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Parse the entry of `study.json`; KeyError, TypeError or ValueError if it is damaged."""
        count, raced = document["configurations"], document["raced"]
        seeds, fresh_seeds = document["seeds"], document["fresh_seeds"]
        grid, fresh = document["grid"], document["fresh"]
        is_count = count is None or (_is_number(count) and bool(seeds))
        if not (_is_texts(fresh) and _is_texts(grid) and is_count and isinstance(raced, bool)):
            raise TypeError
        if not (_is_seeds(seeds) and _is_seeds(fresh_seeds)):
            raise TypeError
        return cls(tuple(seeds), count, tuple(grid), raced, tuple(fresh_seeds), tuple(fresh))


@dataclass(frozen=True)
class SearchRecord:
    """The settings and reports of a search.

    Attributes:
        objectives: The scores that it maximized, in order.
        sampler: The sampler's name.
        sampler_seed: The sampler's seed.
        learned_from: Other studies whose trials the sampler was given.
        failed_again: Finished trials whose last retraining or measuring failed.
        shares: The shares of a whole training at the ends of stages, which the first command that
            samples has fixed; empty before.
        first_seed: The seed with which sampled configurations begin, fixed likewise.
        seed_plan: The seeds of the study's first search; None if the study had scores before.
    """

    objectives: tuple[str, ...]
    sampler: str
    sampler_seed: int
    learned_from: tuple[str, ...] = ()
    failed_again: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    first_seed: int | None = None
    seed_plan: SeedPlan | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Parse the entry of `study.json`.

        Raises:
            KeyError: A key is missing.
            TypeError: A value has another type.
        """
        objectives, learned = (document[key] for key in ("objectives", "learned_from"))
        sampler, seed = document["sampler"], document["sampler_seed"]
        if not (_is_texts(objectives) and _is_texts(learned) and _is_text(sampler)):
            raise TypeError
        shares, failed = document.get("shares", []), document.get("failed_again", [])
        if not (_is_texts(failed) and isinstance(shares, list) and all(map(_is_share, shares))):
            raise TypeError
        first, plan = document.get("first_seed"), document.get("seed_plan")
        return cls(
            tuple(objectives),
            sampler,
            int(seed),
            tuple(learned),
            tuple(failed),
            tuple(shares),
            None if first is None else int(first),
            None if plan is None else SeedPlan.of(plan),
        )


@dataclass(frozen=True)
class PlanRecord:
    """Estimated and actual duration of the last search with an estimate.

    Attributes:
        planned_seconds: The estimate before the first trial.
        actual_seconds: From then to the end of the last trial.
        trials: Number of trials that ran.
    """

    planned_seconds: float
    actual_seconds: float
    trials: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Parse the entry of `study.json`; KeyError, TypeError or ValueError if it is damaged."""
        planned, actual = (float(document[k]) for k in ("planned_seconds", "actual_seconds"))
        return cls(planned, actual, int(document["trials"]))


@dataclass(frozen=True)
class Manifest:
    """The contents of `study.json`.

    Attributes:
        schema: The schema version of the tables.
        space: Name of the space.
        space_texts: The distinct contents of the space's file, the last used one last.
        created: Creation time, in ISO format, UTC.
        updated: When it was last opened for writing, in ISO format, UTC.
        versions: Versions by library, of the last driver.
        git_commit: Of the last driver's working directory; None outside a checkout.
        commands: The distinct command lines of its drivers, the last one last.
        search: The last search; None before the first.
        plan: The last estimated search; None without one.
        epoch: The number of the last driver, which is part of its file names.
    """

    schema: int
    space: str
    space_texts: tuple[str, ...]
    created: str
    updated: str
    versions: Mapping[str, str]
    git_commit: str | None
    commands: tuple[str, ...]
    search: SearchRecord | None = None
    plan: PlanRecord | None = None
    epoch: int = 0

    @classmethod
    def read(cls, files: StudyFiles) -> Self:
        """Read and check a study's manifest.

        Raises:
            DamagedError: `study.json` is not valid.
            StudyError: It is missing, or has another schema.
        """
        where = files.display_path(MANIFEST)
        if not files.is_folder() or not files.exists(MANIFEST):
            rule = f"must be a study: a folder that holds {MANIFEST}"
            raise StudyError(Fault(files.where, "", "", rule, "Check the path."))
        document = files.read_json(MANIFEST)
        if not isinstance(document, dict):
            raise DamagedError(_damaged(where, "", "must be a JSON object"))
        number = document.get("schema")
        if _is_number(number) and number != SCHEMA_VERSION:
            rule = f"this release reads studies of schema {SCHEMA_VERSION} only"
            move = "Read the study with the release of tune_sentcl that wrote it."
            raise StudyError(Fault(where, "schema", str(number), rule, move))
        faults = [
            _damaged(where, key, f"must be {meaning}")
            for key, (fits, meaning) in _CHECKS.items()
            if not fits(document.get(key))
        ]
        if faults:
            raise DamagedError(faults)
        values: dict[str, Any] = {f.name: document.get(f.name) for f in dataclasses.fields(cls)}
        values["space_texts"] = tuple(document["space_texts"])
        values["commands"] = tuple(document["commands"])
        if document.get("search") is not None:
            values["search"] = SearchRecord.of(document["search"])
        if document.get("plan") is not None:
            values["plan"] = PlanRecord.of(document["plan"])
        values["epoch"] = document.get("epoch") or 0
        return cls(**values)

    @classmethod
    def new(cls, space: Space) -> Self:
        """The manifest of a new study."""
        begun = now()
        return cls(SCHEMA_VERSION, space.name, (), begun, begun, {}, None, ())

    def continued(self, space: Space, command: Sequence[str], least: int = 0) -> "Manifest":
        """The manifest for the next driver.

        Args:
            space: Its space, of the same name.
            command: Its command line.
            least: The smallest allowed epoch.
        """
        return Manifest(
            schema=SCHEMA_VERSION,
            space=self.space,
            space_texts=_with_last(self.space_texts, space.text),
            created=self.created,
            updated=now(),
            versions=dict(library_versions()),
            git_commit=git_commit(),
            commands=_with_last(self.commands, shlex.join(command)),
            search=self.search,
            plan=self.plan,
            epoch=max(self.epoch + 1, least),
        )

    def check_space(self, space: Space, where: str) -> None:
        """Raise StudyError if a space has another name than the study's."""
        if self.space != space.name:
            rule = f"belongs to space {self.space!r}, not {space.name!r}"
            move = "Choose another folder for the study, or run the study's own space."
            raise StudyError(Fault(where, "", "", rule, move))

    def write(self, files: StudyFiles, *, new: bool = False) -> None:
        """Write `study.json` atomically; see `StudyFiles.writing`."""
        files.write_json(MANIFEST, dataclasses.asdict(self), new=new)


def _with_last(texts: Sequence[str], last: str) -> tuple[str, ...]:
    return (*(text for text in texts if text != last), last)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_seeds(value: Any) -> bool:
    whole = isinstance(value, list) and all(type(item) is int for item in value)
    return whole and len(set(value)) == len(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_share(value: Any) -> bool:
    return isinstance(value, float) and 0 < value <= 1


def _is_record(record: type[SearchRecord | PlanRecord], value: Any) -> bool:
    try:
        return value is None or bool(record.of(value))
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "schema": (_is_number, "a schema number"),
    "space": (_is_text, "the name of a space"),
    "space_texts": (_is_texts, "a list of texts"),
    "created": (_is_text, "a time"),
    "updated": (_is_text, "a time"),
    "versions": (lambda value: isinstance(value, dict), "a table of versions"),
    "commands": (_is_texts, "a list of command lines"),
    "search": (functools.partial(_is_record, SearchRecord), "the settings of the last search"),
    "plan": (functools.partial(_is_record, PlanRecord), "planned and actual seconds, and trials"),
    "epoch": (lambda value: value is None or _is_number(value), "a driver's number"),
}


def _damaged(where: str, key: str, rule: str) -> Fault:
    return Fault(where, key, "", rule, "Restore it from a copy; the tables beside it are intact.")


def now() -> str:
    """The current time in ISO format, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
