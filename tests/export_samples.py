"""Studies whose kept weights the tests of the export have planted."""

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tune_sentcl.config import evaluation_data, parse_dotted
from tune_sentcl.data.tasks.sts_data import load_sts
from tune_sentcl.evaluate.suites import score_by_cosine
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.modules import Tail, dense
from tune_sentcl.model.saving import export
from tune_sentcl.objective import DEFAULT
from tune_sentcl.score import Score
from tune_sentcl.space import load_space
from tune_sentcl.store import SearchRecord, Study, StudyDriver, TrialFiles, TrialRow

TOY = {
    "method.name": "scl",
    "encoder.checkpoint": "toy",
    "encoder.pooling": "mean",
    "encoder.max_length": 64,
    "data.source": "toy",
    "data.limit": 32,
}


@dataclass(frozen=True)
class Planted:
    """One trial: its weights, None where it keeps none, and what its row says."""

    encoder: Encoder | None
    value: float | None = None
    row: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def toy(pooling: Any = "mean", tail: int = 0) -> Encoder:
    """The toy encoder, with a plain layer of that width behind its pooling."""
    encoder = load_encoder(resolve_checkpoint("toy"), pooling, 64)
    if tail:
        layer = nn.Linear(encoder.dim, tail, bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.eye(tail, encoder.dim))
        encoder.tail = Tail(dense(layer, "Identity"))
    return encoder


def changed(encoder: Encoder, factor: float) -> Encoder:
    """A copy whose last layer is multiplied."""
    other = copy.deepcopy(encoder)
    last: Any = other.tail[-1]
    with torch.no_grad():
        last.linear.weight.mul_(factor)
    return other


def shaken(encoder: Encoder, seed: int, size: float = 0.02) -> Encoder:
    """A copy with noise on every weight."""
    other, generator = copy.deepcopy(encoder), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=size)
    return other


def plant(path: str | Path, trials: Mapping[str, Planted], asked: str = str(DEFAULT)) -> Study:
    """A study of these trials.

    Those without a `value` have the scores of their weights, or another score.
    """
    files = TrialFiles(path)
    tasks = load_sts("toy", None)
    with StudyDriver.open(path, space=load_space("smoke"), command=["test"]) as driver:
        driver.record(SearchRecord((asked,), "tpe", 0))
        for seed, (name, planted) in enumerate(trials.items()):
            config = parse_dotted({**TOY, "seed": seed, **planted.settings}, "test")
            scores: list[Score] = []
            if planted.encoder is not None:
                write = functools.partial(export, planted.encoder, metadata={})
                files.write_checkpoint(name, write)
            if planted.value is None and planted.encoder is not None:
                scores = score_by_cosine(planted.encoder.encode, tasks)
            else:
                task, data, value = DEFAULT.task, evaluation_data(config), planted.value
                metric = "pearson" if value is None else DEFAULT.metric
                scores = [Score("sts", task, "dev", metric, "cosine", data, value or 50.0, 9)]
            facts: dict[str, Any] = {
                "configuration": "c0",
                "space": "smoke",
                "origin": "grid",
                "status": "finished",
                "attempt_files": "1-1",
                "checkpoint_fingerprint": "start",
                **planted.row,
            }
            driver.commit(TrialRow(config, trial_id=name, **facts), scores)
    return Study.read(path)
