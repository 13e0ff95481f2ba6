"""Rungs by rows seen: what is stopped, what a resumed search stops, and what the user is told."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_ray import start_ray
from restated_rungs import Point, restated, restated_levels
from scipy.stats import spearmanr
from search_samples import (
    LAMBDA,
    draw_in_order,
    finished,
    lambda_space,
    mirrored,
    proposals,
    rows,
    run_here,
    run_on_ray,
    run_planted,
    statuses,
    tiny_space,
)
from stand_in import StandIn, Stopped

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import ConfigError
from tune_sentcl.history import History
from tune_sentcl.objective import DEFAULT
from tune_sentcl.space import Space
from tune_sentcl.store.reading.study import Study
from tune_sentcl.tuning.planning.plan import make_plan
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.rung_spacing import RungSpacing, most_rows
from tune_sentcl.tuning.rungs import Rungs
from tune_sentcl.tuning.sampler.subspaces import propose
from tune_sentcl.tuning.search_options import SearchOptions


@st.composite
def histories(draw: st.DrawFn) -> list[Point]:
    """Points of trials side by side; each trial's rows increase."""
    count = draw(st.integers(1, 8))
    steps = {t: draw(st.sampled_from([7, 32, 100, 512])) for t in range(count)}
    seen = dict.fromkeys(range(count), 0)
    points = []
    for trial in draw(st.lists(st.integers(0, count - 1), max_size=40)):
        seen[trial] += steps[trial]
        score = draw(st.integers(0, 5))
        points.append(Point(f"t{trial}", seen[trial], float(score)))
    return points


spacings = st.builds(
    RungSpacing, st.sampled_from([1, 32, 100]), st.integers(2, 4), st.none() | st.just(700)
)


@given(histories(), spacings)
def test_what_goes_on_is_what_a_plain_restatement_says(
    points: list[Point], spacing: RungSpacing
) -> None:
    rungs = Rungs(spacing)
    for place, point in enumerate(points):
        assert rungs.should_continue(*point[:3]) == restated(spacing, points[:place], point)


@given(histories(), spacings)
def test_levels_are_those_of_all_points_at_once(points: list[Point], spacing: RungSpacing) -> None:
    rungs = Rungs(spacing)
    for point in points:
        rungs.add_point(*point[:3])
    assert rungs.levels() == restated_levels(spacing, points)


@given(histories(), spacings, st.randoms(use_true_random=False))
def test_points_of_an_earlier_run_count_in_any_order_of_the_trials(
    points: list[Point], spacing: RungSpacing, chance: random.Random
) -> None:
    """A resumed search begins with the ended trials' points, trial by trial."""
    half = len(points) // 2
    undisturbed, resumed = Rungs(spacing), Rungs(spacing)
    for point in points[:half]:
        undisturbed.should_continue(*point[:3])
    trials = list(dict.fromkeys(p.trial for p in points[:half]))
    chance.shuffle(trials)
    for trial in trials:
        for point in points[:half]:
            if point.trial == trial:
                resumed.add_point(*point[:3])
    for point in points[half:]:
        assert resumed.should_continue(*point[:3]) == undisturbed.should_continue(*point[:3])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_the_rank_correlation_is_scipys(pairs: list[tuple[int, int]]) -> None:
    rungs = Rungs(RungSpacing(10))
    for number, (at_rung, _) in enumerate(pairs):
        rungs.add_point(str(number), 10, float(at_rung))
        rungs.add_point(str(number), 11, 0.0)  # each has gone on
    reports = list(rungs.reports({str(n): float(e) for n, (_, e) in enumerate(pairs)}, []))
    assert len(reports) == (len(pairs) > 0)
    if not pairs:
        return
    (report,) = reports
    assert (report.reached, report.finished, report.stopped) == (len(pairs), len(pairs), 0)
    if len(pairs) < 3 or any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        assert report.rank_correlation is None
    else:
        assert report.rank_correlation == pytest.approx(spearmanr(pairs).statistic)


def test_a_trial_that_begins_anew_counts_in_reports_before_it_comes_to_a_rung() -> None:
    rungs = Rungs(RungSpacing(10))
    for name in "abc":
        rungs.add_point(name, 10, float(ord(name)))
        rungs.add_point(name, 15, 0.0)
    objectives = {name: float(ord(name)) for name in "abc"}
    before = list(rungs.reports(objectives, ["a"]))
    rungs.restart("a")
    assert list(rungs.reports(objectives, ["a"])) == before
    rungs.add_point("a", 5, 0.0)
    assert list(rungs.reports(objectives, ["a"])) == before
    rungs.add_point("a", 10, 1000.0)
    (report,) = rungs.reports(objectives, [])
    assert report.rank_correlation == pytest.approx(-0.5)


