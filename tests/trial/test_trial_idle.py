"""A knob that enters no id changes no weight: both sides of the table are trained."""

import functools
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from trial_samples import LOADER, drained

from tune_sentcl.config import is_idle, parse_dotted
from tune_sentcl.config.idle import IDLE, canonical_values
from tune_sentcl.trial import run

Values = dict[str, Any]

SIMCSE: Values = {"method.name": "simcse"}
SHUFFLED: Values = {**SIMCSE, "data.order": "shuffled"}
ADAPTED: Values = {"method.name": "simcse", "encoder.lora_rank": 2}
CONISI: Values = {"method.name": "conisi", "encoder.train_length": 24}
CLSR: Values = {"method.name": "clsr"}
GIST: Values = {"method.name": "gist", "method.guide": "toy", "method.temperature": 0.1}
MNR: Values = {"method.name": "mnr"}
MINED: Values = {**MNR, "data.mined": 2, "data.mined_by": "toy", "data.mined_margin": 0.0}
NONE: Values = {"method.name": "none"}
PAIRS: Values = {"method.name": "sbert"}
OFTEN: Values = {"evaluation.every": 1}
BEST: Values = {"evaluation.select": "best"}

CASES: list[tuple[str, Any, Values, Values | None]] = [
    ("method.divisor", "tokens", {**PAIRS, "encoder.pooling": "cls"}, PAIRS),
    ("method.divisor", "tokens", {**PAIRS, "encoder.pooling": "last"}, PAIRS),
    ("method.temperature", 0.9, {**CONISI, "method.lambda": 1.0}, CONISI),
    ("method.margin_kind", "relative", GIST, {**GIST, "method.margin": 0.01}),
    ("method.strategy", "o1", {**CONISI, "method.lambda": 0.0}, CONISI),
    ("method.interaction", "elementwise", {**CONISI, "method.lambda": 0.0}, CONISI),
    ("method.share", 0.9, CONISI, {**CONISI, "method.strategy": "o1"}),
    (
        "method.share",
        0.9,
        {**CONISI, "method.strategy": "o1", "method.lambda": 0.0},
        {**CONISI, "method.strategy": "o1"},
    ),
    ("method.hardened", "in_batch", MNR, {**MNR, "method.hardness": 5.0}),
    ("method.whitening_dim", 3, NONE, {**NONE, "method.whitening": True}),
    ("encoder.train_length", 5, CLSR, SIMCSE),
    ("encoder.train_length", 20, {**SIMCSE, "encoder.max_length": 12}, None),
    ("encoder.share_duplicates", False, SIMCSE, PAIRS),
    ("encoder.packed", False, CLSR, SIMCSE),
    ("data.mined", 2, {**SIMCSE, "data.mined_by": "toy"}, {**MNR, "data.mined_by": "toy"}),
    ("data.mined_by", "toy", MNR, None),
    ("data.mined_margin", 0.6, MNR, MINED),
    ("data.mined_depth", 1, MNR, MINED),
    ("data.mix", "in_turn", SHUFFLED, {**SHUFFLED, "data.source": "toy + toy"}),
    ("encoder.freeze_layers", 1, CLSR, SIMCSE),
    ("encoder.lora_rank", 2, CLSR, SIMCSE),
    ("encoder.lora_alpha", 40.0, SIMCSE, ADAPTED),
    ("encoder.lora_alpha", 40.0, {**CLSR, "encoder.lora_rank": 2}, None),
    ("encoder.lora_dropout", 0.5, SIMCSE, ADAPTED),
    ("encoder.lora_targets", "query", SIMCSE, ADAPTED),
    ("optimizer.warmup", 0.6, {**SIMCSE, "optimizer.warmup_epochs": 0.5}, SIMCSE),
    ("optimizer.precision", "bf16", CLSR, SIMCSE),
    ("evaluation.every", 1, {**NONE, **BEST}, {**SIMCSE, **BEST}),
    ("evaluation.select", "best", SIMCSE, {**SIMCSE, **OFTEN}),
    ("evaluation.select", "best", {**NONE, **OFTEN}, None),
]
"""A knob, another value, a config in which it is idle, and one in which it is not."""


def weights(values: Values) -> dict[str, torch.Tensor]:
    """What a short trial leaves of its encoder; several cases share a config."""
    return _weights(json.dumps(values, sort_keys=True))


@functools.cache
def _weights(values: str) -> dict[str, torch.Tensor]:
    common = {
        "encoder.checkpoint": "toy",
        "encoder.pooling": "mean",
        "data.source": "toy",
        "data.limit": 40,
        "optimizer.batch_size": 8,
        "optimizer.lr": 3e-2,
    }
    config = parse_dotted({**common, **json.loads(values)}, "test")
    inputs = LOADER.load(config)
    dev = tuple(t for t in inputs.sets.sts if (t.name, t.split) == ("STS-B", "dev"))
    _, end = drained(run(config, replace(inputs, sets=replace(inputs.sets, sts=dev))))
    return end.encoder.state_dict()


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


@pytest.mark.parametrize(("key", "value", "idle", "awake"), CASES)
def test_an_idle_knob_changes_no_weight(
    key: str, value: Any, idle: Values, awake: Values | None
) -> None:
    values = parse_dotted({**idle, key: value}, "test").dotted()
    assert is_idle(key, values) or canonical_values(values)[key] is None
    assert same(weights(idle), weights({**idle, key: value}))
    if awake is not None:
        assert not is_idle(key, parse_dotted({**awake, key: value}, "test").dotted())
        assert not same(weights(awake), weights({**awake, key: value}))


def test_every_rule_is_tried() -> None:
    assert {key for key, _, _, _ in CASES} == set(IDLE)
