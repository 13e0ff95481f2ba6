"""Memory that a large corpus takes of each worker that trains on it, above what the model takes.

    python benchmarks/corpus_memory.py [--quick] [--json]

Processes of their own train SimCSE with all-MiniLM-L6-v2: one on a few sentences (the model's own
need), one that tokenizes the corpus, and two side by side that find its tokens. A worker's memory
is its peak of resident pages; of two side by side also its share of them, where a page that both
have counts half (PSS). The sentences are Wikipedia's where the data root has them, else drawn.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import Row, data_root, finish, options

SENTENCES, QUICK_SENTENCES = 1_000_000, 30_000
BOUND_MB = 1536.0
_FEW = 256
_STEPS = 3
_MB = 1024.0  # kB, as /proc has it


def main() -> None:
    """Measure; print the rows."""

    def add(parser: Any) -> None:
        parser.add_argument("--worker", nargs=2, metavar=("FILE", "ROWS"), help="used by itself")

    given = options(__doc__ or "", add)
    if given.worker:
        work(given.worker[0], int(given.worker[1]))
        return
    count = QUICK_SENTENCES if given.quick else SENTENCES
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), count)
        os.environ["TUNE_SENTCL_CACHE"] = str(Path(folder, "cache"))
        ((alone, _),) = measured(file, _FEW, 1)
        ((first, _),) = measured(file, count, 1)
        pair = measured(file, count, 2)
    own = alone["peak"]
    later = max(peak["peak"] for peak, _ in pair)
    shared = max(after["pss"] - alone["pss"] for _, after in pair)
    what = f"{count:,} sentences, MB of a worker above the model's {own:.0f}"
    bound = (BOUND_MB, "the bound, for 1,000,000")
    finish(
        [
            Row(f"{what}: who tokenizes them", first["peak"] - own, *bound, "MB", 1.0),
            Row(f"{what}: who finds them", later - own, *bound, "MB", 1.0),
            Row(f"{what}: each of two at once (PSS)", shared, *bound, "MB", 1.0),
        ],
        given.json,
    )


def write(folder: Path, count: int) -> Path:
    """So many sentences as a file."""
    known = Path("wiki", "enwiki_2015_sentences_1m.parquet")
    try:
        path = data_root() / known
    except SystemExit:
        path = folder / known.name
    if not path.is_file():
        path = folder / known.name
        draws, letters = np.random.default_rng(0), np.array(list("etaoinshrdlu"))
        words = ["".join(draws.choice(letters, size)) for size in draws.integers(1, 9, 20_000)]
        places = np.minimum(draws.zipf(1.2, (count, 22)), len(words)) - 1
        texts = [" ".join(words[place] for place in row) for row in places.tolist()]
        pq.write_table(pa.table({"text": pa.array(texts)}), path)
    return path


def measured(
    file: Path, rows: int, workers: int
) -> list[tuple[dict[str, float], dict[str, float]]]:
    """What so many workers hold at once: each behind its steps, and when all are behind theirs."""
    command = [sys.executable, __file__, "--worker", str(file), str(rows)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(workers)
    ]
    try:
        peaks = [json.loads(_line(process)) for process in running]
        for process in running:
            if process.stdin is not None:
                process.stdin.write("\n")
                process.stdin.flush()
        return list(zip(peaks, (json.loads(_line(process)) for process in running), strict=True))
    finally:
        for process in running:
            process.kill()
            process.wait()


def _line(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise SystemExit("a worker ended without a word; its error stands above")
    return line


def work(file: str, rows: int) -> None:
    """Take some steps on a file's first rows, as a trial does; say what that took, and wait."""
    import torch

    from tune_sentcl.config import parse_dotted
    from tune_sentcl.data.rows.load import load_rows
    from tune_sentcl.methods import Setting, build_method
    from tune_sentcl.model.checkpoint import resolve_checkpoint
    from tune_sentcl.model.encoder import load_encoder
    from tune_sentcl.train import train

    torch.set_num_threads(1)
    values = {"method.name": "simcse", "data.source": file, "data.limit": rows}
    config = parse_dotted({**values, "data.order": "shuffled"}, "benchmark")
    corpus = load_rows(config.method.rows, config.data, None)
    encoder = load_encoder(resolve_checkpoint("minilm"), config.encoder.pooling, 512, "cpu", 32)
    setting = Setting(config.encoder, torch.Generator().manual_seed(0))
    method = build_method(config, encoder, setting)
    with closing(train(method, corpus, config)) as steps:  # open, as in a trial's middle
        for _ in islice(steps, _STEPS):
            pass
        print(json.dumps(memory()), flush=True)
        sys.stdin.readline()
        print(json.dumps(memory()), flush=True)


def memory() -> dict[str, float]:
    """MB of this process: the peak of its resident pages, and its share of them now (PSS)."""
    status = _fields("/proc/self/status")
    rollup = _fields("/proc/self/smaps_rollup")
    return {"peak": status["VmHWM"] / _MB, "pss": rollup["Pss"] / _MB}


def _fields(path: str) -> dict[str, float]:
    found = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition(":")
        if rest.strip().endswith(" kB"):
            found[name] = float(rest.strip().removesuffix(" kB"))
    return found


if __name__ == "__main__":
    main()
