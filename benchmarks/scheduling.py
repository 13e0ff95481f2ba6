"""Measure the overhead of a search: trials a second, empty slots, the way to a trial's end.

Four parts, both sides of each in one run:

- `throughput`: trials that do nothing but leave one score, once warm, beside plain Ray Tune with
  its loggers, whose trials report one number (fewer of them: each is a process of its own);
- `packing`: 24 trials of one second on 2 slots, against the 12 s that they need at least;
- `reuse`: from the end of a trial to the first step of the next one in the same actor, where
  checkpoint and corpus are the same, against 0.3 s;
- `start`: from the command to the end of a trial of two steps, beside a bare script that starts
  Ray and runs the same trial as a task.

    python benchmarks/scheduling.py [--part NAME] [--quick] [--json]
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from datetime import timedelta
from pathlib import Path
from typing import Any

from measuring import Measured, Row, finish, options

from tune_sentcl.on_ray.environment import prepare_ray

prepare_ray()

import ray  # noqa: E402 - its settings come first
from ray import tune  # noqa: E402

import tune_sentcl.on_ray.launcher  # noqa: E402, F401 - as in a search, imported before Ray starts
from tune_sentcl.launch import search  # noqa: E402
from tune_sentcl.store.study import Study  # noqa: E402

SLOTS = 2
WARM = 50
BARE = """
import sys
from pathlib import Path
import ray
from tune_sentcl.space import load_space
from tune_sentcl.trial import Account, InputLoader, run

def trial(config, marker):
    list(run(config, InputLoader(None).load(config), Account("cpu", 1, 0.0, None)))
    Path(marker).touch()

space = load_space(sys.argv[1])
ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="ERROR")
ray.get(ray.remote(trial).remote(space.configurations[0], sys.argv[2]))
"""
SPACE = """
name = "scheduling"
[fixed]
encoder.checkpoint = "toy"
encoder.pooling = "mean"
data.source = "toy"
data.limit = 64
optimizer.lr = 1e-3
optimizer.batch_size = 32
[[block]]
fixed.method.name = "scl"
grid.method.lambda = {lambdas}
"""


def written_space(folder: Path, trials: int) -> Path:
    """Write a space of trials of two steps on toy data, which differ in lambda.

    Args:
        folder: The folder of the file.
        trials: Their number.
    """
    path = folder / "scheduling.toml"
    lambdas = [number / max(1, trials - 1) for number in range(trials)]
    path.write_text(SPACE.format(lambdas=lambdas))
    return path


def _idle(seconds: float) -> Callable[[], None]:
    """A hook for the start of a worker, whose trials then sleep and leave one score."""

    def hook() -> None:
        from tune_sentcl.score import Score
        from tune_sentcl.trial import Progress
        from tune_sentcl.tuning.worker import Attempt

        def points(attempt: Any) -> Generator[Progress, None, None]:
            time.sleep(seconds)
            scores = [Score("sts", "STS-B", "dev", "spearman", "cosine", "toy", 50.0, 9)]
            yield Progress(1, 1, 1, 50.0, tuple(scores), attempt._account.run_columns(), True)

        setattr(Attempt, "points", points)  # noqa: B010

    return hook


def _on_ray(hook: Callable[[], None] | None = None) -> None:
    environment = {"worker_process_setup_hook": hook} if hook else {}
    ray.init(
        address="local",
        num_cpus=SLOTS,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env=environment,
    )


def our_ends(trials: int, seconds: float) -> list[float]:
    """The ends of a search's trials, in seconds since the first one began."""
    _on_ray(_idle(seconds))
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study"
        outcome = search(written_space(Path(folder), trials), study)
        if outcome.failures:
            raise SystemExit(f"{outcome.failures} trials failed")
        rows = Study.read(study).trials(["started_at", "wall_seconds"]).to_pylist()
    ray.shutdown()
    began = min(row["started_at"] for row in rows)
    ends = [row["started_at"] + timedelta(seconds=row["wall_seconds"]) for row in rows]
    return sorted((end - began).total_seconds() for end in ends)


def _report(config: dict[str, Any]) -> None:
    tune.report({"score": config["lambda"]})


def plain_ends(trials: int) -> list[float]:
    """The ends of plain Ray Tune's trials, in seconds since the first end, by its loggers."""
    quiet = os.environ.pop("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", None)
    _on_ray()
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            _report,
            param_space={"lambda": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=trials),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        results = tuner.fit()
        ends = sorted(result.metrics["timestamp"] for result in results if result.metrics)
    ray.shutdown()
    if quiet is not None:
        os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = quiet
    return [end - ends[0] for end in ends]


