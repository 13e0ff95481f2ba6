"""The benchmarks' shared module, and the options that every script has."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(FOLDER))

import history  # noqa: E402 - found by the line above
import run_all  # noqa: E402 - found by the line above
from measuring import interleaved  # noqa: E402

SCRIPTS = {path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text()}
KEYS = ("part", "ours", "peer", "peer_name", "ratio", "unit", "target")


def test_sides_are_timed_in_turn() -> None:
    called: list[str] = []
    sides = [lambda name=name: called.append(name) for name in "ab"]
    ours, peer = interleaved(*sides, runs=3)
    assert called == ["b", "a", "a", "b", "b", "a", "a", "b"]
    assert ours.low <= ours.median <= ours.high and peer.low > 0


def test_no_file_hides_a_library() -> None:
    installed = set(importlib.metadata.packages_distributions()) | set(sys.stdlib_module_names)
    assert not installed & {path.stem for path in FOLDER.glob("*.py")}


def test_make_bench_all_runs_every_script_or_its_docstring_says_otherwise() -> None:
    apart = {*run_all.APART, *run_all.OF_RESULTS}
    assert {*run_all.SHORT, *run_all.LONG, *apart, "run_all", "figures"} >= SCRIPTS
    for name in apart:
        assert "not run by `make bench`" in (FOLDER / f"{name}.py").read_text()


def test_the_phases_of_a_study_follow_each_other(tmp_path: Path) -> None:
    """In one process and of 20 trials; `test_json_is_all_that_a_script_prints` times them."""
    measured = {phase: history._PHASES[phase](str(tmp_path), 20) for phase in history.PHASES}
    assert all(measured.values())


def quick(name: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    assert rows
    return rows


def test_a_simulation_of_verdicts_prints_shares_of_every_case_and_procedure() -> None:
    rows = quick("judging")
    keys = {"case", "procedure", "configurations", "seeds", "difference_sd"}
    assert len({tuple(row[key] for key in sorted(keys)) for row in rows}) == len(rows)
    for row in rows:
        assert set(row) == keys | {"established", "false_claims", "spent"}
        assert 0 <= row["established"] <= 1 and 0 <= row["false_claims"] <= 1
    assert {row["procedure"] for row in rows} == {"planned", "confirm", "follow"}


@pytest.mark.long
def test_json_is_all_that_a_script_prints() -> None:
    for row in quick("history"):
        assert set(KEYS) <= set(row)
        assert row["peer"] is None or row["ratio"] is not None or not row["ours"]
