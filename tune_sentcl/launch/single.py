"""One trial, or one encoder as it is, in this process."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from tune_sentcl.config import Pooling, TrialConfig, parse_dotted
from tune_sentcl.data.tasks.sets import load_sets
from tune_sentcl.errors import (
    CheckpointError,
    ConfigError,
    Fault,
    TrialFailedError,
    TuneSentclError,
)
from tune_sentcl.evaluate.score import Score
from tune_sentcl.evaluate.suites import Measures, score_sets
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.search import data_root, prepare, run_prepared
from tune_sentcl.launch.watch import encoding_bar
from tune_sentcl.launch.worker import Attempt, WorkerSettings, study_path
from tune_sentcl.model.checkpoint import Checkpoint, resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.shapes import EmbeddingMatrix
from tune_sentcl.space import Space
from tune_sentcl.store.schema import SCORES
from tune_sentcl.store.study import Study

Row = dict[str, Any]


def train_one(
    settings: Mapping[str, Any],
    *,
    study: str | Path | None,
    data: str | Path | None,
    cpus: int = 1,
    gpus: float | None = None,
) -> list[Row]:
    """Train and measure one trial, without Ray.

    Args:
        settings: Dotted keys of its config; `method.name` is `scl` unless given.
        study: Where to keep it: a study that holds single trials only; None keeps nothing.
        data: The data root; None takes TUNE_SENTCL_DATA.
        cpus: Threads of torch.
        gpus: Share of a GPU; None: one where this machine has any.

    Returns:
        The trial's rows of the scores table; of a trial that the study held already, those.

    Raises:
        BadInputError: Something asked for cannot be.
        TuneSentclError: The trial failed; with a study, its row says so too.
    """
    config = parse_dotted({"method.name": "scl", **settings}, "--set")
    share = gpus if gpus is not None else float(torch.cuda.is_available())
    options = SearchOptions(launcher="local", cpus_per_trial=cpus, gpus_per_trial=share)
    prepared = prepare(_single(config), data, (config.seed,), options, origin="single")
    (assignment,) = prepared.proposals.queued
    name = assignment.trial_id
    if study is None:
        inputs = prepared.loader.load(config)
        settings_here = WorkerSettings(None, False, cpus, share)
        with closing(Attempt(config, prepared.loader, settings_here).points()) as points:
            *_, last = points
        return [_row(score, inputs.sets.data, name) for score in last.scores]
    run_prepared(prepared, study_path(study), options)
    kept = Study.read(study_path(study))
    _raise_failure(kept, name)
    return [row for row in kept.scores().to_pylist() if row["trial_id"] == name]


def evaluate_model(
    model: str,
    *,
    data: str | Path | None,
    pooling: Pooling | None = None,
    normalize: bool = False,
    max_length: int | None = None,
    measures: Measures | None = None,
) -> tuple[list[Row], tuple[TuneSentclError, ...]]:
    """Score an encoder as it is.

    Args:
        model: A folder, a hub name, `minilm` or `toy`.
        data: The data root; None takes TUNE_SENTCL_DATA; `toy` for the toy sets.
        pooling: None takes what the model's files say, else the mean.
        normalize: Scale embeddings to length 1; cosine scores do not change by it.
        max_length: Longest input in tokens; None takes the model's own.
        measures: What to score, how, and on which device; None: STS by cosine on the CPU.

    Returns:
        Rows of the scores table, whose `trial_id` is None, for there was no trial; and why other
        tasks could not be scored.

    Raises:
        BadInputError: The model or the data cannot be read.
    """
    if max_length is not None and max_length < 3:
        fault = Fault("--max-length", "", str(max_length), "must be 3 or more", "Correct it.")
        raise ConfigError(fault)
    checkpoint = resolve_checkpoint(model)
    measures = measures or Measures(("sts",))
    source: Literal["toy", "root"] = "toy" if data == "toy" else "root"
    root = None if data == "toy" else data_root(data)
    sets = load_sets(source, root, measures.suites, measures.protocols)
    length = max_length or checkpoint.max_length or 512
    encoder = load_encoder(checkpoint, _pooling(checkpoint, pooling), length, measures.device)

    def encode(sentences: list[str]) -> EmbeddingMatrix:
        with encoding_bar() as told:
            embeddings = encoder.encode(sentences, progress=told)
        if not normalize:
            return embeddings
        return np.asarray(
            embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True), np.float32
        )

    found = score_sets(encode, sets, measures)
    return [_row(score, source, None) for score in found.scores], found.errors


def _pooling(checkpoint: Checkpoint, asked: Pooling | None) -> Pooling:
    if asked is None and checkpoint.pooling_problem:
        fault = Fault(checkpoint.name, "", "", checkpoint.pooling_problem, "Give --pooling.")
        raise CheckpointError(fault)
    return asked or checkpoint.pooling or "mean"


def _single(config: TrialConfig) -> Space:
    return Space(
        name="single",
        paper="",
        tables=(),
        summary="trials run one by one",
        configurations=(config.model_copy(update={"seed": 0}),),
        base={},
        ranges=(),
        seeds=(config.seed,),
        text="",
        source="--set",
    )


def _row(score: Score, data: Literal["toy", "root"], trial_id: str | None) -> Row:
    values = {**asdict(score), "trial_id": trial_id, "data": data}
    return {name: values[name] for name in SCORES.names}


def _raise_failure(study: Study, trial_id: str) -> None:
    rows = study.trials().select(["trial_id", "status", "error_type", "error_text"]).to_pylist()
    for row in rows:
        if row["trial_id"] == trial_id and row["status"] == "failed":
            raise TrialFailedError(f"{row['error_type']}: {row['error_text']}")
