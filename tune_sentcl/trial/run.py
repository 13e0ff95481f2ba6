"""The whole story of one trial, as a generator that a launcher pulls."""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.tasks.sts import StsTask
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate.sts import score_sts
from tune_sentcl.evaluate.suites import score_sets
from tune_sentcl.methods import AnyMethod, Setting, build_method
from tune_sentcl.model.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.export import export
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.objective import DEFAULT, DEV_CURVE
from tune_sentcl.score import Score
from tune_sentcl.seeding import stream_seed
from tune_sentcl.store.rows import CurvePoint
from tune_sentcl.store.trial_files import TrialFiles
from tune_sentcl.train import Step, train
from tune_sentcl.trial.accounting import Account
from tune_sentcl.trial.inputs import TrialInputs, measures_of


@dataclass(frozen=True)
class Progress:
    """One evaluation point.

    Attributes:
        step: Updates made so far.
        total: Updates that the trial makes.
        dev: Spearman x 100 on STS-B dev under the present weights.
        scores: Every score of the trial at its end; empty before.
        facts: Cost so far, under the names of the trials table's columns.
        final: Whether this is the trial's end; its files are written by then.
    """

    step: int
    total: int
    dev: float
    scores: tuple[Score, ...]
    facts: dict[str, Any]
    final: bool


@dataclass(frozen=True)
class Ended:
    """What is left when a trial has finished: its encoder and its scores."""

    encoder: Encoder | FrozenEncoder
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class Output:
    """Where a run leaves its files; each appears whole or not at all.

    Attributes:
        files: The study's.
        keep_checkpoint: Whether the weights are left there.
        again: Whether the trial has finished before: what is there then stays until all of the new
            run is known, and its scores are added to those that it has.
    """

    files: TrialFiles
    keep_checkpoint: bool = True
    again: bool = False

    def point(self, trial_id: str, curves: Sequence[CurvePoint]) -> None:
        """Leave the curves so far."""
        if not self.again:
            self.files.write_curves(trial_id, curves)

    def end(
        self,
        trial_id: str,
        encoder: Encoder | None,
        curves: Sequence[CurvePoint],
        scores: Sequence[Score],
    ) -> None:
        """Leave everything: the weights first, for scores without weights are worth more."""
        if self.keep_checkpoint and encoder is not None:
            facts = {"trial_id": trial_id}
            self.files.write_checkpoint(trial_id, lambda folder: export(encoder, folder, facts))
        self.files.write_curves(trial_id, curves)
        write = self.files.add_scores if self.again else self.files.write_scores
        write(trial_id, scores)


@dataclass
class _Trial:
    """The moving parts of one run."""

    config: TrialConfig
    inputs: TrialInputs
    encoder: Encoder | FrozenEncoder
    account: Account
    curves: list[CurvePoint] = field(default_factory=list)
    best: tuple[float, dict[str, torch.Tensor]] | None = None
    notes: list[str] = field(default_factory=list)


def run(
    config: TrialConfig,
    inputs: TrialInputs,
    account: Account | None = None,
    output: Output | None = None,
) -> Generator[Progress, None, Ended]:
    """Train, evaluate, write; yields at each evaluation point, the last one tagged `final`.

    A launcher stops a trial by closing the generator. Whatever `output` receives is written before
    the point that speaks of it is yielded, so that nothing needs to happen after the last one.
    torch's global random state and number of threads are set for the run and restored afterwards.

    Args:
        config: The trial.
        inputs: What `InputLoader.load` gave for it.
        account: Where to compute, and where the cost is counted; None: one thread of the CPU.
        output: Where files go; None keeps everything in memory.

    Raises:
        NonFiniteError: A loss, an embedding or a correlation is not a finite number.
    """
    account = account or Account()
    device = account.device
    devices = [device] if device.startswith("cuda") else []
    with torch_threads(account.cpus), torch.random.fork_rng(devices=devices):
        method = assemble(config, inputs, device)
        torch.manual_seed(stream_seed(config.seed, "dropout"))
        trial = _Trial(config, inputs, method.encoder, account)
        yield from _train(trial, method, output)
        if trial.best is not None:
            trial.encoder.load_state_dict(trial.best[1])
        last = _finish(trial, output)
        yield last
    return Ended(trial.encoder, last.scores)


def assemble(
    config: TrialConfig, inputs: TrialInputs, device: str, sentences: Sequence[str] | None = None
) -> AnyMethod:
    """Make a trial's method with its encoder and heads, on a device.

    Args:
        config: The trial.
        inputs: What it reads.
        device: Where to compute.
        sentences: What a frozen encoder will be asked for, encoded here where the cache lacks it;
            None: everything that the trial reads.
    """
    options = config.encoder
    encoder: Encoder | FrozenEncoder
    if config.method.freezes_encoder:
        encoder = FrozenEncoder(
            inputs.checkpoint,
            options.pooling,
            options.max_length,
            device,
            inputs.sentences() if sentences is None else sentences,
        )
    else:
        encoder = load_encoder(
            inputs.checkpoint, options.pooling, options.max_length, device, options.train_length
        )
    heads = torch.Generator().manual_seed(stream_seed(config.seed, "heads"))
    method = build_method(config, encoder, Setting(options, heads, inputs.resource))
    encoder.to(device)
    method.heads.to(device)
    return method


