"""Options, and how many trials they allow at a time."""

import os
import re
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tune_sentcl.errors import ConfigError, ObjectiveError
from tune_sentcl.objective import parse_stage_objective
from tune_sentcl.tuning import machine
from tune_sentcl.tuning.machine import (
    Bundle,
    Node,
    bundle_of,
    this_machine,
    trials_at_a_time,
)
from tune_sentcl.tuning.options import SearchOptions


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("samples", -1, ""),
        ("max_concurrent", 0, ""),
        ("cpus_per_trial", 0, ""),
        ("gpus_per_trial", -0.5, ""),
        ("gpus_per_trial", 1.5, ""),
        ("gpus_per_trial", float("nan"), ""),
        ("memory_per_trial", -1.0, ""),
        ("trial_timeout", 0.5, ""),
        ("max_gpu_hours", float("nan"), ""),
        ("sampler", "bohb", "'bohb': must be 'tpe', 'random' or 'grid'"),
        ("scheduler", "asha", "'asha': must be 'halving' or 'none'"),
        ("samples", 2.5, "2.5: must be a valid integer"),
        ("samples", True, "True: must be a valid integer"),
        ("deterministic", 1, "1: must be a valid boolean"),
        ("budget", Fraction(3), "must be an int or a float"),
        ("max_time", "1h", "'1h': must be a valid number"),
        ("learn_from", "study", "'study': must be a valid tuple"),
        ("learn_from", ("",), "must not be empty"),
        ("objectives", (b"STS-B:spearman",), "must be a valid string"),
        ("track", {"mlflow"}, "{'mlflow'}: must be a valid tuple"),
        ("address", "", "'': must not be empty"),
        ("address", Path("head"), "must be a valid string"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(
    option: str, value: Any, says: str
) -> None:
    """Where the options are made: a search that takes hours does not find it later."""
    with pytest.raises(ConfigError, match=rf"^SearchOptions\.{option}: .*{re.escape(says)}"):
        SearchOptions(**{option: value})


def test_a_list_of_options_is_a_tuple_and_a_path_a_text() -> None:
    options = SearchOptions(learn_from=[Path("a"), "b"], objectives=["STS-B:spearman"])  # type: ignore[arg-type]
    assert options.learn_from == ("a", "b") and options.objectives == ("STS-B:spearman",)
    assert hash(options) == hash(replace(options))


@pytest.mark.parametrize(
    "option", ["address", "accelerator", "max_concurrent", "memory_per_trial"]
)
def test_options_of_ray_are_refused_without_ray(option: str) -> None:
    value: Any = {"max_concurrent": 2, "memory_per_trial": 1.0}.get(option, "auto")
    options = SearchOptions(**{option: value})
    with pytest.raises(ConfigError, match=rf"{option}: .* with SearchOptions\.launcher local"):
        replace(options, launcher="local")
    assert options.without_ray() == SearchOptions(launcher="local")


@pytest.mark.parametrize(
    "name",
    ["STS12:spearman:test", "SST2:accuracy:dev", "STS-B:pearson:dev:relatedness", "STS-B:f1"],
)
def test_what_ranks_stages_is_a_dev_score_of_one_encoding_pass(name: str) -> None:
    assert str(parse_stage_objective("SICK-R:pearson")) == "SICK-R:pearson:dev"
    with pytest.raises(ObjectiveError, match="--stage-objective"):
        parse_stage_objective(name)


SHARES = [Fraction(1, n) for n in range(1, 11)] + [
    Fraction(n, 10) for n in (2, 3, 4, 5, 6, 7, 8, 9)
]


def packed(cores: int, gpus: int, cpus: int, share: Fraction) -> int:
    """Trials that find room one after another: each share on one GPU, more only as whole GPUs."""
    free = [Fraction(1)] * gpus
    left, trials = cores, 0
    while left >= cpus:
        if share < 1:
            place = next((n for n, room in enumerate(free) if room >= share), None)
            if share > 0 and place is None:
                break
            if place is not None:
                free[place] -= share
        else:
            whole = [n for n, room in enumerate(free) if room == 1][: int(share)]
            if len(whole) < share:
                break
            for n in whole:
                free[n] = Fraction(0)
        left -= cpus
        trials += 1
    return trials


@settings(max_examples=400)
@given(
    cores=st.integers(0, 128),
    gpus=st.integers(0, 9),
    cpus=st.integers(1, 4),
    share=st.sampled_from([Fraction(0), *SHARES, Fraction(2), Fraction(3)]),
)
def test_the_slots_of_a_node_are_the_trials_that_can_be_packed_into_it(
    cores: int, gpus: int, cpus: int, share: Fraction
) -> None:
    # Most shares are no binary numbers: three times a third must still fill a GPU.
    slots = Node(float(cores), float(gpus)).slots(Bundle(cpus, float(share)))
    assert slots == packed(cores, gpus, cpus, share)


def test_cores_and_gpus_are_counted_a_node() -> None:
    nodes = [Node(1, 1), Node(3, 0), Node(4, 2)]
    assert trials_at_a_time(SearchOptions(cpus_per_trial=2, gpus_per_trial=0.0), nodes) == 3
    assert trials_at_a_time(SearchOptions(), nodes) == 3  # a GPU each, where there is any
    assert trials_at_a_time(SearchOptions(gpus_per_trial=0.5), nodes) == 1 * 1 + 4
    assert trials_at_a_time(SearchOptions(gpus_per_trial=0.5, max_concurrent=2), nodes) == 2
    assert trials_at_a_time(SearchOptions(cpus_per_trial=99), nodes) == 1
    assert trials_at_a_time(SearchOptions(launcher="local"), nodes) == 1
    assert trials_at_a_time(SearchOptions(gpus_per_trial=0.0), []) == 1


def test_memory_and_the_kind_of_gpu_count_too() -> None:
    node = Node(8, 2, 16e9, "H200")
    for trial, slots in (
        (Bundle(1, 0.0, int(5e9)), 3),
        (Bundle(1, 0.0, int(17e9)), 0),
        (Bundle(1, 1.0, int(5e9), "H200"), 2),
        (Bundle(1, 0.0, 0, "H200"), 8),
        (Bundle(1, 1.0, 0, "A100"), 0),
    ):
        assert node.slots(trial) == slots
    assert Node(2, 0).slots(Bundle(1, 0.0, int(1e12))) == 2, "nobody has counted it"


def test_a_bundle_is_what_the_options_ask_for_of_the_nodes_that_are_meant() -> None:
    nodes = [Node(8, 0), Node(8, 4, accelerator="A100"), Node(4, 0, accelerator="TPU")]
    assert bundle_of(SearchOptions(), nodes) == Bundle(1, 1.0)
    asked = SearchOptions(accelerator="TPU", cpus_per_trial=2, memory_per_trial=1.5)
    assert bundle_of(asked, nodes) == Bundle(2, 0.0, 1_500_000_000, "TPU")
    # The first node with such a GPU is still to be started.
    assert bundle_of(SearchOptions(accelerator="H200"), nodes) == Bundle(1, 1.0, 0, "H200")
    assert trials_at_a_time(SearchOptions(accelerator="A100"), nodes) == 4


@pytest.mark.parametrize(("file", "counts"), [("null", 0), ("nvidia0", 3), ("dxg", 3)])
def test_torch_is_asked_for_gpus_only_where_there_may_be_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, counts: int
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / file).touch()
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert this_machine().gpus == counts
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert this_machine().gpus == 0


