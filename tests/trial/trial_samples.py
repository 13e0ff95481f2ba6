"""A study for trials to write into, and what they have written there."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.task import StsTask
from tune_sentcl.data.tasks.evaluation_sets import EvaluationSets
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.space import load_space
from tune_sentcl.store import StudyDriver, TrialFiles
from tune_sentcl.store.manifest import MANIFEST
from tune_sentcl.trial import Account, FinishedTrial, InputLoader, Output, Progress, measure, run
from tune_sentcl.trial.output import TrialState

PAIRS = 20
"""How many pairs of an STS set are scored; of STS-B dev, which chooses, three times as many."""
TRANSFER = ("CR", "SST2", "MRPC")
"""One set of each design: folds alone, rows to choose by, and rows to test with."""


class ShortLoader(InputLoader):
    """The toy with short evaluation sets: scoring all of them takes most of a short trial."""

    def __init__(self) -> None:
        super().__init__(None)
        self._short: dict[int, EvaluationSets] = {}

    def sets(self, config: TrialConfig) -> EvaluationSets:
        whole = super().sets(config)
        return self._short.setdefault(id(whole), shortened(whole))


def shortened(sets: EvaluationSets) -> EvaluationSets:
    rated = tuple(
        replace(task, train=first(task.train), dev=first(task.dev), test=first(task.test))
        for task in sets.rated
    )
    transfer = tuple(task for task in sets.transfer if task.name in TRANSFER)
    return replace(sets, sts=tuple(map(first, sets.sts)), rated=rated, transfer=transfer)


def first(task: StsTask) -> StsTask:
    """The first pairs of each subset."""
    count = 3 * PAIRS if (task.name, task.split) == ("STS-B", "dev") else PAIRS
    return replace(
        task,
        subsets=tuple(
            replace(
                subset,
                sentences1=subset.sentences1[:count],
                sentences2=subset.sentences2[:count],
                gold=subset.gold[:count],
            )
            for subset in task.subsets
        ),
    )


LOADER = ShortLoader()


class Kept:
    """What one trial leaves in a study of its own."""

    def __init__(self, folder: Path, config: TrialConfig) -> None:
        """Make the study; it may be there already, from an earlier run of the trial."""
        if not (folder / MANIFEST).exists():  # else a driver would delete weights without a row
            StudyDriver.open(folder, space=load_space("smoke"), command=["test"]).close()
        self.folder, self.config = folder, config
        self.files = TrialFiles(folder)
        self.trial_id = LOADER.load(config).trial_id(config)

    @property
    def weights(self) -> Path:
        """Where the trial's checkpoint lies, if it has one."""
        return self.folder / "checkpoints" / f"{self.trial_id}.1-1"

    @property
    def state(self) -> Path:
        """Where the trial's one state lies."""
        (found,) = (self.folder / "states").glob(f"{self.trial_id}.*")
        return found

    def encoder(self) -> Encoder:
        """The encoder that was saved, as a measurement would load it."""
        options = self.config.encoder
        checkpoint = resolve_checkpoint(str(self.weights))
        return load_encoder(checkpoint, options.pooling, options.max_length)

    def output(self, *, keep_checkpoint: bool = True) -> Output:
        return Output(self.files, self.trial_id, keep_checkpoint)


def drained(
    trial: Generator[Progress, None, FinishedTrial],
) -> tuple[list[Progress], FinishedTrial]:
    """All points of a trial, and what is left at its end."""
    points: list[Progress] = []
    while True:
        try:
            points.append(next(trial))
        except StopIteration as stop:
            return points, stop.value


def finish(
    config: TrialConfig, folder: Path | None = None, loader: InputLoader = LOADER
) -> tuple[list[Progress], FinishedTrial]:
    """Run a trial to its end: its points, and what is left. Without a folder it keeps nothing."""
    output = None if folder is None else Kept(folder, config).output()
    return drained(run(config, loader.load(config), output=output))


def chosen(end: FinishedTrial) -> float:
    """Spearman on STS-B dev of what is left of a trial."""
    value = DEFAULT.value(end.scores, "toy")
    assert value is not None
    return value


def devs(points: list[Progress]) -> list[float]:
    """What trials are compared by, at each point."""
    return [point.dev for point in points if point.dev is not None]


def measured(kept: Kept, config: TrialConfig) -> tuple[list[Progress], FinishedTrial]:
    """Score the weights that a trial has left, as a config with other wishes asks."""
    inputs = LOADER.load(config)
    return drained(measure(config, inputs, kept.weights, Account()))


class KilledError(Exception):
    """Stands for the end of the worker."""


@dataclass(frozen=True)
class Dying(Output):
    """Leaves a state behind every step, and dies behind one of them."""

    after: int = 0

    def save(self, state: TrialState) -> None:
        super().save(state)
        if state.training.number == self.after:
            raise KilledError


def killed(kept: Kept, after: int, stage_objective: Objective = DEFAULT) -> None:
    """Run a trial until its worker dies behind a step."""
    dying = Dying(kept.files, kept.trial_id, save_every=1e-9, after=after)
    with pytest.raises(KilledError):
        drained(
            run(
                kept.config,
                LOADER.load(kept.config),
                output=dying,
                stage_objective=stage_objective,
            )
        )
