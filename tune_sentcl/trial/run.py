"""Run one trial, from config to scores, as a generator that a launcher iterates over."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tune_sentcl.config import DataName, Pooling, TrialConfig
from tune_sentcl.data.root import data_root
from tune_sentcl.data.task import Prompt
from tune_sentcl.data.tasks.evaluation_sets import load_sets
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.evaluate.suites import Evaluation, Measures, score_sets
from tune_sentcl.methods import AnyMethod, MethodInputs, build_method
from tune_sentcl.model.checkpoints.adapters import Adapted, add_adapters
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint, resolve_checkpoint
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes
from tune_sentcl.model.checkpoints.tokenizer_files import notes_of
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.model.trained import freeze_lowest, restore_trained
from tune_sentcl.objective import DEFAULT, Objective
from tune_sentcl.score import Score
from tune_sentcl.seeding import stream_seed
from tune_sentcl.shapes import EmbeddingMatrix
from tune_sentcl.train import Step, train
from tune_sentcl.trial.accounting import Account
from tune_sentcl.trial.inputs import TrialInputs
from tune_sentcl.trial.output import Output, StateWriter
from tune_sentcl.trial.running import (
    Progress,
    TrialRun,
    measure_end,
    measure_point,
    save_if_due,
)


def assemble(
    config: TrialConfig, inputs: TrialInputs, device: str, sentences: Sequence[str] | None = None
) -> AnyMethod:
    """Make a trial's method with its encoder and heads, on a device.

    Args:
        config: The trial.
        inputs: Its inputs.
        device: The device to compute on.
        sentences: Texts that a frozen encoder will embed; those that the cache lacks are encoded
            now. None: all texts of the trial.
    """
    options = config.encoder
    prefixes = Prefixes.of(options)
    encoder: Encoder | FrozenEncoder
    if config.method.freezes_encoder:
        encoder = FrozenEncoder(
            inputs.checkpoint,
            options.pooling,
            options.max_length,
            device,
            frozen_encoder_texts(config, inputs) if sentences is None else prefixes.put(sentences),
        )
    else:
        encoder = load_encoder(
            inputs.checkpoint, options.pooling, options.max_length, device, options.train_length
        )
        encoder.packed = options.packed
        if inputs.checkpoint.is_new_static:
            encoder.transformer.draw(stream_seed(config.seed, "static"))
        if options.freeze_layers:
            freeze_lowest(encoder.transformer, options.freeze_layers)
        if options.lora_rank:
            _adapt(encoder, config, inputs.checkpoint)
    encoder.prefixes = prefixes
    seed = stream_seed(config.seed, "heads")
    heads = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        # A plugin's own layers may draw their weights from torch's global generator.
        torch.default_generator.manual_seed(seed)
        method = build_method(config, encoder, MethodInputs(options, heads, inputs.resource))
    encoder.to(device)
    method.heads.to(device)
    return method


def frozen_encoder_texts(config: TrialConfig, inputs: TrialInputs) -> list[str]:
    """All texts that a frozen encoder will embed, with their prefixes."""
    prefixes = Prefixes.of(config.encoder)
    texts = prefixes.put(list(dict.fromkeys([*inputs.corpus.sentences(), *inputs.sets.texts()])))
    for prompt in ("query", "document"):
        texts += prefixes.put(list(inputs.sets.texts(prompt)), prompt=prompt)
    return texts


def _adapt(encoder: Encoder, config: TrialConfig, base: Checkpoint) -> None:
    seed = stream_seed(config.seed, "adapters")
    add_adapters(encoder.cpu().transformer, config.encoder, seed)
    encoder.head.requires_grad_(False)
    encoder.tail.requires_grad_(False)
    encoder.eval()
    encoder.adapted = Adapted(base.name, base.fingerprint)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set torch's number of threads, and restore the caller's number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class FinishedTrial:
    """The encoder, or a trainer's model, and the scores of a finished trial."""

    encoder: Encoder | FrozenEncoder | Any
    scores: tuple[Score, ...]