V1, V2 = "4:memory:/a/b\n3:cpu,cpuacct:/a/b\n1:name=systemd:/\n", "0::/a/b\n"


@pytest.mark.parametrize(
    ("groups", "files", "cores", "memory"),
    [
        ("", {}, 8, None),
        (V2, {"cpu.max": "max 100000", "memory.max": "max"}, 8, None),
        (V2, {"a/b/cpu.max": "250000 100000", "a/b/memory.max": "1000"}, 2, 1000),
        (V2, {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3, None),
        ("0::/of/the/host\n", {"cpu.max": "50000 100000", "memory.max": "7"}, 1, 7),
        (V2, {"a/b/cpu.max": "6400000 100000"}, 8, None),
        (V1, {"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "100000"}, 8, None),
        (V1, {"cpu/a/cpu.cfs_quota_us": "400000", "cpu/a/cpu.cfs_period_us": "100000"}, 4, None),
        (V1, {"memory/memory.limit_in_bytes": "1000\n"}, 8, 1000),
        (V1, {"memory/a/b/memory.limit_in_bytes": "9223372036854771712"}, 8, None),
    ],
)
def test_cores_and_memory_are_those_of_the_affinity_and_of_the_control_groups(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    groups: str,
    files: dict[str, str],
    cores: int,
    memory: int | None,
) -> None:
    texts = {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    node = this_machine()
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert (node.cpus, node.memory) == (cores, 0.7 * (memory or physical))
