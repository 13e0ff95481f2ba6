"""STS-B dev of SCL with equal sentences of a batch encoded once, and each by itself.

    python benchmarks/shared_noise.py DATA [ROWS]

DATA is a data root with SNLI rows. all-MiniLM-L6-v2, `scl/lambda`'s settings, lambda 0, 0.5 and 1,
seeds 0 to 2; a trial has one torch thread, and as many run at a time as there are cores.
"""

import itertools
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tune_sentcl.config import parse_dotted
from tune_sentcl.objective import DEFAULT
from tune_sentcl.space import load_space
from tune_sentcl.trial import InputLoader, run
from tune_sentcl.trial.run import tasks_at_points

_LAMBDAS, _SEEDS = (0.0, 0.5, 1.0), (0, 1, 2)


def dev_after_training(root: Path, rows: int, point: tuple[bool, float, int]) -> float:
    """Train one trial, and measure nothing but STS-B dev."""
    share, weight, seed = point
    values = {
        "encoder.checkpoint": "minilm",
        "encoder.share_duplicates": share,
        "data.limit": rows,
        "evaluation.suites": "sts",
        "evaluation.protocols": "cosine",
        "method.lambda": weight,
    }
    space = load_space("scl/lambda", values)
    scl = next(config for config in space.configurations if config.method.name == "scl")
    config = parse_dotted({**scl.dotted(), "seed": seed}, "benchmark")
    inputs = InputLoader(root).load(config)
    dev = tuple(tasks_at_points(inputs.sets.sts, DEFAULT))
    (last,) = run(config, replace(inputs, sets=replace(inputs.sets, sts=dev)))
    found = DEFAULT.value(last.scores, inputs.sets.data)
    if found is None:
        raise SystemExit(f"{DEFAULT} was not measured")
    print(f"  shared {share}, lambda {weight:g}, seed {seed}: {found:.2f}", flush=True)
    return found


def main(root: Path, rows: int) -> None:
    """Print each score as it comes, then a line for each lambda."""
    points = list(itertools.product((True, False), _LAMBDAS, _SEEDS))
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        found = dict(
            zip(points, pool.map(partial(dev_after_training, root, rows), points), strict=True)
        )
    for weight in _LAMBDAS:
        for share in (True, False):
            values = [found[share, weight, seed] for seed in _SEEDS]
            told = ", ".join(f"{value:.2f}" for value in values)
            mean, spread = statistics.fmean(values), statistics.stdev(values)
            way = "once" if share else "each"
            print(f"lambda {weight:g}, {way}: {told}; {mean:.2f} +- {spread:.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4096)
