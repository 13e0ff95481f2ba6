"""What an estimate counts: kinds, finished trials, steps, evaluation points, passes, slots."""

import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
import torch
from search_samples import lambda_space, rows, run_here, run_planted, statuses

from tune_sentcl.config import Fingerprints, TrialConfig, parse_dotted
from tune_sentcl.errors import ResourceError
from tune_sentcl.history import History
from tune_sentcl.launch import run_locally, run_prepared
from tune_sentcl.objective import DEFAULT
from tune_sentcl.space import Space
from tune_sentcl.store.reading.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.planning import estimate
from tune_sentcl.tuning.planning.estimate import (
    Kind,
    SearchEstimate,
    count_points,
    device_and_slots,
    estimate_search,
    finished_seconds,
    kind_of,
    makespan,
)
from tune_sentcl.tuning.planning.plan import (
    estimate_if_useful,
    make_plan,
    runs_here,
    with_estimate,
)
from tune_sentcl.tuning.prepare import PreparedSearch, prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.worker import worker_settings

TOY = {"encoder.checkpoint": "toy", "data.source": "toy", "data.limit": 64}
PRINTS = Fingerprints("rows", "weights")
HERE = SearchOptions(launcher="local", gpus_per_trial=0.0)


def config(method: str, **values: Any) -> TrialConfig:
    return parse_dotted({"method.name": method, **TOY, **values}, "test")


def kind(method: str, values: Mapping[str, Any] | None = None, prints: Any = PRINTS) -> Kind:
    return kind_of(config(method, **(values or {})).dotted(), prints)


def recalled(space: Space, study: Path | None, **asked: Any) -> PreparedSearch:
    seeds, options = asked.pop("seeds", (0,)), {"launcher": "local", "gpus_per_trial": 0.0}
    prepared = prepare(space, None, seeds, SearchOptions(**{**options, **asked}))
    objectives = prepared.objectives
    prepared.resume_from(
        History.read(Study.read(study), objectives) if study else History(objectives)
    )
    return prepared


def planned(space: Space, study: Path | None = None, **asked: Any) -> SearchEstimate:
    found = estimate_search(recalled(space, study, **asked), Study.read(study) if study else None)
    assert found is not None
    return found


@pytest.mark.parametrize("every", [0, 1, 3, 4, 5])
def test_points_are_counted_as_a_trial_makes_them(tmp_path: Path, every: int) -> None:
    fixed = f"optimizer.epochs = 2\nevaluation.every = {every}"
    run_here(lambda_space(tmp_path, 0.3, fixed=fixed), tmp_path / "study")
    (row,) = rows(tmp_path / "study")
    dev = Study.read(tmp_path / "study").curves(where=pc.field("metric") == DEFAULT.curve)
    assert row["steps"] == 4
    assert count_points(row["steps"], every) == dev.num_rows


@pytest.mark.parametrize(
    ("seconds", "slots", "end"),
    [([], 2, 0), ([1, 1, 1], 1, 3), ([1, 1, 1], 2, 2), ([3, 1, 1, 1], 2, 3), ([5, 5], 9, 5)],
)
def test_each_trial_goes_to_the_slot_that_is_free_first(
    seconds: list[float], slots: int, end: float
) -> None:
    assert makespan(seconds, slots) == end


def test_knobs_that_cost_no_time_do_not_change_the_kind() -> None:
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
def test_knobs_that_cost_time_change_the_kind(values: Mapping[str, Any]) -> None:
    assert kind("scl", values) != kind("scl")
    assert kind("scl", prints=Fingerprints("others", "weights")) != kind("scl")
    assert kind("scl", prints=Fingerprints("rows", "others")) != kind("scl")


def test_a_term_that_is_not_computed_changes_the_kind() -> None:
    both, interactive, contrastive = (kind("conisi", {"method.lambda": x}) for x in (0.5, 1, 0))
    assert len({both, interactive, contrastive}) == 3
    assert kind("conisi", {"method.lambda": 0.8}) == both


