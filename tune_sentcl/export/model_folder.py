"""Export a trial's model as a folder that sentence-transformers and this package load."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.compute as pc

from tune_sentcl.config import evaluation_data_of
from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.export.card import Record, card
from tune_sentcl.export.choice import Candidate, Choice
from tune_sentcl.judging.configurations import study_objectives
from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.store.disk import atomic_folder
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.objects import storage_errors
from tune_sentcl.store.rows import LIBRARIES, library_versions
from tune_sentcl.store.study import Study

# Imported late because torch takes seconds: faults and the chosen trial are reported before.
if TYPE_CHECKING:
    from tune_sentcl.model.encoder import Encoder

_TRIAL_COLUMNS = (
    *("trial_id", "configuration", "origin", "seed", "steps", "wall_seconds", "device"),
    *("data_source", "data_fingerprint", "checkpoint_fingerprint", "git_commit", "notes"),
)
_SPREAD = (
    *("objective_mean", "objective_sd", "objective_n"),
    *("fresh_mean", "fresh_sd", "fresh_n"),
)


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        record: The content of `tune_sentcl.json`.
        to: The folder.
    """

    record: Record
    to: Path


def export_trial(
    path: str | Path,
    to: str | Path,
    *,
    trial: str | None = None,
    best: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Exported:
    """Write the model of one trial of a study.

    Args:
        path: The study's folder or URL; it is only read.
        to: A folder that does not exist yet.
        trial: The trial's id or a prefix; None: the best one.
        best: The score to choose by, as on the command line; None: the first objective of the
            last search.
        say: Receives a message about the chosen trial before its weights are read.

    Raises:
        BadInputError: The trial or its weights do not exist, the folder exists, or the disk
            refused; nothing is written then.
    """
    target = _target(path, to)
    study = Study.read(path)
    choice = Choice.read(study, _objective(study, best))
    one = choice.best() if trial is None else choice.named(trial)
    record = _record(choice, one, "best" if trial is None else "named")
    if say is not None:
        how = f"the best of {len(choice.ranked)}" if trial is None else "as named"
        if trial is None and one != choice.ranked[0]:
            how = "the best with weights of the best configuration"
        say(f"trial {one.trial_id}, {how}, is written to {target}")
    from tune_sentcl.export.weights import encoder_of

    _write(encoder_of(study, one), record, target)
    return Exported(record, target)


def _objective(study: Study, named: str | None) -> Objective:
    if named is not None:
        return parse_objectives([named], allow_test=True)[0]
    return study_objectives(study)[0]


def _record(choice: Choice, one: Candidate, how: str) -> Record:
    """The record of a trial's model; `how` is `best` or `named`."""
    study = choice.study
    row = choice.row(one.trial_id)
    start = None if one.untrained else choice.start_of(one)
    return {
        "model": one.trial_id,
        "chosen": how,
        "objective": str(choice.objective),
        "value": one.value,
        "data": evaluation_data_of(one.row),
        "ranked": len(choice.ranked),
        "trial": {
            **{name: row[name] for name in _TRIAL_COLUMNS},
            "config": json.loads(row["config"]),
            "versions": {n: row[f"version_{n}"] for n in LIBRARIES if row[f"version_{n}"]},
            "command": choice.command(row),
            "over_seeds": _spread(choice.over_seeds, row),
        },
        "scores": _scores(study, one),
        "untrained": _scores(study, start) if start else [],
        "space": study.manifest.space,
        "commands": list(study.manifest.commands),
        "written_with": dict(library_versions()),
    }


def _scores(study: Study, one: Candidate) -> list[dict[str, Any]]:
    found = study.scores(where=pc.field("trial_id") == one.trial_id).to_pylist()
    return [{k: v for k, v in score.items() if k != "trial_id"} for score in found]


def _spread(table: pd.DataFrame, row: Mapping[str, Any]) -> Record:
    """The statistics over seeds of a trial's configuration."""
    fits = table[table["configuration"] == row["configuration"]]
    if not len(fits):
        return {}
    found = fits.astype(object).where(fits.notna(), None).iloc[0]
    return {name: found[name] for name in _SPREAD if name in fits.columns}


def _target(path: str | Path, to: str | Path) -> Path:
    """The folder to write.

    Raises:
        StudyError: The folder exists, or would be inside the study.
    """
    if "://" in str(to) or str(to).startswith("file:"):
        rule, move = "must be a folder of this machine", "Export there, then upload the folder."
        raise StudyError(Fault("--to", "", str(to), rule, move))
    target = Path(to).expanduser().absolute()
    move = "Choose another place for --to."
    if os.path.lexists(target):
        raise StudyError(Fault("--to", "", str(target), "must not exist yet", move))
    folder = StudyFiles.at(str(path)).folder
    if folder is not None and target.resolve().is_relative_to(folder.resolve()):
        rule = "must not lie in the study"
        raise StudyError(Fault("--to", "", str(target), rule, move))
    return target


def _write(encoder: "Encoder", record: Record, target: Path) -> None:
    from tune_sentcl.model.saving import export

    text = card(
        record, width=encoder.width, pooling=encoder.pooling, max_length=encoder.max_length
    )
    with storage_errors(str(target)), atomic_folder(target) as scratch:
        export(encoder.cpu(), scratch, record, text)
