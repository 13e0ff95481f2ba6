"""Lanes of a stack against trainings alone: padded, out of step, short of memory."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from lane_samples import CLSR

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import OutOfMemoryError
from tune_sentcl.methods import AnyMethod
from tune_sentcl.methods.clsr import Clsr
from tune_sentcl.train import Step, train
from tune_sentcl.train.deck import Lane
from tune_sentcl.train.lane import enter, steps
from tune_sentcl.train.stack import Stack
from tune_sentcl.train.state import TrainingState
from tune_sentcl.trial import InputLoader, assemble

RULES: dict[str, dict[str, Any]] = {
    "adamw": {"optimizer.lr": 1e-2, "optimizer.weight_decay": 0.1},
    "sgd": {"optimizer.lr": 0.1, "optimizer.weight_decay": 0.1},
    "lars": {"optimizer.lr": 0.2, "optimizer.weight_decay": 1e-4},
}
LOADER = InputLoader(None)


def config_of(**values: Any) -> TrialConfig:
    return parse_dotted({**CLSR, **values}, "test")


def made(config: TrialConfig) -> AnyMethod:
    return assemble(config, LOADER.load(config), "cpu")


def alone(config: TrialConfig) -> AnyMethod:
    method = made(config)
    for _ in train(method, LOADER.load(config).corpus, config):
        pass
    return method


def trained(
    stack: Stack, configs: Sequence[TrialConfig], late: Sequence[int] = ()
) -> list[AnyMethod]:
    """Train all in one stack; those of `late` join when the others have made two updates."""
    methods = [made(config) for config in configs]
    running: dict[Lane, Any] = {}

    def join(place: int) -> None:
        config = configs[place]
        lane = enter(stack, methods[place], LOADER.load(config).corpus, config)
        running[lane] = steps(stack, lane)
        assert next(running[lane]) is None

    for place in range(len(configs)):
        if place not in late:
            join(place)
    for _ in range(2):
        update(stack, running)
    for place in late:
        join(place)
    while running:
        update(stack, running)
    return methods


def update(stack: Stack, running: dict[Lane, Any]) -> None:
    """Make an update of all lanes; those that are done go."""
    stack.update(list(running))
    for lane, told in list(running.items()):
        if lane.number == lane.until:
            assert isinstance(next(told), Step)
            if next(told, "over") == "over":
                del running[lane]


def assert_same(method: AnyMethod, other: AnyMethod) -> None:
    for part in ("encoder", "heads"):
        there = getattr(other, part).state_dict()
        for name, value in getattr(method, part).state_dict().items():
            within = 1e-5 * max(1.0, float(there[name].abs().max()))
            torch.testing.assert_close(value, there[name], rtol=0, atol=within)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("output_relu", [True, False])
def test_padding_changes_nothing(rule: str, output_relu: bool) -> None:
    widths = [(24, 20), (17, 17), (32, 9), (20, 24)]
    configs = [
        config_of(
            **RULES[rule],
            **{
                "optimizer.name": rule,
                "optimizer.max_grad_norm": 0.5,
                "method.hidden": hidden,
                "method.width": width,
                "method.output_relu": output_relu,
            },
        )
        for hidden, width in widths
    ]
    stack = Stack(LOADER.load(configs[0]).corpus, "cpu", pads=True)
    for config, method in zip(configs, trained(stack, configs), strict=True):
        assert_same(method, alone(config))


@pytest.mark.parametrize("pads", [True, False])
def test_lanes_that_join_late_are_out_of_step(pads: bool) -> None:
    """Then batches of one update differ in length, for the last of an epoch is short."""
    configs = [config_of(seed=n, **{"optimizer.lr": 1e-2}) for n in range(4)]
    stack = Stack(LOADER.load(configs[0]).corpus, "cpu", pads=pads)
    for config, method in zip(configs, trained(stack, configs, late=(1, 3)), strict=True):
        assert_same(method, alone(config))


def test_lanes_of_several_sources_take_batches_of_other_lengths() -> None:
    ways: list[dict[str, Any]] = [
        {"data.order": "shuffled"},
        {"data.order": "distinct", "data.drop_last": True},
        {"data.order": "file", "data.mix": "in_turn"},
    ]
    configs = [config_of(**{"data.source": "toy + toy", **way}) for way in ways]
    stack = Stack(LOADER.load(configs[0]).corpus, "cpu")
    for config, method in zip(configs, trained(stack, configs), strict=True):
        assert_same(method, alone(config))


def driven(
    how: str, method: AnyMethod, config: TrialConfig, resumed: TrainingState | None = None
) -> TrainingState | None:
    """Train alone or as a lane; what it was after six updates, if it has made them here."""
    corpus, found = LOADER.load(config).corpus, None
    if how == "alone":
        for step in train(method, corpus, config, resumed):
            found = step.state() if step.number == 6 else found
        return found
    stack = Stack(corpus, "cpu", pads=how == "padded")
    lane = enter(stack, method, corpus, config, resumed)
    for told in steps(stack, lane):
        if told is None:
            stack.update([lane])
        elif told.number == 6:
            found = told.state()
    return found


@pytest.mark.parametrize("rule", [*RULES, "raw"])
@pytest.mark.parametrize("before", ["alone", "padded", "beside"])
@pytest.mark.parametrize("after", ["alone", "padded", "beside"])
def test_whoever_goes_on_from_a_state_need_not_train_as_before(
    rule: str, before: str, after: str
) -> None:
    values = {"evaluation.every": 1, "optimizer.schedule": "cosine"}
    if rule == "raw":
        values |= {**RULES["adamw"], "optimizer.eps_added": "raw"}
    else:
        values |= {**RULES[rule], "optimizer.name": rule}
    config = config_of(**values)
    left = driven(before, made(config), config)
    assert left is not None and left.number == 6
    method = made(config)
    assert driven(after, method, config, left) is None
    assert_same(method, alone(config))


class SmallDevice:
    """Losses of so many lanes at most fit its memory."""

    def __init__(self, most: int) -> None:
        self.most, self.refused, self.losses = most, 0, Clsr.lane_losses

    def __call__(self, method: Any, weights: Any, frozen: Any, knobs: Any) -> Any:
        if len(frozen) > self.most:
            self.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory (a stand-in)")
        return self.losses(method, weights, frozen, knobs)


def test_fewer_lanes_at_a_time_where_all_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [config_of(seed=n, **{"optimizer.lr": 1e-2}) for n in range(5)]
    expected = [alone(config) for config in configs]
    device = SmallDevice(2)
    monkeypatch.setattr(Clsr, "lane_losses", lambda *given: device(*given))
    stack = Stack(LOADER.load(configs[0]).corpus, "cpu")
    for method, other in zip(trained(stack, configs), expected, strict=True):
        assert_same(method, other)
    assert device.refused == 1


def test_where_one_does_not_fit_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SmallDevice(0)
    monkeypatch.setattr(Clsr, "lane_losses", lambda *given: device(*given))
    config = config_of()
    stack = Stack(LOADER.load(config).corpus, "cpu")
    with pytest.raises(OutOfMemoryError, match="a batch of 16 rows"):
        trained(stack, [config])
