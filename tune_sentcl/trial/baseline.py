"""Scores of an encoder without training."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from tune_sentcl.config import Pooling
from tune_sentcl.data.root import data_root
from tune_sentcl.data.task import Prompt
from tune_sentcl.data.tasks.evaluation_sets import load_sets
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.evaluate.suites import Evaluation, Measures, score_sets
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.checkpoints.tokenizer_files import notes_of
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.shapes import EmbeddingMatrix


@dataclass(frozen=True)
class EncoderOptions:
    """How an encoder embeds sentences.

    Attributes:
        pooling: None takes the pooling of the model's files, and the mean if they name none.
        normalize: Whether to scale embeddings to length 1; this leaves cosine scores unchanged.
        max_length: Longest input in tokens; None takes the model's own limit.
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
        options: How it embeds sentences; None: as its files say.
        measures: The tasks, the protocols and the device; None: STS by cosine on the CPU.
        progress: Called with the number of sentences encoded and the number of all.

    Returns:
        The scores, and the errors of tasks that could not be scored.

    Raises:
        BadInputError: The model or the data cannot be read.
    """
    options = options or EncoderOptions()
    if options.max_length is not None and options.max_length < 3:
        value = str(options.max_length)
        raise ConfigError(Fault("--max-length", "", value, "must be 3 or more", "Correct it."))
    checkpoint = resolve_checkpoint(model)
    measures = measures or Measures(("sts",))
    source: Literal["toy", "root"] = "toy" if data == "toy" else "root"
    root = None if data == "toy" else data_root(data)
    sets = load_sets(source, root, measures.suites, measures.protocols, measures.own)
    encoder = load_encoder(
        checkpoint, options.pooling or "auto", options.max_length or "auto", measures.device
    )
    encoder.prefixes = checkpoint.prefixes

    def encode(sentences: list[str], *, prompt: Prompt = "text") -> EmbeddingMatrix:
        embeddings = encoder.encode(sentences, progress=progress, prompt=prompt)
        return of_length_1(embeddings) if options.normalize else embeddings

    found = score_sets(encode, sets, measures)
    return replace(found, notes=(*notes_of(checkpoint, encoder.pooling), *found.notes))


def of_length_1(embeddings: EmbeddingMatrix) -> EmbeddingMatrix:
    """Embeddings scaled to length 1; zero vectors stay, so that scoring can report them."""
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return np.asarray(embeddings / np.where(lengths > 0, lengths, 1), np.float32)
