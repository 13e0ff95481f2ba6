"""What a search will take before it takes it: seconds a trial, and disk."""

import shutil
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.methods import build_method
from tune_sentcl.model.checkpoint import Checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.train import count_steps, train
from tune_sentcl.trial import TrialInputs, torch_threads

_STEPS = 3
_SENTENCES = 256


@dataclass(frozen=True)
class Estimate:
    """What one trial will take.

    Attributes:
        seconds: Wall time on one worker.
        basis: What the figure rests on, for people.
        checkpoint_bytes: Disk of one kept checkpoint.
    """

    seconds: float
    basis: str
    checkpoint_bytes: int


def from_study(seconds: Mapping[str, float], checkpoint_bytes: int) -> Estimate:
    """Estimate from finished trials: the median of their wall seconds."""
    basis = f"median of {len(seconds)} finished trials of this study"
    return Estimate(statistics.median(seconds.values()), basis, checkpoint_bytes)


def by_timing(config: TrialConfig, inputs: TrialInputs, device: str, threads: int) -> Estimate:
    """Estimate by taking a few steps and encoding a few sentences on this machine."""
    with torch_threads(threads), torch.random.fork_rng(devices=[]):
        encoder = load_encoder(
            inputs.checkpoint, config.encoder.pooling, config.encoder.max_length, device
        )
        method = build_method(config, encoder.dim, torch.Generator().manual_seed(0))
        method.heads.to(device)
        steps = train(encoder, method, inputs.corpus, config)
        next(steps)  # the first step pays for the optimizer's memory
        total = count_steps(inputs.corpus, config)
        start = time.perf_counter()
        taken = sum(1 for _ in islice(steps, min(_STEPS, total - 1)))
        a_step = (time.perf_counter() - start) / taken if taken else 0.0
        steps.close()
        sentences = _sentences(inputs)
        start = time.perf_counter()
        encoder.encode(sentences[:_SENTENCES])
        a_sentence = (time.perf_counter() - start) / max(1, len(sentences[:_SENTENCES]))
    points = 1 + (total // config.evaluation.every if config.evaluation.every else 0)
    dev = [t for t in inputs.tasks if (t.name, t.split) == ("STS-B", "dev")]
    per_point = 2 * sum(len(task) for task in dev) * a_sentence * (points - 1)
    seconds = total * a_step + len(sentences) * a_sentence + per_point
    basis = f"{taken} steps and {len(sentences[:_SENTENCES])} sentences timed here"
    return Estimate(seconds, basis, weight_bytes(encoder))


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


def _sentences(inputs: TrialInputs) -> list[str]:
    subsets = [subset for task in inputs.tasks for subset in task.subsets]
    every = (s for subset in subsets for s in (*subset.sentences1, *subset.sentences2))
    distinct = list(dict.fromkeys(every))
    # Spread over all lengths, so that the part that is timed speaks for the whole.
    distinct.sort(key=len)
    stride = max(1, len(distinct) // _SENTENCES)
    picked = distinct[::stride]
    return [*picked, *(s for i, s in enumerate(distinct) if i % stride)]