def test_the_rungs_grow_from_the_first_to_the_last() -> None:
    assert RungSpacing(100, 3).up_to(99) == []
    assert RungSpacing(100, 3).up_to(1800) == [100, 200, 600, 1800]
    assert RungSpacing(100, 2, last=399).up_to(10**6) == [100, 200]


BATCHES = """optimizer.batch_size = { choices = [32, 512] }
optimizer.lr = { choices = [1e-3, 1e-9, 3e-3, 1e-8] }"""


@pytest.fixture(autouse=True)
def _draws_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_in_order(monkeypatch)


def batches(folder: Path) -> Space:
    """One configuration of the grid, which is never stopped, and seven more in the ranges."""
    space = tiny_space(folder, ranges=BATCHES)
    return space.with_overrides({"data.limit": 512, "optimizer.epochs": 8, "evaluation.every": 2})


def by_start(study: Path) -> list[dict[str, Any]]:
    return sorted(rows(study), key=lambda row: row["started_at"])


def curve(study: Path, trial_id: str, name: str = "STS-B.dev.spearman") -> list[tuple[int, float]]:
    points = Study.read(study).curves().to_pylist()
    own = [p for p in points if p["trial_id"] == trial_id and p["metric"] == name]
    return sorted((p["samples"], p["value"]) for p in own)


def expected_ends(
    study: Path, spacing: RungSpacing, name: str = "STS-B.dev.spearman"
) -> dict[str, tuple[str, int]]:
    """Of trials one after another: how each must have ended, and after how many rows.

    First seeds are compared; those of the grid are not stopped.
    """
    points: list[Point] = []
    ends = {}
    for row in by_start(study):
        own = curve(study, row["trial_id"], name)
        # A trial of the last step has no point that could stop it.
        total = row["data.limit"] * row["optimizer.epochs"]
        ends[row["trial_id"]] = ("finished", total)
        for seen, score in own if row["seed"] == 0 else ():
            point = Point(row["trial_id"], seen, score)
            may_stop = seen < total and row["origin"] == "sampler"
            if may_stop and not restated(spacing, points, point):
                ends[row["trial_id"]] = ("pruned", seen)
            points.append(point)
    return ends


def found_ends(study: Path) -> dict[str, tuple[str, int]]:
    return {
        row["trial_id"]: (row["status"], curve(study, row["trial_id"])[-1][0])
        for row in rows(study)
    }


def learns(config: TrialConfig) -> list[tuple[int, float]]:
    """A planted curve: a point every 256 rows or two steps; good rates lead late, with noise."""
    size, rate = config.optimizer.batch_size, config.optimizer.lr
    total, step = 8 * 512, max(2 * size, 256)
    noise = random.Random(repr((size, rate, config.seed)))
    return [
        (seen, 100 * rate * seen / total + noise.random())
        for seen in [*range(step, total, step), total]
    ]


def planted(space: Space, study: Path, **options: Any) -> None:
    """A search of planted curves, one trial after another."""
    points = options.pop("points", None)
    stand_in = StandIn(study, at_once=1, curve=learns, points=points)
    usual = {"scheduler": "asha", "trials": 7, "grace": 1024, "reduction": 3}
    run_planted(space, study, stand_in, **{**usual, **options})


@pytest.mark.ray
@pytest.mark.long
def test_ray_stops_what_the_local_launcher_stops(tmp_path: Path) -> None:
    start_ray()
    space = batches(tmp_path / "space")
    asked: dict[str, Any] = {"scheduler": "asha", "trials": 7, "seeds": (0, 1)}
    run_here(space, tmp_path / "here", **asked)
    run_on_ray(space, tmp_path / "ray", max_concurrent=1, **asked)
    assert found_ends(tmp_path / "ray") == found_ends(tmp_path / "here")


@pytest.mark.parametrize("options", [{}, {"grace": 300, "reduction": 2, "max_rows": 1300}])
def test_each_planted_trial_ends_as_the_curves_say(tmp_path: Path, options: Any) -> None:
    study = tmp_path / "study"
    planted(batches(tmp_path / "space"), study, seeds=(0, 1), **options)
    grace, last = options.get("grace", 1024), options.get("max_rows")
    spacing = RungSpacing(grace, options.get("reduction", 3), last)
    assert found_ends(study) == expected_ends(study, spacing)
    assert {"finished", "pruned"} == set(statuses(study))


