"""Values that cannot work are refused, and values that people rarely mean are told."""

from pathlib import Path
from typing import Any

import pytest
from search_samples import LAMBDA, NoInputs, lambda_space

from tune_sentcl.config import usual_ranges
from tune_sentcl.errors import ConfigError
from tune_sentcl.space import load_space
from tune_sentcl.space.space import space_names
from tune_sentcl.tuning.input_checks import (
    check_first_batches,
    check_lengths,
    range_ends,
    read_inputs,
    warnings,
)
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.trial_ids import TrialNamer


def said(
    folder: Path, values: dict[str, Any], ranges: str = "", *, sampled: bool = False
) -> list[str]:
    space = lambda_space(folder, 0.5, ranges=ranges).with_overrides(values)
    read = read_inputs(space, TrialNamer(NoInputs()))
    num_batches = check_first_batches(read)
    return list(warnings(space, read, NoInputs(), num_batches, sampled=sampled))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"optimizer.lr": 50.0}, "optimizer.lr = 50 is unusual; people use 1e-06 to 0.001"),
        ({"optimizer.lr": 1e-9}, "optimizer.lr = 1e-09 is unusual; people use 1e-06 to 0.001"),
        (
            {"method.temperature": 20.0},
            "method.temperature = 20 is unusual; people use 0.005 to 5",
        ),
        ({"optimizer.batch_size": 4096}, "optimizer.batch_size = 4096 is more than the"),
        ({"data.limit": 1}, "toy has 1 row: no batch compares it with another"),
        (
            {"evaluation.every": 9, "optimizer.batch_size": 16, "optimizer.epochs": 2},
            "evaluation.every = 9 is more than the 8 steps of a trial with batch_size = 16",
        ),
    ],
)
def test_a_value_far_outside_of_use_is_told_once(
    tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    told = said(tmp_path, values)
    assert len(told) == 1 and told[0].startswith(words)


def test_a_range_is_told_where_values_are_drawn_from_it(tmp_path: Path) -> None:
    ranges = f"{LAMBDA}\noptimizer.lr = {{ low = 1e-6, high = 10.0, log = true }}"
    assert said(tmp_path, {}, ranges) == []
    told = said(tmp_path, {}, ranges, sampled=True)
    assert len(told) == 1 and told[0].startswith("optimizer.lr = 10 is unusual")


@pytest.mark.parametrize("name", space_names())
def test_the_papers_and_the_shipped_ranges_are_usual(name: str) -> None:
    space = load_space(name)
    for config in (*space.configurations, *range_ends(space)):
        values = config.dotted()
        for key, (low, high) in usual_ranges(values).items():
            assert low <= values[key] <= high, (key, values[key])


def test_adapters_and_small_networks_take_larger_rates(tmp_path: Path) -> None:
    assert said(tmp_path, {"optimizer.lr": 5e-3, "encoder.lora_rank": 4}) == []
    assert len(said(tmp_path, {"optimizer.lr": 5e-3})) == 1


def test_a_length_beyond_the_positions_is_refused(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.5).with_overrides({"encoder.max_length": 100_000})
    with pytest.raises(
        ConfigError, match=r"max_length = 100000: toy has 64 positions.*64 at most"
    ):
        prepare(space, None, None, SearchOptions(launcher="local"))
    # Spaces state 512 for every encoder, and an encoder with fewer positions truncates sooner.
    check_lengths(space.with_overrides({"encoder.max_length": 512}), NoInputs(), sampled=False)


def test_a_range_beyond_the_positions_is_refused_where_it_is_drawn_from(tmp_path: Path) -> None:
    ranges = f"{LAMBDA}\nencoder.max_length = {{ choices = [64, 100000] }}"
    space = lambda_space(tmp_path, 0.5, ranges=ranges)
    check_lengths(space, NoInputs(), sampled=False)
    with pytest.raises(ConfigError, match=r"max_length = 100000: toy has 64 positions"):
        check_lengths(space, NoInputs(), sampled=True)


def test_a_range_of_batches_beyond_the_rows_is_told(tmp_path: Path) -> None:
    ranges = f"{LAMBDA}\noptimizer.batch_size = {{ choices = [16, 4096] }}"
    assert said(tmp_path, {}, ranges) == []
    (told,) = said(tmp_path, {}, ranges, sampled=True)
    assert told.startswith("optimizer.batch_size = 4096 is more than the 64 rows")


def test_a_range_of_batches_in_which_no_point_is_reached_is_told(tmp_path: Path) -> None:
    ranges = f"{LAMBDA}\noptimizer.batch_size = {{ choices = [16, 64] }}"
    every = {"evaluation.every": 2, "optimizer.epochs": 1}
    assert said(tmp_path, every, ranges) == []
    (told,) = said(tmp_path, every, ranges, sampled=True)
    assert told.startswith("evaluation.every = 2 is more than the 1 steps of a trial with batch_")
