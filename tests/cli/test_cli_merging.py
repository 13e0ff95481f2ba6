"""The command that brings studies together, and what reading loads."""

import json
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_samples import command, environment, invoke, refused, tables
from test_cli_studies import SPEARMAN, VALUES, write_study

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")


def test_merging_on_the_command_line(place: Path) -> None:
    write_study(place / "a", {"t1": VALUES["t1"], "t2": VALUES["t2"]}, [SPEARMAN])
    write_study(place / "b", {"t3": VALUES["t3"], "t2": VALUES["t2"]}, [SPEARMAN])
    done = invoke("merge", "a", "b", "--to", "c")
    (shown,) = tables(done.out)
    assert shown[0] == {
        "study": "a",
        "space": "smoke",
        "trials": "2",
        "counted": "2",
        "weights": "0",
    }
    assert shown[1]["counted"] == "1" and "Study: c, 3 trials" in done.out
    done = invoke("merge", "a", "c", "--to", "d", "--no-weights", "--json")
    assert json.loads(done.out) == [
        {"study": "a", "space": "smoke", "trials": 2, "counted": 2, "weights": 0},
        {"study": "c", "space": "smoke", "trials": 3, "counted": 1, "weights": 0},
    ]
    assert [row["trial"] for row in tables(invoke("show", "d").out)[0]] == ["t2", "t3", "t1"]
    refused(invoke("merge", "a", "b", "--to", "c"), "must not exist yet", "--to")
    refused(invoke("merge", "a", "--to", "e"), "two studies or more")
    write_study(place / "other", {"t1": {SPEARMAN: 1.0}}, [SPEARMAN])
    refused(invoke("merge", "a", "other", "--to", "e"), "trial t1", "70.0 in a and 1.0 in other")
    refused(invoke("merge", "a", "gone", "--to", "e"), "must be a study")
    assert not (place / "e").exists()
    assert pq.ParquetFile(place / "c" / "trials" / "all.1.parquet").metadata.num_rows == 3


def test_help_and_reading_load_nothing_that_they_do_not_use(place: Path) -> None:
    write_study(place / "a", VALUES, [SPEARMAN])
    code = (
        "import sys, tune_sentcl.cli; from tune_sentcl import read_study; read_study('a').wide()"
    )
    code += "; print([m for m in ('duckdb', 'polars', 'torch', 'optuna') if m in sys.modules])"
    done = subprocess.run(
        [command()[0], "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.strip() == "[]"
