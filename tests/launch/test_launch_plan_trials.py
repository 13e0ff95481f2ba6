"""What an estimate counts: points, seeds, kinds, finished trials, what one does for all."""

import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from launch_samples import NoInputs, lambda_space, rows, run_here

from tune_sentcl.config import Fingerprints, TrialConfig, parse_dotted
from tune_sentcl.data.task import TransferTask
from tune_sentcl.data.tasks.sets import load_sets
from tune_sentcl.evaluate import Measures
from tune_sentcl.history import History
from tune_sentcl.launch.estimate.finished import finished_seconds
from tune_sentcl.launch.estimate.kinds import Kind, kind_of, steps_of
from tune_sentcl.launch.estimate.scoring import ScoringPace
from tune_sentcl.launch.estimate.search import SearchEstimate, estimate_search, place_of
from tune_sentcl.launch.estimate.small_tasks import Task, cut, made_up, row_count
from tune_sentcl.launch.estimate.timed import Place, TimedTrials, count_points
from tune_sentcl.launch.estimate.trials import TrialEstimates
from tune_sentcl.launch.groups import Assignment
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.prepared import Prepared, prepare
from tune_sentcl.objective import DEFAULT, parse_objectives
from tune_sentcl.space import Space
from tune_sentcl.store.study import Study
from tune_sentcl.trial import run
from tune_sentcl.trial.measuring import tasks_at_points

TOY = {"encoder.checkpoint": "toy", "data.source": "toy", "data.limit": 64}
PRINTS = Fingerprints("rows", "weights")
HERE = SearchOptions(launcher="local", gpus_per_trial=0.0)


def config(method: str, **values: Any) -> TrialConfig:
    return parse_dotted({"method.name": method, **TOY, **values}, "test")


def kind(method: str, values: Mapping[str, Any] | None = None, prints: Any = PRINTS) -> Kind:
    return kind_of(config(method, **(values or {})).dotted(), prints)


@pytest.mark.parametrize("every", [0, 1, 3, 4, 5])
def test_points_are_counted_as_a_trial_makes_them(tmp_path: Path, every: int) -> None:
    fixed = f"optimizer.epochs = 2\nevaluation.every = {every}"
    run_here(lambda_space(tmp_path, 0.3, fixed=fixed), tmp_path / "study")
    (row,) = rows(tmp_path / "study")
    dev = Study.read(tmp_path / "study").curves(where=pc.field("metric") == DEFAULT.curve)
    assert row["steps"] == 4
    assert count_points(row["steps"], every) == dev.num_rows


def test_what_moves_numbers_alone_makes_no_kind() -> None:
    same = {"method.lambda": 0.7, "method.temperature": 0.2, "optimizer.lr": 1e-3, "seed": 3}
    first = {"method.lambda": 0.3, "method.temperature": 0.1}
    assert kind("scl", first) == kind("scl", same)
    moved = kind("scl", {**first, "data.limit": 65})
    assert moved == kind("scl", first), "fingerprints say which rows"


@pytest.mark.parametrize(
    "values",
    [
        {"optimizer.batch_size": 128},
        {"optimizer.epochs": 2},
        {"optimizer.max_grad_norm": 1.0},
        {"optimizer.name": "sgd"},
        {"method.num_negatives": 3},
        {"encoder.pooling": "cls"},
        {"evaluation.every": 4},
        {"evaluation.suites": ["sts", "transfer"]},
        {"evaluation.classifier_seeds": 2},
    ],
)
def test_what_costs_time_makes_a_kind(values: Mapping[str, Any]) -> None:
    assert kind("scl", values) != kind("scl")
    assert kind("scl", prints=Fingerprints("others", "weights")) != kind("scl")
    assert kind("scl", prints=Fingerprints("rows", "others")) != kind("scl")


def test_a_term_that_is_not_computed_makes_a_kind() -> None:
    both, interactive, contrastive = (kind("conisi", {"method.lambda": x}) for x in (0.5, 1, 0))
    assert len({both, interactive, contrastive}) == 3
    assert kind("conisi", {"method.lambda": 0.8}) == both


def test_steps_of_equal_length_are_shared() -> None:
    first = kind("scl")
    for values in ({"optimizer.epochs": 7}, {"evaluation.every": 2}):
        assert steps_of(kind("scl", values)) == steps_of(first)
    assert steps_of(kind("scl", {"optimizer.batch_size": 8})) != steps_of(first)