def test_the_median_of_finished_trials_stands_for_their_kind_alone(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path, 0.3, 0.7), tmp_path / "study"
    run_here(space, study, gpus_per_trial=0.0)
    took = statistics.median(row["wall_seconds"] for row in rows(study))
    same = planned(space, study, seeds=(0, 1))
    assert same.trials == 2 and not same.timed
    assert same.seconds_per_trial == pytest.approx([took, took])
    assert same.seconds == pytest.approx(2 * took)
    assert "2 finished trials of 1 kind of trial" in same.basis
    ranges = "method.lambda = { low = 0.0, high = 1.0 }"
    drawn = planned(lambda_space(tmp_path / "drawn", 0.3, 0.7, ranges=ranges), study, trials=3)
    assert drawn.trials == 3 and drawn.seconds == pytest.approx(3 * took)
    longer = planned(space.with_overrides({"optimizer.epochs": 2}), study)
    assert longer.trials == 2 and longer.timed and longer.basis == "1 kind of trial timed here"
    held = Study.read(study)
    assert not finished_seconds(held, "cpu", 2) and not finished_seconds(held, "cuda", 1)
    assert estimate_search(recalled(space, study), held) is None, "there is nothing to do"


def test_steps_and_evaluation_points_are_multiplied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "_time_steps", lambda *_: 10.0)
    monkeypatch.setattr(estimate._Timer, "_pace", lambda *_: 0.01)

    def seconds(epochs: int, every: int) -> float:
        fixed = f"optimizer.epochs = {epochs}\nevaluation.every = {every}"
        (each,) = planned(
            lambda_space(tmp_path / f"{epochs}{every}", 0.3, fixed=fixed)
        ).seconds_per_trial
        return each

    steps, starting = 2, 5  # of an epoch; seconds within which a method is assembled
    once = seconds(1, 0)
    assert seconds(50, 0) == pytest.approx(once + 49 * steps * 10, abs=starting)
    sets = InputLoader(None).sets(config("scl"))
    (dev,) = (task for task in sets.sts if (task.name, task.split) == ("STS-B", "dev"))
    texts = {text for s in dev.subsets for text in (*s.sentences1, *s.sentences2)}
    point = 0.01 * sum(map(len, texts))
    assert point > starting
    assert seconds(1, 1) == pytest.approx(once + steps * point, abs=starting)


def test_a_step_is_scaled_from_the_timed_batch_to_the_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = estimate._sample_batches

    def seconds(ratio: float) -> float:
        monkeypatch.setattr(
            estimate, "_sample_batches", lambda *inputs: sample(*inputs)._replace(ratio=ratio)
        )
        return float(planned(lambda_space(tmp_path / f"{ratio}", 0.3)).seconds)

    assert seconds(1e6) > 100 * seconds(1.0)


def test_one_trial_makes_the_pass_of_a_frozen_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path / "cache"))
    space = lambda_space(tmp_path, 0.3).with_overrides({"method.name": "clsr", "data.limit": 32})
    found = planned(space, seeds=(0, 1))
    assert found.trials == 2 and found.encoding_seconds > 0
    assert found.seconds == pytest.approx(sum(found.seconds_per_trial) + found.encoding_seconds)
    run_here(space, tmp_path / "study", gpus_per_trial=0.0)
    assert planned(space, seeds=(0, 1)).encoding_seconds == 0, "it is cached by now"


def test_no_more_trials_are_counted_than_the_ranges_hold(tmp_path: Path) -> None:
    ranges = "optimizer.epochs = { choices = [1, 2, 3] }"
    space = lambda_space(tmp_path, 0.3, ranges=ranges)
    for scheduler, total in (("none", 6), ("halving", 5)):
        found = recalled(space, None, trials=100, seeds=(0, 1), scheduler=scheduler)
        assert found.proposals.total == total, "of the three the grid is one"


def test_a_machine_without_a_gpu_times_on_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert (
        device_and_slots(HERE) == device_and_slots(SearchOptions(launcher="local")) == ("cpu", 1)
    )
    assert device_and_slots(SearchOptions(max_concurrent=1)) == ("cpu", 1)
    assert device_and_slots(SearchOptions(cpus_per_trial=10**6)) == ("cpu", 1)


