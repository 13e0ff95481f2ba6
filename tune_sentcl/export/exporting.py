"""A study's winner as a folder that sentence-transformers and this package load."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tune_sentcl.analysis.summary import study_objectives
from tune_sentcl.errors import ConfigError, Fault, StudyError
from tune_sentcl.export.card import card
from tune_sentcl.export.choice import Choice
from tune_sentcl.export.record import Record, trial_record
from tune_sentcl.objective import DEFAULT, Objective, parse_objectives
from tune_sentcl.store.disk import whole_folder
from tune_sentcl.store.faults import disk_faults
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.store.soups import write_soup
from tune_sentcl.store.study import Study

# torch takes seconds to load: what is exported, or why nothing is, is said before.
if TYPE_CHECKING:
    from tune_sentcl.model.encoder import Encoder


@dataclass(frozen=True)
class Exported:
    """What an export has written.

    Attributes:
        record: What is known of the model, as `tune_sentcl.json` holds it.
        to: The folder.
        notes: What the caller should know.
    """

    record: Record
    to: Path
    notes: tuple[str, ...] = ()


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
        to: A folder where there is nothing yet.
        trial: The trial's id, or its beginning; None: the best one.
        best: By which score, as on the command line; None: what the last search maximized first.
        say: Is told which trial it is before its weights are read.

    Raises:
        BadInputError: There is no such trial, its weights are nowhere, the place is taken, or the
            disk refused; nothing is written then.
    """
    target = _target(path, to)
    study = Study.read(path)
    choice = Choice.read(study, _objective(study, best))
    one = choice.best() if trial is None else choice.named(trial)
    record = trial_record(choice, one, "best" if trial is None else "named")
    if say is not None:
        how = f"the best of {len(choice.ranked)}" if trial is None else "as named"
        say(f"trial {one.trial_id}, {how}, is written to {target}")
    from tune_sentcl.export.weights import encoder_of

    _write(encoder_of(study, one, "cpu"), record, target)
    return Exported(record, target)


def export_soup(
    path: str | Path,
    to: str | Path,
    most: int,
    *,
    data: str | Path | None = None,
    say: Callable[[str], None] | None = None,
) -> Exported:
    """Write the greedy average of a study's best kept weights, chosen on dev, and measure it.

    The study gets a record of it among its soups; where it cannot be written, a note says so.

    Args:
        path: The study's folder or URL.
        to: A folder where there is nothing yet.
        most: How many trials are looked at, from the best by what the search maximized first; by
            STS-B dev where that is a test split, of one's own task by its dev split.
        data: The data root; None takes TUNE_SENTCL_DATA.
        say: Is told what is looked at before any weights are read.

    Raises:
        BadInputError: Less than two trials have weights that go together, the sets here are not
            the search's, the place is taken, or the disk refused; nothing is written then.
    """
    if most < 2:
        fault = Fault("--soup", "", str(most), "must be 2 or more", "Or give no --soup.")
        raise ConfigError(fault)
    target = _target(path, to)
    study = Study.read(path)
    asked = _objective(study, None)
    choice = Choice.read(study, _on_dev(asked))
    if say is not None:
        there = min(most, len(choice.kept()))
        say(f"{there} trials with kept weights are looked at, by {choice.objective}")
    from tune_sentcl.export.soup_making import SoupMaking

    encoder, record = SoupMaking.of(choice, most, data).make()
    _write(encoder, record, target)
    notes = []
    if asked != choice.objective:
        notes.append(f"the soup is chosen by {choice.objective}, for {asked} is a test split")
    if len(record["members"]) == 1:
        notes.append("no average was as good on dev as the best trial alone, which is exported")
    try:
        write_soup(study.files, record)
    except StudyError as error:
        notes.append(f"the study has no record of the soup: {error}")
    return Exported(record, target, tuple(notes))


def _objective(study: Study, named: str | None) -> Objective:
    if named is not None:
        return parse_objectives([named], allow_test=True)[0]
    return study_objectives(study)[0]


def _on_dev(asked: Objective) -> Objective:
    """What chooses a soup: the same on dev where the task is the user's own, else STS-B dev."""
    if asked.split == "dev":
        return asked
    return replace(asked, split="dev") if asked.is_own else DEFAULT


def _target(path: str | Path, to: str | Path) -> Path:
    """Where to write.

    Raises:
        StudyError: There is something, or it would lie in the study.
    """
    if "://" in str(to) or str(to).startswith("file:"):
        rule, move = "must be a folder of this machine", "Export there, then upload the folder."
        raise StudyError(Fault("--to", "", mask_text(str(to)), rule, move))
    target = Path(to).expanduser().absolute()
    move = "Choose another place for --to."
    if os.path.lexists(target):
        raise StudyError(Fault("--to", "", str(target), "must not exist yet", move))
    if "://" not in str(path) and target.resolve().is_relative_to(
        Path(path).expanduser().resolve()
    ):
        rule = "must not lie in the study"
        raise StudyError(Fault("--to", "", str(target), rule, move))
    return target


def _write(encoder: "Encoder", record: Record, target: Path) -> None:
    from tune_sentcl.model.export import export

    text = card(
        record, width=encoder.width, pooling=encoder.pooling, max_length=encoder.max_length
    )
    with disk_faults(str(target)), whole_folder(target) as scratch:
        export(encoder.cpu(), scratch, record, text)
