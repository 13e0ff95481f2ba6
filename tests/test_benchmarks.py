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
from measuring import Measured, Row, interleaved, table  # noqa: E402

SCRIPTS = {path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text()}
KEYS = ("part", "ours", "peer", "peer_name", "ratio", "unit", "target")


def test_a_larger_ratio_is_better_in_either_direction() -> None:
    assert Row("rate", 80.0, 40.0, "other", "pairs/s", 2.0).ratio == 2
    assert Row("cost", 2.0, 5.0, "other", "s", 2.0).ratio == 2.5
    assert Row("by itself", 2.0, None, "none", "s").ratio is None
    assert Row("free", 0.0, 2.0, "other", "s").ratio is None


def test_a_share_is_of_what_the_machine_could_give() -> None:
    assert Row("rate", 25.0, None, "none", "pairs/s", None, 100.0).share == 0.25
    assert Row("cost", 4.0, None, "none", "s", None, 1.0).share == 0.25


def test_a_ratio_under_its_target_is_marked() -> None:
    row = Row("rate", Measured.of([70.0, 80.0, 95.0]), 50.0, "other", "pairs/s", 2.0)
    assert row.missed and not Row("rate", 100.0, 50.0, "other", "pairs/s", 2.0).missed
    line = table([row.facts()]).splitlines()[-1]
    assert line == "| rate | 80 (70-95) pairs/s | other: 50 | 1.60 (missed) | 2 |  |"


def test_rates_turn_the_range_of_seconds_around() -> None:
    assert Measured(2.0, 1.0, 4.0).rate(8.0) == Measured(4.0, 2.0, 8.0)
    assert Measured(2.0, 1.0, 4.0).each(2.0, 1e3) == Measured(1000.0, 500.0, 2000.0)


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
    apart = {*run_all.APART, *run_all.WITH_TABLES}
    assert {*run_all.SHORT, *run_all.LONG, *apart, "run_all"} >= SCRIPTS
    for name in apart:
        assert "not run by `make bench`" in (FOLDER / f"{name}.py").read_text()


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_no_script_that_others_run_takes_a_positional_argument(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    assert "options(__doc__" in text
    positional = text.count("add_argument(") - text.count('add_argument("--')
    assert not positional or name in run_all.WITH_TABLES


def test_a_table_replaces_what_stands_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table: begin -->\nold\n<!-- table: end -->\nb\n")
    run_all.write(page, "table", "new")
    assert page.read_text() == "a\n<!-- table: begin -->\n\nnew\n\n<!-- table: end -->\nb\n"
    with pytest.raises(ValueError, match="figures: begin"):
        run_all.write(page, "figures", "new")


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