def measure(
    config: TrialConfig,
    inputs: TrialInputs,
    folder: Path,
    account: Account,
    files: TrialFiles,
) -> Generator[Progress, None, Ended]:
    """Score a trial that was trained before, from the weights that it left; yields once.

    Args:
        config: The trial.
        inputs: What `InputLoader.load` gave for it.
        folder: Its checkpoint.
        account: Where to compute, and where the cost is counted.
        files: Where its scores are added.

    Raises:
        CheckpointError: The folder holds no encoder.
        NonFiniteError: An STS score has no value.
    """
    options = config.encoder
    with torch_threads(account.cpus):
        checkpoint = resolve_checkpoint(str(folder))
        encoder = load_encoder(checkpoint, options.pooling, options.max_length, account.device)
        trial = _Trial(config, inputs, encoder, account)
        scores = _measure_all(trial)
        files.add_scores(_name(trial), scores)
        dev = dev_spearman(scores, inputs.sets.data)
        last = Progress(0, 0, dev, scores, _facts(trial), final=True)
        yield last
    return Ended(encoder, last.scores)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch compute with so many threads, and put the caller's number back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(
    trial: _Trial, method: AnyMethod, output: Output | None
) -> Generator[Progress, None, None]:
    every = trial.config.evaluation.every
    for step in train(method, trial.inputs.corpus, trial.config):
        trial.account.steps = step.number
        trial.curves += [
            CurvePoint(step.number, step.epoch, step.samples, name, value)
            for name, value in step.losses.items()
        ]
        last = step.number == step.total
        if every and (step.number % every == 0 or last):
            dev = _point(trial, step)
            if not last:
                if output is not None:
                    output.point(_name(trial), trial.curves)
                facts = _facts(trial)
                yield Progress(step.number, step.total, dev, (), facts, final=False)


def _point(trial: _Trial, step: Step) -> float:
    """Measure STS-B dev, and remember the weights where they are the best so far."""
    scores = _measure(
        trial, [t for t in trial.inputs.sets.sts if (t.name, t.split) == ("STS-B", "dev")]
    )
    dev = dev_spearman(scores, trial.inputs.sets.data)
    trial.curves.append(CurvePoint(step.number, step.epoch, step.samples, DEV_CURVE, dev))
    if trial.config.evaluation.select == "best" and (trial.best is None or dev > trial.best[0]):
        weights = {name: value.clone() for name, value in trial.encoder.state_dict().items()}
        trial.best = (dev, weights)
    return dev


def _finish(trial: _Trial, output: Output | None) -> Progress:
    scores = _measure_all(trial)
    facts = _facts(trial)
    steps = trial.account.steps
    if output is not None:
        output.end(_name(trial), _to_keep(trial), trial.curves, scores)
    dev = dev_spearman(scores, trial.inputs.sets.data)
    return Progress(steps, steps, dev, scores, facts, final=True)


def _facts(trial: _Trial) -> dict[str, Any]:
    """What the trial cost, its encoder's passes included."""
    facts = trial.account.facts()
    notes = list(trial.notes)
    rows, size = len(trial.inputs.corpus), trial.config.optimizer.batch_size
    if trial.account.steps and rows < size:
        notes.append(
            f"optimizer.batch_size = {size} is more than the {rows} rows: one batch of all"
        )
    if isinstance(trial.encoder, FrozenEncoder):
        cache = trial.encoder.cache
        facts["encoded_sentences"], facts["encoding_seconds"] = cache.encoded, cache.seconds
        notes += cache.notes
    return {**facts, "notes": "; ".join(notes) or None}


def _to_keep(trial: _Trial) -> Encoder | None:
    """What is worth saving: an encoder that is not simply the checkpoint it came from."""
    if isinstance(trial.encoder, Encoder):
        return trial.encoder
    return trial.encoder.whole() if len(trial.encoder.tail) else None


def _measure(trial: _Trial, tasks: Sequence[StsTask]) -> list[Score]:
    start = time.perf_counter()
    scores = score_sts(trial.encoder.encode, tasks)
    trial.account.evaluation_seconds += time.perf_counter() - start
    return scores


def _measure_all(trial: _Trial) -> tuple[Score, ...]:
    """Every score that the config asks for.

    Raises:
        NonFiniteError: An STS score by cosine has no value; what other protocol fails is noted.
    """
    start = time.perf_counter()
    measures = measures_of(trial.config.evaluation, trial.account.device)
    found = score_sets(trial.encoder.encode, trial.inputs.sets, measures)
    trial.account.evaluation_seconds += time.perf_counter() - start
    cosine = [score for score in found.scores if score.protocol == "cosine"]
    if any(score.value is None for score in cosine):
        # `cosine` comes first, and so do its errors.
        raise next(error for error in found.errors if isinstance(error, NonFiniteError))
    trial.notes += [str(error) for error in found.errors]
    return found.scores


def _name(trial: _Trial) -> str:
    return trial.inputs.trial_id(trial.config)


def dev_spearman(scores: Sequence[Score], data: str) -> float:
    """Spearman x 100 on STS-B dev among scores.

    Raises:
        NonFiniteError: It has no value.
    """
    value = DEFAULT.value(scores, data)
    if value is None:
        raise NonFiniteError(f"{DEFAULT} has no value")
    return value
