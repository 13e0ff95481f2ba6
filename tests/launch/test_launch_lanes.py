"""A search with lanes: its rows are those of one trial after another."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launch_processes import alive, beside, trial_workers, wait_until
from launch_samples import (
    Row,
    assigned,
    lambda_space,
    numbers,
    rows,
    run_here,
    run_on_ray,
    statuses,
)
from local_ray import start_ray
from ray.cloudpickle import register_pickle_by_value as register_by_value
from ray.cloudpickle import unregister_pickle_by_value as unregister_by_value

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import ConfigError
from tune_sentcl.launch.attempts import Attempts
from tune_sentcl.launch.budget import Budget
from tune_sentcl.launch.dealing import Dealer
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.prepared import prepare
from tune_sentcl.launch.search import opened, run_prepared
from tune_sentcl.launch.worker import Failure, WorkerSettings
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.study import Study
from tune_sentcl.train import stack
from tune_sentcl.train.deck import Deck
from tune_sentcl.train.lane import alike
from tune_sentcl.trial import InputLoader, Progress
from tune_sentcl.trial.inputs import TrialInputs

HERE = WorkerSettings(None, True, 1, 0.0)
_SPACE = """name = "lanes"
trials = {trials}
[fixed]
encoder.checkpoint = "toy"
encoder.pooling = "mean"
data.source = "toy"
data.limit = 64
data.order = "shuffled"
optimizer.batch_size = 16
optimizer.lr = 1e-2
method.name = "clsr"
method.hidden = 24
method.width = 24
{fixed}
[[block]]
{grid}
"""
_GRID = "grid.optimizer.lr = [1e-2, 2e-2, 1e-3]\ngrid.method.temperature = [0.1, 0.2]"
_LONGER = "optimizer.epochs = 6\nevaluation.every = 4"
_DRIVER = """
import sys
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.search import search
options = SearchOptions(launcher=sys.argv[3], lanes=4, save_every=0.0005, address="local")
search(*sys.argv[1:3], options=options)
"""


def clsr_space(
    folder: Path, grid: str = _GRID, *, fixed: str = "", ranges: str = "", trials: int = 6
) -> Space:
    folder.mkdir(parents=True, exist_ok=True)
    text = _SPACE.format(trials=trials, fixed=fixed or "evaluation.every = 4", grid=grid)
    if ranges:
        text += f"[search.ranges]\n{ranges}\n"
    (folder / "lanes.toml").write_text(text)
    return load_space(folder / "lanes.toml")


def lanes_of(row: Row) -> int:
    """With how many others a trial trained, itself counted."""
    return int(row["lanes"])


def by_trial(study: Path) -> dict[str, Row]:
    return {row["trial_id"]: row for row in rows(study)}


def assert_same_rows(one: Path, other: Path) -> None:
    """Of two searches of one space: all but what a trial cost."""
    found, expected = by_trial(one), by_trial(other)
    assert found.keys() == expected.keys()
    for name, row in found.items():
        assert row["status"] == expected[name]["status"]
        assert row["steps"] == expected[name]["steps"]
        assert row["error_text"] == expected[name]["error_text"]
    there, here = numbers(other), numbers(one)
    assert here.keys() == there.keys()
    for key, value in here.items():
        assert value == pytest.approx(there[key], abs=1e-5), key


def test_rows_are_those_of_one_after_another(tmp_path: Path) -> None:
    space = clsr_space(tmp_path / "space")
    run_here(space, tmp_path / "lanes", lanes=4)
    run_here(space, tmp_path / "alone")
    assert_same_rows(tmp_path / "lanes", tmp_path / "alone")
    assert Counter(map(lanes_of, rows(tmp_path / "lanes"))) == {4: 4, 2: 2}


def test_lanes_share_their_time(tmp_path: Path) -> None:
    space, began = clsr_space(tmp_path / "space"), time.perf_counter()
    outcome = run_here(space, tmp_path / "study", lanes=6)
    assert outcome.ran == 6
    found = rows(tmp_path / "study")
    assert sum(row["wall_seconds"] for row in found) <= time.perf_counter() - began
    assert all(0 < row["train_seconds"] < row["wall_seconds"] for row in found)


def test_who_waits_for_the_driver_is_charged_alone_and_as_a_lane() -> None:
    loader, wait, waited = InputLoader(None), 0.05, dict[str, int]()
    small = {"data.limit": 64, "optimizer.batch_size": 16, "evaluation.every": 1}
    configs = [config_of(**small, seed=number) for number in range(3)]
    attempts = Attempts([assigned(c, loader) for c in configs], loader, HERE)
    charged = {}
    for name, told in attempts.points():
        assert isinstance(told, Progress)
        charged[name] = told.facts["wall_seconds"]
        if not told.final:
            time.sleep(wait)
            waited[name] = waited.get(name, 0) + 1
    assert len(waited) == 3
    for name, points in waited.items():
        assert charged[name] >= wait * points > 0


def test_more_of_a_worker_than_may_fail_in_a_row_end_the_search_of_nobody(tmp_path: Path) -> None:
    """Those that diverge end first, whatever place they have among the others."""
    grid = "grid.optimizer.lr = [1e-2, 1e30, 2e-2, 2e30, 3e-2]"
    fixed = 'optimizer.name = "sgd"\noptimizer.warmup = 0.0'
    space = clsr_space(tmp_path / "space", grid, fixed=fixed, trials=5)
    for _ in range(2):  # repeated, those that failed are tried again behind the others
        outcome = run_here(space, tmp_path / "lanes", lanes=5, max_failures=2)
        assert outcome.to_run == 2
    assert statuses(tmp_path / "lanes") == ["failed"] * 2 + ["finished"] * 3


def test_batches_that_fill_the_memory_of_a_cpu_go_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = Deck.step

    def step(self: Deck, batches: Any) -> None:
        seen.append(len(batches))
        if len(batches) > 2:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        real(self, batches)

    space = clsr_space(tmp_path / "space")
    run_here(space, tmp_path / "alone")
    with monkeypatch.context() as patch:
        patch.setattr(Deck, "step", step)
        run_here(space, tmp_path / "lanes", lanes=6)
    assert_same_rows(tmp_path / "lanes", tmp_path / "alone")
    assert seen[0] == 6 and set(seen[3:]) <= {1, 2}
    seen.clear()
    monkeypatch.setattr(stack, "_COMPARED", 3 * 16**2)

    def counted(self: Deck, batches: Any) -> None:
        seen.append(len(batches))
        real(self, batches)

    monkeypatch.setattr(Deck, "step", counted)
    run_here(space, tmp_path / "three", lanes=6)
    assert_same_rows(tmp_path / "three", tmp_path / "alone")
    assert set(seen) == {3}


def test_only_trials_that_go_together_are_lanes(tmp_path: Path) -> None:
    grid = (
        "grid.optimizer.batch_size = [16, 32]\n"
        'grid.optimizer.name = ["adamw", "lars"]\n'
        "grid.method.hidden = [20, 28]"
    )
    space = clsr_space(tmp_path / "space", grid, trials=8)
    run_here(space, tmp_path / "lanes", lanes=8)
    run_here(space, tmp_path / "alone")
    assert_same_rows(tmp_path / "lanes", tmp_path / "alone")
    assert set(map(lanes_of, rows(tmp_path / "lanes"))) == {2}


def test_a_method_without_lanes_runs_one_at_a_time(tmp_path: Path) -> None:
    space = lambda_space(tmp_path / "space", 0.1, 0.3)
    run_here(space, tmp_path / "lanes", lanes=2)
    run_here(space, tmp_path / "alone")
    assert numbers(tmp_path / "lanes") == numbers(tmp_path / "alone")
    assert set(map(lanes_of, rows(tmp_path / "lanes"))) == {1}


def test_one_that_diverges_fails_alone(tmp_path: Path) -> None:
    grid = "grid.optimizer.lr = [1e-2, 1e30, 2e-2]"
    fixed = "optimizer.name = 'sgd'\noptimizer.warmup = 0.0"
    text = fixed.replace("'", '"')
    space = clsr_space(tmp_path / "space", grid, fixed=text, trials=3)
    run_here(space, tmp_path / "lanes", lanes=3)
    run_here(space, tmp_path / "alone")
    assert statuses(tmp_path / "lanes") == ["failed", "finished", "finished"]
    assert_same_rows(tmp_path / "lanes", tmp_path / "alone")


def test_one_that_reads_other_bytes_fails_alone() -> None:
    loader = InputLoader(None)
    configs = [config_of(**{"seed": n, "data.limit": 64}) for n in range(3)]
    given = [assigned(config, loader) for config in configs]
    theirs = replace(given[1].fingerprints, data="another")
    given[1] = replace(given[1], fingerprints=theirs)
    ends = {}
    for name, told in Attempts(given, loader, HERE).points():
        ends[name] = told.error_type if isinstance(told, Failure) else told.final
    assert ends == {
        given[0].trial_id: True,
        given[1].trial_id: "OtherInputsError",
        given[2].trial_id: True,
    }


@pytest.mark.slow
def test_rungs_stop_the_same_lanes(tmp_path: Path) -> None:
    grid = "grid.optimizer.lr = [1e-2, 1e-9, 2e-2, 1e-8, 3e-2, 1e-7]"
    space = clsr_space(tmp_path / "space", grid, fixed=_LONGER)
    run_here(space, tmp_path / "lanes", lanes=6, scheduler="asha", reduction=2)
    found = rows(tmp_path / "lanes")
    assert {"pruned", "finished"} == {row["status"] for row in found}
    for row in found:
        curve = [
            point["step"]
            for point in Study.read(tmp_path / "lanes").curves().to_pylist()
            if point["trial_id"] == row["trial_id"] and point["metric"].endswith("spearman")
        ]
        assert max(curve) == row["steps"]
        assert (row["steps"] == 24) == (row["status"] == "finished")


@pytest.mark.slow
def test_a_killed_search_goes_on_with_its_lanes(tmp_path: Path) -> None:
    _killed(tmp_path, "local")


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_search_on_ray_goes_on_with_its_lanes(tmp_path: Path) -> None:
    _killed(tmp_path, "ray")


def _killed(folder: Path, launcher: str) -> None:
    space = clsr_space(folder / "space", fixed="optimizer.epochs = 120\nevaluation.every = 100")
    study = folder / "study"
    arguments = [sys.executable, "-c", _DRIVER, str(folder / "space/lanes.toml"), str(study)]
    with subprocess.Popen([*arguments, launcher], start_new_session=True) as driver:
        wait_until(
            lambda: (
                driver.poll() is not None or len(list((study / "states").glob("[0-9a-f]*"))) > 2
            ),
            "the states of three lanes",
        )
        assert driver.poll() is None
        workers = set(trial_workers(driver.pid))
        assert bool(workers) == (launcher == "ray")
        driver.kill()
    # They outlive their driver for a moment, and go on to leave states.
    wait_until(lambda: not alive(workers), "the end of its workers")
    left = Study.read(study).states()
    run_here(space, study, lanes=4)
    run_here(space, folder / "alone")
    assert_same_rows(study, folder / "alone")
    gone_on = {row["trial_id"] for row in rows(study) if "went on from" in (row["notes"] or "")}
    assert gone_on == left
    assert Study.read(study).states() == set()


def test_the_sampler_is_asked_for_as_many_as_there_are_lanes(tmp_path: Path) -> None:
    ranges = "method.temperature = { low = 0.05, high = 1.0 }"
    space = clsr_space(tmp_path / "space", "", ranges=ranges, trials=1)
    options = SearchOptions(launcher="local", lanes=4, trials=9, sampler="random")
    prepared = prepare(space, None, None, options)
    sizes = []
    with opened(prepared, str(tmp_path / "study"), Budget()) as session:
        dealer = Dealer(session, 4, 0.0)
        while dealt := dealer.next():
            sizes.append(len(dealt))
            assert dealer.running == len(sizes)
            assert session.running == sum(sizes)
    assert sizes == [4, 4, 2]


def test_what_is_left_is_shared_out_among_workers(tmp_path: Path) -> None:
    options = SearchOptions(launcher="local", lanes=32)
    prepared = prepare(clsr_space(tmp_path / "space"), None, None, options)
    with opened(prepared, str(tmp_path / "study"), Budget()) as session:
        dealer = Dealer(session, 32, 0.0)
        assert [len(dealer.next(2)) for _ in range(3)] == [3, 3, 0]


def config_of(**values: Any) -> TrialConfig:
    base = {"method.name": "clsr", "encoder.checkpoint": "toy", "data.source": "toy"}
    return parse_dotted({**base, **values}, "test")


def test_what_lanes_may_differ_in() -> None:
    loader = InputLoader(None)

    def kind(**values: Any) -> Any:
        config = config_of(**values)
        return alike(config, loader.load(config).fingerprints)

    same: list[dict[str, Any]] = [
        {"seed": 3, "optimizer.lr": 1.0, "optimizer.weight_decay": 0.1},
        {"method.temperature": 0.5, "optimizer.epochs": 7, "data.order": "shuffled"},
        {"method.hidden": 700, "method.width": 513, "evaluation.every": 3},
        {"optimizer.eps_added": "raw", "optimizer.max_grad_norm": 1.0},
    ]
    assert {kind(**values) for values in same} == {kind()}
    other: list[dict[str, Any]] = [
        {"optimizer.batch_size": 32},
        {"optimizer.name": "sgd"},
        {"method.hidden": 512},
        {"method.output_relu": False},
        {"encoder.pooling": "cls"},
        {"encoder.max_length": 32},
        {"data.limit": 30},
    ]
    assert len({kind(), *(kind(**values) for values in other)}) == len(other) + 1
    assert kind(**{"method.name": "none"}) is None
    assert kind(**{"method.name": "scl"}) is None


def test_lanes_use_their_workers_gpu_together() -> None:
    now = 0.0
    budget = Budget(max_gpu_seconds=100.0, trial_seconds=10.0, clock=lambda: now)
    for name in "abc":
        budget.started(name, 0.5, ["a", "b", "c"])
    budget.started("d", 0.5)
    now = 20.0
    assert budget.seconds_left() == 80.0
    assert budget.overdue("d") and not budget.overdue("a")
    budget.ended("a")
    budget.ended("b")
    budget.ended("d")
    now = 31.0
    assert budget.seconds_left() == pytest.approx((80.0 - 5.5) / 0.5)
    assert budget.overdue("c")
    budget.ended("c")
    assert math.isinf(budget.seconds_left())


@pytest.mark.parametrize(
    ("space", "lanes", "hands"),
    [
        ("lambda", 32, [4, 4, 4]),  # no lanes: a worker each
        ("clsr", 32, [1, 2, 3]),
        ("clsr", "auto", [1, 2, 3]),
        ("clsr", 2, [3, 3, 3]),
        ("wide", "auto", [6, 6, 6]),
    ],
)
def test_workers_are_asked_for_by_what_goes_together(
    tmp_path: Path, space: str, lanes: Any, hands: list[int]
) -> None:
    wide = clsr_space(tmp_path / "wide", fixed="").text.replace("width = 24", "width = 512")
    (tmp_path / "wide/lanes.toml").write_text(wide)
    made = {
        "lambda": lambda: lambda_space(tmp_path / "space", 0.1, 0.3, 0.5, 0.7),
        "clsr": lambda: clsr_space(tmp_path / "space"),
        "wide": lambda: load_space(tmp_path / "wide/lanes.toml"),
    }[space]()
    prepared = prepare(made, None, None, SearchOptions(launcher="local", lanes=lanes))
    with opened(prepared, str(tmp_path / "study"), Budget()) as session:
        dealer = Dealer(session, lanes, 0.0)
        assert [dealer.known(workers) for workers in (1, 2, 4)] == hands
        dealer.next(4)
        assert dealer.known(4) == hands[2] - 1


def test_a_number_of_lanes_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--lanes"):
        SearchOptions(lanes=0).check(clsr_space(tmp_path))


@pytest.mark.ray
@pytest.mark.slow
def test_on_ray_rows_are_those_of_one_after_another(tmp_path: Path) -> None:
    start_ray()
    space = clsr_space(tmp_path / "space")
    run_on_ray(space, tmp_path / "ray", lanes=3)
    run_here(space, tmp_path / "alone")
    assert_same_rows(tmp_path / "ray", tmp_path / "alone")
    assert set(map(lanes_of, rows(tmp_path / "ray"))) == {3}


@pytest.mark.ray
@pytest.mark.slow
def test_on_ray_a_lane_that_is_stopped_ends_alone(tmp_path: Path) -> None:
    """Tune would stop the whole worker; and one that has gone on would be told of as pruned."""
    start_ray()
    grid = "grid.optimizer.lr = [1e-2, 1e-9, 2e-2, 1e-8, 3e-2, 1e-7]"
    space = clsr_space(tmp_path / "space", grid, fixed=_LONGER)
    asked: Any = {"lanes": 6, "scheduler": "asha", "reduction": 2}
    run_on_ray(space, tmp_path / "ray", max_concurrent=1, **asked)
    run_here(space, tmp_path / "here", **asked)
    ends = [
        {name: (row["status"], row["steps"]) for name, row in by_trial(tmp_path / study).items()}
        for study in ("ray", "here")
    ]
    assert ends[0] == ends[1]
    assert {status for status, _ in ends[0].values()} == {"pruned", "finished"}
    told = json.loads((tmp_path / "ray/study.json").read_text())["search"]["rungs"]
    assert sum(rung["stopped"] for rung in told) == statuses(tmp_path / "ray").count("pruned")


@pytest.mark.ray
@pytest.mark.slow
def test_on_ray_one_that_diverges_fails_alone(tmp_path: Path) -> None:
    start_ray()
    grid = "grid.optimizer.lr = [1e-2, 1e30, 2e-2]"
    fixed = 'optimizer.name = "sgd"\noptimizer.warmup = 0.0'
    space = clsr_space(tmp_path / "space", grid, fixed=fixed, trials=3)
    outcome = run_on_ray(space, tmp_path / "ray", lanes=3, max_concurrent=1)
    assert (outcome.ran, outcome.failures) == (3, 1)
    run_here(space, tmp_path / "alone")
    assert_same_rows(tmp_path / "ray", tmp_path / "alone")
    assert statuses(tmp_path / "ray") == ["failed", "finished", "finished"]


@pytest.mark.ray
@pytest.mark.slow
def test_on_ray_the_lanes_of_a_worker_that_dies_go_on_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    start_ray()
    grid = "grid.optimizer.lr = [1e-2, 2e-2, 1e-3]"
    fixed = "optimizer.epochs = 400\nevaluation.every = 100"
    space, study = clsr_space(tmp_path / "space", grid, fixed=fixed, trials=3), tmp_path / "study"

    def saved() -> bool:
        return (study / "study.json").exists() and len(Study.read(study).states()) == 3

    def kill() -> None:
        wait_until(saved, "the states of three lanes")
        (worker,) = trial_workers()
        os.kill(worker, signal.SIGKILL)

    asked: Any = {"lanes": 3, "max_concurrent": 1, "save_every": 0.0005, "retries": 0}
    with beside(kill):
        run_on_ray(space, study, **asked)
    told = capfd.readouterr().err
    assert told.count("lost the worker of several and goes on alone") == 3
    assert all("went on from" in row["notes"] for row in rows(study))
    assert set(map(lanes_of, rows(study))) == {1}
    run_here(space, tmp_path / "alone")
    assert_same_rows(study, tmp_path / "alone")


class Harming(InputLoader):
    """In workers one of the trials ends its process, or hangs."""

    def __init__(self, harm: str) -> None:
        super().__init__(None)
        self._harm, self._driver = harm, os.getpid()

    def load(self, config: TrialConfig) -> TrialInputs:
        inputs = super().load(config)
        if os.getpid() != self._driver and config.optimizer.lr == 2e-2:
            if self._harm == "ends":
                os._exit(1)
            time.sleep(600)
        return inputs


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "asked", "error"),
    [
        ("ends", {"retries": 1}, "WorkerLostError"),
        pytest.param(
            *("hangs", {"trial_timeout": 4.0}, "TrialTimeoutError"), marks=pytest.mark.cluster
        ),
    ],
)
def test_on_ray_one_that_ends_its_worker_or_hangs_fails_alone(
    tmp_path: Path, harm: str, asked: dict[str, Any], error: str
) -> None:
    start_ray()
    grid = "grid.optimizer.lr = [1e-2, 2e-2, 1e-3, 3e-2]"
    space, study = clsr_space(tmp_path / "space", grid, trials=4), tmp_path / "study"
    options = SearchOptions(lanes=4, max_concurrent=1, gpus_per_trial=0.0, **asked)
    prepared = prepare(space, None, (0,), options)
    prepared.proposals.identifier.loader = Harming(harm)
    register_by_value(sys.modules[__name__])
    try:
        run_prepared(prepared, str(study))
    finally:
        unregister_by_value(sys.modules[__name__])
    ends = {row["optimizer.lr"]: row["error_type"] for row in rows(study)}
    assert ends == {1e-2: None, 2e-2: error, 1e-3: None, 3e-2: None}
