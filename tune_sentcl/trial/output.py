"""What a run leaves of a trial in its study."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.keeping import keep
from tune_sentcl.score import Score
from tune_sentcl.store.rows import CurvePoint
from tune_sentcl.store.trial_files import TrialFiles
from tune_sentcl.trial.state import TrialState


@dataclass(frozen=True)
class Output:
    """Where a run leaves its files; each appears whole or not at all.

    Attributes:
        files: The study's.
        trial_id: The trial's name there.
        keep_checkpoint: Whether the weights are left there.
        again: Whether the trial has finished before: what is there then stays until all of the new
            run is known, and its scores are added to those that it has.
        save_every: Seconds after which the state of a running trial is written; None: never.
        leaves: Whether this machine is about to go: then the trial writes its state at its next
            step, and ends.
    """

    files: TrialFiles
    trial_id: str
    keep_checkpoint: bool = True
    again: bool = False
    save_every: float | None = None
    leaves: Callable[[], bool] = lambda: False

    def save(self, state: TrialState) -> None:
        """Leave what the running trial is now."""
        self.files.write_state(self.trial_id, state.write)

    def saved(self) -> TrialState | None:
        """What a worker that was lost has left of the trial; None if it left nothing.

        Raises:
            StudyError: It is damaged, or of another version.
        """
        with self.files.state(self.trial_id) as folder:
            return None if folder is None else TrialState.read(folder)

    def point(self, curves: Sequence[CurvePoint]) -> None:
        """Leave the curves so far."""
        if not self.again:
            self.files.write_curves(self.trial_id, curves)

    def end(
        self,
        encoder: Encoder | None,
        curves: Sequence[CurvePoint],
        scores: Sequence[Score],
    ) -> None:
        """Leave everything: the weights first, for scores without weights are worth more."""
        if self.keep_checkpoint and encoder is not None:
            facts, name = {"trial_id": self.trial_id}, self.trial_id
            self.files.write_checkpoint(name, lambda folder: keep(encoder, folder, facts))
        self.files.write_curves(self.trial_id, curves)
        write = self.files.add_scores if self.again else self.files.write_scores
        write(self.trial_id, scores)
