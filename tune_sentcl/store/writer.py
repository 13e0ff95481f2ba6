"""What a worker may write: its own trial's scores, curves and checkpoint, never the row."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.store.rows import CurvePoint, Score, curves_table, scores_table
from tune_sentcl.store.tables import COMPACTED, file_of, only, read_folder

_TRIAL_ID = re.compile(r"[A-Za-z0-9_-]+")


class StudyWriter:
    """A worker's handle on a study, from its path alone; takes no lock and can be pickled."""

    def __init__(self, path: str | Path, filesystem: Any = None) -> None:
        """Point at a study; nothing is read or written yet.

        Args:
            path: The study's folder or URL.
            filesystem: A `pyarrow.fs.FileSystem` in which `path` lies; None to go by `path`.

        Raises:
            StudyError: No file system takes the URL.
        """
        self.files = StudyFiles.at(path, filesystem)

    def write_scores(self, trial_id: str, scores: Sequence[Score]) -> None:
        """Write all of a trial's scores; those of an earlier attempt give way to them.

        Raises:
            StudyError: The study is not visible from here, or the disk refused.
        """
        self._require_study()
        self.files.write_table(trial_file("scores", trial_id), scores_table(trial_id, scores))

    def add_scores(self, trial_id: str, scores: Sequence[Score]) -> None:
        """Add scores to those that a finished trial has; the same score taken again replaces it.

        Raises:
            StudyError: The study is not visible from here, or the disk refused.
        """
        self._require_study()
        new = scores_table(trial_id, scores)
        taken = {_identity(row) for row in new.to_pylist()}
        old = only(read_folder(self.files, "scores"), {trial_id})
        left = [row for row in old.to_pylist() if _identity(row) not in taken]
        kept = pa.Table.from_pylist(left, schema=new.schema)
        self.files.write_table(trial_file("scores", trial_id), pa.concat_tables([kept, new]))

    def write_curves(self, trial_id: str, points: Sequence[CurvePoint]) -> None:
        """Write all of a trial's curves; those of an earlier attempt give way to them.

        Raises:
            StudyError: The study is not visible from here, or the disk refused.
        """
        self._require_study()
        self.files.write_table(trial_file("curves", trial_id), curves_table(trial_id, points))

    def checkpoint_path(self, trial_id: str) -> str:
        """The folder of a trial's checkpoint, as a path in `files.filesystem`."""
        return self.files.path(checkpoint_folder(trial_id))

    def _require_study(self) -> None:
        # A node that does not share the disk must not write into a folder of its own.
        if not self.files.exists(MANIFEST):
            rule = "the study must be visible from the node that runs the trial"
            move = "Put it on a disk that all nodes share, or on an object store."
            raise StudyError(Fault(self.files.where, "", "", rule, move))


def _identity(score: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(value for name, value in score.items() if name not in ("value", "n"))


def trial_file(folder: str, trial_id: str) -> str:
    """The name of a trial's own file in a table's folder."""
    return file_of(folder, _checked(trial_id))


def checkpoint_folder(trial_id: str) -> str:
    """The name of the folder of a trial's checkpoint."""
    return f"checkpoints/{_checked(trial_id)}"


def _checked(trial_id: str) -> str:
    if not _TRIAL_ID.fullmatch(trial_id) or trial_id == COMPACTED:
        raise ValueError(f"{trial_id!r} is no trial_id: letters and digits, and not {COMPACTED!r}")
    return trial_id
