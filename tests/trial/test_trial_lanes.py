"""Trials as lanes: each is told, written and charged as if it ran alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lane_samples import CLSR
from trial_samples import LOADER, Kept, drained

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.score import Score
from tune_sentcl.trial import Account, Progress, run, saving
from tune_sentcl.trial.lanes import Lanes, LaneTrial, Share
from tune_sentcl.trial.state import TrialState

BASE = {**CLSR, "evaluation.every": 4}
ADAMW = {"optimizer.name": "adamw", "optimizer.lr": 1e-2}
SGD = {"optimizer.name": "sgd", "optimizer.lr": 0.1}
LARS = {"optimizer.name": "lars", "optimizer.lr": 0.2}
MIXED: list[dict[str, Any]] = [
    {},
    {"seed": 1, "method.temperature": 0.05, "optimizer.weight_decay": 0.1},
    {"seed": 2, "optimizer.schedule": "cosine", "optimizer.warmup_epochs": 0.5},
    {"seed": 3, "method.hidden": 18, "method.width": 17, "optimizer.max_grad_norm": 0.05},
    {"seed": 4, "optimizer.epochs": 2, "optimizer.schedule": "linear", "data.order": "file"},
]


def config_of(*values: dict[str, Any]) -> TrialConfig:
    joined: dict[str, Any] = {**BASE}
    for more in values:
        joined |= more
    return parse_dotted(joined, "test")


@dataclass
class Heard:
    """What lanes told of one trial."""

    points: list[Progress] = field(default_factory=list)
    error: Exception | None = None


def laned(
    configs: Sequence[TrialConfig], folder: Path | None = None, device: str = "cpu", **output: Any
) -> Lanes:
    trials = []
    for place, config in enumerate(configs):
        share = Share()
        left = None if folder is None else Kept(folder / str(place), config).output(**output)
        account = Account(device, clock=share)
        trials.append(LaneTrial(config, LOADER.load(config), account, share, left))
    return Lanes(trials)


def heard(lanes: Lanes, stops: dict[int, int] | None = None) -> list[Heard]:
    """Run lanes to their end; trials of `stops` are stopped behind so many points."""
    found = [Heard() for _ in lanes.trials]
    for place, told in lanes.points():
        if isinstance(told, Progress):
            assert found[place].error is None
            found[place].points.append(told)
            if len(found[place].points) == (stops or {}).get(place):
                lanes.stop(place)
        else:
            found[place].error = told
    return found


def alone(config: TrialConfig, folder: Path | None = None) -> list[Progress]:
    output = None if folder is None else Kept(folder, config).output()
    return drained(run(config, LOADER.load(config), output=output))[0]


def numbers(scores: Sequence[Score]) -> list[float]:
    return [s.value for s in scores if s.value is not None]


def assert_equal(found: Sequence[Progress], serial: Sequence[Progress]) -> None:
    assert [(p.step, p.total, p.rows, p.final) for p in found] == [
        (p.step, p.total, p.rows, p.final) for p in serial
    ]
    for one, other in zip(found, serial, strict=True):
        assert one.dev == pytest.approx(other.dev, abs=1e-5)
        assert [replace(s, value=None) for s in one.scores] == [
            replace(s, value=None) for s in other.scores
        ]
        np.testing.assert_allclose(numbers(one.scores), numbers(other.scores), rtol=0, atol=1e-5)


def same_weights(one: Path, other: Path, config: TrialConfig) -> None:
    weights = Kept(other, config).encoder().state_dict()
    for name, value in Kept(one, config).encoder().state_dict().items():
        within = 1e-5 * max(1.0, float(weights[name].abs().max()))
        torch.testing.assert_close(value, weights[name], rtol=0, atol=within)


@pytest.mark.parametrize("rule", [ADAMW, {**ADAMW, "optimizer.eps_added": "raw"}, SGD, LARS])
def test_a_lane_is_its_trial_alone(rule: dict[str, Any], tmp_path: Path) -> None:
    configs = [config_of(rule, values) for values in MIXED]
    for place, told in enumerate(heard(laned(configs, tmp_path / "lanes"))):
        config, folder = configs[place], tmp_path / "alone" / str(place)
        assert told.error is None
        assert_equal(told.points, alone(config, folder))
        same_weights(tmp_path / "lanes" / str(place), folder, config)
        curves = Kept(tmp_path / "lanes" / str(place), config).curves
        serial = Kept(folder, config).curves
        assert [(c.step, c.epoch, c.samples, c.metric) for c in curves] == [
            (c.step, c.epoch, c.samples, c.metric) for c in serial
        ]
        np.testing.assert_allclose(
            [c.value for c in curves], [c.value for c in serial], rtol=1e-5, atol=1e-5
        )


@pytest.mark.gpu
@pytest.mark.parametrize("rule", [ADAMW, SGD, LARS])
def test_on_a_gpu_a_lane_is_its_trial_alone(rule: dict[str, Any], tmp_path: Path) -> None:
    """Padded there, and moved together."""
    configs = [config_of(rule, values) for values in MIXED]
    for place, told in enumerate(heard(laned(configs, tmp_path / "lanes", "cuda"))):
        config, folder = configs[place], tmp_path / "alone" / str(place)
        output = Kept(folder, config).output()
        serial, _ = drained(run(config, LOADER.load(config), Account("cuda"), output))
        assert told.error is None
        assert [(p.step, p.rows) for p in told.points] == [(p.step, p.rows) for p in serial]
        same_weights(tmp_path / "lanes" / str(place), folder, config)


def test_momentum_may_differ_and_be_none(tmp_path: Path) -> None:
    configs = [config_of(SGD, {"optimizer.momentum": m, "seed": 7}) for m in (0.0, 0.5, 0.9)]
    for place, told in enumerate(heard(laned(configs, tmp_path / "lanes"))):
        assert_equal(told.points, alone(configs[place], tmp_path / str(place)))
        same_weights(tmp_path / "lanes" / str(place), tmp_path / str(place), configs[place])


def test_one_that_diverges_ends_alone(tmp_path: Path) -> None:
    wild = {"optimizer.lr": 1e30, "optimizer.warmup": 0.0}
    configs = [config_of(SGD), config_of(SGD, wild), config_of(SGD, {"seed": 2})]
    found = heard(laned(configs, tmp_path / "lanes"))
    assert isinstance(found[1].error, NonFiniteError)
    with pytest.raises(NonFiniteError) as told:
        alone(configs[1])
    assert str(found[1].error) == str(told.value)
    for place in (0, 2):
        assert_equal(found[place].points, alone(configs[place], tmp_path / str(place)))
        same_weights(tmp_path / "lanes" / str(place), tmp_path / str(place), configs[place])


def test_one_that_is_stopped_ends_alone(tmp_path: Path) -> None:
    configs = [config_of(ADAMW, {"seed": n}) for n in range(3)]
    found = heard(laned(configs, tmp_path / "lanes"), stops={1: 1})
    assert [len(f.points) for f in found] == [3, 1, 3]
    for place in (0, 2):
        assert_equal(found[place].points, alone(configs[place], tmp_path / str(place)))
        same_weights(tmp_path / "lanes" / str(place), tmp_path / str(place), configs[place])


def test_the_best_weights_are_each_lane_s_own(tmp_path: Path) -> None:
    best = {"evaluation.select": "best", "evaluation.every": 1}
    configs = [config_of(LARS, best, {"seed": n, "optimizer.lr": 1.0}) for n in range(3)]
    for place, told in enumerate(heard(laned(configs, tmp_path / "lanes"))):
        assert_equal(told.points, alone(configs[place], tmp_path / str(place)))
        same_weights(tmp_path / "lanes" / str(place), tmp_path / str(place), configs[place])


class KilledError(Exception):
    """Stands for the end of the worker."""


@pytest.mark.parametrize("rule", [ADAMW, {**ADAMW, "optimizer.eps_added": "raw"}, SGD, LARS])
@pytest.mark.parametrize("into", ["alone", "lanes"])
def test_goes_on_from_a_state_as_a_lane_or_alone(
    rule: dict[str, Any], into: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "_SHARE", 1.0)
    configs = [config_of(rule, {"seed": n}) for n in range(2)]
    points = [alone(c, tmp_path / "whole" / str(n)) for n, c in enumerate(configs)]
    lanes = laned(configs, tmp_path / "cut", save_every=1e-9)
    cut = lanes.points()
    for _, told in cut:
        assert isinstance(told, Progress) and not told.final
        if told.step == 8:
            break
    cut.close()
    for place, config in enumerate(configs):
        state = Kept(tmp_path / "cut" / str(place), config).output().saved()
        assert isinstance(state, TrialState) and 1 <= state.training.number <= 8
    if into == "lanes":
        found = [h.points for h in heard(laned(configs, tmp_path / "cut"))]
    else:
        found = [alone(c, tmp_path / "cut" / str(n)) for n, c in enumerate(configs)]
    for place, config in enumerate(configs):
        assert_equal(found[place], points[place])
        assert "went on from step" in found[place][-1].facts["notes"]
        same_weights(tmp_path / "cut" / str(place), tmp_path / "whole" / str(place), config)
