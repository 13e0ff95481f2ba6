"""How cost grows: pairs a second against batch, sentence length, trials at a time, and corpus.

SCL with the two-layer `toy` encoder on one thread of the CPU, or on a GPU where there is one; the
rows are the toy's, repeated, with longer sentences where that is asked. `ours` is the rate at the
largest size and `peer` the rate at the smallest; a ratio of 1 is linear cost. For the corpus the
seconds from rows in memory to the end of the first steps count too, so that what a trial does once
with all rows shows.

With `--write`, four figures go into docs/figures and docs/performance.md; that needs the extra
`figures`.

    python benchmarks/cost_growth.py [--axis NAME ...] [--write] [--quick] [--json]
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from concurrent_trials import aggregate
from machine import describe_machine
from measuring import ROOT, Measured, Row, finish, options
from run_all import PAGE, write

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.train import train
from tune_sentcl.trial import InputLoader, assemble
from tune_sentcl.trial.inputs import TrialInputs

FIGURES = ROOT / "docs" / "figures"
STEPS = 5
AXES: dict[str, tuple[str, Sequence[int], Sequence[int]]] = {
    "batch": ("rows of a batch", (8, 16, 32, 64, 128, 256), (8, 32)),
    "length": ("words of a sentence", (8, 16, 32, 64), (8, 16)),
    "trials": ("trials at a time", (1, 2, 4, 8), (1, 2)),
    "corpus": ("rows of the corpus", (10_000, 100_000, 1_000_000), (1_000, 4_000)),
}


def main() -> None:
    """Measure each axis, print its ends, and draw where that is asked for."""
    given = options(__doc__, _own_options)
    torch.set_num_threads(1)
    rates = {
        axis: {size: Measured.of(_rates(axis, size, given)) for size in sizes[given.quick]}
        for axis, (_, *sizes) in AXES.items()
        if axis in given.axis
    }
    if given.write:
        _draw(rates)
    finish([_row(axis, found) for axis, found in rates.items()], given.json)


def _own_options(parser: Any) -> None:
    parser.add_argument("--write", action="store_true", help="figures into docs, too")
    parser.add_argument("--axis", nargs="+", choices=list(AXES), default=list(AXES))


def _row(axis: str, found: dict[int, Measured]) -> Row:
    small, large = min(found), max(found)
    part = f"{large:,} {AXES[axis][0]}"
    return Row(part, found[large], found[small], f"{small:,}", "pairs/s")


def _rates(axis: str, size: int, given: Any) -> list[float]:
    print(f"{axis}: {size:,}", file=sys.stderr)
    if axis == "trials":
        return [aggregate(size, 0.5 if given.quick else 3.0) for _ in range(given.runs)]
    if axis == "corpus":
        return [_starting(size)]  # of minutes, so that one is enough
    measure: dict[str, Callable[[int], float]] = {
        "batch": lambda size: _stepping(size, 12, 20_000 if not given.quick else 1_000),
        "length": lambda size: _stepping(64, size, 20_000 if not given.quick else 1_000),
    }
    measure[axis](size)  # imports, and the first pages of memory
    return [measure[axis](size) for _ in range(given.runs)]


def _stepping(batch: int, words: int, rows: int) -> float:
    """Pairs a second of some steps behind the first ones."""
    steps, _ = _training(batch, _rows(rows, words))
    next(steps)
    start = time.perf_counter()
    taken = sum(1 for _ in islice(steps, STEPS))
    _settle()
    return taken * batch / (time.perf_counter() - start)


def _starting(rows: int) -> float:
    """Rows a second from a corpus in memory, of which no tokens are known, to the first step."""
    _training(64, _rows(64, 12))  # imports
    corpus = _rows(rows, 12)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TUNE_SENTCL_CACHE"] = cache
        start = time.perf_counter()
        steps, _ = _training(64, corpus)
        next(steps)
        _settle()
        return rows / (time.perf_counter() - start)


def _training(batch: int, corpus: Corpus) -> tuple[Iterator[Any], TrialConfig]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    values = {"method.name": "scl", "encoder.checkpoint": "toy", "data.source": "toy"}
    config = parse_dotted({**values, "optimizer.batch_size": batch}, "benchmark")
    inputs: TrialInputs = replace(InputLoader(None).load(config), corpus=corpus)
    return train(assemble(config, inputs, device), corpus, config), config


def _rows(count: int, words: int) -> Corpus:
    """The toy's pairs again and again, each sentence with so many words and one of its own."""
    values = {"method.name": "scl", "encoder.checkpoint": "toy", "data.source": "toy"}
    toy = InputLoader(None).load(parse_dotted(values, "benchmark")).corpus
    numbers = np.arange(count) % len(toy)

    def texts(column: str) -> pa.Array:
        long = [" ".join((text.split() * words)[: words - 1]) for text in toy.texts(column)]
        return pa.array([f"{long[place]} {row}" for row, place in enumerate(numbers)])

    table = pa.table(
        {
            "premise": texts("premise"),
            "hypothesis": texts("hypothesis"),
            "label": pa.array(toy.numbers("label")[numbers], pa.int8()),
        }
    )
    return make_corpus(toy.kind, table, "generated")


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _draw(rates: dict[str, dict[int, Measured]]) -> None:
    import vl_convert

    FIGURES.mkdir(exist_ok=True)
    lines = [f"{describe_machine()}, {time.strftime('%Y-%m-%d')}.", ""]
    for axis, found in rates.items():
        svg = vl_convert.vegalite_to_svg(json.dumps(specification(axis, found)))
        (FIGURES / f"growth-{axis}.svg").write_text(svg, encoding="utf-8")
    for axis, (title, *_) in AXES.items():
        lines.append(f"![Pairs a second against {title}](figures/growth-{axis}.svg)")
    write(PAGE, "figures", "\n".join(lines))


def specification(axis: str, found: dict[int, Measured]) -> dict[str, Any]:
    """A figure in Vega-Lite: the medians as a line, least and largest as a band."""
    values = [
        {"size": size, "median": rate.median, "low": rate.low, "high": rate.high}
        for size, rate in found.items()
    ]
    across = {
        "field": "size",
        "type": "quantitative",
        "scale": {"type": "log"},
        "axis": {"title": AXES[axis][0], "values": list(found)},
    }
    # The same title in both layers, or none is drawn.
    up = {"type": "quantitative", "title": "pairs a second", "scale": {"zero": True}}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 260,
        "height": 160,
        "data": {"values": values},
        "encoding": {"x": across},
        "layer": [
            {
                "mark": {"type": "area", "opacity": 0.25},
                "encoding": {"y": {"field": "low", **up}, "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "line", "point": True},
                "encoding": {"y": {"field": "median", **up}},
            },
        ],
    }


if __name__ == "__main__":
    main()
