"""Which configurations go on, against a plain restatement that waits for whole stages."""

import itertools
import random
from collections import ChainMap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from restated_halving import End, waiting, with_seeds

from tune_sentcl.tuning.stages import (
    FAILED,
    LEAST_HALF,
    SHARES,
    Halving,
    Stages,
    first_shares,
    ranks,
    stages_for,
    stages_of_samples,
)


class Planted:
    """A search with planted ends: few distinct scores, so that ties are common, and failures."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        sizes = [self.random.randint(1, 40) for _ in range(self.random.randint(0, 2))]
        num_grid, num_seeds = self.random.randint(0, 4), self.random.randint(1, 4)
        whole = self.random.randint(0 if sizes else 1, 3)
        shares = SHARES[self.random.choice([0, 2, 3, 3]) :]
        keeps_all = self.random.random() < 0.1
        halvings = tuple(
            replace(
                Halving.of(n, (1.0,) if keeps_all else shares, self.random.choice([1, 2, 2])),
                further=self.random.choice([0, 0, 2]),
            )
            for n in sizes
        )
        self.stages = Stages(halvings, num_seeds, whole, num_grid, keeps_all)
        self.levels = self.random.choice([2, 5, 100])
        names = [f"{self.random.randrange(10**6):06d}{n}" for n in range(sum(sizes) + whole)]
        self.whole = names[:whole]
        first = [whole + sum(sizes[:number]) for number in range(len(sizes))]
        drawn = [iter(names[a : a + n]) for a, n in zip(first, sizes, strict=True)]
        # The ends of each part of each halving.
        self.parts = [
            [{name: self.ends(len(h.sizes)) for name in islice(own, n)} for n in h.parts]
            for h, own in zip(halvings, drawn, strict=True)
        ]
        self.halvings = [dict(ChainMap(*parts)) for parts in self.parts]
        self.finals = {name: self.ends(num_seeds) for name in names}
        for halving in self.halvings:  # the last stage of a halving is the first of the seeds
            for name, ends in halving.items():
                self.finals[name][0] = ends[-1]
        self.grid = {f"g{n}": self.ends(num_seeds, self.levels // 2) for n in range(num_grid)}

    def ends(self, count: int, above: int = 0) -> list[End]:
        kinds = (self.random.random() for _ in range(count))
        score = self.random.randint
        return [
            None
            if kind < 0.05
            else FAILED
            if kind < 0.1 and not above
            else float(score(above, self.levels))
            for kind in kinds
        ]

    def expected(self) -> set[tuple[str, int, int]]:
        """All runs, with the number of the stage of rows (the last one -1) and of seeds."""
        runs, finalists = set(), set(self.whole)
        for parts, halving in zip(self.parts, self.stages.halvings, strict=True):
            members = waiting(halving, parts)
            finalists |= members[-1]
            runs |= {
                (name, stage - len(members), 0)
                for stage, names in enumerate(members)
                for name in names
            }
        runs |= {(name, -1, 0) for name in self.whole}
        seeds = with_seeds(self.stages, finalists, self.finals, self.grid)
        return runs | {(name, -1, n) for n, names in enumerate(seeds, 1) for name in names}


class Search:
    """The runs of a planted search as workers become free, in any order of arrival."""

    def __init__(self, planted: Planted, seed: int) -> None:
        self.planted, self.random = planted, random.Random(seed)
        stages = planted.stages
        self.rows: list[list[dict[str, End]]] = [[{} for _ in h.sizes] for h in stages.halvings]
        self.finals: list[dict[str, End]] = [{} for _ in range(stages.seeds)]
        self.grid: list[dict[str, End]] = [{} for _ in range(stages.seeds)]
        self.begun = [list[list[str]]() for _ in stages.halvings]
        self.done: set[tuple[str, int, int]] = set()

    def certain(self) -> Iterator[tuple[str, int, int]]:
        """The runs that certainly belong to the search."""
        stages, finalists, count = self.planted.stages, [*self.planted.whole], 0
        yield from ((name, -1, 0) for name in self.planted.whole)
        for halving, rows, begun in zip(stages.halvings, self.rows, self.begun, strict=True):
            members, last = halving.members(rows, begun, complete=False)
            finalists, count = finalists + members[-1], count + last
            for stage, names in enumerate(members):
                yield from ((name, stage - len(members), 0) for name in names)
        count += len(self.planted.whole)
        seeds = stages.with_seeds(self.finals, finalists, count, self.grid, stages.grid)
        yield from ((name, -1, n) for n, names in enumerate(seeds, 1) for name in names)

    def end(self, run: tuple[str, int, int]) -> None:
        self.done.add(run)
        name, stage, seed = run
        for number, ends in enumerate(self.planted.halvings):
            if name in ends and not seed:
                self.rows[number][stage][name] = ends[name][stage]
        if stage == -1:
            self.finals[seed][name] = self.planted.finals[name][seed]

    def run(self, workers: int, most: int = 10**9) -> None:
        """Train; what goes on never has to be taken back. The grid's ends arrive at any time."""
        running = list[tuple[str, int, int]]()
        unproposed = [
            [(part, name) for part, ends in enumerate(parts) for name in ends]
            for parts in self.planted.parts
        ]
        grid = [(name, n) for name, ends in self.planted.grid.items() for n in range(len(ends))]
        before = set[tuple[str, int, int]]()
        while len(self.done) < most:
            certain = set(self.certain())
            assert before <= certain
            before = certain
            due = sorted(certain - self.done - {*running})
            self.random.shuffle(due)
            free = workers - len(running)
            running += due[:free]
            for _ in range(min(max(0, free - len(due)), sum(map(len, unproposed)))):
                number = self.random.choice([n for n, left in enumerate(unproposed) if left])
                part, name = unproposed[number].pop(0)
                self.begun[number] += [[]] * (part + 1 - len(self.begun[number]))
                self.begun[number][part] = [*self.begun[number][part], name]
                running.append((name, -len(self.planted.stages.halvings[number].sizes), 0))
            if grid and (not running or self.random.random() < 0.3):
                name, seed = grid.pop(self.random.randrange(len(grid)))
                self.grid[seed][name] = self.planted.grid[name][seed]
            elif running:
                self.end(running.pop(self.random.randrange(len(running))))
            else:
                break