def run(
    config: TrialConfig,
    inputs: TrialInputs,
    account: Account | None = None,
    output: Output | None = None,
    stage_objective: Objective = DEFAULT,
) -> Generator[Progress, None, FinishedTrial]:
    """Train, evaluate and write; yields at each evaluation point, and a `final` report at the end.

    A launcher stops a trial by closing the generator. Weights and states are written before their
    report is yielded, so nothing remains to be done after the last report. The function sets
    torch's global random state and number of threads, and restores them at the end.

    Args:
        config: The trial.
        inputs: The result of `InputLoader.load(config)`.
        account: The device, the threads and the cost counter; None: one CPU thread.
        output: Writes the trial's weights and states. It may let the trial pause: the stage
            objective then scores it, and its last report is marked `paused`. A later call
            continues from the paused trial's state, if it was saved. None keeps everything in
            memory.
        stage_objective: The score to measure at evaluation points, besides STS-B dev.

    Returns:
        The encoder and its scores; a paused trial has no scores.

    Raises:
        OutOfMemoryError: A batch does not fit the device.
        NodeDrainingError: `output` says that this machine is about to shut down.
        NonFiniteError: A loss, an embedding or a correlation is not a finite number.
        TrialTimeoutError: The trial took longer than its account allows.
    """
    account = account or Account()
    device = account.device
    devices = [device] if device.startswith("cuda") else []
    if config.method.is_trainer:
        # This import is not at the top: it loads accelerate, which is slow.
        from tune_sentcl.trial.trainer_run import run_trainer

        with torch_threads(account.cpus):
            given = config, inputs, account, output, stage_objective
            return FinishedTrial(*(yield from run_trainer(*given)))
    with torch_threads(account.cpus), torch.random.fork_rng(devices=devices):
        method = assemble(config, inputs, device)
        torch.manual_seed(stream_seed(config.seed, "dropout"))
        trial = TrialRun(config, inputs, method.encoder, account, stage_objective)
        if (yield from _train(trial, method, output)):
            return FinishedTrial(trial.encoder, ())
        if trial.best is not None:
            restore_trained(trial.encoder, trial.best[1])
        last = _finish(trial, output)
        yield last
    return FinishedTrial(trial.encoder, last.scores)


def measure(
    config: TrialConfig,
    inputs: TrialInputs,
    folder: Path,
    account: Account,
) -> Generator[Progress, None, FinishedTrial]:
    """Score an earlier trial from its stored weights; yields once.

    A trial without steps runs again, because its files do not describe the compression of
    embeddings.

    Args:
        config: The trial.
        inputs: The result of `InputLoader.load(config)`.
        folder: The folder of its weights.
        account: The device, the threads and the cost counter.

    Raises:
        CheckpointError: The folder holds no encoder.
        NonFiniteError: An STS score has no value.
    """
    if not config.method.takes_steps:
        return (yield from run(config, inputs, account))
    options = config.encoder
    with torch_threads(account.cpus):
        if config.method.is_trainer:
            from tune_sentcl.trial.trainer_run import measure_trainer

            given = config, inputs, folder, account
            return FinishedTrial(*(yield from measure_trainer(*given)))
        checkpoint = resolve_checkpoint(str(folder))
        encoder = load_encoder(checkpoint, options.pooling, options.max_length, account.device)
        encoder.prefixes = Prefixes.of(options)
        trial = TrialRun(config, inputs, encoder, account)
        scores = measure_end(trial)
        last = trial.progress(0, scores, final=True)
        yield last
    return FinishedTrial(encoder, last.scores)


