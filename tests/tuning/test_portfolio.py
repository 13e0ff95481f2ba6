"""The configurations with which a search starts: the best of other studies, and priors."""

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_samples import LAMBDA, lambda_space, rows, run_planted, tiny_space

from tune_sentcl.errors import BadInputError
from tune_sentcl.space import load_space, space_names
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.sampler.portfolio import portfolio, prior_params, standardized
from tune_sentcl.tuning.search_options import SearchOptions

NUMBERS = st.floats(-1e3, 1e3, width=16)
STUDIES = st.lists(st.dictionaries(st.sampled_from("abcdefg"), NUMBERS, min_size=1), max_size=4)


@given(STUDIES, st.integers(0, 8))
def test_a_portfolio_is_the_greedy_choice_of_plain_loops(
    values: list[dict[str, float]], size: int
) -> None:
    studies = [standardized(study) for study in values]
    left = [key for study in studies for key in study if study[key] >= 0]
    chosen: list[str] = []
    while left and len(chosen) < size:
        best, best_score = left[0], (-math.inf, -math.inf)
        for key in left:
            reached, own = [], []
            for study in studies:
                reached.append(max([study.get(one, -1.0) for one in [*chosen, key]]))
                own.append(study.get(key, -1.0))
            score = (statistics.fmean(reached), statistics.fmean(own))
            if score > best_score:
                best, best_score = key, score
        chosen.append(best)
        left = [key for key in left if key != best]
    assert portfolio(studies, size) == chosen


@given(st.dictionaries(st.integers(), NUMBERS, min_size=3), st.integers(-6, 6), NUMBERS)
def test_no_unit_and_no_diverged_trial_sets_the_scale(
    values: dict[int, float], power: int, shift: float
) -> None:
    scores = sorted(values.values())
    if scores[-1] - statistics.median(scores) < 1.0:
        return
    found = standardized(values)
    assert max(found.values()) == 1 and statistics.median(found.values()) == 0
    other = standardized({key: value * 2.0**power + shift for key, value in values.items()})
    assert other == pytest.approx(found, abs=1e-6)
    worst = min(values, key=values.__getitem__)
    diverged = standardized({**values, worst: -1e30})
    assert diverged == {**found, worst: -1.0}


def test_a_configuration_without_a_score_counts_as_the_worst() -> None:
    """Of a search that stops most, those with a score are the best."""
    lost = dict.fromkeys("pqrst", -math.inf)
    assert standardized({"a": 3.0, "b": 2.0, "c": 1.0, **lost}) == {
        **{"a": 1.0, "b": 0.5, "c": 0.0},
        **dict.fromkeys(lost, -1.0),
    }
    assert standardized({"a": 3.0, "b": 2.0, "c": 1.0, "p": -math.inf})["b"] == 1 / 3
    assert standardized(lost) == dict.fromkeys(lost, -1.0)


def sampled(study: Path) -> list[float]:
    return [row["method.lambda"] for row in rows(study) if row["origin"] == "sampler"]


def test_a_resumed_search_starts_with_the_same_configurations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, study, whole = (tmp_path / name for name in ("other", "study", "whole"))
    run_planted(lambda_space(tmp_path / "old", *(i / 10 for i in range(1, 10))), other)
    space = lambda_space(tmp_path / "space", 0.35, ranges=LAMBDA)
    learns: dict[str, Any] = {"learn_from": (str(other),), "sampler": "random"}
    before = rows(other)
    best = [r["method.lambda"] for r in sorted(before, key=lambda r: -r["objective"])[:5]]
    for trials, left in ((2, 2), (4, 2), (7, 1)):
        run_planted(space, study, trials=trials, **learns)
        said = f"the first {left} sampled configurations are the best of {other} and priors"
        assert capsys.readouterr().err.splitlines().count(said) == 1
        assert set(best[:trials]) <= set(sampled(study))
    run_planted(space, whole, trials=5, **learns)
    assert set(sampled(whole)) == set(best)
    assert len(sampled(study)) == 7, "the last two were drawn"
    assert rows(other) == before


PRIORS = """
method.name = { choices = ["scl", "sbert", "augment"] }
method.lambda = { low = 0.0, high = 1.0, prior = 0.4 }
optimizer.batch_size = { choices = [32, 16], prior = 16 }
"""


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (PRIORS, {("scl", 0.4), ("sbert", None), ("augment", 0.4)}),
        (PRIORS.replace(" }", ', prior = "augment" }', 1), {("augment", 0.4)}),
        (PRIORS.replace(", prior = 0.4", ""), {("sbert", None)}),
    ],
)
def test_priors_are_sampled_first_for_each_method_that_has_all(
    tmp_path: Path, ranges: str, expected: set[Any]
) -> None:
    space = tiny_space(tmp_path / "space", "fixed.method.lambda = 0.3", ranges=ranges)
    assert len(prior_params(space)) == len(expected)
    study = tmp_path / "study"
    run_planted(space, study, trials=len(expected), sampler="random")
    first = [row for row in rows(study) if row["origin"] == "sampler"]
    assert {(row["method.name"], row["method.lambda"]) for row in first} == expected
    assert {row["optimizer.batch_size"] for row in first} <= {16}


def test_a_prior_without_those_of_the_other_ranges_is_refused(tmp_path: Path) -> None:
    """A search would ignore it."""
    ranges = PRIORS.replace(", prior = 16", "")
    space = tiny_space(tmp_path / "space", "fixed.method.lambda = 0.3", ranges=ranges)
    with pytest.raises(BadInputError) as caught:
        prepare(space, None, (0,), SearchOptions(trials=1))
    (fault,) = caught.value.faults
    assert (fault.key, fault.next_move) == (
        "method.lambda.prior",
        "Give optimizer.batch_size.prior.",
    )


def test_a_prior_in_the_grid_is_not_proposed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranges = "method.lambda = { low = 0.0, high = 1.0, prior = 0.3 }"
    space, study = lambda_space(tmp_path / "space", 0.3, ranges=ranges), tmp_path / "study"
    run_planted(space, study, trials=1)
    assert len(rows(study)) == 2 and sampled(study) != [0.3]
    assert "sampled configurations are" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        "method.lambda = { low = 0.0, high = 0.5, prior = 0.6 }",
        "method.lambda = { low = 0.0, high = 0.5, prior = nan }",
        "optimizer.epochs = { low = 1, high = 3, prior = 1.5 }",
        "optimizer.batch_size = { choices = [1, 2], prior = true }",
        "optimizer.batch_size = { choices = [1, 2], prior = [1] }",
    ],
)
def test_a_prior_outside_its_range_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(BadInputError, match="its prior must be a value of the range") as caught:
        lambda_space(tmp_path, 0.3, ranges=wrong)
    assert [fault.key for fault in caught.value.faults] == [f"{wrong.partition(' ')[0]}.prior"]


@pytest.mark.parametrize("name", space_names())
def test_the_priors_of_a_shipped_space_are_values_of_its_grid(name: str) -> None:
    space = load_space(name)
    grid = [space.exact_params(config) for config in space.configurations]
    assert all(params in grid for params in prior_params(space))
    with_priors = {"angle", "clsr/extended", "conisi/extended", "cosent", "scl/extended"}
    assert bool(prior_params(space)) == (name in {*with_priors, "simcse/supervised"})
