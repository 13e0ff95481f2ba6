"""Ray's start ahead of the driver's imports: when, and what a worker imports."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tune_sentcl.errors import ConfigError
from tune_sentcl.on_ray import ahead, preload
from tune_sentcl.space import load_space
from tune_sentcl.tuning.search_options import SearchOptions

_IN_A_PROCESS = """
import sys
{code}
print(*[name for name in ("torch", "transformers", "ray.tune") if name in sys.modules])
"""


def _heavy(code: str, **variables: str) -> list[str]:
    """What of the heavy libraries a process has imported behind some code."""
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_PROCESS.format(code=code)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_each_number_is_taken_once_and_in_order(tmp_path: Path) -> None:
    names = ["000000-core0", "000001-core0"]
    for name in names:
        (tmp_path / f"{name}.free").touch()
    assert [preload.take_number(tmp_path) for _ in range(3)] == [*names, None]


def test_workers_of_one_core_import_in_turn(tmp_path: Path) -> None:
    one, other = "000000-core0", "000001-core1"
    with (
        preload.import_lock(tmp_path, one),
        preload.import_lock(tmp_path, other),
        pytest.raises(OSError),
    ):
        fcntl.flock(os.open(tmp_path / "core0", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    with preload.import_lock(tmp_path, "000002-core0"):
        pass


_STUBBED = """
import sys, types
sys.modules["tune_sentcl.on_ray.trainable"] = types.ModuleType("trainable")
torch, transformers = types.ModuleType("torch"), types.ModuleType("transformers")
torch.zeros = lambda count: count
torch.nn = types.SimpleNamespace(Parameter=str)
torch.optim = types.SimpleNamespace(AdamW=lambda parameters: print("begun"))
transformers.AutoModel = transformers.AutoTokenizer = transformers.BertModel = None
sys.modules |= {"torch": torch, "transformers": transformers}
import tune_sentcl.on_ray.preload
"""


def test_each_free_number_makes_one_worker_warm(tmp_path: Path) -> None:
    """The libraries are stubs."""
    (tmp_path / "000000-core0.free").touch()
    for where, begun in (({}, False), ({preload.FOLDER: str(tmp_path)}, True)):
        assert ("begun" in _heavy(_STUBBED, **where)) == begun
    assert "begun" not in _heavy(_STUBBED, **{preload.FOLDER: str(tmp_path)})


def test_ray_starts_before_a_driver_has_imported_torch() -> None:
    assert _heavy("import tune_sentcl.on_ray.ahead, tune_sentcl.on_ray.warming") == []


@pytest.mark.long
def test_a_worker_that_is_to_be_warm_imports_what_a_trial_needs(tmp_path: Path) -> None:
    (tmp_path / "000000-core0.free").touch()
    code, where = f"import {preload.__name__}", {preload.FOLDER: str(tmp_path)}
    assert _heavy(code) == []
    assert _heavy(code, **where) == ["torch", "transformers", "ray.tune"]
    assert _heavy(code, **where) == []


@pytest.mark.parametrize(
    ("asked", "begun"),
    [
        ({}, True),
        ({"launcher": "local"}, False),
        ({"address": "10.0.0.1:6379"}, False),
        ({"cpus_per_trial": 10**6}, False),
        ({"gpus_per_trial": 1.0}, False),
        ({"track": ("mlflow",)}, False),
        ({"learn_from": ("elsewhere",)}, False),
        ({"objectives": ("STS-B:spearman:dev",)}, False),
        ({"accelerator": "H200"}, False),
        ({"memory_per_trial": 1.0}, False),
    ],
)
def test_a_cluster_is_begun_ahead_where_it_is_sure_to_be_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], begun: bool
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert ahead._runs_here(str(tmp_path / "study"), SearchOptions(**asked)) is begun


def test_none_is_begun_for_a_study_that_may_hold_all(tmp_path: Path) -> None:
    (tmp_path / "study.json").touch()
    options = SearchOptions(address="local")
    assert not ahead._runs_here(str(tmp_path), options)
    assert not ahead._runs_here("memory://study", options)
    assert ahead._runs_here(str(tmp_path / "other"), options)


@pytest.mark.parametrize(
    ("settings", "root", "readable"),
    [
        ({}, False, True),
        ({"encoder.checkpoint": "no/such/folder"}, False, False),
        ({"data.source": "snli"}, False, False),
        ({"data.source": "snli"}, True, True),
    ],
)
def test_none_is_begun_for_what_cannot_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    root: bool,
    readable: bool,
) -> None:
    monkeypatch.delenv("TUNE_SENTCL_DATA", raising=False)
    space = load_space("smoke", settings)
    assert ahead._can_be_read(space, tmp_path if root else None) is readable


def test_workers_leave_the_driver_the_cores_that_it_times_steps_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def warm(cores: int, **given: Any) -> tuple[int, int]:
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        return ahead._warm(SearchOptions(**given))

    assert [warm(cores) for cores in (1, 2, 4, 64)] == [(0, 1), (2, 1), (4, 3), (4, 4)]
    assert warm(2, cpus_per_trial=2) == (0, 1)
    assert warm(8, cpus_per_trial=3) == (2, 2)
    assert warm(64, max_concurrent=1) == (1, 1)


def test_options_are_refused_before_anything_starts(tmp_path: Path) -> None:
    refused = pytest.raises(ConfigError, match="--cpus-per-trial")
    options = SearchOptions(cpus_per_trial=0)
    with refused, ahead.ray_ahead(load_space("smoke"), str(tmp_path / "study"), None, options):
        pass
