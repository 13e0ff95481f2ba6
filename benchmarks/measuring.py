"""The common parts of the benchmarks: options, interleaved timing, rows that compare two sides.

A script asks `options` for its command line, measures both sides in one run with `interleaved`,
and hands its rows to `finish`, which prints a table or, with `--json`, nothing but JSON:
`[{part, ours, peer, peer_name, ratio, unit, target}]` with `share`, `ours_range` and `peer_range`.
The output of libraries and child processes goes to stderr.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUNS = 5
QUICK_RUNS = 2
_UNITS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


@dataclass(frozen=True)
class Measured:
    """A quantity that was measured several times.

    Attributes:
        median: Of all runs.
        low: The least.
        high: The largest.
    """

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> "Measured":
        """Sum up what several runs gave."""
        return Measured(statistics.median(values), min(values), max(values))

    def rate(self, amount: float) -> "Measured":
        """`amount` a second, where this is the seconds that it took."""
        return Measured(amount / self.median, amount / self.high, amount / self.low)

    def each(self, count: float, scale: float = 1.0) -> "Measured":
        """A `count`th of each number, times `scale` (1e3: milliseconds)."""
        return Measured(*(scale * number / count for number in (self.median, self.low, self.high)))


@dataclass(frozen=True)
class Row:
    """One part of a benchmark: our number beside another's.

    Attributes:
        part: The measured part.
        ours: Our number.
        peer: The other's, in the same unit and measured in the same run; None: there is none.
        peer_name: Its name; for a number without a peer, the reason.
        unit: Of both. More is better for a unit with "/s", and less for all others (s, ms, MB).
        target: The least ratio that is good enough, if one was set.
        limit: The most that this machine could give, in the same unit, if it is known.
    """

    part: str
    ours: Measured | float
    peer: Measured | float | None
    peer_name: str
    unit: str
    target: float | None = None
    limit: float | None = None

    @property
    def ratio(self) -> float | None:
        """The factor by which ours is better: above 1 if we are ahead; None beside a 0."""
        return None if self.peer is None else self._better(_median(self.peer))

    @property
    def share(self) -> float | None:
        """Our share of what the machine could give, at most about 1."""
        return None if self.limit is None else self._better(self.limit)

    def _better(self, other: float) -> float | None:
        ours = _median(self.ours)
        over, under = (ours, other) if "/s" in self.unit else (other, ours)
        return over / under if under else None

    @property
    def missed(self) -> bool:
        """Whether the ratio is under its target."""
        return self.ratio is not None and self.target is not None and self.ratio < self.target

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "part": self.part,
            "ours": _median(self.ours),
            "peer": None if self.peer is None else _median(self.peer),
            "peer_name": self.peer_name,
            "ratio": self.ratio,
            "unit": self.unit,
            "target": self.target,
            "share": self.share,
            "ours_range": _range(self.ours),
            "peer_range": None if self.peer is None else _range(self.peer),
        }


def _median(number: Measured | float) -> float:
    return number.median if isinstance(number, Measured) else float(number)


def _range(number: Measured | float) -> list[float] | None:
    return [number.low, number.high] if isinstance(number, Measured) else None


def options(description: str, add: Callable[[Any], None] | None = None) -> argparse.Namespace:
    """Read the command line, and keep stdout for the rows alone.

    Args:
        description: The script's docstring; its first line is shown.
        add: Adds the script's own options to the parser; none of them may be positional if
            `run_all` runs the script.

    Returns:
        The options, among them `quick` (small sizes: under a minute), `json`, and `runs`: the
        number of measurements of each side.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: under a minute")
    parser.add_argument("--json", action="store_true", help="print nothing but JSON on stdout")
    if add is not None:
        add(parser)
    given = parser.parse_args()
    given.runs = QUICK_RUNS if given.quick else RUNS
    # Progress bars, loggers and child processes may write to descriptor 1.
    sys.stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return given


def data_root() -> Path:
    """The real data sets: TUNE_SENTCL_DATA, else `shared/data` beside the checkout.

    Raises:
        SystemExit: Neither exists.
    """
    given = os.environ.get("TUNE_SENTCL_DATA")
    found = Path(given).expanduser() if given else ROOT.parent / "shared" / "data"
    if not found.is_dir():
        raise SystemExit(f"no data at {found}: set TUNE_SENTCL_DATA to a data root")
    return found.absolute()


def describe_machine() -> str:
    """One line: the processor, its cores and matrix units, memory, versions, the GPU or none."""
    import torch

    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    flags = _from_cpuinfo("flags").split()
    units = ", ".join(unit for unit in _UNITS if unit in flags) or platform.machine()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    name = _from_cpuinfo("model name") or platform.processor()
    threads = f"torch {torch.__version__} with {torch.get_num_threads()} threads"
    return f"{name}, {cores} cores ({units}), {memory:.0f} GiB; {threads}; {gpu}"


def _from_cpuinfo(name: str) -> str:
    found = Path("/proc/cpuinfo")
    lines = found.read_text().splitlines() if found.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def interleaved(*sides: Callable[[], object], runs: int = RUNS) -> tuple[Measured, ...]:
    """Time several sides in turn, so that other load of the machine hits all of them alike.

    Args:
        sides: The functions; in every other run the last one comes first.
        runs: The number of timed runs of each side; one untimed run precedes them.

    Returns:
        The seconds of each side, in their order.
    """
    seconds: list[list[float]] = [[] for _ in sides]
    for run in range(-1, runs):
        order = range(len(sides)) if run % 2 == 0 else reversed(range(len(sides)))
        for place in order:
            took = timed(sides[place])
            if run >= 0:
                seconds[place].append(took)
    return tuple(map(Measured.of, seconds))


def timed(side: Callable[[], object]) -> float:
    """The seconds that a side takes, until its device is done as well."""
    _settle()
    start = time.perf_counter()
    side()
    _settle()
    return time.perf_counter() - start


def _settle() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


def finish(rows: Sequence[Row], as_json: bool) -> None:
    """Print the rows: a table for people, or JSON and nothing else."""
    facts = [row.facts() for row in rows]
    print(json.dumps(facts, indent=1) if as_json else table(facts))
    sys.stdout.flush()


COLUMNS = ("part", "ours", "peer", "ratio", "target", "share of limit")


def table(facts: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown, with the least and the largest number of each median's runs."""
    return markdown(COLUMNS, map(cells, facts))


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cells(row: dict[str, Any]) -> list[str]:
    """A row's cells in the columns of `COLUMNS`."""
    peer = row["peer_name"]
    if row["peer"] is not None:
        peer += f": {_number(row['peer'], row['peer_range'])}"
    ratio, target, share = row["ratio"], row["target"], row["share"]
    short = ratio is not None and target is not None and ratio < target
    return [
        row["part"],
        f"{_number(row['ours'], row['ours_range'])} {row['unit']}",
        peer,
        "" if ratio is None else f"{ratio:.2f}" + (" (missed)" if short else ""),
        "" if target is None else f"{target:g}",
        "" if share is None else f"{100 * share:.0f} %",
    ]


def _number(value: float, limits: list[float] | None) -> str:
    told = f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if limits is None:
        return told
    low, high = (_number(limit, None) for limit in limits)
    return f"{told} ({low}-{high})"
