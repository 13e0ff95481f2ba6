"""What a worker does with one trial, the same under every launcher."""

import ctypes
import tempfile
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import torch
from safetensors import SafetensorError

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import Fault, StudyError, TuneSentclError
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.export import export
from tune_sentcl.store.writer import StudyWriter
from tune_sentcl.trial import Account, Ended, InputLoader, Progress, measure, run


@dataclass(frozen=True)
class WorkerSettings:
    """What every trial of a search shares.

    Attributes:
        study: Where the study lies; None keeps nothing.
        keep_checkpoint: Whether a trial leaves its weights there.
        cpus: Threads of torch.
        gpus: Share of a GPU; above 0 a trial computes on `cuda`.
    """

    study: str | None
    keep_checkpoint: bool
    cpus: int
    gpus: float


@dataclass(frozen=True)
class Failure:
    """How a trial failed.

    Attributes:
        error_type: The error's class.
        error_text: What it says, or its traceback.
        facts: Cost so far, under the names of the trials table's columns; empty if unknown.
    """

    error_type: str
    error_text: str
    facts: dict[str, Any]


@dataclass(frozen=True)
class StudyOutput:
    """Writes a trial's files into its study."""

    writer: StudyWriter
    keep_checkpoint: bool

    def write_curves(self, trial_id: str, points: Sequence[Any]) -> None:
        """Replace the trial's curves."""
        self.writer.write_curves(trial_id, points)

    def write_scores(self, trial_id: str, scores: Sequence[Any]) -> None:
        """Replace the trial's scores."""
        self.writer.write_scores(trial_id, scores)

    def add_scores(self, trial_id: str, scores: Sequence[Any]) -> None:
        """Replace those of the trial's scores that have been taken again, and keep the others."""
        self.writer.add_scores(trial_id, scores)

    @contextmanager
    def checkpoint(self, trial_id: str) -> Iterator[Path]:
        """The folder of the trial's weights, brought here if the study lies elsewhere."""
        source = self.writer.checkpoint_path(trial_id)
        if self.writer.files.local:
            yield Path(source)
            return
        with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as scratch:
            pafs.copy_files(
                source,
                str(Path(scratch) / trial_id),
                source_filesystem=self.writer.files.filesystem,
                destination_filesystem=pafs.LocalFileSystem(),
            )
            yield Path(scratch) / trial_id

    def write_checkpoint(self, trial_id: str, encoder: Encoder, facts: dict[str, Any]) -> None:
        """Replace the trial's checkpoint, if checkpoints are kept."""
        if not self.keep_checkpoint:
            return
        try:
            self._export(trial_id, encoder, facts)
        except (OSError, SafetensorError) as error:
            where = self.writer.checkpoint_path(trial_id)
            rule = f"the checkpoint must be writable ({error})"
            move = "Make room or change the rights, then repeat the command."
            raise StudyError(Fault(where, "", "", rule, move)) from error

    def _export(self, trial_id: str, encoder: Encoder, facts: dict[str, Any]) -> None:
        target = self.writer.checkpoint_path(trial_id)
        if self.writer.files.local:
            export(encoder, Path(target), facts)
            return
        with tempfile.TemporaryDirectory(prefix="tune_sentcl_") as scratch:
            export(encoder, Path(scratch) / trial_id, facts)
            pafs.copy_files(
                str(Path(scratch) / trial_id),
                target,
                source_filesystem=pafs.LocalFileSystem(),
                destination_filesystem=self.writer.files.filesystem,
            )


class Attempt:
    """One run of one trial, as the search wants it."""

    def __init__(
        self,
        config: TrialConfig,
        loader: InputLoader,
        settings: WorkerSettings,
        kept: bool = False,
    ) -> None:
        """Begin to count its cost; `points` does the work.

        Args:
            config: The trial.
            loader: Gives what it reads.
            settings: Where its files go, and what it may take.
            kept: Whether its weights lie in the study, so that it is measured and not trained.
        """
        on_gpu = settings.gpus > 0 and torch.cuda.is_available()
        if on_gpu and settings.gpus < 1:
            # Ray's shares are promises, not limits: without this one trial starves its neighbors.
            torch.cuda.set_per_process_memory_fraction(settings.gpus)
        self._config, self._loader, self._settings = config, loader, settings
        self._kept = kept
        self._account = Account("cuda" if on_gpu else "cpu", settings.cpus, settings.gpus)

    def points(self) -> Generator[Progress, None, Ended]:
        """Run the trial; close the generator to stop it."""
        settings = self._settings
        output = None
        if settings.study is not None:
            output = StudyOutput(StudyWriter(settings.study), settings.keep_checkpoint)
        inputs = self._loader.load(self._config)
        try:
            if output is not None and self._kept:
                with output.checkpoint(inputs.trial_id(self._config)) as folder:
                    return (
                        yield from measure(self._config, inputs, folder, self._account, output)
                    )
            return (yield from run(self._config, inputs, self._account, output))
        finally:
            _return_memory()

    def failure(self, error: Exception) -> Failure:
        """What an error makes of the trial.

        Errors raised on purpose speak for themselves; any other keeps its traceback. Running out
        of a GPU's memory leaves cached blocks behind, which are given back for the next trial.
        """
        facts = self._account.facts()
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
            return Failure("OutOfMemoryError", str(error), facts)
        if isinstance(error, TuneSentclError):
            return Failure(type(error).__name__, str(error), facts)
        text = "".join(traceback.format_exception(error))[-4000:]
        return Failure(type(error).__name__, text, facts)


def _return_memory() -> None:
    """Give the memory that a trial has freed back to the system.

    glibc keeps it in the arena of the thread that used it, and Ray runs each trial in a thread of
    its own: without this an actor grows by a trial's peak again and again.
    """
    with suppress(OSError, AttributeError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)


def study_path(path: str | Path) -> str:
    """A study's place as workers elsewhere can use it: URLs as they are, local paths absolute."""
    text = str(path)
    return text if "://" in text else str(Path(text).expanduser().absolute())
