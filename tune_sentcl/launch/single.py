"""One trial, or one encoder as it is, in this process."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from tune_sentcl.config import Pooling, TrialConfig
from tune_sentcl.data.sts import load_sts
from tune_sentcl.errors import CheckpointError, ConfigError, Fault, TrialFailedError
from tune_sentcl.evaluate.score import Score
from tune_sentcl.evaluate.sts import score_sts
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.search import data_root, prepare, run_prepared
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
    config = TrialConfig.from_dotted({"method.name": "scl", **settings}, "--set")
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
        return [_row(score, inputs.evaluation_data, name) for score in last.scores]
    run_prepared(prepared, study_path(study), options)
    kept = Study.read(study_path(study))
    _raise_failure(kept, name)
    return [row for row in kept.scores().to_pylist() if row["trial_id"] == name]


def evaluate_model(
    model: str,
    *,
    data: str | Path | None,
    toy: bool = False,
    pooling: Pooling | None = None,
    normalize: bool = False,
    max_length: int | None = None,
) -> list[Row]:
    """Score an encoder as it is on the STS tasks.

    Args:
        model: A folder, a hub name, `minilm` or `toy`.
        data: The data root; None takes TUNE_SENTCL_DATA.
        toy: Score the toy sets instead.
        pooling: None takes what the model's files say, else the mean.
        normalize: Scale embeddings to length 1; cosine scores do not change by it.
        max_length: Longest input in tokens; None takes the model's own.

    Returns:
        Rows of the scores table; `trial_id` is None, for there was no trial.

    Raises:
        BadInputError: The model or the data cannot be read.
        NonFiniteError: An embedding or a correlation has no value.
    """
    if max_length is not None and max_length < 3:
        fault = Fault("--max-length", "", str(max_length), "must be 3 or more", "Correct it.")
        raise ConfigError(fault)
    checkpoint = resolve_checkpoint(model)
    source: Literal["toy", "root"] = "toy" if toy else "root"
    tasks = load_sts(source, data_root(data))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    length = max_length or checkpoint.max_length or 512
    encoder = load_encoder(checkpoint, _pooling(checkpoint, pooling), length, device)

    def encode(sentences: list[str]) -> EmbeddingMatrix:
        embeddings = encoder.encode(sentences)
        if not normalize:
            return embeddings
        return np.asarray(
            embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True), np.float32
        )

    return [_row(score, source, None) for score in score_sts(encode, tasks)]


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
    values = {**asdict(score), "trial_id": trial_id, "data": data, "classifier_seed": None}
    return {name: values[name] for name in SCORES.names}


def _raise_failure(study: Study, trial_id: str) -> None:
    rows = study.trials().select(["trial_id", "status", "error_type", "error_text"]).to_pylist()
    for row in rows:
        if row["trial_id"] == trial_id and row["status"] == "failed":
            raise TrialFailedError(f"{row['error_type']}: {row['error_text']}")
