"""Values that cannot work are refused, and values that people rarely mean are told."""

from pathlib import Path
from typing import Any

import pytest
from own_samples import write_lines, write_pairs
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

FILES = """
evaluation.data = "root"
evaluation.suites = ["transfer"]
evaluation.protocols = ["cosine", "senteval-5fold", "scl-paper-compat"]
"""
BATCHES = "optimizer.batch_size = { choices = [16, 4096] }"
RATES = "optimizer.lr = { low = 1e-6, high = 10.0, log = true }"
LENGTHS = "encoder.max_length = { choices = [64, 100000] }"
EVERY = {"evaluation.every": 2, "optimizer.epochs": 1}


def notes(
    folder: Path, values: dict[str, Any], ranges: str = "", *, sampled: bool = False
) -> list[str]:
    space = lambda_space(folder, 0.5, ranges=ranges).with_overrides(values)
    read = read_inputs(space, TrialNamer(NoInputs()))
    num_batches = check_first_batches(read)
    return list(warnings(space, read, NoInputs(), num_batches, sampled=sampled))


@pytest.mark.parametrize(
    ("values", "ranges", "words"),
    [
        ({"optimizer.lr": 50.0}, "", "optimizer.lr = 50 is unusual; people use 1e-06 to 0.001"),
        ({"optimizer.lr": 1e-9}, "", "optimizer.lr = 1e-09 is unusual; people use 1e-06 to"),
        ({"optimizer.lr": 5e-3}, "", "optimizer.lr = 0.005 is unusual"),
        ({"optimizer.lr": 5e-3, "encoder.lora_rank": 4}, "", None),  # adapters take higher rates
        ({"method.temperature": 20.0}, "", "method.temperature = 20 is unusual; people use"),
        ({"optimizer.batch_size": 4096}, "", "optimizer.batch_size = 4096 is more than the"),
        ({"data.limit": 1}, "", "toy has 1 row: no batch compares it with another"),
        (
            {"evaluation.every": 9, "optimizer.batch_size": 16, "optimizer.epochs": 2},
            "",
            "evaluation.every = 9 is more than the 8 steps of a trial with batch_size = 16",
        ),
        ({}, RATES, "optimizer.lr = 10 is unusual"),
        ({}, BATCHES, "optimizer.batch_size = 4096 is more than the 64 rows"),
        (EVERY, BATCHES.replace("4096", "64"), "evaluation.every = 2 is more than the 1 steps of"),
    ],
)
def test_a_value_far_outside_of_use_is_told_once(
    tmp_path: Path, values: dict[str, Any], ranges: str, words: str | None
) -> None:
    """Values of a range count only where they are drawn."""
    told = notes(tmp_path, values, f"{LAMBDA}\n{ranges}", sampled=bool(ranges))
    assert [line[: len(words or "")] for line in told] == ([words] if words else [])
    if ranges:
        assert notes(tmp_path, values, f"{LAMBDA}\n{ranges}") == []


@pytest.mark.parametrize("name", space_names())
def test_the_papers_and_the_shipped_ranges_are_usual(name: str) -> None:
    space = load_space(name)
    for config in (*space.configurations, *range_ends(space)):
        values = config.dotted()
        for key, (low, high) in usual_ranges(values).items():
            assert low <= values[key] <= high, (key, values[key])


def test_a_length_beyond_the_positions_is_refused(tmp_path: Path) -> None:
    space = lambda_space(tmp_path, 0.5).with_overrides({"encoder.max_length": 100_000})
    said = r"max_length = 100000: toy has 64 positions.*64 at most"
    with pytest.raises(ConfigError, match=said):
        prepare(space, None, None, SearchOptions(launcher="local"))
    # Spaces state 512 for every encoder, and an encoder with fewer positions truncates sooner.
    check_lengths(space.with_overrides({"encoder.max_length": 512}), NoInputs(), sampled=False)
    ranged = lambda_space(tmp_path, 0.5, ranges=f"{LAMBDA}\n{LENGTHS}")
    check_lengths(ranged, NoInputs(), sampled=False)
    with pytest.raises(ConfigError, match=said):
        check_lengths(ranged, NoInputs(), sampled=True)


def test_files_that_are_missing_are_named_once_before_the_first_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count in (("pos", 2407), ("neg", 1368)):
        write_lines(tmp_path / f"root/downstream/CR/custrev.{name}", ["a phone"] * count)
    pairs = [(f"a {n}", f"b {n}", float(n % 5)) for n in range(20)]
    own = f'evaluation.own = ["mine={write_pairs(tmp_path / "dev.tsv", pairs)}"]\n'
    space = lambda_space(tmp_path, 0.3, 0.6, fixed=own + FILES)
    asked = SearchOptions(launcher="local")
    prepare(space, tmp_path / "root", None, asked)
    said = capsys.readouterr().err
    for name in ("MRPC", "MR", "SUBJ"):
        assert said.count(f"{name} is not measured: ") == 1
    assert said.count("msr_paraphrase_train.txt: the file does not exist") == 1
    assert "CR is not measured" not in said
