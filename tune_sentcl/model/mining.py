"""Hard negatives for anchors: an encoder mines them among all positives.

sentence-transformers' `mine_hard_negatives` chooses them, with embeddings from the cache.
"""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from tune_sentcl.config import DataConfig
from tune_sentcl.data.rows.corpus import Corpus, join_corpora, make_corpus
from tune_sentcl.data.task import fingerprint_of
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.shapes import EmbeddingMatrix


def mining_name(corpus: Corpus, config: DataConfig, checkpoint: Checkpoint) -> str:
    """A hash of everything that mined negatives depend on: rows, encoder and settings."""
    settings = (config.mined, config.mined_margin, config.mined_depth)
    return fingerprint_of([(corpus.fingerprint, checkpoint.fingerprint, *map(str, settings))])


def mined_negatives(corpus: Corpus, config: DataConfig, checkpoint: Checkpoint) -> pa.Table:
    """Mine negatives of triplets.

    A negative is a positive of another anchor, but of no row with the same anchor. It is among the
    `mined_depth` positives nearest to the anchor (plus the largest number of positives of an
    anchor). Its cosine is at least the share `mined_margin` below that of the anchor's furthest
    positive. The `mined` nearest such positives become negatives; a row may get fewer.

    Args:
        corpus: Triplets.
        config: The config with the number of negatives, the depth and the margin.
        checkpoint: The encoder that finds them.

    Returns:
        The columns `anchor` and `positive` of the corpus, and `negative_1`, `negative_2` and so
        on; the text of a missing negative is empty.

    Raises:
        CheckpointError: The encoder cannot be loaded.
        NonFiniteError: An embedding is not finite.
    """
    # This import is not at the top, because it is slow.
    import datasets
    from sentence_transformers.util import mine_hard_negatives

    pairs = {name: corpus.texts(name) for name in ("anchor", "positive")}
    miner: Any = _Miner(checkpoint, corpus.sentences())
    # The function's progress bars, which go to stderr, cannot be turned off.
    with redirect_stderr(io.StringIO()):
        found = mine_hard_negatives(
            datasets.Dataset.from_dict(pairs),
            miner,
            range_max=max(config.mined_depth, config.mined),
            relative_margin=config.mined_margin,
            num_negatives=config.mined,
            output_format="triplet",
            verbose=False,
        )
    negatives: dict[tuple[str, str], list[str]] = {}
    for row in found:
        negatives.setdefault((row["anchor"], row["positive"]), []).append(row["negative"])
    mined = [negatives.get(pair, []) for pair in zip(*pairs.values(), strict=True)]
    columns: dict[str, list[str]] = dict(pairs)
    for place in range(config.mined):
        column = [texts[place] if place < len(texts) else "" for texts in mined]
        columns[f"negative_{1 + place}"] = column
    return pa.table(columns)


def too_few(mined: pa.Table) -> str:
    """A text on rows with fewer negatives than were asked for; empty if there are none."""
    count = mined.num_columns - 2
    short = pc.equal(mined.column(count + 1), "")  # the last negative is the first to be missing
    few, none = pc.sum(short).as_py(), pc.sum(pc.equal(mined.column(2), "")).as_py()
    if not few:
        return ""
    return f"{few:,} of {len(mined):,} rows have fewer than {count} mined negatives, {none:,} none"


def with_negatives(corpus: Corpus, mined: pa.Table) -> Corpus:
    """Add mined negatives to triplets, after the negatives that they have."""
    table, first = corpus.table, len(corpus.negatives()) + 1
    for place, column in enumerate(mined.columns[2:]):
        table = table.append_column(f"negative_{first + place}", column)
    # Each source becomes a corpus of its own again, because batches and the fingerprint depend on
    # the sources.
    parts = replace(corpus, table=table).by_source()
    joined = join_corpora([make_corpus(part.kind, part.table, part.source) for part in parts])
    return replace(joined, dropped=corpus.dropped, notes=corpus.notes)


class _Miner:
    """The model that `mine_hard_negatives` calls."""

    device = torch.device("cpu")

    def __init__(self, checkpoint: Checkpoint, sentences: Sequence[str]) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._encoder = FrozenEncoder(checkpoint, "auto", "auto", device, sentences)

    def encode_query(self, texts: Sequence[str], **_: Any) -> EmbeddingMatrix:
        """Embeddings, scaled to length 1."""
        rows = self._encoder.base(texts)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-12))

    encode_document = encode_query

    def similarity(self, left: Any, right: Any) -> torch.Tensor:
        """Cosines of all pairs of rows."""
        return torch.as_tensor(left) @ torch.as_tensor(right).T

    def similarity_pairwise(self, left: Any, right: Any) -> torch.Tensor:
        """Cosines row by row."""
        return (torch.as_tensor(left) * torch.as_tensor(right)).sum(dim=1)
