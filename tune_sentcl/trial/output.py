"""The files that a trial writes into its study: weights and states."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tune_sentcl.config import TrialConfig, flatten, parse_dotted
from tune_sentcl.errors import ConfigError, Fault, StudyError
from tune_sentcl.items import ItemScores, write_items
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.saving import keep
from tune_sentcl.objective import Objective
from tune_sentcl.store.rows import CurvePoint, library_versions
from tune_sentcl.store.study import Study
from tune_sentcl.store.trial_folders import TrialFiles
from tune_sentcl.train.state import TrainingState, tensors_of

_TENSORS, _REST, _FILES = "state.safetensors", "state.json", "trainer"
_STEP = "step"
_VERSIONS = ("tune_sentcl", "torch", "transformers")


def made_for(config: TrialConfig, stage_objective: Objective) -> str:
    """Everything that a state depends on: the config, the stage objective, and versions."""
    versions = {name: library_versions()[name] for name in _VERSIONS}
    return json.dumps([config.model_dump_json(by_alias=True), str(stage_objective), versions])


def config_of(study: Study, trial_id: str) -> TrialConfig | None:
    """The config of a saved state, read without tensors; None if it cannot be read."""
    rest = study.state_file(trial_id, _REST)
    try:
        config, *_ = json.loads(json.loads(rest or b"")["made_for"])
        return parse_dotted(dict(flatten(json.loads(config))), f"the state of {trial_id}")
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError):
        return None  # the state is damaged, or from another version


@dataclass(frozen=True)
class TrialState:
    """The state of a running trial between two steps.

    Attributes:
        made_for: From `made_for`; only a trial with an equal value can resume from the state.
        training: The state of the training loop.
        points: Step, rows and score of each evaluation point so far.
        curves: The curves so far.
        best: The best development score and its weights, if the trial selects the best.
        costs: Seconds spent, by column of the trials table.
        paused: The score at the end of a stage, if the state is from there; else None.
        files: A folder of a trainer's files, stored beside the rest; None for other methods.
    """

    made_for: str
    training: TrainingState
    points: Sequence[tuple[int, int, float]] = ()
    curves: Sequence[CurvePoint] = ()
    best: tuple[float, dict[str, Tensor]] | None = None
    costs: dict[str, float] = field(default_factory=dict)
    paused: float | None = None
    files: Path | None = None

    @property
    def bytes(self) -> int:
        """The size of its tensors and files."""
        best = {} if self.best is None else self.best[1]
        tensors = (*self.training.tensors.values(), *best.values())
        files = () if self.files is None else self.files.rglob("*")
        return sum(tensor.nbytes for tensor in tensors) + sum(f.stat().st_size for f in files)

    def write(self, folder: Path) -> None:
        """Fill an empty folder: tensors as safetensors, the rest as JSON."""
        tensors = {f"training.{name}": value for name, value in self.training.tensors.items()}
        if self.best is not None:
            tensors |= {f"best.{name}": value.cpu() for name, value in self.best[1].items()}
        # Both files contain the step, which shows whether they belong together.
        step = str(self.training.number)
        save_file(tensors, folder / _TENSORS, metadata={_STEP: step})
        rest = {
            "made_for": self.made_for,
            "number": self.training.number,
            "samples": self.training.samples,
            "training": self.training.plain,
            "points": self.points,
            "curves": [asdict(point) for point in self.curves],
            "best": None if self.best is None else self.best[0],
            "costs": self.costs,
            "paused": self.paused,
        }
        (folder / _REST).write_text(json.dumps(rest), encoding="utf-8")
        if self.files is not None:
            shutil.copytree(self.files, folder / _FILES)

    @classmethod
    def read(cls, folder: Path, keep: Path | None = None) -> Self:
        """Read the files that `write` made; copy those of a trainer to `keep`, a new folder.

        Raises:
            StudyError: The files are damaged.
        """
        try:
            rest: dict[str, Any] = json.loads((folder / _REST).read_text(encoding="utf-8"))
            with safe_open(folder / _TENSORS, framework="pt") as file:
                step = (file.metadata() or {}).get(_STEP)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if step != str(rest["number"]):
                raise ValueError(
                    f"its weights are those of step {step}, its other parts those of "
                    f"{rest['number']}"
                )
            best = rest["best"]
            if keep is not None:
                shutil.copytree(folder / _FILES, keep)
            return cls(
                rest["made_for"],
                TrainingState(
                    rest["number"],
                    rest["samples"],
                    tensors_of("training", tensors),
                    rest["training"],
                ),
                [(step, rows, dev) for step, rows, dev in rest["points"]],
                [CurvePoint(**point) for point in rest["curves"]],
                None if best is None else (best, tensors_of("best", tensors)),
                rest["costs"],
                rest["paused"],
                keep,
            )
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            rule = f"must be the complete state of a trial ({error})"
            move = "Delete the state; the trial then starts from the beginning."
            raise StudyError(Fault(str(folder), rule=rule, move=move)) from error


@dataclass(frozen=True)
class Output:
    """Writes a trial's weights and states; incomplete files do not count.

    Attributes:
        files: The study's trial files.
        trial_id: The trial's id.
        keep_checkpoint: Whether to write the weights.
        save_every: Seconds between two saved states of the running trial; None: save none.
        is_draining: Whether this machine is about to shut down; the trial then saves its state at
            its next step and ends.
        until: The share of its training after which the trial pauses; 1: it does not pause.
        pause_above: The least score at the end of a stage with which the trial may continue; None:
            do not save its state.
    """

    files: TrialFiles
    trial_id: str
    keep_checkpoint: bool = True
    save_every: float | None = None
    is_draining: Callable[[], bool] = lambda: False
    until: float = 1.0
    pause_above: float | None = None

    def pause(self, state: TrialState) -> None:
        """Write the state of a trial that ends a stage, if the state may save time.

        That is so if training its rows again takes longer than writing and reading the state.
        """
        if self.pause_above is None or state.paused is None or state.paused < self.pause_above:
            return
        others = state.costs["startup_seconds"] + state.costs["evaluation_seconds"]
        if (state.costs["wall_seconds"] - others) * _BYTES_PER_SECOND > 2 * state.bytes:
            self.save(state)

    def save(self, state: TrialState) -> None:
        """Write the state of the running trial."""
        self.files.write_state(self.trial_id, state.write)

    def saved(self, keep: Path | None = None) -> TrialState | None:
        """The state that an earlier attempt saved; None if there is no state.

        The files of a trainer are copied to `keep`, a new folder.

        Raises:
            StudyError: The state is damaged, or from another version.
        """
        with self.files.state(self.trial_id) as folder:
            return None if folder is None else TrialState.read(folder, keep)

    def end(
        self, encoder: Encoder | None, items: Sequence[ItemScores] = (), *, trained: bool = True
    ) -> None:
        """Write the weights of a finished trial, and the scores of single items.

        The item scores of a trial without training are always written, for comparisons with
        trained ones.
        """
        if not trained and items:
            self.files.write_items(self.trial_id, lambda folder: write_items(items, folder))
        if not self.keep_checkpoint or encoder is None:
            return

        def write(folder: Path) -> None:
            keep(encoder, folder, {"trial_id": self.trial_id})
            write_items(items, folder)

        self.files.write_checkpoint(self.trial_id, write)


_BYTES_PER_SECOND = 1e8
"""An assumed least speed of a disk or an object store, that of a hard disk."""

_SHARE = 0.05
"""The largest share of a trial's time that saving states may take."""


