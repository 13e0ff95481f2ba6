"""`verify` on the command line: lines for people, JSON for programs, exit 0 whatever it finds."""

import json
from pathlib import Path

import pytest
from cli_samples import invoke, refused

KEYS = ["table", "row", "task", "paper", "ours", "sd", "n", "verdict", "note"]

pytest_plugins = ["cli_fixtures"]


@pytest.mark.parametrize(("paper", "count"), [("SCL", 345), ("ConIsI", 174), ("CLSR", 75)])
def test_json_has_a_row_for_every_number_and_people_have_the_counts(
    paper: str, count: int, held: Path
) -> None:
    done = invoke("verify", held, "--paper", paper, "--json")
    assert done.code == 0
    rows = json.loads(done.out)
    assert len(rows) == count and all(list(row) == KEYS for row in rows)
    assert {row["verdict"] for row in rows} <= {"NOT RUN", "NOT COMPARABLE"}
    done = invoke("verify", held, "--paper", paper)
    assert done.code == 0 and "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    legend = done.out.rstrip().rpartition("\n\n")[2]
    not_run = sum(row["verdict"] == "NOT RUN" for row in rows)
    assert f"{not_run:4} NOT RUN" in legend and "the study has no such number" in legend


def test_one_table(held: Path) -> None:
    one = ("verify", held, "--paper", "SCL", "--table", 6)
    done = invoke(*one)
    assert done.code == 0 and "SCL, Table 6" in done.out and "Table 2" not in done.out
    assert len(json.loads(invoke(*one, "--json").out)) == 30


def test_bad_names_are_refused(held: Path, tmp_path: Path) -> None:
    refused(invoke("verify", held, "--paper", "conisi"), "must be SCL, ConIsI or CLSR", "ConIsI?")
    refused(invoke("verify", held, "--paper", "CLSR", "--table", 9), "--table", "1, 2, 3, 4")
    refused(invoke("verify", tmp_path / "none", "--paper", "CLSR"), "none")
