"""Training on one GPU: pairs a second, peak memory, and the share of the card.

It needs a GPU, and is not run by `make bench`; `make test-gpu` runs a part of it.

Encoders have MiniLM's, BERT-medium's and BERT-base's sizes and random weights; rows are generated
with SNLI's lengths, three hypotheses a premise (`paper_trial`). Parts: `steps`, SCL at 64 pairs in
each precision, with the epoch of 549,367 pairs that follows; `peer`, the same encoder, rows and
batches by sentence-transformers' SoftmaxLoss, bf16, in a bare loop; `packing`, 512 pairs packed
and padded; `modern`, the same with ModernBERT-base; `idle`, the share of the time in which the
card runs no kernel; `many`, eight trainings at a time on the card beside one, without and with
NVIDIA's MPS, by which kernels of several processes run side by side; `scores`, the seven STS and
the eight transfer tasks.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from measuring import (
    Measured,
    Row,
    data_root,
    describe_machine,
    finish,
    interleaved,
    options,
    timed,
)
from paper_trial import (
    BATCH,
    LENGTH,
    PAIRS,
    config_of,
    generated,
    pair_lengths,
    steps_of,
    write_encoder,
)
from roofline import encoder_flops, matrix_rate
from torch.profiler import ProfilerActivity, profile
from training import several, their_steps

from tune_sentcl.config import parse_dotted
from tune_sentcl.evaluate import Measures, evaluate
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.tuning.mps import join

SIZES = {
    "MiniLM": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536},
    "BERT-medium": {"hidden_size": 512, "num_hidden_layers": 8, "intermediate_size": 2048},
    "BERT-base": {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072},
}
MODERN = {"hidden_size": 768, "num_hidden_layers": 22, "intermediate_size": 1152}
MOST_MS = {"MiniLM": 3.0, "BERT-medium": 4.5, "BERT-base": 7.0}  # a step in bf16, on an H100
MOST_IDLE, MOST_SCORES = 25.0, 20.0  # percent, seconds
WARM = 30  # steps: every size of a batch has been captured by then
SEVERAL, LARGE = 8, 512
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMemcpy", "cudaEventSynchronize")


def training(
    folder: Path, precision: str, count: int, *, share: bool = True, **others: Any
) -> Iterator[Any]:
    """The steps of a training on rows enough for them; `others` are further knobs."""
    config = parse_dotted(
        {**config_of(folder, precision, share=share).dotted(), **others}, "benchmark"
    )
    whole = load_encoder(resolve_checkpoint(str(folder)), "mean", LENGTH)
    return steps_of(config, folder, generated(whole, config.optimizer.batch_size * count))


def steps(folders: dict[str, Path], runs: int, count: int) -> Iterator[Row]:
    """Pairs a second, and what follows for the paper's epoch."""
    for name, folder in folders.items():
        for precision in ("fp32", "tf32", "bf16"):
            torch.cuda.reset_peak_memory_stats()
            made = training(folder, precision, WARM + count * (runs + 1))
            several(made, WARM)()
            (seconds,) = interleaved(several(made, count), runs=runs)
            rate = seconds.rate(BATCH * count)
            peak = torch.cuda.max_memory_allocated() / 2**30
            del made  # its memory is not the next one's
            kind = {"fp32": torch.float32, "bf16": torch.bfloat16}.get(precision)
            limit = None if kind is None else matrix_rate(kind) / flops_of(folder)
            part = f"{name}, SCL, {BATCH} a batch, {precision}"
            yield Row(part, rate, None, f"peak {peak:.2f} GiB", "pairs/s", None, limit)
            if precision == "bf16":
                epoch = Measured(*(PAIRS / each for each in (rate.median, rate.high, rate.low)))
                most, told = PAIRS / BATCH * MOST_MS[name] / 1000, f"at {MOST_MS[name]} ms a step"
                yield Row(f"{name}, an epoch of SCL, bf16", epoch, most, told, "s", 1.0)


def flops_of(folder: Path) -> float:
    """Floating point operations of a pair, equal premises encoded once."""
    encoder = load_encoder(resolve_checkpoint(str(folder)), "mean", LENGTH)
    lengths = pair_lengths(encoder, share=True)
    return encoder_flops(encoder.transformer.config, lengths, training=True)


def peer(folders: dict[str, Path], runs: int, count: int) -> Iterator[Row]:
    """sentence-transformers on the same card."""
    for name, folder in folders.items():
        whole = load_encoder(resolve_checkpoint(str(folder)), "mean", LENGTH)
        theirs = several(their_steps(generated(whole, BATCH * count), folder, bf16=True), count)
        for share in (True, False):
            ours = training(folder, "bf16", WARM + count * (runs + 1), share=share)
            several(ours, WARM)()
            mine, other = interleaved(several(ours, count), theirs, runs=runs)
            told = "sentence-transformers' SoftmaxLoss, bf16"
            part = f"{name}, bf16" + ("" if share else ", every sentence encoded")
            sides_of = (mine.rate(BATCH * count), other.rate(BATCH * count))
            yield Row(part, *sides_of, told, "pairs/s", 2.0 if share else None)