@settings(max_examples=600)  # the grid decides in few of them
@given(st.integers(0, 2**32), st.integers(1, 16))
def test_any_workers_and_order_of_arrival_train_what_waiting_for_stages_would(
    seed: int, workers: int
) -> None:
    """A rule that looked at what has arrived so far alone would let early arrivals go on."""
    planted = Planted(seed)
    search = Search(planted, seed)
    search.run(workers)
    assert search.done == planted.expected()


@given(st.integers(0, 2**32), st.integers(0, 40))
def test_who_does_not_go_on_yet_could_still_be_beaten(seed: int, most: int) -> None:
    """A rule that waits longer than it must would leave workers idle."""
    planted = Planted(seed)
    search = Search(planted, seed)
    search.run(4, most)
    certain = set(search.certain())
    for parts, halving, rows in zip(
        planted.parts, planted.stages.halvings, search.rows, strict=True
    ):
        ends = ChainMap(*parts)
        # Every missing end beats those that do not go on yet.
        worst = [
            {
                name: [end if name in row else 1000.0 for end, row in zip(own, rows, strict=True)]
                for name, own in part.items()
            }
            for part in parts
        ]
        depth = len(halving.sizes)
        for stage, names in enumerate(waiting(halving, worst)[1:], 1):
            known = {name for name in ends if all(name in row for row in rows[:stage])}
            assert names & known <= {n for n, s, _ in certain if s == stage - depth}
            if len(known) < len(ends):
                break


@given(st.integers(0, 2**32))
def test_ranks_tell_how_far_each_got(seed: int) -> None:
    planted = Planted(seed)
    search = Search(planted, seed)
    search.run(3, planted.random.randint(0, 60))
    told = ranks(search.rows)
    by_hand: dict[str, tuple[int, float]] = {}
    for rows in search.rows:
        for name in rows[0]:
            ends = [row[name] for row in rows[:2] if name in row]
            if ends[-1] is not None:
                by_hand[name] = (len(ends), ends[-1])
    assert told.keys() == by_hand.keys()
    for name, place in by_hand.items():
        if place[1] == FAILED:
            assert told[name] == -1
            continue
        below = [n for n, other in by_hand.items() if other[1] != FAILED]
        assert told[name] == sum((by_hand[n], n) < (place, name) for n in below)


