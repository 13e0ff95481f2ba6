"""One study or several at one moment, with a word on what was left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tune_sentcl.errors import DamagedError, Fault, StudyError
from tune_sentcl.store.manifest import Manifest
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.snapshot import Snapshot
from tune_sentcl.store.study import Study
from tune_sentcl.store.union import unite

Damaged = Literal["raise", "skip"]
"""What happens at a damaged file: an error, or the rest is read."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What was read.

    Attributes:
        snapshot: The tables; of a list of studies each row says which one it comes from.
        searched: What the last search of each study maximized, as on the command line.
        faults: What was left out, by file or trial.
        manifests: What each `study.json` says, by the study as it was named here.
    """

    snapshot: Snapshot
    searched: tuple[tuple[str, ...], ...]
    faults: tuple[Fault, ...]
    manifests: Mapping[str, Manifest]


def read(path: str | Path | Sequence[str | Path], damaged: Damaged = "raise") -> Reading:
    """See `tune_sentcl.analysis.read_study`."""
    if isinstance(path, str | Path):
        return _one(path, damaged)
    found: dict[str, Reading] = {}
    faults: list[Fault] = []
    for one in path:
        try:
            found[mask_text(str(one))] = _one(one, damaged)
        except DamagedError as error:  # its `study.json`
            if damaged == "raise":
                raise
            faults += error.faults
    if not found:
        if faults:
            raise DamagedError(faults)
        raise ValueError("there must be a study to read")
    named = [reading.snapshot.labelled(name) for name, reading in found.items()]
    union = unite(named, list(found))
    if union.disagreements and damaged == "raise":
        raise StudyError(union.disagreements)
    every = found.values()
    return Reading(
        union.snapshot,
        tuple(searched for reading in every for searched in reading.searched),
        (*faults, *(fault for reading in every for fault in reading.faults), *union.disagreements),
        {name: manifest for reading in every for name, manifest in reading.manifests.items()},
    )


def _one(path: str | Path, damaged: Damaged) -> Reading:
    skipped: dict[str, Fault] | None = {} if damaged == "skip" else None
    study = Study.read(path, skipped=skipped)
    search = study.manifest.search
    snapshot = Snapshot.of(study)
    return Reading(
        snapshot,
        (search.objectives if search else (),),
        tuple((skipped or {}).values()),
        {mask_text(str(path)): study.manifest},
    )
