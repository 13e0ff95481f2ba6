"""What a worker sets on its device, and what it reads from the errors of one."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from search_samples import assigned, lambda_space, rows, run_here

from tune_sentcl.model import device
from tune_sentcl.model.device import free_memory, limit_memory
from tune_sentcl.train import loop
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.worker import Attempt, WorkerSettings

GIB = 2**30


def test_a_share_of_a_gpu_pays_for_the_processs_own_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else four quarters are more than the card, and who comes last splits its batches."""
    given: list[float] = []
    monkeypatch.setattr(device, "_allowed", 1.0)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=16 * GIB)
    )
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", given.append)
    for share in (0.25, 0.5, 0.03):
        limit_memory(share)
    assert given == [0.25 - 1 / 32, 0.5 - 1 / 32, 0.015]


def test_free_memory_counts_what_others_and_the_share_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = {"mem_get_info": (6 * GIB, 16 * GIB), "memory_allocated": GIB}
    state |= {"memory_reserved": 3 * GIB}
    for name in state:
        monkeypatch.setattr(torch.cuda, name, lambda _, name=name: state[name])
    here = torch.device("cuda")
    assert free_memory(here) == 8 * GIB
    monkeypatch.setattr(device, "_allowed", 0.25)
    assert free_memory(here) == 3 * GIB


@pytest.mark.parametrize("asked", [False, True])
def test_algorithms_are_deterministic_in_a_trial_and_not_behind_it(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    seen = []
    usual = loop._update

    def update(*arguments: Any) -> None:
        seen.append(torch.are_deterministic_algorithms_enabled())
        usual(*arguments)

    monkeypatch.setattr(loop, "_update", update)
    space = lambda_space(tmp_path / "space", 0.3)
    run_here(space, tmp_path / "study", gpus_per_trial=0.0, deterministic=asked)
    assert set(seen) == {asked}
    assert not torch.are_deterministic_algorithms_enabled()
    (row,) = rows(tmp_path / "study")
    assert row["status"] == "finished"


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempt]:
    """Of a worker that has a GPU, which no call survives."""
    (config,) = lambda_space(tmp_path, 0.3).configurations
    loader = InputLoader(None)
    given = assigned(config, loader)

    def lost() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    yield Attempt(given, loader, WorkerSettings(None, False, 1, 1.0))


def test_full_memory_loses_no_worker_whatever_library_says_it(attempt: Attempt) -> None:
    full = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")
    assert attempt.find_device_error(full) is None
    assert attempt.failure(full).error_type == "OutOfMemoryError"
    other = RuntimeError("CUDA error: device-side assert triggered")
    assert attempt.find_device_error(other) is not None
    assert attempt.failure(other).error_type == "RuntimeError"
