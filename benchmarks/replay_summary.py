"""Print regrets of this search beside random halving, over all tables, as a Markdown table.

It reads the tables of the data root and of `benchmarks/tables`, and is not run by `make bench`.
The tables that chose a rule of the search stand apart from those that only judged it.

    python benchmarks/replay_summary.py [--quick]
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from measuring import ROOT, data_root, markdown, options
from replay import Replays, interval
from replay_plot import half_interval
from replay_search import DEFAULT
from replay_table import Table, read_table

PEER = "random-halving:1:4"
WORKERS, JOBS, SEED, QUICK = 4, 2, 0, 1
COLUMNS = ("table", "use", "budget", "repeats", "default", PEER, "share", "difference (95 %)")
OURS = ROOT / "benchmarks" / "tables"


@dataclass(frozen=True)
class Group:
    """Tables whose mean is a row.

    Attributes:
        name: As printed.
        use: Whether they chose the rule, or only judged it.
        folder: Of the files; None: the data root's.
        pattern: Of the files' names.
        repeats: By budget, in whole trainings.
    """

    name: str
    use: str
    folder: Path | None
    pattern: str
    repeats: dict[int, int]


GROUPS = (
    Group("TaskSet", "chose", None, "taskset-*.parquet", {5: 100, 10: 50, 20: 32, 40: 8}),
    Group("HPOBench", "judged", None, "hpobench-*.parquet", {20: 12, 60: 16}),
    Group("static, retrieval", "judged", OURS, "retrieval.parquet", {5: 50, 10: 50, 20: 50}),
    Group("static, similarity", "judged", OURS, "similarity.parquet", {5: 24, 10: 24, 20: 24}),
    Group("CLSR, MiniLM", "judged", OURS, "clsr.parquet", {5: 50, 10: 50, 20: 50}),
    Group("`mnr`, `scl`, MiniLM", "judged", OURS, "pairs.parquet", {5: 50, 10: 50}),
)


def main() -> None:
    """Replay, and print."""
    given = options(__doc__)
    rows: list[list[str]] = []
    for group in GROUPS:
        files = sorted((group.folder or data_root() / "replay").glob(group.pattern))
        tables = list(map(read_table, map(str, files)))
        rows += _rows(group, tables, quick=given.quick)
    print(markdown(COLUMNS, rows))
    sys.stdout.flush()


def _rows(group: Group, tables: Sequence[Table], *, quick: bool) -> Iterator[list[str]]:
    name = f"{group.name}, mean of {len(tables)}" if len(tables) > 1 else group.name
    for budget, repeats in group.repeats.items():
        replays = Replays(tables, (), (DEFAULT, PEER), budget, WORKERS, SEED)
        rows = list(replays.rows(QUICK if quick else repeats, JOBS))
        ours, theirs = rows[: len(tables)], rows[len(tables) :]
        mine, other = (fmean(row["regret_mean"] for row in each) for each in (ours, theirs))
        count = str(ours[0]["repeats"])
        yield [
            *(name, group.use, str(budget), count, f"{mine:.3f}", f"{other:.3f}"),
            *(f"{mine / other:.2f}" if other else "", _difference(ours, theirs)),
        ]


def _difference(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> str:
    """The mean difference, paired by table and repeat; the interval is of the repeats alone."""
    ends, means = [], []
    for mine, other in zip(ours, theirs, strict=True):
        paired = np.subtract(mine["regrets"], other["regrets"])
        low, high = interval(paired)
        ends.append({"regret_low": low, "regret_high": high})
        means.append(float(paired.mean()))
    mean, half = fmean(means), half_interval(ends)
    return f"{mean:z.3f} ({mean - half:z.3f} to {mean + half:z.3f})"


if __name__ == "__main__":
    main()
