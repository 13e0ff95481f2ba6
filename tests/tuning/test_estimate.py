"""What an estimate counts: kinds, finished trials, steps, evaluation points, passes, slots."""

import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from search_samples import LAMBDA, NoInputs, lambda_space, rows, run_here, statuses, tiny_space

from tune_sentcl.config import Fingerprints, TrialConfig, parse_dotted
from tune_sentcl.launch import run_locally, run_prepared
from tune_sentcl.space import Space
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning import prepare as prepare_module
from tune_sentcl.tuning import timing
from tune_sentcl.tuning.plan import Estimate, estimate, make_plan, with_estimate
from tune_sentcl.tuning.prepare import PreparedSearch, prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.timing import (
    Kind,
    TrialTimer,
    fewest_steps,
    finished_seconds,
    kind_of,
    trainings,
)
from tune_sentcl.tuning.worker import worker_settings

TOY = {"encoder.checkpoint": "toy", "data.source": "toy", "data.limit": 64}
HERE = SearchOptions(launcher="local", gpus_per_trial=0.0)


def config(method: str = "scl", **values: Any) -> TrialConfig:
    return parse_dotted({"method.name": method, **TOY, **values}, "test")


def kind(values: Mapping[str, Any], *prints: str) -> Kind:
    prints = prints or ("rows", "weights")
    return kind_of(config(**{"method": "scl", **values}).dotted(), Fingerprints(*prints))


def resumed(space: Space, study: Path | None, **asked: Any) -> PreparedSearch:
    seeds, options = asked.pop("seeds", (0,)), {"launcher": "local", "gpus_per_trial": 0.0}
    prepared = prepare(space, None, seeds, SearchOptions(**{**options, **asked}))
    return prepared.resumed(Study.read(study) if study else None)[0]


def planned(space: Space, study: Path | None = None, **asked: Any) -> Estimate:
    found = estimate(resumed(space, study, **asked), Study.read(study) if study else None)
    assert found is not None
    return found


CONISI, LORA = {"method": "conisi", "method.lambda": 0.5}, {"encoder.lora_rank": 2}


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ({}, {"method.lambda": 0.7, "optimizer.lr": 1e-3, "seed": 3}, True),
        ({}, {"data.limit": 65}, True),  # fingerprints say which rows
        (CONISI, {**CONISI, "method.lambda": 0.8}, True),
        ({}, {"encoder.lora_alpha": 3.0}, True),
        (LORA, {**LORA, "encoder.lora_alpha": 3.0}, True),
        (CONISI, {**CONISI, "method.lambda": 1.0}, False),  # a term is not computed
        (CONISI, {**CONISI, "method.lambda": 0.0}, False),
        (LORA, {**LORA, "encoder.lora_targets": "query"}, False),
        ({}, LORA, False),
        ({}, {"encoder.freeze_layers": 1}, False),
        ({}, {"encoder.pooling": "cls"}, False),
        ({}, {"optimizer.batch_size": 128}, False),
        ({}, {"optimizer.epochs": 2}, False),
        ({}, {"optimizer.max_grad_norm": 1.0}, False),
        ({}, {"method.num_negatives": 3}, False),
        ({}, {"evaluation.every": 4}, False),
        ({}, {"evaluation.suites": ["sts", "transfer"]}, False),
    ],
)
def test_trials_are_of_one_kind_if_they_differ_in_knobs_that_cost_no_time(
    first: Mapping[str, Any], second: Mapping[str, Any], is_same: bool
) -> None:
    assert (kind(first) == kind(second)) == is_same
    assert len({kind(first), kind(first, "x", "weights"), kind(first, "rows", "x")}) == 3


def test_the_median_of_finished_trials_stands_for_their_kind_alone(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path, 0.3, 0.7), tmp_path / "study"
    run_here(space, study, gpus_per_trial=0.0)
    took = statistics.median(row["wall_seconds"] for row in rows(study))
    same = planned(space, study, seeds=(0, 1))
    assert same.runs == 2 and "as finished trials took" in same.basis
    assert same.seconds == pytest.approx(2 * took)
    drawn = planned(
        lambda_space(tmp_path / "drawn", 0.3, 0.7, ranges=LAMBDA),
        study,
        trials=3,
        scheduler="none",
    )
    assert drawn.runs == 3 and drawn.seconds == pytest.approx(3 * took)
    longer = planned(space.with_overrides({"optimizer.epochs": 2}), study)
    assert longer.runs == 2 and "timed here" in longer.basis
    held = Study.read(study)
    assert not finished_seconds(held, "cpu", 2) and not finished_seconds(held, "cuda", 1)
    assert estimate(resumed(space, study), held) is None, "there is nothing to do"


@pytest.mark.parametrize(("every", "points"), [(0, 0), (1, 4), (3, 2), (4, 1), (5, 1)])
def test_rows_and_points_are_multiplied(
    monkeypatch: pytest.MonkeyPatch, every: int, points: int
) -> None:
    monkeypatch.setattr(timing, "_measure", lambda *_: (5.0, 0.25, 0.01, None))
    loader = InputLoader(None)
    values = {"optimizer.batch_size": 32, "optimizer.epochs": 2, "evaluation.every": every}
    asked = parse_dotted({"method.name": "scl", **TOY, **values}, "test")
    found = TrialTimer(loader, HERE).trial(asked)
    sets = loader.sets(asked)
    (dev,) = (task for task in sets.sts if (task.name, task.split) == ("STS-B", "dev"))
    texts = {text for s in dev.subsets for text in (*s.sentences1, *s.sentences2)}
    point, end = (0.01 * sum(map(len, each)) for each in (texts, set(sets.sentences())))
    whole = 5 + 2 * 64 * 0.25 + points * point + end
    assert found == pytest.approx((5 + point, 2 * 64 * 0.25, end, whole))