def test_kinds_without_finished_trials_are_not_timed_on_a_gpu(tmp_path: Path) -> None:
    prepared = recalled(lambda_space(tmp_path, 0.3), None)
    with pytest.raises(ResourceError, match="1 kind of trial without finished ones"):
        estimate_search(prepared, None, may_time=False)


def test_a_plan_names_the_classifiers_that_it_does_not_count(tmp_path: Path) -> None:
    more = 'evaluation.suites = ["sts", "transfer"]\nevaluation.protocols = ["senteval-5fold"]'
    unused = 'evaluation.protocols = ["cosine", "senteval-5fold"]'  # without the suite transfer
    for number, (fixed, named) in enumerate(((more, True), ("", False), (unused, False))):
        space = lambda_space(tmp_path / str(number), 0.3, fixed=fixed)
        notes = " ".join(make_plan(space, None, None, None, HERE).notes)
        assert "s a trial (1 kind of trial timed here); " in notes
        assert ("not include the classifiers of senteval-5fold" in notes) == named
        assert ("classifiers" in notes) == named


LINE = r"planned \d+:\d\d for (\d+) runs? \((.*)\), took \d+:\d\d"


def run_compared(space: Space, study: Path, seeds: tuple[int, ...] = (0,)) -> None:
    """A search for Ray's launcher, which is estimated, run by the local one, which is quicker."""
    options = SearchOptions(gpus_per_trial=0.0, address="local", scheduler="none")
    settings = worker_settings(str(study), options, 0.0)
    prepared = prepare(space, None, seeds, options)
    launch = with_estimate(lambda s: run_locally(s, settings), prepared, str(study))
    run_prepared(prepared, str(study), launch)


def test_a_search_compares_itself_with_its_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path, 0.3, 0.7), tmp_path / "study"
    for seeds, trials, basis in (
        ((0,), "2", "1 kind of trial timed here"),
        ((0, 1, 2), "4", "2 finished trials of 1 kind of trial"),
    ):
        run_compared(space, study, seeds)
        line = re.search(LINE, capsys.readouterr().err)
        assert line is not None and line.groups() == (trials, basis)
        record = Study.read(study).manifest.plan
        assert record is not None and record.trials == int(trials)
        assert record.planned_seconds > 0 and record.actual_seconds > 0
        run_compared(space, study, seeds)
        assert re.search(LINE, capsys.readouterr().err) is None, "nothing was to be done"
        assert Study.read(study).manifest.plan == record


def test_trials_elsewhere_are_not_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert runs_here(SearchOptions()) and runs_here(SearchOptions(address="local"))
    assert not runs_here(SearchOptions(address="10.0.0.1:6379"))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert not runs_here(SearchOptions()) and not runs_here(SearchOptions(launcher="local"))
    assert runs_here(SearchOptions(address="local"))
    space = lambda_space(tmp_path, 0.3)
    asked: dict[str, Any] = {"launcher": "ray"}
    assert estimate_if_useful(recalled(space, None, **asked), str(tmp_path / "none")) is None
    run_planted(space, tmp_path / "study")
    assert re.search(LINE, capsys.readouterr().err) is None
    assert Study.read(tmp_path / "study").manifest.plan is None


def test_a_search_that_only_measures_is_not_estimated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path, 0.3), tmp_path / "study"
    run_here(space, study, gpus_per_trial=0.0)
    run_compared(space.with_overrides({"evaluation.protocols": ["cosine", "relatedness"]}), study)
    assert re.search(LINE, capsys.readouterr().err) is None
    assert Study.read(study).manifest.plan is None


def test_a_trial_that_cannot_be_timed_ends_no_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path, 0.3), tmp_path / "study"
    # A doubled sentence of this length does not fit the encoder, which shows when it is assembled.
    changes = {"method.name": "conisi", "encoder.max_length": 512, "encoder.train_length": 512}
    run_compared(space.with_overrides(changes), study)
    told = capsys.readouterr().err
    assert "the time cannot be estimated" in told and "train_length" in told
    assert statuses(study) == ["failed"]
    assert Study.read(study).manifest.plan is None