@pytest.mark.slow
def test_every_classifier_seed_and_task_is_counted() -> None:
    protocols: Any = ("senteval-5fold", "logreg-10fold")
    everything = load_sets("toy", None, ["transfer"], protocols)
    sets = replace(everything, transfer=everything.transfer[-3:])  # one of each kind is enough
    pace = ScoringPace("cpu")

    def seconds(*names: Any, seeds: int = 1) -> float:
        return pace.all(sets, Measures(("transfer",), names, seeds), 8)

    drawn, exact = seconds("senteval-5fold"), seconds("logreg-10fold")
    assert seconds("senteval-5fold", seeds=3) == pytest.approx(3 * drawn)
    assert seconds("logreg-10fold", seeds=3) == pytest.approx(exact)
    assert seconds(*protocols, seeds=2) == pytest.approx(2 * drawn + exact)
    by_task = [pace.one(task, "logreg-10fold", 8) for task in sets.transfer]
    assert sum(by_task) == pytest.approx(exact)


def test_a_cut_task_keeps_its_design_its_classes_and_its_ends() -> None:
    protocols: Any = ("relatedness", "logreg-10fold")
    sets = load_sets("toy", None, ("sts", "transfer"), protocols)
    for task in sets.transfer:
        few = cut(task, 90)
        assert isinstance(few, TransferTask)
        assert row_count(few) < row_count(task)
        assert few.design == task.design
        assert set(few.train.labels) == set(task.train.labels)
        assert few.train.first[0] == task.train.first[0]
        assert few.train.first[-1] == task.train.first[-1]
        vectors = made_up(few, 8)
        assert {vector.shape for vector in vectors.values()} == {(8,)}
        assert all(set(p.first) | set(p.second or ()) <= vectors.keys() for p in few.parts)
    others: list[Task] = [*sets.rated, *sets.sts]
    for other in others:
        assert row_count(cut(other, 10**6)) == row_count(other)


def planned(space: Space, study: Path | None = None, **asked: Any) -> SearchEstimate:
    prepared = recalled(space, study, **asked)
    found = estimate_search(prepared, Study.read(study) if study else None)
    assert found is not None
    return found


def recalled(space: Space, study: Path | None, **asked: Any) -> Prepared:
    seeds, options = asked.pop("seeds", (0,)), {"launcher": "local", "gpus_per_trial": 0.0}
    prepared = prepare(space, None, seeds, SearchOptions(**{**options, **asked}))
    objectives = prepared.objectives
    prepared.recall(History.read(Study.read(study), objectives) if study else History(objectives))
    return prepared


def test_finished_trials_tell_of_their_own_kind_alone(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path, 0.3, 0.7), tmp_path / "study"
    run_here(space, study, gpus_per_trial=0.0)
    took = statistics.median(row["wall_seconds"] for row in rows(study))
    same = planned(space, study, seeds=(0, 1))
    assert same.trials == 2
    assert same.each == pytest.approx([took, took])
    assert same.seconds == pytest.approx(2 * took)
    assert "2 finished trials of 1 kind of trial" in same.basis
    longer = space.with_overrides({"optimizer.epochs": 2})
    other = planned(longer, study)
    assert other.trials == 2 and other.basis == "1 kind of trial timed here"
    both = planned(longer, study, seeds=(0, 1))
    assert both.trials == 4


@pytest.mark.slow
def test_trials_measured_twice_or_elsewhere_tell_nothing(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path, 0.3), tmp_path / "study"
    run_here(space, study, gpus_per_trial=0.0)
    held = Study.read(study)
    assert len(finished_seconds(held, "cpu", 1)) == 1
    assert not finished_seconds(held, "cpu", 2) and not finished_seconds(held, "cuda", 1)
    more = space.with_overrides({"evaluation.protocols": ["cosine", "relatedness"]})
    run_here(more, study, gpus_per_trial=0.0)
    assert not finished_seconds(Study.read(study), "cpu", 1)


def test_a_measurement_costs_no_training(tmp_path: Path) -> None:
    short, long = (config("scl", **{"optimizer.epochs": epochs}) for epochs in (1, 1000))
    inputs = NoInputs().load(short)
    timed = TimedTrials(Place("cpu", 1, 1), 1, 1)
    kinds = [kind_of(c.dotted(), inputs.fingerprints) for c in (short, long)]
    trained = [timed.trained(c, inputs, k) for c, k in zip((short, long), kinds, strict=True)]
    measured = [timed.measured(c, inputs) for c in (short, long)]
    assert measured[0] == measured[1]
    assert measured[0].seconds < trained[0].seconds + measured[0].warming
    assert trained[0].seconds < trained[1].seconds
    points = config("scl", **{"optimizer.epochs": 1000, "evaluation.every": 1})
    assert timed.trained(points, inputs, kinds[1]).seconds > trained[1].seconds


