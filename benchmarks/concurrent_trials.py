"""Pairs a second of 1, 2, 4 and 8 trials at a time on one GPU, or on this machine's cores.

Each trial is a process of its own that trains SCL as `search` does: on a GPU with its share of it,
as `--gpus-per-trial` gives it, on a CPU with one thread. All of them take their first steps, wait
for each other, and then step for the same seconds. On a GPU the encoder is all-MiniLM-L6-v2 on
SNLI rows, on a CPU the two-layer `toy` on its own.

    python benchmarks/concurrent_trials.py [--quick] [--json]
"""

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from measuring import Measured, Row, data_root, finish, options

BATCH = 64
TRIALS = (1, 2, 4, 8)


def main() -> None:
    """Measure each number of trials, in turn."""
    given = options(__doc__, _own_options)
    if given.trial:
        _trial(given.trial, given.seconds)
        return
    import torch

    place = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, toy encoder"
    seconds, runs = (0.5, 1) if given.quick else (5.0, 5)
    counts = TRIALS[:2] if given.quick else TRIALS
    rates: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(runs):
        for count in counts:
            rates[count].append(aggregate(count, seconds))
    alone = Measured.of(rates[1])
    rows = [
        Row(f"{count} trials at a time ({place})", Measured.of(found), alone, "one", "pairs/s")
        for count, found in rates.items()
    ]
    finish(rows, given.json)


def _own_options(parser: Any) -> None:
    parser.add_argument("--trial", type=int, help="be one of so many trials, and print its pairs")
    parser.add_argument("--seconds", type=float)


def aggregate(count: int, seconds: float) -> float:
    """Pairs a second of so many trials at a time, together."""
    command = [sys.executable, str(Path(__file__)), "--trial", str(count)]
    with ExitStack() as stack:
        trials = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, "--seconds", str(seconds)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(count)
        ]
        for trial in trials:
            _told(trial)  # it is ready
        for trial in trials:
            _say(trial)
        return sum(float(_told(trial)) for trial in trials)


def _told(trial: "subprocess.Popen[str]") -> str:
    if trial.stdout is None or not (line := trial.stdout.readline()):
        raise SystemExit("a trial ended before its time")
    return line


def _say(trial: "subprocess.Popen[str]") -> None:
    if trial.stdin is not None:
        trial.stdin.write("go\n")
        trial.stdin.flush()


def _trial(count: int, seconds: float) -> None:
    """Train until the time is over, from the moment in which a line comes."""
    import torch

    from tune_sentcl.config import parse_dotted
    from tune_sentcl.train import train
    from tune_sentcl.trial import InputLoader, assemble

    gpu = torch.cuda.is_available()
    torch.set_num_threads(1)
    if gpu:
        torch.cuda.set_per_process_memory_fraction(1 / count)
    small = {"encoder.checkpoint": "toy", "data.source": "toy"}
    real = {"encoder.checkpoint": "minilm", "data.source": "snli", "data.limit": 64_000}
    values = {"method.name": "scl", "optimizer.epochs": 10_000, "optimizer.batch_size": BATCH}
    config = parse_dotted({**values, **(real if gpu else small)}, "benchmark")
    inputs = InputLoader(data_root() if gpu else None).load(config)
    method = assemble(config, inputs, "cuda" if gpu else "cpu")
    steps = train(method, inputs.corpus, config)
    before = [next(steps).samples for _ in range(3)][-1]
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        rows = next(steps).samples
    if gpu:
        torch.cuda.synchronize()
        spent = time.perf_counter() - start
    print((rows - before) / spent, flush=True)


if __name__ == "__main__":
    main()