def _train(
    trial: TrialRun,
    method: AnyMethod,
    output: Output | None,
) -> Generator[Progress, None, bool]:
    """Train until the end or the pause; return whether the trial has paused."""
    every, state_writer = trial.config.evaluation.every, StateWriter(output)
    until = 1.0 if output is None else output.until
    state = trial.load_saved_state(output)
    if state is not None:
        trial.resume(state)
        if (paused := trial.paused_again(state, until)) is not None:
            yield paused
            return True
    trial.account.begin_training()
    resumed = None if state is None else state.training
    with closing(train(method, trial.inputs.corpus, trial.config, resumed)) as steps:
        for step in steps:
            trial.record_step(step)
            last = step.number == step.total
            if every and (step.number % every == 0 or last):
                measure_point(trial, step)
                if not last:
                    yield trial.progress(step.total)
            if output is not None and not last and step.number >= until * step.total:
                yield _pause(trial, step, output)
                return True
            save_if_due(trial, step, state_writer, output)
    return False


def _pause(trial: TrialRun, step: Step, output: Output) -> Progress:
    progress = trial.pause(step)
    output.pause(trial.state(step, paused=progress.dev))
    return progress


def _finish(trial: TrialRun, output: Output | None) -> Progress:
    scores = measure_end(trial)
    last = trial.progress(trial.account.steps, scores, final=True)
    if output is not None:
        trained = trial.config.method.takes_steps
        output.end(_encoder_to_save(trial), trial.items, trained=trained)
    return last


def _encoder_to_save(trial: TrialRun) -> Encoder | None:
    """The encoder to save; None if it equals its base model."""
    if isinstance(trial.encoder, Encoder):
        return trial.encoder
    return trial.encoder.whole() if len(trial.encoder.tail) else None


@dataclass(frozen=True)
class EncoderOptions:
    """Options for embedding sentences with an encoder.

    Attributes:
        pooling: The pooling; None: that of the model's files, or the mean if they state none.
        normalize: Whether to scale embeddings to length 1; this leaves cosine scores unchanged.
        max_length: Longest input in tokens; None: the model's own limit.
    """

    pooling: Pooling | None = None
    normalize: bool = False
    max_length: int | None = None


def score_encoder(
    model: str,
    *,
    data: str | Path | None,
    options: EncoderOptions | None = None,
    measures: Measures | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Score an encoder without training it.

    Args:
        model: A folder, a hub name, `minilm` or `toy`.
        data: The data root, or `toy` for the toy sets; None takes TUNE_SENTCL_DATA.
        options: Options for embedding; None: as the model's files state.
        measures: The tasks, the protocols and the device; None: STS by cosine on the CPU.
        progress: Called with the number of encoded sentences and the total number.

    Returns:
        The scores, and the errors of tasks that could not be scored.

    Raises:
        BadInputError: The model or the data cannot be read.
    """
    options = options or EncoderOptions()
    if options.max_length is not None and options.max_length < 3:
        value = str(options.max_length)
        raise ConfigError(
            Fault(
                "--max-length",
                value=value,
                rule="must be 3 or more",
                move="Write --max-length 128.",
            )
        )
    checkpoint = resolve_checkpoint(model)
    measures = measures or Measures(("sts",))
    source: DataName = "toy" if data == "toy" else "root"
    root = None if data == "toy" else data_root(data)
    sets = load_sets(source, root, measures.suites, measures.protocols, measures.own)
    encoder = load_encoder(
        checkpoint, options.pooling or "auto", options.max_length or "auto", measures.device
    )
    encoder.prefixes = checkpoint.prefixes

    def encode(sentences: list[str], *, prompt: Prompt = "text") -> EmbeddingMatrix:
        embeddings = encoder.encode(sentences, progress=progress, prompt=prompt)
        return of_length_1(embeddings) if options.normalize else embeddings

    scored = score_sets(encode, sets, measures)
    return replace(scored, notes=(*notes_of(checkpoint, encoder.pooling), *scored.notes))


def of_length_1(embeddings: EmbeddingMatrix) -> EmbeddingMatrix:
    """Embeddings scaled to length 1; zero vectors stay zero, because scoring reports them."""
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return np.asarray(embeddings / np.where(lengths > 0, lengths, 1), np.float32)