def test_the_objectives_own_dev_score_is_compared(tmp_path: Path) -> None:
    """Real training: it is measured at every point, and its curve decides."""
    study = tmp_path / "study"
    ranges = "optimizer.lr = { choices = [1e-9, 3e-3] }"
    fixed = "evaluation.every = 1\noptimizer.epochs = 2"
    space = tiny_space(tmp_path / "space", fixed=fixed, ranges=ranges)
    asked = ("SICK-R:pearson", "STS-B:spearman")
    run_here(space, study, scheduler="asha", trials=2, grace=32, objectives=asked)
    sick = "SICK-R.dev.pearson"
    for row in rows(study):
        own = curve(study, row["trial_id"], sick)
        assert [seen for seen, _ in own] == [seen for seen, _ in curve(study, row["trial_id"])]
        if row["status"] == "finished":
            assert own[-1][1] == pytest.approx(row["objective"], abs=1e-4)
    ends = {
        name: status for name, (status, _) in expected_ends(study, RungSpacing(32), sick).items()
    }
    assert {row["trial_id"]: row["status"] for row in rows(study)} == ends


@pytest.mark.parametrize("grace", [1024, None])
@pytest.mark.parametrize("points", [12, 40])
def test_a_resumed_search_stops_what_an_undisturbed_one_stops(
    tmp_path: Path, grace: int | None, points: int
) -> None:
    """Without a first rung it is found by the first driver, or by the second one."""
    space, study = batches(tmp_path / "space"), tmp_path / "study"
    asked = {"seeds": (0, 1), "grace": grace}
    planted(space, tmp_path / "whole", **asked)
    with pytest.raises(Stopped):
        planted(space, study, points=points, **asked)
    planted(space, study, **asked)
    assert found_ends(study) == found_ends(tmp_path / "whole")


def test_the_sampler_is_told_where_a_trial_was_stopped(tmp_path: Path) -> None:
    space = lambda_space(tmp_path / "space", 0.3, 0.7, ranges=LAMBDA)
    stand_in = StandIn(tmp_path / "study", lambda config: "prune")
    run_planted(space, tmp_path / "study", stand_in)
    told = [trial.intermediate_values for trial in mirrored(tmp_path / "study")]
    assert told == [{32: 10.0}, {32: 10.0}]


def test_other_trials_of_the_study_are_not_compared_with(tmp_path: Path) -> None:
    """Trials under other settings say nothing of these."""
    space, study = batches(tmp_path / "space"), tmp_path / "study"
    planted(space, study)
    before = {row["trial_id"] for row in rows(study)}
    other = space.with_overrides({"data.limit": 480})
    planted(other, study)
    planted(other, tmp_path / "alone")
    ends = {name: end for name, end in found_ends(study).items() if name not in before}
    assert ends == found_ends(tmp_path / "alone")


def test_the_plan_prints_the_rungs(tmp_path: Path) -> None:
    space = batches(tmp_path / "space")
    overrides = {"data.limit": 512, "optimizer.epochs": 8, "evaluation.every": 2}
    options = SearchOptions(trials=7, grace=500, reduction=3, max_rows=1600)
    notes = make_plan(space.with_overrides(overrides), None, None, None, options).notes
    assert (
        "rungs at 500 and 1,000 rows seen; the best 1 in 2, 1 in 4 and then 1 in 3 go on" in notes
    )


def test_the_plan_says_whether_curves_decide_the_first_rung(tmp_path: Path) -> None:
    older = tmp_path / "older"

    def note(*lambdas: float, study: Path | None = None, **more: Any) -> str:
        space = lambda_space(
            tmp_path / "space", *lambdas, fixed="evaluation.every = 1", ranges=LAMBDA
        )
        space = space.with_overrides({"optimizer.epochs": 8})
        asked = SearchOptions(trials=1, **more)
        notes = make_plan(space, None if study is None else str(study), None, None, asked).notes
        (found,) = (text for text in notes if "rung" in text)
        return found

    shares = "the best 1 in 2, 1 in 8 and then 1 in 4 go on"
    listed = f"rungs at 32, 64 and 256 rows seen; {shares}"
    why = "; curves of whole trainings put the first there"
    later = "first rung at 32 rows seen, or later if the curves of 3 whole trainings of the grid"
    assert note(0.1, 0.2) == listed, "too few for the grid to move the first rung"
    assert note(0.1, 0.2, 0.3) == f"{later} say so; {shares}"
    assert note(0.1, 0.2, 0.3, grace=32) == listed

    def curve(config: TrialConfig) -> list[tuple[int, float]]:
        return [(seen, 100 * config.dotted()["method.lambda"]) for seen in (32, 256, 512)]

    space = lambda_space(tmp_path / "old", 0.1, 0.2, 0.3, fixed="evaluation.every = 1")
    run_planted(space.with_overrides({"optimizer.epochs": 8}), older, StandIn(older, curve=curve))
    assert note(0.1, learn_from=(str(older),)) == listed + why
    assert note(0.1, 0.2, 0.3, study=older) == listed + why
    with pytest.raises(ConfigError, match="learns from its own study"):
        note(0.1, study=older, learn_from=(str(older),))


