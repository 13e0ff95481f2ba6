"""STS-B dev of SCL with equal sentences of a batch encoded once, and each by itself.

No matter of speed: `make bench` leaves it out.

    python benchmarks/shared_noise.py [--rows N] [--quick] [--json]

SNLI rows, all-MiniLM-L6-v2, `scl/lambda`'s settings, lambda 0, 0.5 and 1,
seeds 0 to 2; a trial has one torch thread, and as many run at a time as there are cores.
"""

import itertools
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from measuring import Measured, Row, data_root, finish, options

from tune_sentcl.config import parse_dotted
from tune_sentcl.objective import DEFAULT
from tune_sentcl.space import load_space
from tune_sentcl.trial import InputLoader, run
from tune_sentcl.trial.measuring import tasks_at_points

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
    print(f"shared {share}, lambda {weight:g}, seed {seed}: {found:.2f}", file=sys.stderr)
    return found


def main() -> None:
    """Print each score as it comes, then a line for each lambda."""
    given = options(__doc__, lambda parser: parser.add_argument("--rows", type=int))
    rows = given.rows or (128 if given.quick else 4096)
    weights, seeds = ((0.5,), (0,)) if given.quick else (_LAMBDAS, _SEEDS)
    points = list(itertools.product((True, False), weights, seeds))
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        trained = pool.map(partial(dev_after_training, data_root(), rows), points)
        found = dict(zip(points, trained, strict=True))
    finish([_row(found, weight, seeds) for weight in weights], given.json)


def _row(found: dict[tuple[bool, float, int], float], weight: float, seeds: Sequence[int]) -> Row:
    once, each = (
        Measured.of([found[share, weight, seed] for seed in seeds]) for share in (True, False)
    )
    part = f"STS-B dev at lambda {weight:g}, {len(seeds)} seeds, equal sentences once"
    # Points of correlation are no cost, and no speed; the ratio is left out.
    told = f"each by itself: {each.median:.2f} ({each.low:.2f}-{each.high:.2f})"
    return Row(part, once, None, told, "points")


if __name__ == "__main__":
    main()
