"""Replay searches over tables of trials that were really run: what they choose, and at what cost.

It measures choices, takes tables, and is not run by `make bench`.

    python benchmarks/replay.py TABLE... --policy "--sampler tpe --scheduler race" [--policy ...]
        [--budget 20 ...] [--workers 4] [--repeats 50] [--learn TABLE...] [--held-out] [--json]
        [--plot FILE.svg]

A policy is the options of `tune-sentcl search` for sampling and early stopping, `default`, or the
name of a peer (`replay_peers.PEERS`). Options without `--samples` and `--budget` have the budget
of the replay, and without `--seeds` all seeds of the table. `--learn-from learn` means the tables
of `--learn`; `default` learns from them if there are any. A run does not learn from its own table.
`--confirm` changes no choice, and is not run. A TABLE is a Parquet file
(`replay_table`) or a study's folder. A row tells for one table and policy:

- `regrets`: of each repeat's chosen configuration; policies share the repeats' seeds;
- `regret_mean`: of the chosen configuration, 0 for the best in the table and 1 for the median,
  with a 95 % interval (`regret_low`, `regret_high`), the median and the 90th percentile;
- `regret_held_out`: judged by seeds that the search did not see (`--held-out`; tables of three
  seeds or more), with an interval (`held_out_low`, `held_out_high`);
- `regret_visited`: of the best configuration that reported a score to the search;
- `cost`: whole trainings that were used; the budget is in the same unit;
- `time`: from the first to the last point, in whole trainings of one worker;
- `wrong_choice`: the share of runs in which another configuration that reported a score is better
  than the choice by more than 1 % of the distance from the median to the best;
- `search_seconds`: CPU seconds of the search's own work in one run.
"""

import json
import math
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from measuring import options
from replay_peers import peer
from replay_plot import draw, half_interval
from replay_search import DEFAULT, LEARNING, OwnSearch, parse_policy
from replay_table import Run, Searcher, Table, Task, read_table, replay, task_of

from tune_sentcl.analysis.report.formats import check_pictures
from tune_sentcl.cli.exits import BAD_INPUT, say
from tune_sentcl.errors import BadInputError, ConfigError, Fault
from tune_sentcl.seeding import stream_seed

_QUICK = 3  # repeats
_TOLERANCE = 0.01
_RESAMPLES = 2000
_SHOWN = (
    *("table", "policy", "budget", "regret_mean", "regret_low", "regret_high", "regret_median"),
    *(
        "regret_p90",
        "regret_held_out",
        "regret_visited",
        "cost",
        "time",
        "wrong_choice",
        "search_seconds",
    ),
)


@dataclass(frozen=True)
class Case:
    """One run: the indices of table and policy, the repeat, and whether seeds are held out."""

    table: int
    policy: int
    repeat: int
    held_out: bool


@dataclass(frozen=True)
class Outcome:
    """One run's result, as the columns of a row have it."""

    regret: float
    visited: float
    wrong: bool
    cost: float
    time: float
    seconds: float


MakeSearch = Callable[[Task, Sequence[Table]], Searcher]


def main() -> None:
    """Replay, and print."""
    given = options(__doc__, _own_options)
    repeats = min(given.repeats, _QUICK) if given.quick else given.repeats
    try:
        _check(given)
        if given.plot:
            check_pictures()
        tables, older = (list(map(read_table, paths)) for paths in (given.tables, given.learn))
        for table in (*tables, *older):
            if table.sampled > len(table):
                kept = f"{len(table)} of {table.sampled} configurations have all seeds and count"
                say(f"{table.path}: {kept}; search with --scheduler none for a full table")
        policies, rows = given.policy or [DEFAULT], []
        for budget in given.budget:
            replays = Replays(tables, older, policies, budget, given.workers, given.seed)
            replays.check()
            rows += replays.rows(repeats, given.jobs, held_out=given.held_out)
    except BadInputError as error:
        say(f"error: {error}")
        raise SystemExit(BAD_INPUT) from None
    print(json.dumps(rows, indent=1) if given.json else "\n".join(lines(rows)))
    sys.stdout.flush()
    if given.plot:
        draw(rows, given.plot)


def _own_options(parser: Any) -> None:
    parser.add_argument("tables", nargs="+", metavar="TABLE", help="Parquet files or studies")
    parser.add_argument("--policy", action="append", help="options of search, default, or a peer")
    parser.add_argument(
        "--budget", type=float, nargs="+", default=[20.0], help="in whole trainings"
    )
    parser.add_argument("--workers", type=int, default=4, help="trials at a time")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--held-out", action="store_true", help="runs that see half of the seeds")
    parser.add_argument("--plot", type=Path, help="an SVG of regret against cost")
    parser.add_argument("--learn", nargs="+", default=[], metavar="TABLE", help="older tables")


def _check(given: Any) -> None:
    sizes = [(name, getattr(given, name)) for name in ("workers", "repeats", "jobs")]
    for name, value in (*sizes, *(("budget", budget) for budget in given.budget)):
        if not 0 < value < math.inf:
            raise _fault(name, value, "must be above 0 and finite")
    if not 0 <= given.seed < 2**32:
        raise _fault("seed", given.seed, "must be at least 0 and below 2**32")
    if given.plot and (given.plot.is_dir() or not given.plot.parent.is_dir()):
        raise _fault("plot", given.plot, "must be a file in a folder that exists")


def _fault(name: str, value: Any, rule: str) -> ConfigError:
    return ConfigError(Fault(f"--{name}", value=str(value), rule=rule, move="Correct it."))


