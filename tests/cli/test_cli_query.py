"""A study asked in SQL: the answers are the study's, and the way to anything else is closed."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_samples import command, environment, invoke, refused, spawn, tables
from s3_server import make_bucket, serving, variables
from test_cli_studies import PEARSON, SPEARMAN, VALUES, write_study

from tune_sentcl.store import Study

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

BEST = """
    SELECT trial_id, max(value) AS best, sum(n) AS rows FROM scores JOIN trials USING (trial_id)
    WHERE metric = 'spearman' AND split = 'dev' AND status = 'finished'
    GROUP BY trial_id ORDER BY best DESC
"""


def test_an_answer_in_every_form(place: Path) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN])
    (shown,) = tables(invoke("query", study, BEST).out)
    assert [row["trial_id"] for row in shown] == ["t2", "t3", "t1", "t4"]
    assert [row["best"] for row in shown] == ["72.00", "71.00", "70.00", "69.00"]
    done = invoke("query", study, BEST, "--json")
    assert json.loads(done.out)[0] == {"trial_id": "t2", "best": 72.0, "rows": 9}
    rows = list(csv.DictReader(io.StringIO(invoke("query", study, BEST, "--csv").out)))
    assert rows[0] == {"trial_id": "t2", "best": "72.0", "rows": "9"} and len(rows) == 4
    refused(invoke("query", study, BEST, "--csv", "--json"), "stdout has room for one")
    done = invoke("query", study, BEST, "--limit", 1)
    assert [row["trial_id"] for row in tables(done.out)[0]] == ["t2"] and "3 more" in done.out
    assert json.loads(invoke("query", study, "SELECT 1 WHERE false", "--json").out) == []


def test_all_columns_are_shown_where_a_line_has_no_room(place: Path) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN])
    first, second = tables(
        invoke("query", study, "FROM trials ORDER BY trial_id", "--limit", 2).out
    )
    held = {row["column"]: row["value"] for row in first}
    assert held["trial_id"] == "t1" and held["method.name"]
    assert "error_type" not in held and second[0]["value"] == "t2"


@pytest.mark.parametrize(
    "sql",
    [
        "DESCRIBE trials",
        "SHOW TABLES",
        "SUMMARIZE scores",
        "PIVOT scores ON task USING avg(value) GROUP BY trial_id",
        "EXPLAIN SELECT 1",
        "WITH x AS (SELECT 1 AS a) SELECT * FROM x",
        "SELECT * FROM scores a, scores b",
        "SELECT 1::DECIMAL(38,0) AS a, 123456789012345678901234567890::HUGEINT AS b, 1.25 AS c",
        "SELECT now() AS a, INTERVAL 1 DAY AS b, [1, 2] AS c, {'x': 1} AS d, '[/b]' AS e",
    ],
)
def test_whatever_only_reads_is_answered(sql: str, place: Path) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN])
    for option in ((), ("--csv",)):
        assert invoke("query", study, sql, *option).code == 0
    assert json.loads(invoke("query", study, sql, "--json").out)


def test_no_column_and_no_bracket_is_lost(place: Path) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN])
    sql = "SELECT a.task, b.task, c.task FROM scores a, scores b, scores c LIMIT 1"
    assert list(json.loads(invoke("query", study, sql, "--json").out)[0]) == [
        *("task", "task_1", "task_2")
    ]
    (shown,) = tables(invoke("query", study, "SELECT '[bold]x[/]' AS \"[a]\"").out)
    assert shown == [{"[a]": "[bold]x[/]"}]
    (found,) = json.loads(invoke("query", study, "SELECT 1e20::HUGEINT AS h", "--json").out)
    assert found == {"h": 1e20}


def test_several_studies_are_one(place: Path) -> None:
    write_study(place / "a", {"t1": VALUES["t1"], "t2": VALUES["t2"]}, [SPEARMAN])
    write_study(place / "b", {"t3": VALUES["t3"], "t2": VALUES["t2"]}, [PEARSON])
    counted = "SELECT study, count(*) AS trials FROM trials GROUP BY study ORDER BY study"
    done = invoke("query", "a", "b", counted, "--json")
    assert json.loads(done.out) == [
        {"study": "a", "trials": 2},
        {"study": "b", "trials": 1},
    ]
    write_study(place / "c", {"t1": {SPEARMAN: 1.0}}, [PEARSON])
    refused(invoke("query", "a", "c", counted), "trial t1", "70.0 in a and 1.0 in c")


def test_a_damaged_file_is_named_and_left_out_if_asked(place: Path) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN])
    broken = next((study / "scores").glob("t1*"))
    broken.write_bytes(b"")
    refused(invoke("query", study, BEST), str(broken), "whole Parquet file")
    done = invoke("query", study, BEST, "--skip-damaged", "--json")
    assert [row["trial_id"] for row in json.loads(done.out)] == ["t2", "t3", "t4"]
    assert (done.code, done.err.count("error: ")) == (1, 1) and str(broken) in done.err


ESCAPES = [
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM read_parquet('{table}')",
    "SELECT * FROM '{table}'",
    "SELECT * FROM parquet_schema('{table}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM glob('{place}/*')",
    "SELECT * FROM read_text('file://{secret}')",
    "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
    "SELECT * FROM read_parquet('s3://bucket/x')",
    "SELECT * FROM query('COPY trials TO ''{new}''')",
    "SELECT * FROM query_table('{table}')",
    "SELECT getenv('SECRET_TOKEN')",
    "COPY trials TO '{new}'",
    "COPY (SELECT 1) TO '{new}' (FORMAT PARQUET)",
    "EXPORT DATABASE '{new}'",
    "IMPORT DATABASE '{place}'",
    "ATTACH '{new}' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{secret}'",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA enable_profiling='json'",
    "SET temp_directory = '{place}'",
    "CREATE SECRET (TYPE s3, KEY_ID 'x', SECRET 'y')",
    "CREATE PERSISTENT SECRET (TYPE http)",
    "CREATE TABLE x AS SELECT 1",
    "DROP VIEW trials",
    "DELETE FROM trials",
    "SELECT 1; COPY trials TO '{new}'",
    "EXPLAIN ANALYZE COPY trials TO '{new}'",
    "CHECKPOINT",
    "SELECT * FROM frames",
    "SELECT * FROM table",
    "SELECT * FROM answer",
    "SELECT * FROM sys_modules",
]


@pytest.mark.parametrize("sql", ESCAPES)
def test_nothing_but_the_tables_is_reached(
    sql: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN])
    secret = place / "secret.csv"
    secret.write_text("s3cr3tvalue1,b\n")
    monkeypatch.setenv("SECRET_TOKEN", "s3cr3tvalue1")
    monkeypatch.setenv("HOME", str(place / "home"))
    table = next((study / "trials").iterdir())
    before = sorted(place.rglob("*"))
    given = {"secret": secret, "table": table, "place": place, "new": place / "new"}
    done = invoke("query", study, sql.format(**given))
    refused(done)
    assert "s3cr3tvalue1" not in done.out + done.err
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    "sql", ["", "  ", "/* nothing */", "SELECT 1; SELECT 2", "SELEC 1", "SELECT x"]
)
def test_what_is_not_one_select_is_refused(sql: str, place: Path) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN])
    refused(invoke("query", study, sql), "SQL", "trials, scores and curves")


def test_what_does_not_fit_into_memory_goes_to_no_file(place: Path) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN])
    before = sorted(place.rglob("*"))
    sql = "SELECT count(*) AS n FROM (SELECT random() AS r FROM range(300000) ORDER BY r)"
    assert json.loads(invoke("query", study, sql, "--json").out) == [{"n": 300000}]
    assert sorted(place.rglob("*")) == before


def test_without_duckdb_the_extra_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = write_study(place / "study", VALUES, [SPEARMAN])
    monkeypatch.setitem(sys.modules, "duckdb", None)
    refused(invoke("query", study, "SELECT 1"), 'pip install "tune-sentcl[query]"')


def test_an_older_study_and_one_without_trials(place: Path) -> None:
    studies = Path(__file__).parents[1] / "store" / "studies"
    sql = "SELECT count(*) AS n FROM trials"
    for number in (1, 2, 3):
        done = invoke("query", studies / f"v{number}", sql, "--json")
        assert json.loads(done.out) == [{"n": 3}]
    write_study(place / "empty", {}, [SPEARMAN])
    assert json.loads(invoke("query", "empty", sql, "--json").out) == [{"n": 0}]
    refused(invoke("query", place / "nowhere", sql), "must be a study")


@pytest.mark.slow
def test_a_study_in_a_bucket(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as url:
        for name in [n for n in os.environ if n.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in {**variables(url), "no_proxy": "127.0.0.1"}.items():
            monkeypatch.setenv(name, value)
        make_bucket(url)
        write_study("s3://bucket/study", VALUES, [SPEARMAN])  # type: ignore[arg-type]
        done = spawn("query", "s3://bucket/study", BEST, "--json")
        assert [row["trial_id"] for row in json.loads(done.out)] == ["t2", "t3", "t1", "t4"]
        write_study(place / "a", {"u": VALUES["t1"]}, [SPEARMAN])
        done = spawn("merge", "s3://bucket/study", "a", "--to", "s3://bucket/both", "--json")
        assert [row["counted"] for row in json.loads(done.out)] == [4, 1]
        assert len(Study.read("s3://bucket/both").trials()) == 5
        # DuckDB itself has no way there.
        refused(spawn("query", "a", "SELECT * FROM 's3://bucket/both/trials/all.1.parquet'"))


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
