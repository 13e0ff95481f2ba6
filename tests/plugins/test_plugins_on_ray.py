"""Losses of a user's own files on Ray's workers, which run what the driver has read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_ray import start_ray
from plugin_samples import MARGIN, TASK, margin_space, registry, written
from search_samples import numbers, rows, run_here, run_on_ray

pytestmark = pytest.mark.ray

__all__ = ["registry"]

RAISING = "raise KeyError(reach)"


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[None]:
    start_ray()
    yield


@pytest.mark.long
def test_workers_run_the_bytes_that_the_driver_has_read(tmp_path: Path) -> None:
    """They score as this process does, also if the files are others by then."""
    path = written(tmp_path)
    (tmp_path / "near.py").write_text(TASK)
    own = {"evaluation.own": ["plugin:near"], "evaluation.every": 1}
    space = margin_space(tmp_path, tmp_path / "near.py").with_overrides(own)
    (tmp_path / "near.py").unlink()
    assert run_here(space, tmp_path / "here").failures == 0
    path.write_text("raise RuntimeError('the driver has not read this')\n")
    (tmp_path / "reach.py").unlink()
    assert run_on_ray(space, tmp_path / "ray").failures == 0
    assert numbers(tmp_path / "ray") == (found := numbers(tmp_path / "here"))
    assert "near" in {task for _, task, *_ in found}
    (code,) = {row["code_fingerprint"] for row in rows(tmp_path / "ray")}
    assert code == space.plugins[-1].fingerprint


@pytest.mark.long
def test_a_plugin_that_raises_in_a_worker_is_in_its_trials_row(tmp_path: Path) -> None:
    path = written(tmp_path, MARGIN.replace("    cosines =", f"    {RAISING}\n    cosines ="))
    space = margin_space(tmp_path)
    path.unlink()  # so the lines of the traceback come with the bytes
    assert run_on_ray(space, tmp_path / "study").failures == 2
    for row in rows(tmp_path / "study"):
        *_, place, line, last = row["error_text"].splitlines()
        assert f'{path}", line' in place and "in margin_cosine" in place
        assert line.strip() == RAISING and last.startswith("KeyError: 0.")
