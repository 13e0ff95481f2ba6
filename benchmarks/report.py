"""What a report of a large study costs: the command, its file, and the page in Chromium.

A study of the size that is asked for is written by the store's own writer: three methods, seven
knobs drawn at random, one configuration in fifty with three seeds, one trial in five pruned, one
in a hundred failed, scores and curves as an STS and transfer trial leaves them. Then
`tune-sentcl report` runs in a process of its own, and, where playwright and /usr/bin/chromium are
there, the page is opened from disk: until its first figures are drawn and it answers a click.

    python benchmarks/report.py [--trials 10000] [--study DIR] [--quick] [--json]
"""

import hashlib
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Row, finish, options

STS = [*(f"STS{year}" for year in range(12, 17)), "STS-B", "SICK-R"]
TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
SUBSETS = {"STS12": 5, "STS13": 3, "STS14": 6, "STS15": 5, "STS16": 5}
POINTS = 10
DEV = "STS-B:spearman:dev"
CHROMIUM = Path("/usr/bin/chromium")


def main() -> None:
    """Build, report, open, and print what each took."""
    given = options(__doc__, _own_options)
    trials = given.trials or (200 if given.quick else 10_000)
    with tempfile.TemporaryDirectory() as folder:
        study = Path(given.study or f"{folder}/study")
        if not (study / "study.json").exists():
            build(study, trials)
        rows = _measure(study, Path(folder) / "report.html")
    finish([Row(part, value, None, "none", unit) for part, value, unit in rows], given.json)


def _own_options(parser: Any) -> None:
    parser.add_argument("--trials", type=int)
    parser.add_argument("--study", help="keep the study there; one that is there is taken")


def _measure(study: Path, page: Path) -> list[tuple[str, float, str]]:
    command = [sys.executable, "-m", "tune_sentcl", "report", str(study), "--out", str(page)]
    start = time.perf_counter()
    subprocess.run(command, check=True)
    found = [("report, imports included", time.perf_counter() - start, "s")]
    found.append(("HTML", page.stat().st_size / 1e6, "MB"))
    if CHROMIUM.exists():
        found += _opened(page)
    return found


def _opened(page: Path) -> Iterator[tuple[str, float, str]]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        view = browser.new_page(viewport={"width": 1280, "height": 900})
        start = time.perf_counter()
        view.goto(page.as_uri())
        yield "page loaded", time.perf_counter() - start, "s"
        view.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        yield "page answers", time.perf_counter() - start, "s"
        for figure in view.query_selector_all("figure[data-figure]"):
            start = time.perf_counter()
            figure.scroll_into_view_if_needed()
            name = figure.get_attribute("data-figure")
            view.wait_for_selector(f"figure[data-figure='{name}'][data-drawn]")
            yield f"scrolled to {name}", time.perf_counter() - start, "s"
        browser.close()


