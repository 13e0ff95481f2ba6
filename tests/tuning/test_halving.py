"""Which configurations go on, against a plain restatement that waits for whole stages."""

import random
from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from restated_halving import End, Ended, waiting

from tune_sentcl.errors import ConfigError
from tune_sentcl.tuning.halving import FAILED, SHARES, Stages, first_shares, stages_for


def known(stages: Stages, done: Mapping[tuple[str, int], End]) -> list[dict[str, End]]:
    return [
        {n: end for (n, s), end in done.items() if s == stage}
        for stage in range(len(stages.sizes))
    ]


@st.composite
def searches(draw: st.DrawFn) -> tuple[Stages, Ended, Ended]:
    """Stages, with few distinct scores, so that ties are common, and failures of both kinds."""
    generator = random.Random(draw(st.integers(0, 2**32)))
    size, seeds, num_grid = (generator.randint(*ends) for ends in ((1, 40), (1, 4), (0, 4)))
    shares, keeps_all = SHARES[generator.choice([0, 2, 3, 3]) :], generator.random() < 0.1
    stages = Stages.of(size, shares, seeds=seeds, grid=num_grid, keeps_all=keeps_all)
    levels = generator.choice([2, 5, 100])

    def end(above: int = 0) -> End:
        kind, score = generator.random(), float(generator.randint(above, levels))
        return None if kind < 0.05 else FAILED if kind < 0.1 else score

    names = [f"{generator.randrange(10**6):06d}{index}" for index in range(size)]
    sampled = {name: [end() for _ in stages.sizes] for name in names}
    grid = {
        f"g{n}": [None if (e := end(levels // 2)) == FAILED else e for _ in range(seeds)]
        for n in range(num_grid)
    }
    return stages, sampled, grid


def trained(
    search: tuple[Stages, Ended, Ended], workers: int, generator: random.Random, most: int = 10**9
) -> tuple[dict[tuple[str, int], End], list[dict[str, End]]]:
    """Run a search as workers become free, in any order of arrival, up to `most` ends.

    The grid's results arrive at any time too. What goes on never has to be taken back.
    """
    stages, sampled, grid = search
    unproposed, running = list(sampled), list[tuple[str, int]]()
    done: dict[tuple[str, int], End] = {}
    grid_ends: list[dict[str, End]] = [{} for _ in next(iter(grid.values()), [None])]
    grid_left = [(name, seeds) for name, values in grid.items() for seeds in range(len(values))]
    before: list[set[str]] = [set() for _ in stages.sizes[1:]]
    while len(done) < most:
        going = [set(names) for names in stages.going_on(known(stages, done), grid_ends)]
        assert all(old <= new for old, new in zip(before, going, strict=True))
        before = going
        due = [(n, stage) for stage, names in enumerate(going, 1) for n in sorted(names)]
        due = [job for job in due if job not in done and job not in running]
        due += [(name, 0) for name in unproposed]
        generator.shuffle(due)
        for job in due[: workers - len(running)]:
            running.append(job)
            unproposed = [name for name in unproposed if name != job[0]]
        if grid_left and (not running or generator.random() < 0.3):
            name, seeds = grid_left.pop(generator.randrange(len(grid_left)))
            grid_ends[seeds][name] = grid[name][seeds]
        elif running:
            name, stage = running.pop(generator.randrange(len(running)))
            done[name, stage] = sampled[name][stage]
        else:
            break
    return done, grid_ends


@settings(max_examples=600)  # the grid decides in few of them
@given(searches(), st.integers(1, 16), st.integers(0, 2**32))
def test_any_workers_and_order_of_arrival_train_what_waiting_for_stages_would(
    search: tuple[Stages, Ended, Ended], workers: int, seed: int
) -> None:
    """A rule that looked at what has arrived so far alone would let early arrivals go on."""
    stages, sampled, grid = search
    done, _ = trained(search, workers, random.Random(seed))
    expected = {(name, 0) for name in sampled}
    for stage, names in enumerate(waiting(stages, sampled, grid), 1):
        expected |= {(name, stage) for name in names}
    assert done.keys() == expected


def beaten(ends: Ended, names: Collection[str], place: int) -> Ended:
    """The ends with another one, at a place, that is higher than all."""
    high: list[End] = [1000.0]
    return {n: [*v[:place], *high, *v[place + 1 :]] if n in names else v for n, v in ends.items()}


@given(searches(), st.integers(0, 2**32), st.integers(0, 40))
def test_who_does_not_go_on_yet_could_still_be_beaten(
    search: tuple[Stages, Ended, Ended], seed: int, most: int
) -> None:
    """A rule that waits longer than it must would leave workers idle."""
    stages, sampled, grid = search
    done, grid_ends = trained(search, 4, random.Random(seed), most)
    going = [set(one) for one in stages.going_on(known(stages, done), grid_ends)]
    members = set(sampled)
    for stage, certain in enumerate(going):
        ended = {name for name in members if (name, stage) in done}
        # Everything that is missing there beats those that do not go on yet.
        missing, seeds = members - ended, stage - len(stages.shares) + 1
        absent = grid.keys() - grid_ends[seeds].keys() if seeds >= 0 else set()
        worst, against = beaten(sampled, missing, stage), beaten(grid, absent, seeds)
        if members == set(sampled):
            assert waiting(stages, worst, against)[stage].isdisjoint(ended - certain)
        if missing or len(certain) < stages.sizes[stage + 1]:
            break
        members = certain


def test_fewer_proposals_than_planned_end_the_stage() -> None:
    stages = Stages.of(8, (0.25, 1.0))
    ends = [{"a": 4.0, "b": 1.0}, {}]
    assert stages.going_on(ends, []) == [[]]
    assert stages.going_on(ends, [], proposed=2) == [["a", "b"]]


@pytest.mark.parametrize(
    ("sampled", "seeds", "grid", "sizes"),
    [
        (64, 1, 0, (64, 16, 4, 1)),
        (100, 1, 0, (100, 25, 6, 1)),
        (3, 1, 0, (3, 1, 1, 1)),
        (640, 3, 0, (640, 160, 40, 10, 3)),  # a third seed of the only one left changes nothing
        (64, 3, 2, (64, 16, 4, 1, 1, 1)),  # but with rivals it does
        (64, 3, 0, (64, 16, 4, 1)),
    ],
)
def test_sizes(sampled: int, seeds: int, grid: int, sizes: Sequence[int]) -> None:
    assert Stages.of(sampled, seeds=seeds, grid=grid).sizes == sizes


@given(st.floats(1, 500), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3))
def test_a_budget_pays_for_its_stages_and_not_for_one_more(
    budget: float, seeds: int, grid: int, first: int
) -> None:
    def of(sampled: int) -> Stages:
        return Stages.of(sampled, SHARES[first:], seeds=seeds, grid=grid)

    if of(1).cost > budget:
        with pytest.raises(ConfigError, match="must be at least"):
            stages_for(budget, float("inf"), of)
        return
    found = stages_for(budget, float("inf"), of)
    by_hand = next(n for n in range(1, 20_000) if of(n + 1).cost > budget + 1e-9)
    assert found == of(by_hand)
    whole = sum(
        n * (b - a) for n, a, b in zip(found.sizes, (0, *found.shares), found.shares, strict=False)
    )
    assert found.cost == pytest.approx(whole + sum(found.sizes[len(found.shares) :]))


def test_a_finite_range_bounds_the_sizes() -> None:
    for most in (1, 2, 3, 7):
        assert stages_for(100, most, Stages.of).sizes[0] == most


@pytest.mark.parametrize(
    ("steps", "first"), [(30 * 64, 1 / 64), (30 * 64 - 1, 1 / 16), (120, 0.25), (119, 1), (0, 1)]
)
def test_the_first_stage_has_steps_enough(steps: int, first: float) -> None:
    found = first_shares(steps)
    assert found[0] == first and found[-1] == 1
