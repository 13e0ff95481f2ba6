"""Simulate how often `judge` claims a difference that does not exist, and how often it finds one.

It measures no speed, and is not run by `make bench`.

    python benchmarks/judging.py [--repeats N] [--quick] [--json]

A score is normal (or Student's t with 3 degrees of freedom, of variance 1) with an sd of 1 behind
what a seed adds to all configurations. Configuration 0 is the baseline, and the last one is better
by `difference_sd`. Of two variants of a case the worse one is shown: `spread` gives the baseline
or a rival four times the sd; in `collapse` a tenth of the seeds falls by 10, in all configurations
or in the last one. There a claim is false if it is of the last one.

`follow` is a user who does what `judge` proposes until it proposes nothing more.
"""

import json
import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from measuring import markdown, options

from tune_sentcl.history import Configuration, Result
from tune_sentcl.objective import parse_objectives
from tune_sentcl.results.confirming import with_confirmation
from tune_sentcl.results.judgement import judge_winner
from tune_sentcl.results.standings import Standings
from tune_sentcl.store.manifest import Confirmation, SeedPlan

_PLANNED = 10  # studies with planned seeds, for each one with a confirmation: they are cheap
_MOST = 100
_FIRST = 3  # seeds that choose the configurations of `confirm`
_VARIANTS = {
    "normal": ("normal",),
    "t3": ("t3",),
    "spread": ("spread of the baseline", "spread of a rival"),
    "collapse": ("collapse of all", "collapse of one"),
}
_TOLD = {
    "normal": "normal",
    "t3": "Student's t, 3 degrees",
    "spread": "the baseline or another 4 times as wide",
    "collapse": "a tenth falls by 10 sds, in all or in one",
}
_SIZES = [(k, n) for k in (2, 6, 20) for n in (3, 5, 10)]


@dataclass(frozen=True)
class Cell:
    """One row of the table, for one variant of its case."""

    case: str
    variant: str
    procedure: str
    configurations: int
    seeds: int
    difference: float

    def run(self, repeats: int) -> tuple[float, float]:
        """The share of studies that establish the last one, and of those with a false claim."""
        rng = np.random.default_rng([self.configurations, self.seeds, int(self.difference)])
        repeats *= _PLANNED if self.procedure == "planned" else 1
        claims = [self._once(rng) for _ in range(repeats)]
        established, false = (float(np.mean(column)) for column in zip(*claims, strict=True))
        return established, false

    def _once(self, rng: np.random.Generator) -> tuple[bool, bool]:
        claims = _claims(self._study(rng))
        last = self.configurations - 1
        true = {(last, 0)} if self.difference else set()
        if self.variant == "collapse of one":
            return bool(claims), any(better == last for better, _ in claims)
        false = {one for one in claims if not self.difference or one[0] != last}
        return bool(claims & true), bool(false)

    def follow(self, repeats: int) -> tuple[float, float, float]:
        """As `run`, of users who follow `judge`, and the seeds of a configuration spent."""
        rng = np.random.default_rng([self.configurations, int(self.difference)])
        ends = [self._followed(rng) for _ in range(repeats)]
        established, false, spent = (float(np.mean(column)) for column in zip(*ends, strict=True))
        return established, false, spent

    def _followed(self, rng: np.random.Generator) -> tuple[bool, bool, int]:
        scores = self._scores(rng, _FIRST + _MOST)
        plan = replace(self._plan(_FIRST), configurations=None)
        standings = _study(scores[:, :_FIRST], plan)
        names = tuple(standings.contenders())
        spent = 0
        while True:
            baseline = standings.tried["0"]
            judged = judge_winner(standings, standings.evidence(), baseline, None)
            wanted = max((one.seeds_needed or 0 for one in judged), default=0)
            if not wanted or wanted > _MOST:
                break
            spent = wanted
            look = Confirmation(tuple(range(_FIRST, _FIRST + wanted)), names)
            plan = with_confirmation(plan, look)
            standings = _study(scores[:, : _FIRST + wanted], plan, {*names})
        claims = _claims(standings)
        last = self.configurations - 1
        false = {one for one in claims if not self.difference or one[0] != last}
        return (last, 0) in claims and bool(self.difference), bool(false), spent

    def _study(self, rng: np.random.Generator) -> Standings:
        n = self.seeds
        if self.procedure == "planned":
            return _study(self._scores(rng, n), self._plan(n))
        plan = self._plan(_FIRST)
        scores = self._scores(rng, _FIRST + n)
        chosen = _study(scores[:, :_FIRST], plan)
        winner, runner_up = chosen.scored()[:2]
        names = tuple(dict.fromkeys((winner.name, "0", runner_up.name)))
        confirmation = Confirmation(tuple(range(_FIRST, _FIRST + n)), names)
        plan = replace(plan, confirmations=(confirmation,))
        return _study(scores, plan, set(names))

    def _plan(self, seeds: int) -> SeedPlan:
        grid = tuple(map(str, range(self.configurations)))
        return SeedPlan(tuple(range(seeds)), self.configurations, grid)

    def _scores(self, rng: np.random.Generator, seeds: int) -> np.ndarray:
        shape = (self.configurations, seeds)
        noise = rng.normal(size=shape)
        if self.variant == "t3":
            noise = rng.standard_t(3, shape) / math.sqrt(3)
        if self.variant.startswith("spread"):
            noise[0 if self.variant == "spread of the baseline" else -1] *= 4
        fallen = rng.random(shape) < 0.1
        if self.variant == "collapse of all":
            noise -= 10 * fallen
        if self.variant == "collapse of one":
            noise[-1] -= 10 * fallen[-1]
        noise[-1] += self.difference
        tried: np.ndarray = noise + rng.normal(size=seeds)
        return tried


