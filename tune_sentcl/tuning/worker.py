"""The worker's side of a trial; all launchers use it."""

import ctypes
import os
import socket
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any

import torch

from tune_sentcl.config import Fingerprints
from tune_sentcl.errors import (
    CaptureError,
    DeviceError,
    NodeDrainingError,
    OtherInputsError,
    StudyError,
    TuneSentclError,
    first_line,
    with_frames,
)
from tune_sentcl.history import Assignment
from tune_sentcl.model.device import deterministic, is_out_of_memory, limit_memory
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.plugins import Plugin
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.trial_folders import TrialFiles
from tune_sentcl.trial import (
    Account,
    FinishedTrial,
    InputLoader,
    Output,
    Progress,
    TrialInputs,
    measure,
    run,
)
from tune_sentcl.tuning.mps import join
from tune_sentcl.tuning.options import SearchOptions


@dataclass(frozen=True)
class WorkerSettings:
    """Settings that all trials of a search share.

    Attributes:
        study: The study's folder or URL; None: files are not kept.
        keep_checkpoint: Whether a trial saves its weights.
        cpus: Threads of torch.
        gpus: Share of a GPU; above 0 a trial computes on `cuda`.
        stage_objective: The stage objective, measured at evaluation points
            beside STS-B dev.
        seconds: Time limit of a trial; None: no limit.
        save_every: Seconds between saved states; None: no states.
        deterministic: Whether torch uses only deterministic algorithms.
        plugins: The plugins of the trials' methods, as the driver read them.
    """

    study: str | None
    keep_checkpoint: bool
    cpus: int
    gpus: float
    stage_objective: Objective = DEFAULT
    seconds: float | None = None
    save_every: float | None = None
    deterministic: bool = False
    plugins: tuple[Plugin, ...] = ()


def worker_settings(
    study: str | None,
    options: SearchOptions,
    gpus: float,
    stage_objective: Objective = DEFAULT,
    plugins: tuple[Plugin, ...] = (),
) -> WorkerSettings:
    """The worker settings that the options of a search and the share of a GPU imply."""
    return WorkerSettings(
        study,
        options.keep > 0,
        options.cpus_per_trial,
        gpus,
        stage_objective,
        options.trial_timeout,
        60 * options.save_every or None,
        options.deterministic,
        plugins,
    )


@dataclass(frozen=True)
class Failure:
    """The failure of a trial.

    Attributes:
        error_type: Class name of the error.
        error_text: Its message; a traceback may follow after a blank line.
        run_columns: The costs so far, by column of the trials table; empty if unknown.
    """

    error_type: str
    error_text: str
    run_columns: dict[str, Any]


