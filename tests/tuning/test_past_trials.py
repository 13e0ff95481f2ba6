"""What the sampler learns from other studies, and the configurations with which it starts."""

import math
import os
import statistics
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_samples import write_pairs
from planted_spaces import let_toys_have_all_stages
from search_samples import (
    LAMBDA,
    NoInputs,
    add_scores,
    knob,
    lambda_space,
    rows,
    run_planted,
    tiny_space,
)
from stand_in import StandIn

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import BadInputError, ConfigError, StudyError
from tune_sentcl.launch import search
from tune_sentcl.objective import DEFAULT, parse_objectives
from tune_sentcl.score import Score
from tune_sentcl.space import Space, load_space, space_names
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import ask
from tune_sentcl.tuning.sampler import (
    best_params,
    past_studies,
    portfolio,
    prior_params,
    standardized,
)


def elsewhere(folder: Path, **options: Any) -> Path:
    """A study of ten configurations over other grid points, one of which has failed."""
    grid = [i / 10 + 0.05 for i in range(10)]
    study = folder / "elsewhere"

    def fate(config: TrialConfig) -> Any:
        return "fail" if knob(config, "method.lambda") == grid[0] else "finish"

    space = lambda_space(folder / "old", *grid)
    run_planted(space, study, StandIn(study, fate), **options)
    return study


def test_what_is_learned_is_each_finished_configuration_under_the_present_objective(
    tmp_path: Path,
) -> None:
    other = elsewhere(tmp_path, seeds=(0, 1))
    space = lambda_space(tmp_path / "space", 0.3, ranges="method.lambda = {low = 0.4, high = 1}")
    weights = {r["trial_id"]: r["method.lambda"] for r in rows(other)}
    for text in ("STS-B:spearman:dev", "SICK-R:pearson:dev"):
        scores: dict[float, list[float]] = {}
        for score in Study.read(other).scores().to_pylist():
            named = f"{score['task']}:{score['metric']}:{score['split']}"
            if named == text and weights[score["trial_id"]] >= 0.4:
                scores.setdefault(weights[score["trial_id"]], []).append(score["value"])
        means = {weight: fmean(values) for weight, values in scores.items()}
        middle, best = median(means.values()), max(means.values())
        standard = {w: max(-1, (v - middle) / (best - middle)) for w, v in means.items()}
        learned = past_lambdas(other, space, parse_objectives([text], allow_test=False))
        assert learned == pytest.approx(standard)
    # The transfer suite was not measured there, so that there is nothing to learn of it.
    unknown = parse_objectives(["SST2:accuracy:dev"], allow_test=False)
    with pytest.raises(StudyError, match="has finished and has SST2:accuracy:dev"):
        past_studies([str(other)], space, unknown, NoInputs())


def test_a_study_on_other_rows_of_an_objectives_task_teaches_nothing(tmp_path: Path) -> None:
    other, loader = elsewhere(tmp_path), NoInputs()
    own = write_pairs(tmp_path / "mine.tsv", [("a", "b", 1.0), ("c", "d", 2.0), ("e", "f", 3.0)])
    fixed = f'evaluation.own = ["mine={own}"]'
    space = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA, fixed=fixed)
    (task,) = loader.sets(space.configurations[0]).own
    mine = parse_objectives(["mine:spearman:dev"], allow_test=False)

    def score_on(version: str | None) -> None:
        score = Score("own", "mine", "dev", "spearman", "cosine", "toy", 50.0, 3, version=version)
        for row in rows(other):
            add_scores(other, row["trial_id"], [score], but="mine")

    score_on(task.version)
    assert len(past_studies([str(other)], space, mine, loader)[0]) == 9
    score_on("other")
    with pytest.raises(
        StudyError, match=f"of version other, but the rows here have version {task.version}"
    ):
        past_studies([str(other)], space, mine, loader)
    assert len(past_studies([str(other)], space, (DEFAULT,), loader)[0]) == 9


def test_one_study_under_five_spellings_teaches_once(tmp_path: Path) -> None:
    other = elsewhere(tmp_path)
    (tmp_path / "link").symlink_to(other)
    relative = os.path.relpath(other)
    spellings = (f"{other}/", other.as_uri(), str(tmp_path / "link"), relative, str(other))
    space = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA)
    question = ask(space, None, None, SearchOptions(samples=3, learn_from=spellings))
    once = past_studies([str(other)], space, (DEFAULT,), NoInputs())
    assert past_studies(spellings, space, (DEFAULT,), NoInputs()) == once
    assert list(question.given) == best_params(once)
    assert question.options.learn_from == spellings[:1]
    options = SearchOptions(launcher="local", samples=3, learn_from=(str(other),))
    for spelling in spellings:
        with pytest.raises(ConfigError, match="learns from its own study"):
            search(space, spelling, options=options)


def past_lambdas(other: Path, space: Space, objectives: Any = (DEFAULT,)) -> dict[float, float]:
    """The standardized score of each configuration of another study, by its lambda."""
    (found,) = past_studies([str(other)], space, objectives, NoInputs())
    return {dict(params)["method.lambda"]: score for params, score in found.items()}


