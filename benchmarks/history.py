"""Measure the costs of a growing study: resuming, the end of a trial, memory, files, `show`.

Trials are handed out and committed by the real session on a real disk; only their training is left
out: a stand-in reports the scores and curves that a worker would. Every phase runs in a process of
its own, and times and memory begin after the imports. An exception interrupts the first phase, so
the driver releases its lease. A cost of the whole study is stated per trial of a larger study,
beside that of the smallest: a ratio of 1 is linear growth, or no growth for the end of a trial.

    python benchmarks/history.py [--trials 1000 10000] [--quick] [--json]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from measuring import Row, finish, options

PHASES = ("build", "resume", "end", "show")
TASKS = [(f"STS{year}", "test", "all") for year in range(12, 17)]
TASKS += [(name, split, None) for name in ("STS-B", "SICK-R") for split in ("dev", "test")]
SUBSETS = {"STS12": 5, "STS13": 3, "STS14": 6, "STS15": 5, "STS16": 5}
POINTS = 40


def main() -> None:
    """Run all phases for each size, and print what a trial costs in each."""
    given = options(__doc__, _own_options)
    sizes = given.trials or ([60, 180] if given.quick else [1000, 10000])
    if given.phase:
        print(json.dumps(_PHASES[given.phase](given.study, sizes[0])))
        return
    found = {count: _measure(count) for count in sizes}
    finish([row for count in sizes[1:] for row in _rows(found, sizes[0], count)], given.json)


def _own_options(parser: Any) -> None:
    parser.add_argument("--trials", type=int, nargs="+")
    parser.add_argument("--phase", choices=PHASES, help="one phase alone, of --study")
    parser.add_argument("--study")


def _rows(found: dict[int, dict[str, Any]], small: int, large: int) -> Iterator[Row]:
    for part, (value, unit) in found[large].items():
        less = found[small][part][0]
        if unit in _WHOLE:
            value, less, unit = 1e3 * value / large, 1e3 * less / small, _WHOLE[unit]
        yield Row(f"{part}, {large:,} trials", value, less, f"{small:,} trials", unit)


# Of the whole study, hence stated a trial.
_WHOLE = {"s": "ms a trial", "MB": "kB a trial", "files": "files a thousand trials"}


def _measure(count: int) -> dict[str, Any]:
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for phase in PHASES:
            rows |= run_phase(phase, f"{folder}/study", count)
    return rows


def run_phase(
    phase: str, study: str, count: int, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a phase in a process of its own.

    Args:
        phase: Of `PHASES`; those before it have run.
        study: The study's folder or address.
        count: The number of its trials.
        environment: The process's variables; None: this process's.

    Returns:
        What it measured: the value and the unit by name.
    """
    command = [sys.executable, __file__, "--phase", phase, "--trials", str(count)]
    command += ["--study", study]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _prepared(count: int) -> Any:
    from tune_sentcl.space import load_space
    from tune_sentcl.tuning.options import SearchOptions
    from tune_sentcl.tuning.question import ask

    space = load_space("scl/lambda", {"encoder.checkpoint": "toy", "data.source": "toy"})
    options = SearchOptions(
        samples=count - len(space.configurations), sampler="random", launcher="local", keep=1
    )
    return ask(space, None, (0,), options)


def _build(study: str, count: int) -> dict[str, Any]:
    from tune_sentcl.tuning.search import run_search

    spent: list[float] = []
    files = 0
    question = _prepared(count)
    half = 0.0

    class Interrupted(BaseException):
        pass

    def drive(session: Any) -> None:
        nonlocal files, half
        while not session.finished:
            assignment = session.next()
            final = _worked(assignment.config)
            start = time.perf_counter()
            session.progress(assignment.trial_id, final)
            spent.append(time.perf_counter() - start)
            if len(spent) == count // 2:
                half = _resident()
            if len(spent) % 100 == 0:
                files = max(files, sum(len(names) for *_, names in os.walk(study)))
        raise Interrupted

    with suppress(Interrupted):
        run_search(question, study, lambda *_: nullcontext(drive))
    tenth = max(1, len(spent) // 10)
    return {
        "end of a trial, mean": (1e3 * statistics.fmean(spent), "ms"),
        "end of a trial, mean of the last tenth": (1e3 * statistics.fmean(spent[-tenth:]), "ms"),
        "end of a trial, median": (1e3 * statistics.median(spent), "ms"),
        # All that is needed once is there by then.
        "memory a trial, of the second half": (
            (_resident() - half) / (count - count // 2),
            "kB a trial",
        ),
        "files at the most": (files, "files"),
    }


def _worked(config: Any) -> Any:
    """Report the same as a worker, without the work."""
    from tune_sentcl.score import Score
    from tune_sentcl.store.rows import CurvePoint
    from tune_sentcl.trial import Account, Progress

    value = 80 - abs(config.dotted().get("method.lambda", 0.0) - 0.6)
    scores = []
    for task, split, aggregation in TASKS:
        for metric in ("spearman", "pearson"):
            wholes = ("all", "mean", "wmean") if aggregation else (None,)
            kinds = [(None, how) for how in wholes]
            kinds += [(f"part{n}", None) for n in range(SUBSETS.get(task, 0))]
            for subset, how in kinds:
                score = Score(
                    "sts",
                    task,
                    split,
                    metric,
                    "cosine",
                    "toy",
                    value,
                    750,
                    subset=subset,
                    aggregation=how,
                )
                scores.append(score)
    points = tuple(
        CurvePoint(step, step / POINTS, step * 64, name, 1.0 / (step + 1))
        for step in range(POINTS)
        for name in ("loss", "loss.cross_entropy", "loss.contrastive")
    )
    facts, rows = Account().run_columns(), 64 * POINTS
    return Progress(POINTS, POINTS, rows, value, tuple(scores), facts, final=True, curves=points)


def _end(study: str, count: int) -> dict[str, Any]:
    from tune_sentcl.tuning.search import run_search

    question = _prepared(count)
    start = time.perf_counter()
    run_search(question, study, lambda *_: nullcontext(lambda session: None))
    return {"resume, run nothing, end": (time.perf_counter() - start, "s")}


def _resume(study: str, count: int) -> dict[str, Any]:
    """Time the way from the asked question to a session that can hand out the next trial."""
    from tune_sentcl.tuning.search import open_session
    from tune_sentcl.tuning.session import Limits

    question = _prepared(count)
    before, start = _resident(), time.perf_counter()
    with open_session(question, study, Limits()) as session:
        seconds = time.perf_counter() - start
        done = session.queue.done
    if done != count:
        raise SystemExit(f"{done} of {count} trials were recognized")
    return {"resume": (seconds, "s"), "resume, memory": ((_peak() - before) / 1e3, "MB")}


def _show(study: str, count: int) -> dict[str, Any]:
    import contextlib
    import io

    import pandas  # noqa: F401 - the imports are not what is timed

    import tune_sentcl.analysis.frames  # noqa: F401
    from tune_sentcl.cli.study_tables import print_study

    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        print_study(study)
    return {"show": (time.perf_counter() - start, "s")}


def _resident() -> float:
    """Kilobytes that the process holds now."""
    return _status("VmRSS:")


def _peak() -> float:
    return _status("VmHWM:")


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name))


_PHASES = {
    "build": _build,
    "resume": _resume,
    "end": _end,
    "show": _show,
}


if __name__ == "__main__":
    main()
