"""Fixtures of the command line's tests; each of their files names this one in `pytest_plugins`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cli_samples import TOY, invoke
from disk_samples import write_sts_root


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, with no data root and no cluster."""
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("TUNE_SENTCL_DATA", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    threads = torch.get_num_threads()
    yield folder
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of single trials that holds one; tests copy it before they touch it."""
    study = tmp_path_factory.mktemp("held") / "study"
    done = invoke("train", *TOY, "--study", study)
    assert done.code == 0, done.err
    return study


@pytest.fixture(scope="session")
def sts_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with whole STS sets; tests copy it before they damage it."""
    return write_sts_root(tmp_path_factory.mktemp("sts") / "root")