def test_a_lucky_seed_is_not_the_best_configuration_of_another_study(tmp_path: Path) -> None:
    other = tmp_path / "other"

    def fate(config: TrialConfig) -> Any:
        return "fail" if knob(config, "method.lambda") == 0.5 and config.seed > 0 else "finish"

    stand_in = StandIn(other, fate, error="OutOfMemoryError")
    old = lambda_space(tmp_path / "old", 0.1, 0.3, 0.5)
    run_planted(old, other, stand_in, seeds=(0, 1, 2))
    (lucky,) = (r for r in rows(other) if r["method.lambda"] == 0.5 and r["status"] == "finished")
    score = Score("sts", "STS-B", "dev", "spearman", "cosine", "toy", 100.0, 9)
    add_scores(other, lucky["trial_id"], [score], but="STS-B")
    found = past_lambdas(other, lambda_space(tmp_path / "space", 0.7, ranges=LAMBDA))
    assert found.keys() == {0.1, 0.3, 0.5}
    assert found[0.5] == -1 < found[0.1]
    assert max(found.values()) == 1


def test_configurations_that_were_stopped_in_another_study_are_its_worst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_toys_have_all_stages(monkeypatch)
    other, space = tmp_path / "other", lambda_space(tmp_path / "space", 0.7, ranges=LAMBDA)
    run_planted(space, other, samples=16, scheduler="halving", sampler="random")
    found = past_lambdas(other, space)
    stopped = {row["method.lambda"] for row in rows(other) if row["status"] == "pruned"}
    assert len(stopped) == 15 and len(found) == 17
    assert {weight for weight, score in found.items() if score == -1} == stopped


@pytest.mark.parametrize(
    ("low", "says"), [(0.5, ""), (0.0, " that has finished and has STS-B:spearman:dev")]
)
def test_studies_that_teach_nothing_are_refused_together(
    tmp_path: Path, low: float, says: str
) -> None:
    """One sentence for each of them, before the study is made."""
    others = [tmp_path / "first", tmp_path / "second"]
    for other in others:
        stand_in = StandIn(other, lambda config: "fail")
        run_planted(lambda_space(tmp_path / "old", 0.1, 0.2), other, stand_in)
    ranges = f"method.lambda = {{ low = {low}, high = 1.0 }}"
    space, study = lambda_space(tmp_path / "space", 0.7, ranges=ranges), tmp_path / "study"
    with pytest.raises(StudyError) as caught:
        run_planted(space, study, samples=1, learn_from=tuple(map(str, others)))
    rule = f"has no configuration in the ranges of tiny{says}"
    assert [(f.value, f.rule) for f in caught.value.faults] == [(str(o), rule) for o in others]
    with pytest.raises(StudyError, match="must be a study"):
        run_planted(space, study, samples=1, learn_from=(str(tmp_path / "nothing"),))
    assert not study.exists()


@pytest.mark.parametrize("held", [(0.3,), ()])
def test_what_another_study_trained_with_other_fixed_knobs_teaches_nothing(
    tmp_path: Path, held: tuple[float, ...]
) -> None:
    """All its configurations lie at one point of the ranges; other data is no hindrance."""
    old = lambda_space(tmp_path / "old", 0.01, *held, 0.98).with_overrides({"data.limit": 32})
    run_planted(old, tmp_path / "other")
    rates = "optimizer.lr = { low = 1e-4, high = 1e-2, log = true }"
    space = tiny_space(tmp_path / "space", ranges=rates, fixed="method.lambda = 0.3")
    if held:
        (learned,) = past_studies([str(tmp_path / "other")], space, (DEFAULT,), NoInputs())
        assert list(learned) == [(("optimizer.lr", 1e-3),)]
    else:
        with pytest.raises(StudyError, match="has no configuration in the ranges of tiny"):
            past_studies([str(tmp_path / "other")], space, (DEFAULT,), NoInputs())


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
        run_planted(space, study, samples=trials, **learns)
        said = f"the next {left} sampled configurations are the best of {other}"
        assert capsys.readouterr().err.splitlines().count(said) == 1
        assert set(best[:trials]) <= set(sampled(study))
    run_planted(space, whole, samples=5, **learns)
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
    run_planted(space, study, samples=len(expected), sampler="random")
    first = [row for row in rows(study) if row["origin"] == "sampler"]
    assert {(row["method.name"], row["method.lambda"]) for row in first} == expected
    assert {row["optimizer.batch_size"] for row in first} <= {16}


def test_a_prior_without_those_of_the_other_ranges_is_refused(tmp_path: Path) -> None:
    """A search would ignore it."""
    ranges = PRIORS.replace(", prior = 16", "")
    space = tiny_space(tmp_path / "space", "fixed.method.lambda = 0.3", ranges=ranges)
    with pytest.raises(BadInputError) as caught:
        ask(space, None, (0,), SearchOptions(samples=1))
    (fault,) = caught.value.faults
    assert (fault.key, fault.move) == (
        "method.lambda.prior",
        "Give optimizer.batch_size.prior.",
    )


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
    with pytest.raises(BadInputError, match="must be a value of the range") as caught:
        lambda_space(tmp_path, 0.3, ranges=wrong)
    assert [fault.key for fault in caught.value.faults] == [f"{wrong.partition(' ')[0]}.prior"]


@pytest.mark.parametrize("name", space_names())
def test_the_priors_of_a_shipped_space_are_values_of_its_grid(name: str) -> None:
    space = load_space(name)
    grid = [space.exact_params(config) for config in space.configurations]
    assert all(params in grid for params in prior_params(space))
    with_priors = {"angle", "clsr/extended", "conisi/extended", "cosent", "retrieval/mined"}
    with_priors |= {"scl/extended", "simcse/supervised"}
    assert bool(prior_params(space)) == (name in with_priors)