@pytest.mark.slow
def test_a_frozen_encoder_runs_once_for_all_that_read_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path / "cache"))
    trial = config("clsr", **{"data.limit": 32})
    inputs = NoInputs().load(trial)
    timed = TimedTrials(Place("cpu", 1, 1), 1, 1)
    name = kind_of(trial.dotted(), inputs.fingerprints)
    first, second = (timed.trained(trial, inputs, name) for _ in range(2))
    assert first.once > 0 and second.once == 0
    for _ in run(trial, inputs):
        pass
    again = TimedTrials(Place("cpu", 1, 1), 1, 1)
    assert again.trained(trial, inputs, name).once == 0, "it is cached by now"


def test_one_of_several_alike_makes_the_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path / "cache"))
    trials = [
        config("clsr", **{"data.limit": 8, "method.temperature": t}) for t in (0.1, 0.2, 0.3)
    ]
    loader = NoInputs()
    assigned = [
        Assignment(str(n), "c", trial, "grid", loader.load(trial).fingerprints)
        for n, trial in enumerate(trials)
    ]
    first, *others = TrialEstimates(assigned, loader, {}, Place("cpu", 1, 1)).loads
    assert first.once > 0
    assert [load.once for load in others] == [0, 0]


def test_what_more_than_sts_by_cosine_takes_is_told(tmp_path: Path) -> None:
    more = 'evaluation.suites = ["sts", "transfer"]\nevaluation.protocols = ["senteval-5fold"]'
    asked = planned(lambda_space(tmp_path / "more", 0.3, fixed=more))
    assert 0 < asked.beyond < 1
    assert planned(lambda_space(tmp_path / "plain", 0.3)).beyond == 0
    less = {"evaluation.protocols": ["cosine"]}
    back = planned(lambda_space(tmp_path / "back", 0.3, fixed=more).with_overrides(less))
    assert back.beyond == 0


def test_sampled_trials_are_as_long_as_the_mean_of_the_others(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.3, ranges="method.lambda = { low = 0.0, high = 1.0 }")
    study = tmp_path / "study"
    run_here(space, study, gpus_per_trial=0.0)
    (row,) = rows(study)
    found = planned(space, study, trials=3)
    assert found.trials == 3
    assert found.seconds == pytest.approx(3 * row["wall_seconds"])


def test_no_more_trials_are_counted_than_the_ranges_hold(tmp_path: Path) -> None:
    ranges = "optimizer.epochs = { choices = [1, 2, 3] }"
    found = recalled(lambda_space(tmp_path, 0.3, ranges=ranges), None, trials=100, seeds=(0, 1))
    assert found.proposals.total == 6, "of the three the grid is one"


def test_points_measure_what_trials_are_compared_by(tmp_path: Path) -> None:
    trial = config("scl", **{"evaluation.every": 1})
    inputs = NoInputs().load(trial)
    name = kind_of(trial.dotted(), inputs.fingerprints)
    seen: dict[str, list[str]] = {}
    for objective in ("STS-B:spearman:dev", "SICK-R:spearman:dev"):
        (asked,) = parse_objectives([objective], allow_test=False)
        place = place_of(HERE, asked)
        timed = TimedTrials(place, 1, 1)
        timed.trained(trial, inputs, name)
        measured = tasks_at_points(inputs.sets, place.compared_by)
        seen[objective] = [task.name for task in measured]
    assert seen == {"STS-B:spearman:dev": ["STS-B"], "SICK-R:spearman:dev": ["STS-B", "SICK-R"]}


def test_nothing_to_do_takes_no_estimate(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path, 0.3), tmp_path / "study"
    run_here(space, study)
    assert estimate_search(recalled(space, study), Study.read(study)) is None


def test_the_place_is_the_options(tmp_path: Path) -> None:
    assert place_of(HERE) == Place("cpu", 1, 1)
    ray = SearchOptions(gpus_per_trial=0.0, cpus_per_trial=1, max_concurrent=1)
    assert place_of(ray) == Place("cpu", 1, 1)
