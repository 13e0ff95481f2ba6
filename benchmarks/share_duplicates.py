"""Pairs a second of training with and without `encoder.share_duplicates`, both in one run.

all-MiniLM-L6-v2 on SNLI rows, 64 in file order, one torch thread.

    python benchmarks/share_duplicates.py [--quick] [--json]
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from measuring import Measured, Row, data_root, finish, interleaved, options

from tune_sentcl.config import parse_dotted
from tune_sentcl.data.rows.nli import load_nli
from tune_sentcl.methods import Setting, build_method
from tune_sentcl.model.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.train import train

BATCH = 64


def main() -> None:
    """Take a step of each in turn, so that neither has the machine to itself."""
    given = options(__doc__)
    torch.set_num_threads(1)
    steps = 2 if given.quick else 8
    corpus = load_nli("snli-first2000", BATCH * (steps + 2), data_root())
    runs = [_training(corpus, share) for share in (True, False)]
    # The first step pays for the optimizer's memory, and is not timed.
    shared, apart = interleaved(*map(_step, runs), runs=steps)
    finish([_row(shared, apart)], given.json)


def _row(shared: Measured, apart: Measured) -> Row:
    part, peer = "SCL step, equal sentences encoded once", "each sentence by itself"
    return Row(part, shared.rate(BATCH), apart.rate(BATCH), peer, "pairs/s", 1.0)


def _training(corpus: Any, share: bool) -> Iterator[Any]:
    values = {"method.name": "scl", "encoder.share_duplicates": share}
    config = parse_dotted(values, "benchmark")
    encoder = load_encoder(resolve_checkpoint("minilm"), config.encoder.pooling, 512)
    setting = Setting(config.encoder, torch.Generator().manual_seed(0))
    return train(build_method(config, encoder, setting), corpus, config)


def _step(run: Iterator[Any]) -> Callable[[], object]:
    return lambda: next(run)


if __name__ == "__main__":
    main()