@dataclass(frozen=True)
class Replays:
    """The runs of policies over tables.

    Attributes:
        tables: The tables.
        older: The tables of `--learn`; a run does not learn from its own table.
        policies: The policies as text.
        budget: Whole trainings.
        workers: Trials at a time.
        seed: The seed of all runs.
    """

    tables: Sequence[Table]
    older: Sequence[Table]
    policies: Sequence[str]
    budget: float
    workers: int
    seed: int

    def check(self) -> None:
        """Begin each policy once over each table.

        Raises:
            BadInputError: A policy is wrong, alone or for a table.
        """
        for table, policy in product(range(len(self.tables)), range(len(self.policies))):
            self._begin(table, policy, task_of(self.tables[table], self.seed))

    def rows(self, repeats: int, jobs: int, *, held_out: bool = False) -> Iterator[dict[str, Any]]:
        """Replay each policy over each table, and yield the rows."""
        cases = [
            Case(table, policy, repeat, out)
            for policy in range(len(self.policies))
            for table in range(len(self.tables))
            for out in (
                (False, True) if held_out and self.tables[table].scores.shape[1] > 2 else (False,)
            )
            for repeat in range(repeats)
        ]
        torch.set_num_threads(1)
        for key, group in groupby(
            self._all(cases, jobs), lambda one: (one[0].policy, one[0].table)
        ):
            found = list(group)
            seen = [outcome for case, outcome in found if not case.held_out]
            out = [outcome.regret for case, outcome in found if case.held_out]
            yield {**self._named(*key), **_summary(seen), **_held_out(out)}

    def run(self, case: Case) -> Outcome:
        """Run one case."""
        # Tables may hold the same configurations; the mean over them needs other draws in each.
        seed = stream_seed(self.seed, "replay", case.table, case.repeat) % 2**32
        task = task_of(self.tables[case.table], seed, held_out=case.held_out)
        search = self._begin(case.table, case.policy, task)
        return outcome(task, replay(task, search, self.budget, self.workers))

    def _begin(self, table: int, policy: int, task: Task) -> Searcher:
        own = Path(self.tables[table].path).resolve()
        others = [one for one in self.older if Path(one.path).resolve() != own]
        return search_of(self.policies[policy], self.budget)(task, others)

    def _all(self, cases: Sequence[Case], jobs: int) -> Iterator[tuple[Case, Outcome]]:
        if jobs == 1:
            yield from ((case, self.run(case)) for case in cases)
            return
        with multiprocessing.get_context("fork").Pool(jobs, _keep, (self,)) as pool:
            yield from zip(cases, pool.imap(_run_kept, cases), strict=True)

    def _named(self, policy: int, table: int) -> dict[str, Any]:
        names = {"table": self.tables[table].name, "policy": self.policies[policy]}
        return {**names, "budget": self.budget, "workers": self.workers}


_kept: list[Replays] = []


def _keep(replays: Replays) -> None:
    _kept[:] = [replays]


def _run_kept(case: Case) -> Outcome:
    return _kept[0].run(case)


@cache
def search_of(text: str, budget: float) -> MakeSearch:
    """The search that a policy means."""
    if text == DEFAULT or text.startswith("-"):
        alone, learning = parse_policy(text), parse_policy(LEARNING if text == DEFAULT else text)
        return lambda task, older: OwnSearch(task, learning if older else alone, budget, older)
    make = peer(text)
    return lambda task, older: make(task, budget, older)


def outcome(task: Task, run: Run) -> Outcome:
    """Judge a run by the truth of its table."""
    visited = max((task.truth[one] for one in run.seen), default=-np.inf)
    chosen = -np.inf if run.choice is None else task.truth[run.choice]
    return Outcome(
        task.regret(run.choice),
        min(map(task.regret, run.seen), default=1.0),
        bool(visited > chosen and not visited - chosen <= _TOLERANCE * task.span),
        run.cost,
        run.time,
        run.seconds,
    )


def _summary(found: Sequence[Outcome]) -> dict[str, Any]:
    regrets = np.array([one.regret for one in found])
    low, high = interval(regrets)
    return {
        "repeats": len(found),
        "regrets": regrets.tolist(),
        "regret_mean": float(regrets.mean()),
        "regret_low": low,
        "regret_high": high,
        "regret_median": float(np.median(regrets)),
        "regret_p90": float(np.quantile(regrets, 0.9)),
        "cost": fmean(one.cost for one in found),
        "time": fmean(one.time for one in found),
        "wrong_choice": fmean(one.wrong for one in found),
        "search_seconds": fmean(one.seconds for one in found),
        "regret_visited": fmean(one.visited for one in found),
    }


def _held_out(regrets: Sequence[float]) -> dict[str, Any]:
    low, high = interval(regrets) if regrets else (None, None)
    return {"regret_held_out": _mean(regrets), "held_out_low": low, "held_out_high": high}


def interval(regrets: Any) -> tuple[float, float]:
    """A 95 % interval of the mean by the bootstrap."""
    drawn = np.random.default_rng(0).choice(regrets, (_RESAMPLES, len(regrets)))
    low, high = np.quantile(drawn.mean(axis=1), (0.025, 0.975)).tolist()
    return low, high


def _mean(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


def lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The rows as Markdown; after those of a policy their mean, with a normal interval."""
    yield _line(_SHOWN)
    yield _line(["---"] * len(_SHOWN))
    for (_, policy), group in groupby(rows, lambda row: (row["budget"], row["policy"])):
        found = list(group)
        means = {name: _mean(row[name] for row in found) for name in _SHOWN[2:]}
        mean, half = means["regret_mean"] or 0.0, half_interval(found)
        ends = {"regret_low": max(0.0, mean - half), "regret_high": min(1.0, mean + half)}
        for row in [*found, {**means, **ends, "table": "mean", "policy": policy}]:
            yield _line([_cell(row[name]) for name in _SHOWN])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)


if __name__ == "__main__":
    main()