def packing(folders: dict[str, Path], runs: int, count: int, target: float = 1.1) -> Iterator[Row]:
    """Large batches, packed and padded, every sentence encoded."""
    for name, folder in folders.items():
        for precision in ("fp32", "bf16"):
            sides, peaks, each_time = [], [], max(1, count // (runs + 1))
            for packed in (True, False):
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                more = {"optimizer.batch_size": LARGE, "encoder.packed": packed}
                made = training(folder, precision, 5 + count, share=False, **more)
                several(made, 5)()
                peaks.append((torch.cuda.max_memory_allocated() - before) / 2**30)
                sides.append(several(made, each_time))
            rates = [each.rate(LARGE * each_time) for each in interleaved(*sides, runs=runs)]
            told = f"padded; peaks {peaks[0]:.1f} and {peaks[1]:.1f} GiB"
            yield Row(f"{name}, {precision}, {LARGE} a batch", *rates, told, "pairs/s", target)


def modern(folders: dict[str, Path], runs: int, count: int) -> Iterator[Row]:
    """The same with ModernBERT-base."""
    folder = next(iter(folders.values())).parent / "ModernBERT"
    write_encoder(folder, **MODERN, kind="modernbert")
    yield from packing({"ModernBERT-base": folder}, runs, count, target=1.5)


def idle(folders: dict[str, Path], runs: int, count: int) -> Iterator[Row]:
    """The share of the time in which the card runs no kernel."""
    for name, folder in folders.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        made = training(folder, "bf16", WARM + count * (runs + 2))
        several(made, WARM)()
        # The profiler slows launches down, so the steps are timed without it.
        (seconds,) = interleaved(several(made, count), runs=runs)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            several(made, count)()
            torch.cuda.synchronize()
        spans = sorted(
            (event.time_range.start, event.time_range.end)
            for event in seen.events()
            if event.device_type == torch.autograd.DeviceType.CUDA
        )
        busy, end = 0.0, spans[0][0]
        for start, stop in spans:
            busy += max(0.0, stop - max(start, end))
            end = max(end, stop)
        share = 1 - busy / 1e6 / seconds.median
        yield Row(f"{name}, bf16: idle", 100 * share, MOST_IDLE, "what it may be", "%", 1.0)
        names = Counter(event.name for event in seen.events())
        waits = sum(n for each, n in names.items() if each in _WAITS) - 1  # the last is ours
        pageable = sum(n for each, n in names.items() if "Pageable -> Device" in each)
        yield Row(f"{name}, bf16: waits for the card", waits / count, None, "a step", "calls")
        yield Row(f"{name}, bf16: pageable copies", pageable / count, None, "a step", "copies")
        memory = torch.cuda.max_memory_reserved() / torch.cuda.max_memory_allocated()
        yield Row(f"{name}, bf16: reserved memory", memory, None, "of what was used", "x")
        del made


def many(folders: dict[str, Path], runs: int, count: int) -> Iterator[Row]:
    """Trainings at a time on one card, each in a process of its own."""
    alone = at_a_time(folders["MiniLM"], 1)
    part, told = f"MiniLM, bf16, {SEVERAL} at a time", "one training"
    yield Row(part, at_a_time(folders["MiniLM"], SEVERAL), alone, told, "pairs/s", 4.0)
    rate = at_a_time(folders["MiniLM"], SEVERAL, 1 / SEVERAL)
    yield Row(f"{part}, with MPS", rate, alone, told, "pairs/s")


def at_a_time(folder: Path, number: int, share: float = 1.0) -> float:
    """Pairs a second of all of `number` trainings together; those with a share join MPS."""
    command = [sys.executable, __file__, "--one", str(folder), "--until"]
    command += [str(time.time() + 24 + number), "--share", str(share)]
    made = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(number)]
    return sum(float(process.communicate()[0].split()[-1]) for process in made)


def one(folder: Path, until: float, share: float) -> None:
    """Train until a time, and print the pairs a second of the last ten seconds, or 0."""
    if share < 1 and (reason := join(share, cuda_begun=False)):
        print(f"nothing is measured with MPS, because {reason}", file=sys.stderr)
        print(0)
        return
    made = training(folder, "bf16", 300)
    several(made, WARM)()
    while time.time() < until - 10:
        several(made, 5)()
    torch.cuda.synchronize()
    start, done = time.perf_counter(), 0
    while time.time() < until:
        several(made, 5)()
        done += 5
    torch.cuda.synchronize()
    print(done * BATCH / (time.perf_counter() - start), flush=True)


def scores(folders: dict[str, Path], runs: int, count: int) -> Iterator[Row]:
    """All tasks by an encoder of BERT's size."""
    encoder = load_encoder(resolve_checkpoint(str(folders["BERT-base"])), "mean", LENGTH, "cuda")
    every = Measures(
        suites=("sts", "transfer"), protocols=("cosine", "logreg-10fold"), device="cuda"
    )
    seconds = timed(lambda: evaluate(encoder.encode, data_root(), every))
    told = "what an H200 may take"
    yield Row("BERT-base: STS and transfer tasks", seconds, MOST_SCORES, told, "s", 1.0)


PARTS = {part.__name__: part for part in (steps, peer, packing, modern, idle, many, scores)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this script."""
    parser.add_argument("--part", action="append", choices=[*PARTS], help="repeatable; else all")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--share", type=float, help=argparse.SUPPRESS)


def main() -> None:
    """Measure; print the rows."""
    if "--one" in sys.argv:
        one(Path(sys.argv[2]), float(sys.argv[4]), float(sys.argv[6]))
        return
    given = options(__doc__ or "", add_options)
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no CUDA device here, so nothing is measured.")
    print(describe_machine(), file=sys.stderr)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        folders = {name: Path(place) / name for name in SIZES}
        for name, folder in folders.items():
            write_encoder(folder, **SIZES[name])
        for part in given.part or (["steps"] if given.quick else PARTS):
            for row in PARTS[part](folders, given.runs, 10 if given.quick else 40):
                rows.append(row)
                print(row.facts(), file=sys.stderr, flush=True)
    finish(rows, given.json)


if __name__ == "__main__":
    main()