def _study(scores: np.ndarray, plan: SeedPlan, confirmed: set[str] | None = None) -> Standings:
    """A study as `judge` reads it; where some have confirmation seeds, all others lack them."""
    tried = {}
    for number, row in enumerate(scores.tolist()):
        name, seeds = str(number), dict(enumerate(row))
        if confirmed is not None and name not in confirmed:
            seeds = {seed: seeds[seed] for seed in plan.seeds}
        new = set(seeds) - set(plan.seeds) if confirmed is not None else set()
        knobs = {"method.name": "scl", "method.lambda": float(number), "optimizer.lr": 1.0}
        tried[name] = Configuration(name, "grid", knobs, confirming=new)
        for seed, value in seeds.items():
            tried[name].results[seed] = Result("finished", (value, value), lost=(None, None))
    objective = parse_objectives(["STS-B:spearman"], allow_test=False)[0]
    return Standings("", (objective, objective), "root", tried, plan)


def _claims(configurations: Standings) -> set[tuple[int, int]]:
    """The claims of the winner over the baseline and the runner-up, as numbers."""
    evidence = configurations.evidence()
    winner, runner_up = configurations.scored()[:2]
    rivals = {one.name: one for one in (configurations.tried["0"], runner_up) if one is not winner}
    claims = set()
    for rival in rivals.values():
        answer = evidence.compare(winner, rival)
        if not isinstance(answer, str) and answer.verdict == "ESTABLISHED":
            claims.add((int(winner.name), int(rival.name)))
    return claims


def _row(cell: Cell, repeats: int) -> dict[str, Any]:
    spent = float(cell.seeds)
    if cell.procedure == "follow":
        established, false, spent = replace(cell, variant="normal").follow(repeats)
    else:
        shares = [replace(cell, variant=name).run(repeats) for name in _VARIANTS[cell.case]]
        established, false = max(shares, key=lambda share: share[1])
    return {
        "case": cell.case,
        "procedure": cell.procedure,
        "configurations": cell.configurations,
        "seeds": cell.seeds,
        "difference_sd": cell.difference,
        "established": established,
        "false_claims": false,
        "spent": spent,
    }


def main() -> None:
    """Simulate all cells and print them."""
    given = options(__doc__, lambda parser: parser.add_argument("--repeats", type=int))
    repeats = given.repeats or (1 if given.quick else 1000)
    cells = [
        Cell(case, "", procedure, k, n, difference)
        for procedure in ("planned", "confirm")
        for case in _VARIANTS
        for k, n in ([(2, 3), (6, 5)] if given.quick else _SIZES)
        for difference in ((0.0, 2.0, 4.0) if case == "normal" else (0.0,))
    ]
    cells += [
        Cell("normal", "", "follow", k, 0, difference)
        for k in ((2,) if given.quick else (2, 6, 20))
        for difference in (0.0, 1.0, 2.0, 4.0, 8.0)
    ]
    with ProcessPoolExecutor() as pool:
        rows = list(pool.map(_row, cells, [repeats] * len(cells)))
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    print("\n\n".join(_tables(rows)))


def _tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Three Markdown tables: false claims, found differences, and users who follow `judge`."""
    kinds = [row for row in rows if row["procedure"] != "follow"]
    sizes = _values(rows, "configurations")
    titles = [f"{size} configurations" for size in sizes]
    yield f"False claims, % of studies, with {_several(_values(kinds, 'seeds'))} seeds:"
    told = []
    for procedure, case in product(_values(kinds, "procedure"), _VARIANTS):
        equal = _only(kinds, procedure=procedure, case=case, difference_sd=0.0)
        groups = [_only(equal, configurations=size) for size in sizes]
        told.append([procedure, _TOLD[case], *(_shares(each, "false_claims") for each in groups)])
    yield markdown(["seeds", "scores", *titles], told)
    yield "Studies that find the better configuration, %, normal scores:"
    told, better = [], [row for row in kinds if row["difference_sd"]]
    for procedure, sds in product(_values(better, "procedure"), _values(better, "difference_sd")):
        same = _only(better, procedure=procedure, difference_sd=sds)
        groups = [_only(same, configurations=size) for size in sizes]
        told.append([procedure, f"{sds:g}", *(_shares(each, "established") for each in groups)])
    yield markdown(["seeds", "better by, sds", *titles], told)
    following = _only(rows, procedure="follow")
    some = _several(_values(following, "configurations"))
    yield f"Users who run what `judge` proposes, with {some} configurations:"
    told = []
    for sds in _values(following, "difference_sd"):
        group = _only(following, difference_sd=sds)
        spent = ", ".join(f"{row['spent']:.2g}" for row in group)
        shares = [_shares(group, key) for key in ("false_claims", "established")]
        told.append([f"{sds:g}", *shares, spent])
    yield markdown(["better by, sds", "false claims, %", "found, %", "confirmation seeds"], told)


def _only(rows: list[dict[str, Any]], **values: Any) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def _values(rows: list[dict[str, Any]], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))


def _several(values: list[int]) -> str:
    return ", ".join(map(str, values))


def _shares(rows: list[dict[str, Any]], key: str) -> str:
    return ", ".join(f"{100 * row[key]:.1f}" for row in rows)


if __name__ == "__main__":
    main()