class StateWriter:
    """Saves the state of one trial at intervals; each new state replaces the previous one.

    Attributes:
        seconds: The seconds spent on writing.
    """

    def __init__(self, output: Output | None, clock: Callable[[], float] = time.perf_counter):
        """Begin the first interval.

        Args:
            output: Writes the states, and sets the interval; None: no states are saved.
            clock: Returns the current time in seconds.
        """
        self._output, self._clock = output, clock
        self._every = None if output is None else output.save_every
        self._began = clock()
        self._next = self._began + (self._every or 0.0)
        self.seconds = 0.0

    def due(self, *, last: bool) -> bool:
        """Whether to save a state now.

        Args:
            last: Whether this is the last training step. The final evaluation may take as long as
                the training, so at the last step a state is due if the trial is older than the
                interval.
        """
        if self._every is None:
            return False
        now = self._clock()
        return now >= (min(self._next, self._began + self._every) if last else self._next)

    def write(self, state: TrialState) -> None:
        """Replace the trial's state.

        Raises:
            StudyError: The state cannot be written.
        """
        if self._output is None or self._every is None:
            return
        start = self._clock()
        self._output.save(state)
        end = self._clock()
        self.seconds += end - start
        self._next = end + max(self._every, (end - start) * (1 / _SHARE - 1))
