"""Options that make no sense are refused together, before anything runs or is written."""

from pathlib import Path
from typing import Any

import pytest
from search_samples import LAMBDA, lambda_space, run_on_ray

from tune_sentcl.errors import ConfigError, ResourceError
from tune_sentcl.objective import DEFAULT, early_stopping_objective, parse_objectives
from tune_sentcl.tuning.disk_need import DiskNeed, check_disk
from tune_sentcl.tuning.resources import usable_cores
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.worker import WorkerSettings, worker_settings


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("trials", -1, ""),
        ("budget", -1.0, ""),
        ("keep", -1, ""),
        ("sampler_seed", -1, ""),
        ("max_concurrent", 0, ""),
        ("cpus_per_trial", 0, ""),
        ("gpus_per_trial", -0.5, ""),
        ("gpus_per_trial", 1.5, ""),
        ("gpus_per_trial", float("nan"), ""),
        ("memory_per_trial", -1.0, ""),
        ("max_failures", 0, ""),
        ("retries", -1, ""),
        ("trial_timeout", 0.5, ""),
        ("max_time", -1.0, ""),
        ("max_gpu_hours", float("nan"), ""),
        ("confirm", -1, ""),
        ("sampler", "bohb", "'bohb': must be 'tpe', 'random' or 'grid'"),
        ("scheduler", "asha", "'asha': must be 'halving' or 'none'"),
        ("trials", 2.5, "2.5: must be a valid integer"),
        ("trials", "5", "'5': must be a valid integer"),
        ("learn_from", "study", "'study': must be a valid tuple"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(
    tmp_path: Path, option: str, value: Any, says: str
) -> None:
    space = lambda_space(tmp_path, 0.3, ranges=LAMBDA)
    with pytest.raises(ConfigError, match=f"{option.replace('_', '[-_]')}: {says}"):
        SearchOptions(**{option: value}).check(space)


def test_all_faults_are_listed_at_once(tmp_path: Path) -> None:
    options = SearchOptions(trials=3, budget=2.0, keep=-1, max_concurrent=0)
    with pytest.raises(ConfigError) as caught:
        options.check(lambda_space(tmp_path, 0.3))
    places = [fault.where for fault in caught.value.faults]
    assert places == ["--max-concurrent", "--keep", "--trials", "--trials"]


@pytest.mark.parametrize("asked", [{"trials": 2}, {"budget": 2.0}])
def test_a_grid_sampler_takes_no_number_of_trials(tmp_path: Path, asked: Any) -> None:
    with pytest.raises(ConfigError, match="the grid has a fixed number"):
        SearchOptions(**asked, sampler="grid").check(lambda_space(tmp_path, 0.3, ranges=LAMBDA))


@pytest.mark.parametrize(
    "asked", [{"cpus_per_trial": usable_cores() + 1}, {"memory_per_trial": 1e6}]
)
def test_trap_more_than_the_machine_has_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Any
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ResourceError, match="must fit this machine"):
        run_on_ray(lambda_space(tmp_path / "space", 0.3), tmp_path / "study", **asked)
    assert not (tmp_path / "study").exists()


def test_trap_checkpoints_that_cannot_fit_the_disk_are_refused(tmp_path: Path) -> None:
    check_disk(str(tmp_path / "not" / "there"), DiskNeed(1, 1, 0))
    with pytest.raises(ResourceError, match="MB free"):
        check_disk(str(tmp_path / "not" / "there"), DiskNeed(10**18, 10**18, 0))
    check_disk("s3://bucket/study", DiskNeed(10**18, 10**18, 0))


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_what_options_say_to_workers(keep: int) -> None:
    asked = SearchOptions(keep=keep, cpus_per_trial=3, trial_timeout=9.0, save_every=2.0)
    expected = WorkerSettings("study", keep > 0, 3, 0.5, DEFAULT, 9.0, 120.0, False)
    assert worker_settings("study", asked, 0.5) == expected


@pytest.mark.parametrize(
    ("objective", "stops_by"),
    [
        ("SICK-R:pearson:dev", "SICK-R:pearson:dev"),
        ("STS12:spearman:test", "STS-B:spearman:dev"),
        ("SST2:accuracy:dev", "STS-B:spearman:dev"),
        ("STS-B:pearson:dev:relatedness", "STS-B:spearman:dev"),
    ],
)
def test_stages_are_decided_by_a_cheap_dev_score(objective: str, stops_by: str) -> None:
    (asked,) = parse_objectives([objective], allow_test=True)
    assert str(early_stopping_objective(asked)) == stops_by
