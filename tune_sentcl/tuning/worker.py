"""What a worker does with one trial, the same under every launcher."""

import ctypes
import socket
import traceback
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from tune_sentcl.config import Fingerprints
from tune_sentcl.errors import (
    DeviceError,
    NodeDrainingError,
    OtherInputsError,
    StudyError,
    TuneSentclError,
    first_line,
    with_frames,
)
from tune_sentcl.history import Assignment
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.store.writing.trial_files import TrialFiles
from tune_sentcl.trial import (
    Account,
    Ended,
    InputLoader,
    Output,
    Progress,
    TrialInputs,
    measure,
    run,
)
from tune_sentcl.tuning.search_options import SearchOptions


@dataclass(frozen=True)
class WorkerSettings:
    """What every trial of a search shares.

    Attributes:
        study: Where the study lies; None keeps nothing.
        keep_checkpoint: Whether a trial leaves its weights there.
        cpus: Threads of torch.
        gpus: Share of a GPU; above 0 a trial computes on `cuda`.
        early_stopping_objective: What is measured at evaluation points beside STS-B dev.
        seconds: What a trial is given; None: as long as it takes.
        save_every: Seconds after which it leaves a state to go on from; None: it never does.
        accumulate: Whether it takes batches in parts that do not fit the device's memory.
    """

    study: str | None
    keep_checkpoint: bool
    cpus: int
    gpus: float
    early_stopping_objective: Objective = DEFAULT
    seconds: float | None = None
    save_every: float | None = None
    accumulate: bool = False


def worker_settings(
    study: str | None,
    options: SearchOptions,
    gpus: float,
    early_stopping_objective: Objective = DEFAULT,
) -> WorkerSettings:
    """What a search says to its workers, each with such a share of a GPU."""
    return WorkerSettings(
        study,
        options.keep > 0,
        options.cpus_per_trial,
        gpus,
        early_stopping_objective,
        options.trial_timeout,
        60 * options.save_every or None,
        options.accumulate,
    )


@dataclass(frozen=True)
class Failure:
    """How a trial failed.

    Attributes:
        error_type: The error's class.
        error_text: What it says; its traceback, if any, follows behind a blank line.
        run_columns: Cost so far, under the names of the trials table's columns; empty if unknown.
    """

    error_type: str
    error_text: str
    run_columns: dict[str, Any]


class Attempt:
    """One run of one trial, as the search wants it."""

    def __init__(
        self,
        assignment: Assignment,
        loader: InputLoader,
        settings: WorkerSettings,
        is_draining: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin to count its cost; `points` and `reports` do the work.

        Args:
            assignment: The trial, and what there is to do for it.
            loader: Gives what it reads.
            settings: Where its files go, and what it may take.
            is_draining: Whether this machine is about to go.
        """
        self._is_draining = is_draining
        self._assignment, self._loader, self._settings = assignment, loader, settings
        device = "cuda" if settings.gpus > 0 else "cpu"
        self._account = Account(device, settings.cpus, settings.gpus, settings.seconds)

    def reports(self) -> Generator[Progress | Failure, None, None]:
        """Run the trial; an error of its own ends it as its `Failure`, which comes last.

        Raises:
            DeviceError: This process cannot compute any more.
            NodeDrainingError: This machine is about to go.
            StudyError: The disk refused.
        """
        try:
            yield from self.points()
        except (NodeDrainingError, StudyError):
            raise
        except Exception as error:  # noqa: BLE001 - the border of a trial: its error becomes its row
            device_error = self.find_device_error(error)
            if device_error is not None:
                raise device_error from (None if device_error is error else error)
            failure = self.failure(error)
        else:
            return
        yield failure

    def points(self) -> Generator[Progress, None, Ended]:
        """Run the trial; close the generator to stop it.

        Raises:
            DeviceError: There is no GPU, and one was asked for.
            NodeDrainingError: This machine is about to go.
            OtherInputsError: Data or weights are not those that the driver has read.
            TuneSentclError: As `run` and `measure` say.
        """
        settings, assignment = self._settings, self._assignment
        config = assignment.config
        if self._is_draining():
            raise NodeDrainingError(f"{socket.gethostname()} is about to go")
        self._set_up_device()
        inputs = self._loader.load(config)
        check_fingerprints(assignment.fingerprints, inputs)
        output = self._output()
        try:
            if output is not None and assignment.action == "measure":
                with output.files.checkpoint(assignment.trial_id) as folder:
                    return (yield from measure(config, inputs, folder, self._account, output))
            trial = run(
                config,
                inputs,
                self._account,
                output,
                settings.early_stopping_objective,
                accumulate=settings.accumulate,
            )
            return (yield from trial)
        finally:
            _return_memory()

    def _output(self) -> Output | None:
        """Where the trial's files go; None where they are not kept."""
        settings, assignment = self._settings, self._assignment
        if settings.study is None:
            return None
        files = TrialFiles(settings.study, assignment.attempt_files, assignment.files_before)
        return Output(
            files,
            assignment.trial_id,
            settings.keep_checkpoint,
            assignment.action != "train",
            settings.save_every,
            self._is_draining,
        )

    def find_device_error(self, error: Exception) -> DeviceError | None:
        """What an error says of the device: None where this process can go on with other trials.

        A fault of CUDA other than running out of memory stays with the process: every later call
        fails too, whatever the trial.
        """
        if isinstance(error, DeviceError):
            return error
        if self._settings.gpus <= 0 or isinstance(error, torch.OutOfMemoryError):
            return None
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return DeviceError(f"the GPU of this worker is lost: {first_line(error)}")
        return None

    def failure(self, error: Exception) -> Failure:
        """What an error makes of the trial.

        Errors raised on purpose speak for themselves; any other keeps its traceback. Running out
        of a GPU's memory leaves cached blocks behind, which are given back for the next trial.
        """
        run_columns = self._account.run_columns()
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
            return Failure("OutOfMemoryError", str(error), run_columns)
        if isinstance(error, TuneSentclError):
            return Failure(type(error).__name__, str(error), run_columns)
        name = type(error).__name__
        text = with_frames(str(error) or name, "".join(traceback.format_exception(error)))
        return Failure(name, text, run_columns)

    def _set_up_device(self) -> None:
        share = self._settings.gpus
        if share > 0 and not torch.cuda.is_available():
            raise DeviceError(
                f"--gpus-per-trial is {share:g}, and torch {torch.__version__} finds no GPU on "
                f"{socket.gethostname()}. Install a build for this GPU's driver, or give "
                "--gpus-per-trial 0"
            )
        if 0 < share < 1:
            # Ray's shares are promises, not limits: without this one trial starves its neighbors.
            torch.cuda.set_per_process_memory_fraction(share)


def check_fingerprints(expected: Fingerprints, inputs: TrialInputs) -> None:
    """See that a worker reads what the driver has read.

    Raises:
        OtherInputsError: Something differs; both fingerprints are named.
    """
    found = inputs.fingerprints_now()
    differing = [
        f"{f.name} {getattr(found, f.name)} (the driver's: {getattr(expected, f.name)})"
        for f in fields(Fingerprints)
        if getattr(found, f.name) != getattr(expected, f.name)
    ]
    if differing:
        raise OtherInputsError(
            f"{socket.gethostname()} reads other bytes than the driver did: "
            f"{'; '.join(differing)}. Give every node the same files and hub revisions"
        )


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
