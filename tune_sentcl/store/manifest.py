"""`study.json`: what was asked of a study, and by whom."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from tune_sentcl.errors import DamagedError, Fault, StudyError
from tune_sentcl.space import Space
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.provenance import git_commit, library_versions, mask_command, mask_text
from tune_sentcl.store.schema import SCHEMA_VERSION

MANIFEST = "study.json"
"""The file's name; a folder without it is no study."""


@dataclass(frozen=True)
class SearchRecord:
    """What a search asked, beside its space.

    Attributes:
        objectives: What it maximized, the first first.
        sampler: The sampler's name.
        sampler_seed: The seed that it drew by.
        learned_from: The other studies whose trials it was told of.
        rungs: What each of its rungs has done (`tuning.rungs.RungReport`), once it has ended.
        failed_again: Finished trials whose last further training or measuring has failed.
    """

    objectives: tuple[str, ...]
    sampler: str
    sampler_seed: int
    learned_from: tuple[str, ...] = ()
    rungs: tuple[Mapping[str, Any], ...] = ()
    failed_again: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """What `study.json` says of a search.

        Raises:
            KeyError: A key is missing.
            TypeError: A value is of another kind.
        """
        objectives, learned = (document[key] for key in ("objectives", "learned_from"))
        sampler, seed = document["sampler"], document["sampler_seed"]
        if not (_is_texts(objectives) and _is_texts(learned) and _is_text(sampler)):
            raise TypeError
        rungs, failed = document.get("rungs", []), document.get("failed_again", [])
        if not _is_texts(failed):
            raise TypeError
        return cls(
            tuple(objectives), sampler, int(seed), tuple(learned), tuple(rungs), tuple(failed)
        )

    def masked(self) -> Self:
        """The same with secrets hidden in what it learned from."""
        return dataclasses.replace(self, learned_from=tuple(map(mask_text, self.learned_from)))


@dataclass(frozen=True)
class PlanRecord:
    """What the last search that was estimated took, beside what it was thought to take.

    Attributes:
        planned_seconds: As estimated before its first trial.
        actual_seconds: From then to the end of its last trial.
        trials: For how many trials that was.
    """

    planned_seconds: float
    actual_seconds: float
    trials: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """What `study.json` says of it.

        Raises:
            KeyError: A key is missing.
            TypeError: A value is of another kind.
            ValueError: Likewise.
        """
        planned, actual = (float(document[k]) for k in ("planned_seconds", "actual_seconds"))
        return cls(planned, actual, int(document["trials"]))


@dataclass(frozen=True)
class Manifest:
    """The contents of `study.json`.

    Attributes:
        schema: Number of the schema that the tables were written with.
        space: Name of the space.
        space_texts: Every distinct text that the space's file has had, in order, secrets hidden.
        created: When the study was begun, in ISO format, UTC.
        updated: When it was last opened for writing, in ISO format, UTC.
        versions: Versions by library, of the last driver.
        git_commit: Of the last driver's working directory; None outside a checkout.
        commands: The distinct command lines of its drivers, in order, secrets hidden.
        search: What the last search asked; None of single trials.
        plan: What the last estimated search took; None where there was none.
        epoch: How many drivers it has had; each one's files carry its number.
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
            DamagedError: It is not what was written.
            StudyError: It is missing, or of another schema.
        """
        where = files.shown(MANIFEST)
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
        """The manifest of a study that begins now."""
        begun = now()
        return cls(SCHEMA_VERSION, space.name, (), begun, begun, {}, None, ())

    def continued(self, space: Space, command: Sequence[str], least: int = 0) -> "Manifest":
        """The manifest after another driver came with a space of the same name.

        Args:
            space: What it searches.
            command: Its command line.
            least: What its epoch must at least be.
        """
        return Manifest(
            schema=SCHEMA_VERSION,
            space=self.space,
            space_texts=tuple(dict.fromkeys(map(mask_text, [*self.space_texts, space.text]))),
            created=self.created,
            updated=now(),
            versions=dict(library_versions()),
            git_commit=git_commit(),
            commands=tuple(dict.fromkeys([*self.commands, mask_command(command)])),
            search=self.search,
            plan=self.plan,
            epoch=max(self.epoch + 1, least),
        )

    def check_space(self, space: Space, where: str) -> None:
        """See that a space is the study's own.

        Raises:
            StudyError: It has another name.
        """
        if self.space != space.name:
            rule = f"belongs to space {self.space!r}, not {space.name!r}"
            move = "Choose another folder for the study, or run the study's own space."
            raise StudyError(Fault(where, "", "", rule, move))

    def write(self, files: StudyFiles, *, new: bool = False) -> None:
        """Write `study.json` whole.

        Args:
            files: The study.
            new: See `StudyFiles.writing`.

        Raises:
            StudyError: The disk refused.
        """
        files.write_json(MANIFEST, dataclasses.asdict(self), new=new)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_search(value: Any) -> bool:
    try:
        return value is None or isinstance(SearchRecord.of(value), SearchRecord)
    except (KeyError, TypeError, ValueError):
        return False


def _is_plan(value: Any) -> bool:
    try:
        return value is None or isinstance(PlanRecord.of(value), PlanRecord)
    except (KeyError, TypeError, ValueError):
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_CHECKS = {
    "schema": (_is_number, "a schema number"),
    "space": (_is_text, "the name of a space"),
    "space_texts": (_is_texts, "a list of texts"),
    "created": (_is_text, "a time"),
    "updated": (_is_text, "a time"),
    "versions": (lambda value: isinstance(value, dict), "a table of versions"),
    "commands": (_is_texts, "a list of command lines"),
    "search": (_is_search, "what the last search asked"),
    "plan": (_is_plan, "seconds planned and taken, and trials"),
    "epoch": (lambda value: value is None or _is_number(value), "a number of drivers"),
}


def _damaged(where: str, key: str, rule: str) -> Fault:
    return Fault(where, key, "", rule, "Restore it from a copy; the tables beside it are whole.")


def now() -> str:
    """The time as a manifest writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
