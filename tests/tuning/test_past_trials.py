"""What the sampler is told before it proposes: of this study, and of others."""

import json
import os
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from own_samples import write_pairs
from planted_spaces import let_toys_have_all_stages
from search_samples import (
    LAMBDA,
    NoInputs,
    Row,
    add_scores,
    knob,
    lambda_space,
    rows,
    run_planted,
    tiny_space,
)
from stand_in import StandIn

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import ConfigError, StudyError
from tune_sentcl.history import Assignment
from tune_sentcl.launch import search
from tune_sentcl.objective import DEFAULT, parse_objectives
from tune_sentcl.score import Score
from tune_sentcl.space import Space
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.past_trials import past_studies
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.sampler.portfolio import best_params
from tune_sentcl.tuning.search_options import SamplerName, SearchOptions

SAMPLERS: tuple[SamplerName, ...] = ("tpe", "random")


def lambdas(given: list[Assignment]) -> list[float]:
    return [knob(a.config, "method.lambda") for a in given]


def searched(study: Path) -> Row:
    found: Row = json.loads((study / "study.json").read_text())["search"]
    return found


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_sampler_seed_changes_the_draws_and_repeats_them(
    tmp_path: Path, sampler: SamplerName
) -> None:
    space = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA)
    drawn = []
    for number, seed in enumerate((7, 7, 8)):
        study = tmp_path / str(number)
        run_planted(space, study, trials=4, sampler=sampler, sampler_seed=seed)
        search = Study.read(study).manifest.search
        assert search is not None and (search.sampler, search.sampler_seed) == (sampler, seed)
        drawn.append({r["method.lambda"] for r in rows(study) if r["origin"] == "sampler"})
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 4


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
    with pytest.raises(StudyError, match="has finished with SST2:accuracy:dev"):
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
        StudyError, match=f"of version other, and the rows here are {task.version}"
    ):
        past_studies([str(other)], space, mine, loader)
    assert len(past_studies([str(other)], space, (DEFAULT,), loader)[0]) == 9


def test_one_study_under_five_spellings_teaches_once(tmp_path: Path) -> None:
    other = elsewhere(tmp_path)
    (tmp_path / "link").symlink_to(other)
    relative = os.path.relpath(other)
    spellings = (f"{other}/", other.as_uri(), str(tmp_path / "link"), relative, str(other))
    space = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA)
    prepared = prepare(space, None, None, SearchOptions(trials=3, learn_from=spellings))
    once = past_studies([str(other)], space, (DEFAULT,), NoInputs())
    assert past_studies(spellings, space, (DEFAULT,), NoInputs()) == once
    assert prepared.given == best_params(once)
    assert prepared.record().learned_from == spellings[:1]
    options = SearchOptions(launcher="local", trials=3, learn_from=(str(other),))
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
    run_planted(space, other, trials=16, scheduler="halving", sampler="random")
    found = past_lambdas(other, space)
    stopped = {row["method.lambda"] for row in rows(other) if row["status"] == "pruned"}
    assert len(stopped) == 15 and len(found) == 17
    assert {weight for weight, score in found.items() if score == -1} == stopped


@pytest.mark.parametrize(
    ("low", "says"), [(0.5, ""), (0.0, " that has finished with STS-B:spearman:dev")]
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
        run_planted(space, study, trials=1, learn_from=tuple(map(str, others)))
    rule = f"has no configuration in the ranges of tiny{says}"
    assert [(f.value, f.rule) for f in caught.value.faults] == [(str(o), rule) for o in others]
    with pytest.raises(StudyError, match="must be a study"):
        run_planted(space, study, trials=1, learn_from=(str(tmp_path / "nothing"),))
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