@pytest.mark.parametrize(
    ("sampled", "seeds", "grid", "sizes", "further"),
    [
        ([64], 1, 0, (64, 16, 4, 1), ()),
        ([100], 1, 0, (100, 25, 6, 1), ()),
        ([3], 1, 0, (3, 1, 1, 1), ()),
        ([640], 3, 0, (640, 160, 40, 10), (3,)),  # a third seed of the only one changes nothing
        ([320, 320], 3, 0, (320, 80, 20, 5), (3,)),  # both halvings compete for further seeds
        ([64], 3, 2, (64, 16, 4, 1), (1, 1)),  # with rivals it does
        ([64], 3, 0, (64, 16, 4, 1), ()),
    ],
)
def test_sizes(
    sampled: Sequence[int], seeds: int, grid: int, sizes: Sequence[int], further: Sequence[int]
) -> None:
    stages = Stages(tuple(map(Halving.of, sampled)), seeds, grid=grid)
    assert {halving.sizes for halving in stages.halvings} == {sizes}
    assert stages.seed_sizes == further


def test_parts_have_stages_of_their_own_and_the_last_one_in_common() -> None:
    halving = Halving.of(127, SHARES, 2)
    assert halving.parts == (64, 63)
    assert halving.ladders == [[64, 16, 4], [63, 15, 3]]
    assert halving.sizes == (127, 31, 7, 1)
    assert replace(halving, further=2).sizes == (127, 31, 7, 3)
    short = Halving.of(127, SHARES[2:], 2)  # the second part waits for two stages of the first
    assert short.ladders == [[64, 16], [63, 15]] and short.sizes == (127, 31)


@given(
    st.floats(0, 40), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), st.integers(1, 2)
)
def test_a_budget_pays_for_its_stages_and_not_for_one_more(
    budget: float, seeds: int, grid: int, first: int, parts: int
) -> None:
    """Restated by trying all sizes in turn."""
    none, shares = Stages((), seeds, grid=grid), SHARES[first:]

    def of(sampled: int, count: int, further: int = 0) -> Stages:
        halving = replace(Halving.of(sampled, shares, count), further=further)
        return replace(none, halvings=(halving,))

    def most(count: int) -> int:
        return next(n for n in itertools.count() if of(n + 1, count).cost > budget + 1e-9)

    found = stages_for(budget, float("inf"), shares, none, parts=parts)
    if parts == 2 and most(2) < 2 * LEAST_HALF:
        parts = 1
    if not (sampled := most(parts)):
        assert found == none
        return
    (halving,) = found.halvings
    assert halving.parts == Halving.of(sampled, shares, parts).parts
    if len(shares) > 2 and halving.sizes[-1] < halving.sizes[-2]:
        assert of(sampled, parts, halving.further + 1).cost > budget + 1e-9
    assert found.cost <= budget + 1e-9 and (len(shares) > 2 or not halving.further)


def test_a_finite_range_bounds_the_sizes() -> None:
    for most in (1, 2, 3, 7):
        (halving,) = stages_for(100, most, SHARES, Stages(())).halvings
        assert halving.sizes[0] == most


def test_a_larger_budget_adds_a_halving_and_changes_none() -> None:
    first = stages_for(10, 1e9, SHARES, Stages((), 3, grid=2))
    more = stages_for(10, 1e9, SHARES, first, parts=1)
    assert more.halvings[:1] == first.halvings and len(more.halvings) == 2
    assert more.cost <= 20
    assert stages_for(0.5, 1e9, SHARES, first, parts=1) == first


def test_samples_are_dealt_to_two_halves_that_are_large_enough() -> None:
    def parts(sampled: int) -> tuple[int, ...]:
        (halving,) = stages_of_samples(sampled, SHARES, Stages(())).halvings
        return halving.parts

    assert (parts(101), parts(64), parts(63)) == ((51, 50), (32, 32), (63,))


@pytest.mark.parametrize(
    ("steps", "texts", "scored", "first"),
    [
        (30 * 64, 0, 0, 1 / 64),
        (30 * 64 - 1, 0, 0, 1 / 16),
        (120, 0, 0, 0.25),
        (119, 0, 0, 1),
        (0, 0, 0, 1),
        (10**6, 6400, 300, 1 / 64),  # 100 texts, of which three times as many may be scored
        (10**6, 6399, 300, 1 / 16),
        (10**6, 10, 300, 1),
    ],
)
def test_the_first_stage_is_worth_its_score(
    steps: int, texts: int, scored: int, first: float
) -> None:
    found = first_shares(steps, texts, scored)
    assert found[0] == first and found[-1] == 1
