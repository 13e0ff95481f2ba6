"""The cost of an encoder in use, beside the scores of its trial."""

from pathlib import Path
from typing import Any

import pytest
from trial_samples import LOADER, Kept, finish, measured

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.model.checkpoints.loading import load_base
from tune_sentcl.objective import COSTS, parse_objectives
from tune_sentcl.score import Score
from tune_sentcl.trial.inputs import measures_of

VALUES: dict[str, Any] = {
    "method.name": "mnr",
    "encoder.checkpoint": "toy",
    "encoder.max_length": 64,
    "data.source": "toy",
    "data.limit": 16,
    "evaluation.cost": True,
}


def costing(**values: Any) -> TrialConfig:
    return parse_dotted({**VALUES, **values}, "test")


def costs(scores: tuple[Score, ...]) -> dict[str, float | None]:
    return {score.metric: score.value for score in scores if score.suite == "cost"}


@pytest.mark.parametrize(
    ("values", "size", "tail"),
    [
        ({}, 128, 0),
        ({"encoder.lora_rank": 2}, 128, 0),
        ({"method.name": "none"}, 128, 0),
        ({"method.name": "none", "method.dims": 12}, 48, 0),
        ({"method.name": "none", "method.quantization": "int8"}, 32, 0),
        ({"method.name": "none", "method.dims": 12, "method.quantization": "binary"}, 2, 0),
        ({"method.name": "mnr", "method.head": "kept"}, 128, 33 * 32),
        ({"encoder.checkpoint": "static:16:toy"}, 64, 0),
    ],
)
def test_a_trial_measures_the_encoder_that_it_exports(
    values: dict[str, Any], size: int, tail: int, tmp_path: Path
) -> None:
    if "encoder.lora_rank" in values:
        pytest.importorskip("peft")
    config = costing(**values)
    inputs = LOADER.load(config)
    (*_, last), end = finish(config, tmp_path / "study")
    found = costs(end.scores)
    start = load_base(inputs.checkpoint).transformer
    numbers = tail + sum(weight.numel() for weight in start.parameters())
    assert tuple(found) == COSTS
    assert found["megabytes"] == pytest.approx(numbers * 4 / 1e6)
    assert found["embedding_bytes"] == size
    assert all(0 < (found[name] or 0) < 1000 for name in COSTS[:2])
    expected = set(expected_measurements(inputs.sets, measures_of(config)))
    assert {score.measurement for score in end.scores} == expected
    for one in parse_objectives(
        ["STS-B:spearman", *(f"cost:{c}" for c in COSTS)], allow_test=False
    ):
        assert one.value(last.scores, "toy") is not None
    if config.method.takes_steps:  # and of kept weights, as when it is asked for later
        again = costs(measured(Kept(tmp_path / "study", config), config)[1].scores)
        assert {again[c] == found[c] for c in ("megabytes", "embedding_bytes")} == {True}


def test_widths_and_bits_of_an_encoder_have_its_times() -> None:
    plain = costs(finish(costing(**{"method.name": "none"}))[1].scores)
    small = {"method.name": "none", "method.dims": 8, "method.quantization": "binary"}
    found = costs(finish(costing(**small))[1].scores)
    assert {name for name in COSTS if found[name] != plain[name]} == {"embedding_bytes"}
