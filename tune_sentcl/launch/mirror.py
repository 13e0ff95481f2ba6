"""A copy of what the sampler knows, for optuna-dashboard; never read back."""

from collections.abc import Iterable
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial

from tune_sentcl.errors import Fault, StudyError


class JournalMirror:
    """Writes told configurations into an Optuna journal; it holds only ended ones."""

    def __init__(
        self, path: Path, name: str, objectives: int, told: Iterable[FrozenTrial]
    ) -> None:
        """Write the journal anew from what is known.

        A driver that was killed leaves a journal that may lag behind the study, and the journal's
        own lock; both go, for the study's lock says that no other driver is there.

        Args:
            path: The journal's file.
            name: The Optuna study's name.
            objectives: How many values a trial has, all maximized.
            told: The trials so far.

        Raises:
            StudyError: The disk refused.
        """
        self._path = path
        try:
            for stale in (path, path.with_name(f"{path.name}.lock")):
                stale.unlink(missing_ok=True)
            self._study = optuna.create_study(
                study_name=name,
                directions=["maximize"] * objectives,
                storage=JournalStorage(JournalFileBackend(str(path))),
            )
        except OSError as error:
            raise self._refused(error) from None
        for trial in told:
            self.add(trial)

    def add(self, trial: FrozenTrial) -> None:
        """Append one told configuration.

        Raises:
            StudyError: The disk refused.
        """
        try:
            self._study.add_trial(trial)
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> StudyError:
        rule = f"the journal must be writable ({error.strerror})"
        return StudyError(Fault(str(self._path), "", "", rule, "Make room or change the rights."))
