"""What a worker does with one trial, the same under every launcher."""

import ctypes
import traceback
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import TuneSentclError
from tune_sentcl.history import Action
from tune_sentcl.store.trial_files import TrialFiles
from tune_sentcl.trial import Account, Ended, InputLoader, Output, Progress, measure, run


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


class Attempt:
    """One run of one trial, as the search wants it."""

    def __init__(
        self,
        config: TrialConfig,
        loader: InputLoader,
        settings: WorkerSettings,
        action: Action = "train",
    ) -> None:
        """Begin to count its cost; `points` does the work.

        Args:
            config: The trial.
            loader: Gives what it reads.
            settings: Where its files go, and what it may take.
            action: What there is to do for it.
        """
        on_gpu = settings.gpus > 0 and torch.cuda.is_available()
        if on_gpu and settings.gpus < 1:
            # Ray's shares are promises, not limits: without this one trial starves its neighbors.
            torch.cuda.set_per_process_memory_fraction(settings.gpus)
        self._config, self._loader, self._settings = config, loader, settings
        self._action = action
        self._account = Account("cuda" if on_gpu else "cpu", settings.cpus, settings.gpus)

    def points(self) -> Generator[Progress, None, Ended]:
        """Run the trial; close the generator to stop it."""
        settings = self._settings
        files = None if settings.study is None else TrialFiles(settings.study)
        inputs = self._loader.load(self._config)
        try:
            if files is not None and self._action == "measure":
                with files.checkpoint(inputs.trial_id(self._config)) as folder:
                    return (yield from measure(self._config, inputs, folder, self._account, files))
            output = None
            if files is not None:
                output = Output(files, settings.keep_checkpoint, again=self._action == "retrain")
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