class Attempt:
    """One attempt at a trial in a worker."""

    def __init__(
        self,
        assignment: Assignment,
        loader: InputLoader,
        settings: WorkerSettings,
        is_draining: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin to count the trial's costs; `points` and `reports` run the trial."""
        self._is_draining = is_draining
        self._assignment, self._loader, self._settings = assignment, loader, settings
        device = "cuda" if settings.gpus > 0 else "cpu"
        without = ""
        if 0 < settings.gpus < 1:
            # This comes before `Account`, which starts CUDA: a process can join an MPS server only
            # before.
            without = join(settings.gpus, cuda_begun=torch.cuda.is_initialized())
        self._account = Account(device, settings.cpus, settings.gpus, settings.seconds)
        if without:
            note = f"trials take turns on this GPU, without an MPS server, because {without}"
            self._account.notes.append(note)

    def reports(self) -> Generator[Progress | Failure, None, None]:
        """Run the trial; if it fails with an error of its own, the last report is a `Failure`.

        Raises:
            DeviceError: This process cannot use its GPU any more.
            NodeDrainingError: This machine is about to be removed.
            StudyError: The study cannot be written.
        """
        try:
            yield from self.points()
        except (NodeDrainingError, StudyError):
            raise
        except Exception as error:  # noqa: BLE001 - any error of a trial becomes its row
            device_error = self.find_device_error(error)
            if device_error is not None:
                raise device_error from (None if device_error is error else error)
            failure = self.failure(error)
        else:
            return
        yield failure

    def points(self) -> Generator[Progress, None, FinishedTrial]:
        """Run the trial to its end or pause; close the generator to stop it.

        Raises:
            DeviceError: The trial needs a GPU, and torch finds none.
            NodeDrainingError: This machine is about to be removed.
            OtherInputsError: Data, weights or plugins differ from what the driver read.
        """
        settings, assignment = self._settings, self._assignment
        config = assignment.config
        if self._is_draining():
            raise NodeDrainingError(f"{socket.gethostname()} is draining")
        if not assignment.graphs:
            # The variable also turns CUDA graphs off for later trials of this process.
            os.environ[CaptureError.variable] = CaptureError.failed
        self._set_up_device()
        if settings.study is not None:
            # The driver has stored its mined rows in the study.
            self._loader.study = StudyFiles.at(settings.study)
        inputs = self._loader.load(config)
        check_fingerprints(assignment.fingerprints, inputs)
        output = self._output()
        with deterministic(wanted=settings.deterministic), _returned_memory():
            if output is not None and assignment.action == "measure":
                with output.files.checkpoint(assignment.trial_id) as folder:
                    return (yield from measure(config, inputs, folder, self._account))
            trial = run(
                config,
                inputs,
                self._account,
                output,
                settings.stage_objective,
            )
            return (yield from trial)

    def _output(self) -> Output | None:
        """The writer of the trial's files; None if files are not kept."""
        settings, assignment = self._settings, self._assignment
        if settings.study is None:
            return None
        files = TrialFiles(settings.study, assignment.attempt_files, assignment.files_before)
        return Output(
            files,
            assignment.trial_id,
            settings.keep_checkpoint,
            settings.save_every,
            self._is_draining,
            assignment.until,
            assignment.pause_above,
        )

    def find_device_error(self, error: Exception) -> DeviceError | None:
        """Return a DeviceError if this process cannot run further trials, else None.

        After a CUDA fault other than a full memory, every later CUDA call of the process fails
        too.
        """
        if isinstance(error, DeviceError):
            return error
        if self._settings.gpus <= 0 or is_out_of_memory(error):
            return None
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return DeviceError(f"the GPU of this worker is lost: {first_line(error)}")
        return None

    def failure(self, error: Exception) -> Failure:
        """Describe an error for the trial's row.

        An error of this package needs no traceback; any other error gets one. After a full GPU
        memory, cached blocks are freed for the next trial.
        """
        run_columns = self._account.run_columns()
        if is_out_of_memory(error):
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
            # Ray does not enforce shares of a GPU, so without a limit a trial could take all
            # memory.
            limit_memory(share)


def check_fingerprints(expected: Fingerprints, inputs: TrialInputs) -> None:
    """Raise OtherInputsError if a worker reads inputs that differ from the driver's."""
    read = inputs.fingerprints_now()
    differing = [
        f"{f.name} {getattr(read, f.name)} (the driver's: {getattr(expected, f.name)})"
        for f in fields(Fingerprints)
        if getattr(read, f.name) != getattr(expected, f.name)
    ]
    if differing:
        raise OtherInputsError(
            f"{socket.gethostname()} reads other data, weights or plugins than the driver: "
            f"{'; '.join(differing)}. Give every node the same files, hub revisions and packages"
        )


@contextmanager
def _returned_memory() -> Iterator[None]:
    """Return freed memory to the system after the block.

    glibc keeps freed memory in the arena of the thread that used it, and Ray runs each trial in a
    new thread. Without this function, an actor grows by a trial's peak with each trial.
    """
    try:
        yield
    finally:
        with suppress(OSError, AttributeError):
            # Only glibc has `malloc_trim`.
            ctypes.CDLL(None).malloc_trim(0)
