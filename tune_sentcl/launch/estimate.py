"""What a search will take before it takes it: seconds a trial, and disk."""

import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.model.checkpoint import Checkpoint
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.train import count_steps, train
from tune_sentcl.trial import TrialInputs, assemble, torch_threads

_STEPS = 3
_SENTENCES = 256
_DISTINCT = 128


@dataclass(frozen=True)
class Estimate:
    """What one trial will take.

    Attributes:
        seconds: Wall time on one worker.
        basis: What the figure rests on, for people.
        checkpoint_bytes: Disk of one kept checkpoint.
        once: Wall time of a frozen encoder's pass, which the first trial makes for all.
    """

    seconds: float
    basis: str
    checkpoint_bytes: int
    once: float = 0.0


def from_study(seconds: Sequence[float], checkpoint_bytes: int) -> Estimate:
    """Estimate from finished trials: the median of their wall seconds."""
    basis = f"median of {len(seconds)} finished trials of this study"
    return Estimate(statistics.median(seconds), basis, checkpoint_bytes)


def by_timing(config: TrialConfig, inputs: TrialInputs, device: str, threads: int) -> Estimate:
    """Estimate by taking a few steps and encoding a few sentences on this machine."""
    total = count_steps(inputs.corpus, config)
    everything = inputs.sentences()
    evaluated = _spread(inputs.sets.sentences())
    sample = evaluated[:_SENTENCES]
    few = _few_rows(inputs.corpus, config)
    with torch_threads(threads), torch.random.fork_rng(devices=[]):
        method = assemble(config, inputs, device, [*few.sentences(), *sample[:1]])
        steps = train(method, few, config)
        next(steps, None)  # the first step pays for the optimizer's memory
        start = time.perf_counter()
        taken = sum(1 for _ in islice(steps, min(_STEPS, max(0, total - 1))))
        a_step = (time.perf_counter() - start) / taken if taken else 0.0
        steps.close()
        first, again = (_seconds(method.encoder.encode, sample) for _ in range(2))
    frozen = isinstance(method.encoder, FrozenEncoder)
    # A frozen encoder's second pass reads the cache; a trained one's is like its first.
    a_sentence = (again if frozen else first) / max(1, len(sample))
    once = max(0.0, first - again) / max(1, len(sample)) * len(everything) if frozen else 0.0
    points = total // config.evaluation.every if config.evaluation.every else 0
    dev = [t for t in inputs.sets.sts if (t.name, t.split) == ("STS-B", "dev")]
    per_point = 2 * sum(len(task) for task in dev) * a_sentence * points
    seconds = total * a_step + len(evaluated) * a_sentence + per_point
    basis = f"{taken} steps and {len(sample)} sentences timed here"
    return Estimate(seconds, basis, weight_bytes(method.encoder), once)


def _few_rows(corpus: Corpus, config: TrialConfig) -> Corpus:
    """As many rows as a few steps need, few of them distinct: a frozen encoder runs on each."""
    count = min(len(corpus), config.optimizer.batch_size * (_STEPS + 1))
    rows = np.arange(count) % min(_DISTINCT, max(1, len(corpus)))
    table = corpus.table.take(pa.array(rows)).combine_chunks() if count else corpus.table
    return replace(corpus, table=table)


def _seconds(encode: Callable[[list[str]], object], sentences: list[str]) -> float:
    start = time.perf_counter()
    if sentences:
        encode(sentences)
    return time.perf_counter() - start


def checkpoint_bytes(checkpoint: Checkpoint) -> int:
    """Disk of an encoder's weights; 0 where they lie on a hub and nobody here has seen them."""
    folder = Path(checkpoint.path)
    if not checkpoint.path or not folder.is_dir():
        return 0
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def weight_bytes(encoder: torch.nn.Module) -> int:
    """Bytes of a module's weights."""
    return sum(value.numel() * value.element_size() for value in encoder.state_dict().values())


def check_disk(study: str, needed: int) -> None:
    """Refuse a search whose checkpoints cannot fit.

    Args:
        study: The study's folder, or a URL, whose room nobody can tell.
        needed: Bytes that it will take.

    Raises:
        ResourceError: The disk has less room.
    """
    if "://" in study:
        return
    folder = next(p for p in (Path(study), *Path(study).parents) if p.is_dir())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ResourceError(
            Fault(
                "--study",
                "",
                study,
                f"needs {needed / 1e6:.0f} MB for its checkpoints and tables, "
                f"and the disk has {free / 1e6:.0f} MB free",
                "Make room, choose another disk, or keep fewer checkpoints (--keep).",
            )
        )


def _spread(sentences: Iterable[str]) -> list[str]:
    """The distinct sentences, those in front spread over all lengths, to speak for the whole."""
    distinct = sorted(dict.fromkeys(sentences), key=len)
    stride = max(1, len(distinct) // _SENTENCES)
    return [*distinct[::stride], *(s for i, s in enumerate(distinct) if i % stride)]
