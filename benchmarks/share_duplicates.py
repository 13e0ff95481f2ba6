"""Seconds of a training step with and without `encoder.share_duplicates`, both in one run.

    python benchmarks/share_duplicates.py DATA [STEPS]

DATA is a data root with SNLI rows. One torch thread, all-MiniLM-L6-v2, 64 rows in file order.
"""

import statistics
import sys
import time
from pathlib import Path

import torch

from tune_sentcl.config import parse_dotted
from tune_sentcl.data.rows.nli import load_nli
from tune_sentcl.methods import Setting, build_method
from tune_sentcl.model.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.train import train


def main(root: Path, steps: int) -> None:
    """Alternate the two, so that neither has the machine to itself."""
    torch.set_num_threads(1)
    corpus = load_nli("snli-first2000", 64 * (steps + 1), root)
    runs = {}
    for share in (True, False):
        values = {"method.name": "scl", "encoder.share_duplicates": share}
        config = parse_dotted(values, "benchmark")
        encoder = load_encoder(resolve_checkpoint("minilm"), config.encoder.pooling, 512)
        setting = Setting(config.encoder, torch.Generator().manual_seed(0))
        runs[share] = train(build_method(config, encoder, setting), corpus, config)
        next(runs[share])  # the first step pays for the optimizer's memory
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(steps):
        for share, run in runs.items():
            start = time.perf_counter()
            next(run)
            seconds[share].append(time.perf_counter() - start)
    shared, apart = (statistics.median(seconds[share]) for share in (True, False))
    print(f"shared {shared:.2f} s, apart {apart:.2f} s a step, ratio {apart / shared:.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10)
