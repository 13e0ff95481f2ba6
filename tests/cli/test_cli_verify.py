"""`verify` on the command line: lines for people, JSON for programs, exit 0 whatever it finds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_samples import invoke, refused

KEYS = ["table", "row", "task", "paper", "ours", "sd", "n", "verdict", "note"]

pytest_plugins = ["cli_fixtures"]


@pytest.fixture(scope="module")
def study(held: Path) -> Path:
    """A study of the toy: nothing in it can be compared with a paper."""
    return held


@pytest.mark.parametrize(("paper", "lines"), [("SCL", 345), ("ConIsI", 174), ("CLSR", 75)])
def test_json_has_a_line_for_every_number(paper: str, lines: int, study: Path) -> None:
    done = invoke("verify", study, "--paper", paper, "--json")
    assert done.code == 0
    rows = json.loads(done.out)
    assert len(rows) == lines
    assert all(list(row) == KEYS for row in rows)
    assert {row["verdict"] for row in rows} <= {"NOT RUN", "NOT COMPARABLE"}


@pytest.mark.parametrize("paper", ["SCL", "ConIsI", "CLSR"])
def test_lines_for_people_fit_80_columns_and_end_with_the_counts(paper: str, study: Path) -> None:
    done = invoke("verify", study, "--paper", paper)
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    assert "\x1b" not in done.out
    legend = done.out.rstrip().rpartition("\n\n")[2]
    assert "NOT RUN" in legend and "the study has no such number" in legend
    numbers = json.loads(invoke("verify", study, "--paper", paper, "--json").out)
    ran = [row for row in numbers if row["verdict"] != "NOT RUN"]
    assert f"{len(numbers) - len(ran):4} NOT RUN" in legend


def test_one_table(study: Path) -> None:
    done = invoke("verify", study, "--paper", "SCL", "--table", 6)
    assert done.code == 0
    assert "SCL, Table 6" in done.out and "Table 2" not in done.out
    assert (
        len(json.loads(invoke("verify", study, "--paper", "SCL", "--table", 6, "--json").out))
        == 30
    )


def test_bad_names_are_refused(study: Path, tmp_path: Path) -> None:
    refused(invoke("verify", study, "--paper", "conisi"), "must be SCL, ConIsI or CLSR", "ConIsI?")
    refused(invoke("verify", study, "--paper", "CLSR", "--table", 9), "--table", "1, 2, 3, 4")
    refused(invoke("verify", tmp_path / "none", "--paper", "CLSR"), "none")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_takes_long_says_first_that_it_has_read(study: Path, unbuffered: str) -> None:
    command = [sys.executable, "-m", "tune_sentcl", "verify", str(study)]
    done = subprocess.run(
        [*command, "--paper", "SCL", "--table", "4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    first = done.stdout.partition("\n")[0]
    assert first.endswith("trials read") and "SCL, Table 4" in done.stdout
