"""What only a GPU shows: a context that is lost takes its process with it, and no trial."""

from pathlib import Path

import pytest
from local_ray import start_ray
from search_samples import rows
from test_lost_workers import by_lambda, harmed, tries

pytestmark = [pytest.mark.gpu, pytest.mark.ray]


def test_a_lost_context_costs_a_worker_and_no_trial(tmp_path: Path) -> None:
    """The error is CUDA's own: an index outside of its tensor, which no later call survives."""
    start_ray()
    outcome = harmed(tmp_path, {0.1: "cuda assert once"}, gpus_per_trial=1.0)
    assert (outcome.ran, outcome.failures) == (2, 0)
    first, second = tries(tmp_path, 0.1)
    assert first != second
    assert {row["device"].partition(" ")[0] for row in rows(tmp_path / "study")} == {"cuda"}
    assert by_lambda(tmp_path)[0.1]["status"] == "finished"
