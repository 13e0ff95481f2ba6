"""Options that make no sense are refused together, before anything runs or is written."""

from pathlib import Path
from typing import Any

import pytest
from search_samples import LAMBDA, lambda_space, run_here, run_on_ray

from tune_sentcl.errors import ConfigError, ResourceError
from tune_sentcl.objective import DEFAULT, early_stopping_objective, parse_objectives
from tune_sentcl.space import load_space
from tune_sentcl.tuning.disk_need import DiskNeed, check_disk
from tune_sentcl.tuning.resources import usable_cores
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.worker import worker_settings


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("trials", -1),
        ("budget", -1.0),
        ("keep", -1),
        ("sampler_seed", -1),
        ("max_concurrent", 0),
        ("cpus_per_trial", 0),
        ("gpus_per_trial", -0.5),
        ("gpus_per_trial", 1.5),
        ("gpus_per_trial", float("nan")),
        ("memory_per_trial", -1.0),
        ("max_failures", 0),
        ("retries", -1),
        ("trial_timeout", 0.5),
        ("max_time", -1.0),
        ("max_gpu_hours", float("nan")),
    ],
)
def test_numbers_out_of_range_are_refused(tmp_path: Path, option: str, value: Any) -> None:
    space = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA)
    with pytest.raises(ConfigError, match=f"{option.replace('_', '[-_]')}: "):
        run_here(space, tmp_path / "study", **{option: value})
    assert not (tmp_path / "study").exists()


def test_all_faults_are_listed_at_once(tmp_path: Path) -> None:
    options = SearchOptions(trials=3, budget=2.0, keep=-1, max_concurrent=0)
    with pytest.raises(ConfigError) as caught:
        options.check(lambda_space(tmp_path, 0.3))
    assert [f.where for f in caught.value.faults] == [
        "--max-concurrent",
        "--keep",
        "--trials",
        "--trials",
    ]


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
    check_disk(str(tmp_path / "not" / "there"), DiskNeed(1, 0))
    with pytest.raises(ResourceError, match="MB free"):
        check_disk(str(tmp_path / "not" / "there"), DiskNeed(10**18, 0))
    check_disk("s3://bucket/study", DiskNeed(10**18, 0))


def test_what_options_say_to_workers() -> None:
    for keep in (0, 1, 2):
        asked = SearchOptions(
            keep=keep, cpus_per_trial=3, trial_timeout=9.0, deterministic=keep > 0
        )
        told = worker_settings("study", asked, 0.5)
        assert (told.study, told.keep_checkpoint) == ("study", keep > 0)
        assert told.deterministic == (keep > 0)
        assert (told.cpus, told.gpus, told.seconds, told.early_stopping_objective) == (
            3,
            0.5,
            9.0,
            DEFAULT,
        )
    for objective, compared in (
        ("SICK-R:pearson:dev", "SICK-R:pearson:dev"),
        ("STS12:spearman:test", "STS-B:spearman:dev"),
        ("SST2:accuracy:dev", "STS-B:spearman:dev"),
        ("STS-B:pearson:dev:relatedness", "STS-B:spearman:dev"),
    ):
        (asked_for,) = parse_objectives([objective], allow_test=True)
        told = worker_settings("study", SearchOptions(), 0.0, early_stopping_objective(asked_for))
        assert str(told.early_stopping_objective) == compared


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("sampler", "bohb", "--sampler: 'bohb': must be 'tpe', 'random' or 'grid'"),
        ("scheduler", "asha", "--scheduler: 'asha': must be 'halving' or 'none'"),
        ("trials", 2.5, "--trials: 2.5: must be a valid integer"),
        ("trials", "5", "--trials: '5': must be a valid integer"),
        ("learn_from", "study", "--learn-from: 'study': must be a valid tuple"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_name(
    option: str, value: object, said: str
) -> None:
    """Finds a misspelt sampler that draws random points."""
    with pytest.raises(ConfigError, match=said):
        SearchOptions(**{option: value}).check(load_space("smoke"))  # type: ignore[arg-type]