def test_settings_of_rungs_that_are_not_there_are_refused(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.3, ranges=LAMBDA)
    with pytest.raises(ConfigError) as caught:
        SearchOptions(scheduler="race", grace=7, reduction=7, max_rows=7).check(space)
    where = [fault.where for fault in caught.value.faults]
    assert where == ["grace", "max_rows"], "reduction is of the seeds too"
    assert {fault.rule for fault in caught.value.faults} == {
        "there are no rungs without --scheduler asha"
    }
    with pytest.raises(ConfigError, match="must not lie below the first rung"):
        often = lambda_space(tmp_path, 0.3, fixed="evaluation.every = 1")
        SearchOptions(grace=50, max_rows=40).check(often)


SIZES = "optimizer.batch_size = {{ {} }}"


@pytest.mark.parametrize(
    ("fixed", "ranges", "grace", "most"),
    [
        ({"optimizer.epochs": 9}, LAMBDA, 64, 576),
        ({"optimizer.epochs": 9}, SIZES.format("choices = [8, 64]"), 128, 576),
        # A size that has no point before its end is never stopped, and moves no rung.
        ({"optimizer.epochs": 2}, SIZES.format("choices = [8, 32, 64]"), 64, 128),
        ({"optimizer.epochs": 3}, SIZES.format("low = 8, high = 64"), 128, 192),
        ({"optimizer.epochs": 2}, SIZES.format("low = 8, high = 64"), 64, 128),
        # Nothing can be stopped: the rung lies beyond all.
        (
            {"optimizer.epochs": 3, "evaluation.every": 99},
            SIZES.format("choices = [32, 64]"),
            193,
            192,
        ),
        # The last batch of each epoch is short, or left out.
        ({"optimizer.epochs": 9}, SIZES.format("choices = [8, 63]"), 64, 576),
        (
            {"optimizer.epochs": 9, "data.drop_last": True},
            SIZES.format("choices = [63]"),
            126,
            576,
        ),
        ({}, "optimizer.epochs = { low = 1, high = 8 }", 64, 512),
        ({"optimizer.epochs": 3}, "data.limit = { low = 32, high = 200 }", 64, 600),
        # Of two sources' 64 rows each, a rung lies below the fullest batches.
        ({"data.source": "toy + toy"}, LAMBDA, 57, 128),
        # In turn all of them have as many batches as the smallest.
        (
            {"data.source": "toy + toy", "data.mix": "in_turn", "data.order": "groups"},
            LAMBDA,
            57,
            128,
        ),
        # A batch that is left out is no row that is seen: the second of two epochs ends at 126.
        (
            {"optimizer.epochs": 2, "optimizer.batch_size": 63, "data.drop_last": True},
            LAMBDA,
            127,
            126,
        ),
    ],
)
def test_the_first_rung_lies_where_the_slowest_trial_has_been_evaluated(
    tmp_path: Path, fixed: dict[str, Any], ranges: str, grace: int, most: int
) -> None:
    space = lambda_space(tmp_path, 0.3, fixed="evaluation.every = 2", ranges=ranges)
    space = space.with_overrides(fixed)
    made = prepare(space, None, None, SearchOptions(trials=1, launcher="local"))
    assert made.rung_spacing == RungSpacing(grace, is_known=False)
    assert most_rows(space, made.loader) == most


def test_a_first_rung_of_an_earlier_command_is_no_lower_than_the_first_points(
    tmp_path: Path,
) -> None:
    """Else the first comparison would be at the second rung, which lets few through."""
    space = lambda_space(tmp_path, 0.3, fixed="evaluation.every = 1", ranges=LAMBDA)
    made = prepare(space, None, None, SearchOptions(trials=1, launcher="local"))
    for recorded, rows_there in ((8, 32), (64, 64)):
        rungs = made.rungs(History((DEFAULT,)), recorded)
        assert rungs is not None and rungs.spacing.grace == rows_there


