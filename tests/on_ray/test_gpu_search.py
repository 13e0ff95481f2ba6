"""Searches on a GPU: scores as a CPU's, two trials on one card, a kill, equal bits."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from local_ray import start_ray
from search_samples import Row, kill_with_a_state, lambda_space, rows

from tune_sentcl.launch import search
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.options import SearchOptions

pytestmark = [pytest.mark.gpu, pytest.mark.ray]

LAMBDAS = (0.1, 0.3, 0.5, 0.9)
TOLERANCE = 0.5
"""Points by which rounding may move a Spearman correlation x 100 over some twenty steps."""

DRIVER = """
import sys
from tune_sentcl.launch import search
from tune_sentcl.tuning.options import SearchOptions
options = SearchOptions(launcher="local", gpus_per_trial=1.0, save_every=1e-4)
search(sys.argv[1], sys.argv[2], options=options)
"""


def space_of(folder: Path, *lambdas: float, epochs: int = 8) -> Space:
    """Without dropout, whose noise differs between devices."""
    transformer, tokenizer = build_toy()
    transformer.config.hidden_dropout_prob = 0.0
    transformer.config.attention_probs_dropout_prob = 0.0
    transformer.save_pretrained(folder / "encoder")
    tokenizer.save_pretrained(folder / "encoder")
    lambda_space(folder, *lambdas, fixed=f"optimizer.epochs = {epochs}")
    file = folder / "tiny.toml"
    file.write_text(file.read_text().replace('"toy"', f'"{folder / "encoder"}"', 1))
    return load_space(file)


def by_lambda(study: Path) -> dict[float, Row]:
    return {row["method.lambda"]: row for row in rows(study)}


def scores(study: Path) -> list[Row]:
    found = Study.read(study).scores().to_pylist()
    return sorted(found, key=lambda row: str(sorted(row.items(), key=str)))


def local(space: Space, study: Path, **options: Any) -> None:
    search(space, study, options=SearchOptions(launcher="local", **options))


def test_two_trials_at_a_time_on_one_card_score_as_on_the_cpu(tmp_path: Path) -> None:
    start_ray()
    space = space_of(tmp_path, *LAMBDAS)
    here, there = tmp_path / "cpu", tmp_path / "gpu"
    local(space, here, gpus_per_trial=0.0)
    outcome = search(space, there, options=SearchOptions(gpus_per_trial=0.5))
    assert (outcome.ran, outcome.failures) == (4, 0)
    for number, row in by_lambda(there).items():
        assert row["device"].startswith("cuda (") and row["gpus"] == 0.5
        assert row["precision_used"] == "fp32" and row["peak_memory_bytes"] > 0
        assert row["objective"] == pytest.approx(
            by_lambda(here)[number]["objective"], abs=TOLERANCE
        )
    assert len({row["trial_id"] for row in rows(there)} & {row["trial_id"] for row in rows(here)})


@pytest.mark.parametrize("precision", ["tf32", "bf16", "auto"])
def test_other_arithmetic_scores_nearly_the_same(precision: str, tmp_path: Path) -> None:
    space = space_of(tmp_path, 0.5)
    local(space, tmp_path / "cpu", gpus_per_trial=0.0)
    changed = space.with_overrides({"optimizer.precision": precision})
    local(changed, tmp_path / "gpu", gpus_per_trial=1.0)
    (left,), (right,) = rows(tmp_path / "cpu"), rows(tmp_path / "gpu")
    assert right["objective"] == pytest.approx(left["objective"], abs=4 * TOLERANCE)
    assert right["precision_used"] in ((precision,) if precision != "auto" else ("fp32", "bf16"))


def test_a_killed_search_goes_on_from_the_state_of_its_trial(tmp_path: Path) -> None:
    space = space_of(tmp_path, 0.3, epochs=200)
    study, whole, file = tmp_path / "study", tmp_path / "whole", tmp_path / "tiny.toml"
    kill_with_a_state(DRIVER, file, study)
    local(space, study, gpus_per_trial=1.0)
    local(space, whole, gpus_per_trial=1.0)
    (row,), (expected,) = rows(study), rows(whole)
    assert row["notes"].startswith("continued from step ")
    assert row["objective"] == pytest.approx(expected["objective"], abs=4 * TOLERANCE)


def test_deterministic_algorithms_repeat_a_trial_to_the_bit(tmp_path: Path) -> None:
    """With dropout, in bf16."""
    lambda_space(tmp_path / "space", 0.3, fixed="optimizer.epochs = 6")
    file = tmp_path / "space" / "tiny.toml"
    found = []
    for name in ("one", "other"):
        program = DRIVER.replace("save_every=1e-4", "deterministic=True")
        program = program.replace(
            "sys.argv[1],", 'load_space(sys.argv[1], {"optimizer.precision": "bf16"}),'
        )
        program = "from tune_sentcl.space import load_space\n" + program
        subprocess.run(
            [sys.executable, "-c", program, str(file), str(tmp_path / name)], check=True
        )
        found.append((scores(tmp_path / name), Study.read(tmp_path / name).curves().to_pylist()))
    assert found[0] == found[1] and found[0][0]