def test_a_command_times_each_kind_once_and_drops_a_first_stage_that_takes_less_than_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare_module, "first_shares", lambda steps: (0.25, 0.5, 1.0))
    timed = []

    def measure(*given: Any) -> tuple[float, float, float, None]:
        timed.append(given)
        return 1.0, 3.0 / 64, 0.0, None  # seconds of the start, and three of the training

    monkeypatch.setattr(timing, "_measure", measure)
    space = lambda_space(tmp_path, 0.3, 0.7, ranges=LAMBDA)
    asked = SearchOptions(launcher="local", gpus_per_trial=0.0, trials=8)
    notes = make_plan(space, None, None, (0,), asked).notes
    assert len(timed) == 1
    assert any("1/2 of the rows" in note for note in notes)
    assert "the first stage is 0.5 of a training" in capsys.readouterr().err


def test_one_trial_makes_the_pass_of_a_frozen_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path / "cache"))
    space = lambda_space(tmp_path, 0.3).with_overrides({"method.name": "clsr", "data.limit": 32})
    first = resumed(space, None, seeds=(0, 1))
    total, each = estimate(first, None), first.timer.trial(space.configurations[0])
    (encoding,) = first.timer.passes.values()
    assert total and total.runs == 2 and encoding > 0
    assert total.seconds == pytest.approx(2 * each.whole + encoding)
    run_here(space, tmp_path / "study", gpus_per_trial=0.0)
    again = resumed(space, None, seeds=(0, 1))
    estimate(again, None)
    assert list(again.timer.passes.values()) == [0], "it is cached by now"


CLASSIFIERS = {"evaluation.protocols": ["cosine", "senteval-5fold"]}
TRANSFER = {"evaluation.suites": ["sts", "transfer"]}


@pytest.mark.parametrize(
    ("values", "is_told"), [({**TRANSFER, **CLASSIFIERS}, True), ({}, False), (CLASSIFIERS, False)]
)
def test_a_plan_tells_of_the_classifiers_that_it_does_not_count(
    tmp_path: Path, values: dict[str, Any], is_told: bool
) -> None:
    space = lambda_space(tmp_path, 0.3).with_overrides(values)
    notes = " ".join(make_plan(space, None, None, None, HERE).notes)
    told = r"\d:\d\d in all with 1 at a time on this machine \(\d+ s a trial, timed"
    assert re.search(told, notes)
    assert ("does not include the classifiers" in notes) == is_told


LINE = r"planned \d+:\d\d for (\d+) runs? \(.*(timed here|finished trials took)\), took \d+:\d\d"


def run_compared(space: Space, study: Path, seeds: tuple[int, ...] = (0,), **asked: Any) -> None:
    """A search for Ray's launcher, which is estimated, run by the local one, which is quicker."""
    usual = {"gpus_per_trial": 0.0, "address": "local", "scheduler": "none"}
    options = SearchOptions(**{**usual, **asked})
    settings = worker_settings(str(study), options, 0.0)
    prepared = prepare(space, None, seeds, options)
    launch = with_estimate(lambda s: run_locally(s, settings), prepared, str(study))
    run_prepared(prepared, str(study), launch)


def test_a_search_compares_itself_with_its_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path, 0.3, 0.7), tmp_path / "study"
    for seeds, trials, basis in (((0,), "2", "timed here"), ((0, 1), "2", "finished trials took")):
        run_compared(space, study, seeds)
        line = re.search(LINE, capsys.readouterr().err)
        assert line is not None and line.groups() == (trials, basis)
        record = Study.read(study).manifest.plan
        assert record is not None and record.trials == int(trials)
        assert record.planned_seconds > 0 and record.actual_seconds > 0
        run_compared(space, study, seeds)
        assert re.search(LINE, capsys.readouterr().err) is None, "nothing was to be done"
        assert Study.read(study).manifest.plan == record


@pytest.mark.parametrize(
    "asked",
    [{"launcher": "local"}, {"address": "10.0.0.1:6379"}, {"max_time": 599.0}, {}],
    ids=str,
)
def test_some_searches_are_not_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    """Those whose trials run elsewhere, that are short, and (the last) that only measure."""
    monkeypatch.setattr(timing, "_measure", lambda *_: pytest.fail("it is timed"))
    space, study = lambda_space(tmp_path, 0.3), tmp_path / "study"
    if not asked:
        run_here(space, study, gpus_per_trial=0.0)
        space = space.with_overrides({"evaluation.protocols": ["cosine", "relatedness"]})
    run_compared(space, study, **asked)
    assert statuses(study) == ["finished"] and Study.read(study).manifest.plan is None


def test_a_grid_without_trainings_leaves_the_stages_of_what_is_sampled(tmp_path: Path) -> None:
    ranges = (
        'method.name = { choices = ["none", "scl"] }\noptimizer.epochs = { low = 8, high = 99 }'
    )
    space = tiny_space(tmp_path, 'grid."method.name" = ["none"]', ranges=ranges)
    assert fewest_steps(space, NoInputs()) == 8 * 2
    assert [one.method.name for one in trainings(space)] == ["scl", "scl"]
