"""How many trials share a GPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.cli.settings import parse_share
from tune_sentcl.config import parse_dotted
from tune_sentcl.errors import ConfigError
from tune_sentcl.launch.demand import (
    in_file_order,
    kinds_to_measure,
    may_be_drawn,
    measure_demand,
    rows_to_measure,
)
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.sharing import Demand, share_of, trials_a_gpu
from tune_sentcl.launch.slots import Bundle, Node, trials_at_a_time
from tune_sentcl.space import load_space
from tune_sentcl.train import train
from tune_sentcl.trial import InputLoader, assemble

_GB = 10**9
_RANGES = """name = "ranges"
trials = 1
[fixed]
encoder.checkpoint = "toy"
data.source = "toy"
optimizer.lr = 1e-3
optimizer.batch_size = 16
[[block]]
fixed.method.name = "scl"
[search.ranges]
method.name = { choices = ["scl", "simcse"] }
encoder.checkpoint = { choices = ["toy", "minilm"] }
encoder.max_length = { choices = [96, 32] }
optimizer.batch_size = { low = 16, high = 1024, log = true }
optimizer.lr = { low = 1e-5, high = 1e-3, log = true }
"""
_TOY = {"method.name": "scl", "encoder.checkpoint": "toy", "data.source": "toy"}


def _config(**values: Any) -> Any:
    dotted = {key.replace("__", "."): value for key, value in values.items()}
    return parse_dotted({**_TOY, **dotted}, "test")


@pytest.mark.parametrize(
    ("peak", "busy", "trials"),
    [
        (1 * _GB, 0.95, 1),  # another would add a twentieth of a GPU
        (1 * _GB, 0.6, 2),
        (1 * _GB, 0.3, 4),
        (1 * _GB, 0.25, 4),
        (1 * _GB, 1.0, 1),
        (1 * _GB, 0.01, 16),
        (20 * _GB, 0.1, 2),  # 26.7 GB each of 80
        (79 * _GB, 0.1, 1),  # also where nothing is left
        (0, 0.0, 16),
    ],
)
def test_trials_share_a_gpu_by_memory_and_by_time(peak: int, busy: float, trials: int) -> None:
    assert trials_a_gpu([Demand(peak, busy, 80 * _GB)]) == trials


def test_the_hungriest_decides() -> None:
    small, large = Demand(_GB, 0.1, 80 * _GB), Demand(40 * _GB, 0.1, 80 * _GB)
    assert trials_a_gpu([small, large]) == trials_a_gpu([large]) == 1
    assert trials_a_gpu([]) == 1


@given(st.integers(0, 80 * _GB), st.floats(0, 1), st.floats(0, 1))
def test_who_asks_for_less_never_shares_with_fewer(peak: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    less = trials_a_gpu([Demand(peak // 2, low, 80 * _GB)])
    assert 1 <= trials_a_gpu([Demand(peak, high, 80 * _GB)]) <= less


@pytest.mark.parametrize("trials", range(1, 17))
def test_so_many_shares_fit_a_gpu(trials: int) -> None:
    bundle = Bundle(cpus=1, gpus=share_of(trials))
    assert Node(cpus=64, gpus=2).slots(bundle) == 2 * trials


def test_of_each_encoder_and_method_the_largest_batch_is_measured() -> None:
    configs = [
        _config(optimizer__batch_size=32),
        _config(optimizer__batch_size=128),
        _config(optimizer__batch_size=64, method__name="simcse"),
    ]
    assert kinds_to_measure(configs) == [configs[1], configs[2]]
    assert kinds_to_measure([]) == []


def test_what_a_sampler_may_draw_is_measured_at_its_largest(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text(_RANGES)
    drawn = list(may_be_drawn(load_space(tmp_path / "space.toml")))
    largest = {(c.method.name, c.encoder.checkpoint): c for c in drawn}
    assert set(largest) == {(m, e) for m in ("scl", "simcse") for e in ("toy", "minilm")}
    for config in drawn:
        assert (config.optimizer.batch_size, config.encoder.max_length) == (1024, 96)


def test_of_frozen_encoders_the_widest_and_of_all_the_trained_ones_come_first() -> None:
    clsr = {"method__name": "clsr", "optimizer__batch_size": 256}
    configs = [_config(method__hidden=width, **clsr) for width in (8, 65536)]
    trained = _config(optimizer__batch_size=2)
    assert kinds_to_measure([*configs, trained]) == [trained, configs[1]]


def test_lanes_ask_for_what_all_of_them_do_at_most() -> None:
    lanes = Demand(_GB, 0.1, 80 * _GB).times(32)
    assert lanes == Demand(32 * _GB, 1.0, 80 * _GB)
    assert trials_a_gpu([lanes]) == 1


def test_the_longest_rows_are_measured_first() -> None:
    config = _config(optimizer__batch_size=4)
    corpus = InputLoader(None).load(config).corpus
    rows = rows_to_measure(config, corpus)

    def length(found: Any) -> Any:
        both = map(found.texts, ("premise", "hypothesis"))
        return [len(first) + len(second) for first, second in zip(*both, strict=True)]

    assert sorted(length(rows)[:4]) == sorted(np.sort(length(corpus))[-4:].tolist())
    assert len(rows) == 4 * 18
    assert rows.fingerprint != corpus.fingerprint  # its tokens are kept under that name
    assert in_file_order(config, rows).optimizer.batch_size == 4


def test_the_measured_steps_can_be_taken() -> None:
    config = _config(optimizer__batch_size=8)
    loader = InputLoader(None)
    inputs = loader.load(config)
    rows = rows_to_measure(config, inputs.corpus)
    method = assemble(config, inputs, "cpu", rows.sentences())
    assert sum(1 for _ in train(method, rows, in_file_order(config, rows))) == 18


@pytest.mark.gpu
def test_a_trial_is_measured_on_a_gpu() -> None:
    found = measure_demand(_config(optimizer__batch_size=8), InputLoader(None), 1)
    assert 0 < found.peak_bytes < found.total_bytes and 0 < found.busy <= 1


def test_until_one_is_measured_a_trial_has_a_gpu_to_itself() -> None:
    options = SearchOptions(gpus_per_trial="auto")
    node = Node(cpus=8, gpus=2)
    assert options.gpus_asked is None
    assert trials_at_a_time(options, [node]) == 2
    assert trials_at_a_time(options, [replace(node, gpus=0)]) == 8


def test_a_share_is_a_number_or_auto() -> None:
    assert [parse_share("--gpus-per-trial", text) for text in (None, "auto", "0.25")] == [
        None,
        "auto",
        0.25,
    ]
    with pytest.raises(ConfigError, match=r"--gpus-per-trial.*many.*a number, or auto"):
        parse_share("--gpus-per-trial", "many")