def build(path: Path, count: int) -> None:
    """Write a study of so many trials."""
    from tune_sentcl.space import load_space
    from tune_sentcl.store import SearchRecord, StudyDriver, TrialFiles
    from tune_sentcl.store.manifest import PlanRecord

    draw = np.random.default_rng(0)
    files = TrialFiles(path)
    with StudyDriver.open(path, space=load_space("smoke"), command=["search"]) as driver:
        for number in range(count):
            row, scores, points = _trial(number, draw)
            if row.status == "finished":
                files.write_scores(row.trial_id, scores)
            if row.status != "failed":
                files.write_curves(row.trial_id, points)
            driver.commit(row)
        rungs = [{"rows": 2000, "reached": count, "stopped": count // 5, "finished": count // 2}]
        driver.record(
            SearchRecord(
                (DEV,), "tpe", 0, rungs=tuple({**r, "rank_correlation": 0.7} for r in rungs)
            ),
            PlanRecord(3600.0 * 40, 3600.0 * 44, count),
        )
        driver.compact()


def _trial(number: int, draw: np.random.Generator) -> tuple[Any, list[Any], list[Any]]:
    from tune_sentcl.config import parse_config
    from tune_sentcl.store import TrialRow

    # Each fiftieth configuration has three seeds.
    seed = number % 50 if number % 50 < 3 else 0
    configuration = number - seed
    knobs = _knobs(np.random.default_rng(configuration))
    config = parse_config({**knobs, "seed": seed}, "benchmark")
    status = "failed" if number % 100 == 99 else "pruned" if number % 5 == 4 else "finished"
    value = _quality(config.dotted()) + float(draw.normal(0, 0.4))
    seconds = 40.0 * config.optimizer.epochs + float(draw.gamma(4, 3))
    row = TrialRow(
        config,
        trial_id=_name("trial", number),
        configuration=_name("configuration", configuration),
        space="smoke",
        origin="sampler",
        status=status,
        steps=100,
        started_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=16 * number),
        wall_seconds=seconds,
        train_seconds=0.8 * seconds,
        evaluation_seconds=0.15 * seconds,
        gpu_seconds=seconds / 2,
        device="NVIDIA H100",
        host=f"node{number % 4}",
        gpus=0.5,
        objectives=((DEV, value if status == "finished" else None),),
        error_type="NonFiniteError" if status == "failed" else None,
        error_text="The loss is nan at step 17." if status == "failed" else None,
    )
    return row, list(_scores(value, draw)), list(_points(value, draw))


def _name(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _knobs(draw: np.random.Generator) -> dict[str, Any]:
    method: dict[str, Any] = {"name": str(draw.choice(["scl", "simcse", "conisi"]))}
    if method["name"] != "simcse":
        method["lambda"] = round(float(draw.uniform(0, 1)), 4)
    method["temperature"] = float(10 ** draw.uniform(-2, 0))
    optimizer = {
        "lr": float(10 ** draw.uniform(-6, -4)),
        "batch_size": int(draw.choice([32, 64, 128, 256])),
        "epochs": int(draw.integers(1, 4)),
        "warmup": round(float(draw.uniform(0, 0.3)), 3),
    }
    encoder = {"pooling": str(draw.choice(["mean", "cls", "first_last"]))}
    return {"method": method, "optimizer": optimizer, "encoder": encoder}


def _quality(knobs: dict[str, Any]) -> float:
    rate = math.log10(knobs["optimizer.lr"])
    value = 82 - 3 * (rate + 4.7) ** 2 - 4 * (knobs.get("method.lambda") or 0.5) ** 2
    return value - 2 * (knobs["encoder.pooling"] == "cls") + 0.5 * knobs["optimizer.epochs"]


def _scores(value: float, draw: np.random.Generator) -> Iterator[Any]:
    from tune_sentcl.score import Score

    for task in STS:
        wholes = ("all", "mean", "wmean") if task in SUBSETS else (None,)
        kinds: list[Any] = [(None, how) for how in wholes]
        kinds += [(f"part{n}", None) for n in range(SUBSETS.get(task, 0))]
        for split in ("dev", "test") if task in ("STS-B", "SICK-R") else ("test",):
            for metric in ("spearman", "pearson"):
                for subset, how in kinds:
                    number = value + float(draw.normal(0, 1)) - 5 * (task == "STS12")
                    named = ("sts", task, split, metric, "cosine", "root", number, 750)
                    yield Score(*named, subset=subset, aggregation=how)
    for task in TRANSFER:
        number = 88 - 0.2 * (80 - value) + float(draw.normal(0, 1))
        yield Score("transfer", task, "test", "accuracy", "logreg-10fold", "root", number, 2000)


def _points(value: float, draw: np.random.Generator) -> Iterator[Any]:
    from tune_sentcl.store import CurvePoint

    for step in range(1, POINTS + 1):
        part = step / POINTS
        dev = value - 20 * math.exp(-4 * part) + float(draw.normal(0, 0.2))
        for name, number in (("loss", math.exp(-part) + 0.1), ("STS-B.dev.spearman", dev)):
            yield CurvePoint(10 * step, part, 640 * step, name, number)


if __name__ == "__main__":
    main()