def _rate(ends: list[float]) -> float:
    return (len(ends) - WARM) / (ends[-1] - ends[WARM - 1])


def throughput(quick: bool) -> list[Row]:
    """Trials a second behind the first `WARM`."""
    trials, plain = (100, 54) if quick else (2000, 200)
    rates = _rate(our_ends(trials, 0.0)), _rate(plain_ends(plain))
    return [Row(f"empty trials, {trials:,}", *rates, f"plain Ray Tune, {plain}", "trials/s", 10.0)]


def packing(quick: bool) -> list[Row]:
    """Seconds that trials of a second take on 2 slots, from the first one's start."""
    trials, runs = (8, 1) if quick else (24, 5)
    took = Measured.of([our_ends(trials, 1.0)[-1] for _ in range(runs)])
    ideal = trials / SLOTS
    part = f"{trials} trials of a second on {SLOTS} slots"
    return [Row(part, took, ideal, "the least there can be", "s", None, ideal)]


def _logging(folder: Path) -> Callable[[], None]:
    """A hook for the start of a worker, which then writes down the ends of steps and trials."""

    def hook() -> None:
        import importlib

        from tune_sentcl.tuning.worker import Attempt

        # By name: the package's attribute of this name is the function.
        story = importlib.import_module("tune_sentcl.trial.run")
        real_train, real_points = story.train, Attempt.points

        def say(what: str) -> None:
            with (folder / f"{os.getpid()}.log").open("a") as file:
                file.write(f"{what} {time.time()}\n")

        def train(*given: Any, **named: Any) -> Generator[Any, None, None]:
            for step in real_train(*given, **named):
                say(str(step.number))
                yield step

        def points(attempt: Any) -> Generator[Any, None, Any]:
            ended = yield from real_points(attempt)
            say("end")
            return ended

        setattr(story, "train", train)  # noqa: B010
        setattr(Attempt, "points", points)  # noqa: B010

    return hook


def reuse(quick: bool) -> list[Row]:
    """Seconds from a trial's end until the next one's first step begins, in the same actor.

    A step's beginning is its end less what the step after it takes.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _on_ray(_logging(folder))
        search(written_space(folder, 6 if quick else 24), folder / "study")
        ray.shutdown()
        gaps = [gap for log in folder.glob("*.log") for gap in _gaps(log)]
    part = "from a trial's end to the next one's first step"
    return [Row(part, Measured.of(gaps), _REUSE_S, "what is allowed", "s", 1.0)]


def _gaps(log: Path) -> Generator[float, None, None]:
    said = [line.split() for line in log.read_text().splitlines()]
    for (what, ended), (_, first), (_, second) in zip(said, said[1:], said[2:], strict=False):
        if what == "end":
            yield 2 * float(first) - float(second) - float(ended)


_REUSE_S = 0.3


def _until(command: list[str], there: Callable[[], bool]) -> float:
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while not there():
            if process.poll() not in (None, 0):
                raise SystemExit(f"{command} ended with {process.returncode}")
            time.sleep(0.01)
        seconds = time.perf_counter() - begin
        process.wait()
    return seconds


def _has_ended(study: Path) -> Callable[[], bool]:
    return lambda: any((study / "trials").glob("*.parquet"))


def start(quick: bool) -> list[Row]:
    """Seconds from the command to the end of a trial."""
    ours, bare = [], []
    for _ in range(1 if quick else 5):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            space, study = written_space(folder, 1), folder / "study"
            search = [sys.executable, "-m", "tune_sentcl", "search", str(space)]
            marker = folder / "marker"
            script = [sys.executable, "-c", BARE, str(space), str(marker)]
            bare.append(_until(script, marker.exists))
            ours.append(_until([*search, "--study", str(study)], _has_ended(study)))
    sides = Measured.of(ours), Measured.of(bare)
    return [Row("to a trial's end", *sides, "a bare Ray script", "s", 1 / 1.2)]


PARTS = {"throughput": throughput, "packing": packing, "reuse": reuse, "start": start}


def main() -> None:
    """Measure and print."""
    given = options(__doc__, lambda parser: parser.add_argument("--part", choices=list(PARTS)))
    parts = [given.part] if given.part else ["start"] if given.quick else list(PARTS)
    rows = [row for part in parts for row in PARTS[part](given.quick)]
    print(f"load at the end: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    finish(rows, given.json)


if __name__ == "__main__":
    main()
