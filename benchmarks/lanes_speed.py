"""Trials of frozen encoders as lanes of one model, beside the same trials one after another.

- steps: CLSR's updates a second of 8 and 32 short trials, each with its evaluation, for narrow
  networks and for one as wide as the paper's;
- search: trials a second of a whole search with `--lanes auto`.

Embeddings are vectors drawn for made-up words, so that nothing has to be encoded. It computes on
a GPU where there is one.

    python benchmarks/lanes_speed.py [--quick] [--json]
"""

import itertools
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import Row, finish, interleaved, options

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.toy.sentences import sentence_words
from tune_sentcl.launch.options import LaneCount, SearchOptions
from tune_sentcl.launch.search import search
from tune_sentcl.space import load_space
from tune_sentcl.train import count_steps
from tune_sentcl.trial import Account, InputLoader, run
from tune_sentcl.trial.lanes import Lanes, LaneTrial, Share

ON_GPU = torch.cuda.is_available()
PAIRS, WORDS, LENGTH = 2048, 3000, 8
SPACE = """name = "lanes"
trials = 32
[fixed]
encoder.checkpoint = "{words}"
data.source = "{pairs}"
evaluation.data = "toy"
evaluation.protocols = ["cosine"]
optimizer.batch_size = 64
data.order = "shuffled"
method.name = "clsr"
method.hidden = 64
method.width = 64
optimizer.epochs = 1
[[block]]
grid.optimizer.lr = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2]
grid.method.temperature = [0.05, 0.1, 0.2, 0.5]
"""


@dataclass(frozen=True)
class Size:
    """A network, its batch, the rows that a trial sees, and how many trials there are."""

    dim: int
    width: int
    batch: int
    rows: int
    lanes: int
    target: float


def sizes(*, quick: bool) -> Iterator[Size]:
    """What is measured; on a CPU, networks as wide as the paper's are bound by their products."""
    if ON_GPU:
        yield Size(768, 768, 512, 8 * PAIRS, 8, 1.0)
        yield Size(768, 768, 512, 8 * PAIRS, 32, 8.0)
        return
    yield Size(384, 64, 64, PAIRS, 8, 1.0)
    yield Size(384, 256, 64, PAIRS // 2, 8, 1.0)
    if not quick:
        yield Size(384, 64, 64, PAIRS // 4, 32, 1.0)
        yield Size(768, 768, 64, PAIRS // 4, 8, 1.0)


def main() -> None:
    """Measure both sides in turn, and print the rows."""
    given = options(__doc__)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["TUNE_SENTCL_CACHE"] = str(folder / "cache")
        pairs = written_pairs(folder)
        rows = [steps(folder, pairs, size, given.runs) for size in sizes(quick=given.quick)]
        rows.append(searches(folder, pairs, given.runs))
    finish(rows, given.json)
    note = "bf16 is not measured: optimizer.precision says nothing of a network behind frozen"
    print(f"{note} embeddings, which trains in fp32.", file=sys.stderr)


def steps(folder: Path, pairs: Path, size: Size, runs: int) -> Row:
    """Updates a second, all trials together."""
    words = written_words(folder, size.dim)
    configs = [trial(words, pairs, size, seed) for seed in range(size.lanes)]
    loader = InputLoader(None)
    inputs = [loader.load(config) for config in configs]
    count = sum(count_steps(i.corpus, c) for i, c in zip(inputs, configs, strict=True))

    def alone() -> None:
        for config, own in zip(configs, inputs, strict=True):
            list(run(config, own, Account(device())))

    def together() -> None:
        lanes = []
        for config, own in zip(configs, inputs, strict=True):
            share = Share()
            lanes.append(LaneTrial(config, own, Account(device(), clock=share), share))
        for _, told in Lanes(lanes).points():
            if isinstance(told, Exception):
                raise told

    ours, peer = interleaved(together, alone, runs=runs)
    part = (
        f"{size.lanes} lanes, {size.dim}-{size.width}-{size.width}, batch {size.batch}, {where()}"
    )
    name = "one after another"
    return Row(part, ours.rate(count), peer.rate(count), name, "steps/s", size.target)


def searches(folder: Path, pairs: Path, runs: int) -> Row:
    """Trials a second of a search by the local launcher."""
    words = written_words(folder, 64)
    (folder / "lanes.toml").write_text(SPACE.format(words=words, pairs=pairs))
    space = load_space(folder / "lanes.toml")
    count, made = len(space.configurations), itertools.count()

    def searched(lanes: LaneCount) -> None:
        asked = SearchOptions(launcher="local", lanes=lanes, keep=0)
        outcome = search(space, folder / f"study{next(made)}", options=asked)
        if outcome.ran != count or outcome.failures:
            raise SystemExit(f"trials failed: {outcome}")

    ours, peer = interleaved(lambda: searched("auto"), lambda: searched(1), runs=runs)
    part, target = f"a search of 32 trials with --lanes auto, {where()}", 8.0 if ON_GPU else 1.0
    return Row(part, ours.rate(count), peer.rate(count), "--lanes 1", "trials/s", target)


def device() -> str:
    """Where trials compute."""
    return "cuda" if ON_GPU else "cpu"


def where() -> str:
    """That, for people."""
    return torch.cuda.get_device_name() if ON_GPU else "1 thread"


def trial(words: Path, pairs: Path, size: Size, seed: int) -> TrialConfig:
    """One of the trials, which differ in their rate and their seed; it scores one toy set."""
    values: dict[str, Any] = {
        "method.name": "clsr",
        "method.hidden": size.width,
        "method.width": size.width,
        "encoder.checkpoint": str(words),
        "data.source": str(pairs),
        "data.order": "shuffled",
        "evaluation.data": "toy",
        "evaluation.protocols": ["cosine"],
        "optimizer.batch_size": size.batch,
        "data.limit": min(size.rows, PAIRS),
        "optimizer.epochs": max(1, size.rows // PAIRS),
        "optimizer.lr": 1e-4 * (1 + seed),
        "seed": seed,
    }
    return parse_dotted(values, "benchmark")


def written_words(folder: Path, dim: int) -> Path:
    """Word vectors of a width, drawn: of the pairs, and of the toy sets that trials score."""
    path = folder / f"words{dim}.txt"
    if not path.exists():
        words = [f"w{n}" for n in range(WORDS)] + sorted(sentence_words())
        draws = np.random.default_rng(0).standard_normal((len(words), dim))
        drawn = zip(words, draws, strict=True)
        lines = (f"{word} {' '.join(f'{x:.4f}' for x in row)}" for word, row in drawn)
        path.write_text("\n".join(lines) + "\n")
    return path


def written_pairs(folder: Path) -> Path:
    """Pairs of sentences that share most of their words."""
    draws = np.random.default_rng(1)
    path = folder / "pairs.csv"

    def text(words: Sequence[int]) -> str:
        return " ".join(f"w{n}" for n in words)

    lines = ["sentence1,sentence2"]
    for _ in range(PAIRS):
        words = draws.integers(0, WORDS, LENGTH)
        other = np.where(draws.random(LENGTH) < 0.3, draws.integers(0, WORDS, LENGTH), words)
        lines.append(f"{text(words)},{text(other)}")
    path.write_text("\n".join(lines) + "\n")
    return path


if __name__ == "__main__":
    main()