def test_what_failed_before_is_stopped_as_if_it_were_new(tmp_path: Path) -> None:
    space = batches(tmp_path / "space")
    fresh, again = tmp_path / "fresh", tmp_path / "again"
    planted(space, fresh, grace=32)
    failing = StandIn(again, lambda config: "fail", curve=learns, at_once=1)
    run_planted(space, again, failing, trials=7, max_failures=99)
    assert set(statuses(again)) == {"failed"}
    planted(space, again, grace=32)
    assert "pruned" in statuses(fresh)
    assert set(statuses(again)) <= {"pruned", "finished"} and "pruned" in statuses(again)


def test_a_last_rung_below_the_first_is_refused(tmp_path: Path) -> None:
    fixed = "evaluation.every = 1\noptimizer.epochs = 4"
    space = lambda_space(tmp_path, 0.3, fixed=fixed, ranges=LAMBDA)
    options = SearchOptions(trials=1, launcher="local", max_rows=10)
    with pytest.raises(ConfigError, match="max_rows: 10: must not lie below the first rung, 32"):
        prepare(space, None, None, options)


def test_what_rungs_did_stays_over_repetitions_and_the_end_of_a_trial_tells_nothing(
    tmp_path: Path,
) -> None:
    space, study = batches(tmp_path / "space"), tmp_path / "study"

    def told() -> Any:
        return json.loads((study / "study.json").read_text())["search"]["rungs"]

    planted(space, study)
    first = told()
    assert sum(rung["stopped"] for rung in first) == statuses(study).count("pruned") > 0
    planted(space, study)
    assert told() == first
    run_planted(space, study)  # without rungs
    assert told() == first
    planted(space, tmp_path / "late", grace=8 * 512, reduction=2)
    (rung,) = json.loads((tmp_path / "late" / "study.json").read_text())["search"]["rungs"]
    assert (rung["reached"], rung["finished"], rung["rank_correlation"]) == (8, 0, None)


def test_a_first_rung_that_was_given_is_no_evidence_for_a_later_command(tmp_path: Path) -> None:
    study = tmp_path / "study"
    planted(batches(tmp_path / "space"), study, grace=2048)
    assert json.loads((study / "study.json").read_text())["search"]["first_rung"] is None


def test_the_sampler_sees_stopped_trials_that_were_beaten_at_their_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one is drawn; what it was told stays as it is, and finished trials keep their values.

    Each trial is the best at 32 rows so far, and is stopped at 64. When the third is drawn, the
    second is better at 32 than the first.
    """
    seen: list[list[tuple[str, dict[int, float]]]] = []

    def look(study: Any, *args: Any) -> Any:
        trials = study.get_trials(deepcopy=False)
        told = [t for t in trials if "configuration" in t.user_attrs]
        seen.append([(t.state.name, dict(t.intermediate_values)) for t in told])
        return propose(study, *args)

    monkeypatch.setattr("tune_sentcl.tuning.sampler_study.propose", look)
    order: dict[float, int] = {}

    def better_and_better(config: TrialConfig) -> list[tuple[int, float]]:
        place = order.setdefault(config.dotted()["method.lambda"], len(order))
        return [(32, float(place)), (64, place + 10.0 if place else 99.0), (96, 99.0)]

    space, study = lambda_space(tmp_path / "space", 0.5, ranges=LAMBDA), tmp_path / "study"
    stand_in = StandIn(study, at_once=1, curve=better_and_better)
    asked: dict[str, Any] = {"scheduler": "asha", "grace": 32, "reduction": 2}
    run_planted(space, study, stand_in, trials=3, **asked)
    assert seen[1] == [("COMPLETE", {}), ("PRUNED", {64: 11.0})]
    assert seen[2] == [("COMPLETE", {}), ("PRUNED", {32: 1.0}), ("PRUNED", {64: 12.0})]
    assert [t.intermediate_values for t in mirrored(study)][1] == {64: 11.0}


WEIGHTS = "method.lambda = { choices = [0.25, 0.5] }"


def test_the_sampler_sees_a_running_trial_at_its_level(tmp_path: Path) -> None:
    made = proposals(lambda_space(tmp_path, 0.5, ranges=WEIGHTS), sampled=1)
    grid = made.next()
    assert grid is not None
    made.end(grid.trial_id, finished(1.0))
    runs = made.next()
    assert runs is not None
    rungs = Rungs(RungSpacing(32, 2))
    rungs.add_point(runs.trial_id, 32, 7.0)
    study = made.sampler_study._study
    with made.sampler_study._at_levels(rungs):
        trial = study.get_trials(deepcopy=False)[-1]
        assert (trial.state.name, trial.intermediate_values) == ("PRUNED", {32: 7.0})
    assert (trial.state.name, trial.intermediate_values) == ("RUNNING", {})
