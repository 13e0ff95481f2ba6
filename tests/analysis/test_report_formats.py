"""Every format says the same numbers, in order, and none of them breaks on what a study holds."""

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_samples import Trial, config, objectives, score, write_study
from report_samples import DEV, HOSTILE, text_of, write_each, write_whole_study
from typer.testing import CliRunner

from tune_sentcl.analysis import read_study
from tune_sentcl.cli import app
from tune_sentcl.store.manifest import SeedPlan, as_typed


def report(*arguments: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def section(text: str, title: str) -> str:
    """The part of a report's text below a heading."""
    return text.partition(f"## {title}")[2].partition("\n## ")[0]


def first_only(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose first result is that of all later calls."""
    results: list[Any] = []

    def cached(*arguments: Any, **options: Any) -> Any:
        if not results:
            results.append(call(*arguments, **options))
        return results[0]

    return cached


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whole_study(tmp_path_factory.mktemp("formats") / "study")


def test_the_leaderboard_is_what_read_study_says(study: Path) -> None:
    rows = pd.read_csv(io.StringIO(report(study, "--format", "csv").stdout))
    known = read_study(study).configurations()
    assert rows["configuration"].to_list() == known["configuration"].to_list()
    names = {"mean": "objective_mean", "sd": "objective_sd", "n": "objective_n"}
    for ours, theirs in names.items():
        assert rows[f"{DEV}_{ours}"].to_list() == pytest.approx(
            known[theirs].to_list(), nan_ok=True
        )
    averages = known["sts_avg_mean"].to_list()
    assert rows["sts_average_mean"].to_list() == pytest.approx(averages, nan_ok=True)
    # Without start-up all trials cost the same, whichever of them came first.
    assert set(rows["hours_mean"].round(9)) == {round(50 / 3600, 9)}
    (first, *_) = json.loads(report(study, "--json").stdout)
    assert first["configuration"] == rows["configuration"][0]


def test_every_table_says_what_the_study_holds(study: Path) -> None:
    text = text_of(study)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    wanted = {"Leaderboard", "Runs", "Failed trials"}
    assert wanted | {"Pareto front", "Protocols", "Versions"} <= set(headings)
    assert "| 1 | scl-mean-1e-05 seed 1 |" in text, "which trial failed"
    # It has no baseline: the winner is judged against the runner-up alone.
    assert text.partition("\n## ")[0].count("UNDECIDED") == 1
    tasks = next(line for line in text.splitlines() if "| STS12 |" in line)
    # SCL averages STS12 to 16; what it does not print stands behind. That is not the average of
    # all seven tasks on the leaderboard, and has another name.
    assert "STS12 | STS13 | STS14 | STS15 | STS16 | STS average of 5 | STS-B | SICK-R" in tasks
    assert "STS average of 5 is the mean of STS12, STS13, STS14, STS15, STS16." in text
    assert "STS average is the mean of STS12, STS13, STS14, STS15, STS16, STS-B, SICK-R." in text
    board = section(text, "Leaderboard")
    assert len(re.findall(r"90\.20 ± 0\.20 .*\|\*$", board, re.M)) == 1, "one winner"


def test_latex_is_ready_to_paste(study: Path, tmp_path: Path) -> None:
    text = report(study, "--format", "tex").stdout
    # The leaderboard, STS in two parts, transfer; no runs, versions or failures.
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 4
    plain = text.replace(r"p{0.4\linewidth}", "p")
    for body in re.findall(r"\\begin\{tabular\}\{([lrp]+)\}(.*?)\\end\{tabular\}", plain, re.S):
        rows = [line for line in body[1].splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(body[0]) - 1}
        assert len(body[0]) <= 6
    captions = re.findall(r"\\caption\{(.*)\}", plain)
    assert {len(re.findall(r"[.](?: |$)", caption)) for caption in captions} == {2}
    assert "scl-mean" not in text and "time a trial" not in text
    assert r"\bfseries 90.20 $\pm$ 0.20" in text
    loose = re.sub(r"\\[a-zA-Z]+|\\.|^%.*$|\$\\pm\$", "", plain, flags=re.M)
    assert HOSTILE not in text and not re.search(r"[_#%]", loose.replace("{%", ""))
    if (latex := shutil.which("pdflatex") or shutil.which("tectonic")) is None:
        return
    head = r"\documentclass{article}\usepackage{booktabs,xcolor}\begin{document}"
    (tmp_path / "a.tex").write_text(head + text + r"\end{document}")
    quiet = ["-interaction=nonstopmode"] if latex.endswith("pdflatex") else []
    done = subprocess.run([latex, *quiet, "a.tex"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_winner_is_chosen_by_what_was_searched(tmp_path: Path) -> None:
    dev, test = objectives(DEV, "STS-B:spearman:test")
    values = {"plain": (70.0, 60.0), "b": (80.0, 75.0), "a": (90.0, 70.0)}
    trials = [
        Trial(
            f"{name}{seed}",
            config(seed, method={"name": "scl", "lambda": place / 2}),
            [score(dev, on_dev + seed), score(test, on_test + seed)],
            configuration=name,
        )
        for place, (name, (on_dev, on_test)) in enumerate(values.items())
        for seed in range(3)
    ]
    write_study(tmp_path, trials, [DEV])
    asked = ("--objective", str(test))
    first = text_of(tmp_path, objective=str(test))
    judged = CliRunner().invoke(app, ["judge", str(tmp_path), "--json", *asked]).stdout
    (baseline, other) = json.loads(judged)
    assert baseline["a"] == "a" and other["sentence"] in first
    assert re.search(r"^\| 1 \|.* b \|$", first, re.M), "the best on test, which chose nothing"


def test_out_says_the_format_and_replaces_what_is_there(tmp_path: Path) -> None:
    study = write_each(tmp_path / "study", [(70.0, {})])
    for name, begins in (("a.json", "["), ("a.tex", "% study"), ("a.csv", "rank,")):
        (tmp_path / name).write_text("before")
        report(study, "--out", tmp_path / name)
        assert (tmp_path / name).read_text().startswith(begins)
    assert {path.name for path in tmp_path.iterdir()} == {"study", "a.csv", "a.json", "a.tex"}
    assert "must end in" in report(study, "--out", tmp_path / "a.pdf", code=2).stderr
    for out in (tmp_path / "no" / "a.csv", tmp_path / "a.csv" / "b.csv", "n" * 300 + ".csv"):
        assert "cannot be written" in report(study, "--out", out, code=2).stderr
    assert "cannot be written" in report(study, "--out", ".", "--format", "tex", code=2).stderr
    assert "writes no report" in report(study, "--json", "--format", "tex", code=2).stderr


def test_pictures_of_every_figure(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vl_convert = pytest.importorskip("vl_convert", reason="the extra `figures` is not installed")
    # One figure is drawn, which stands for all: it takes long.
    for name in ("vegalite_to_svg", "svg_to_png", "svg_to_pdf"):
        monkeypatch.setattr(vl_convert, name, first_only(getattr(vl_convert, name)))
    report(study, "--out", tmp_path / "a.tex", "--figures", tmp_path / "figures")
    found = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {
        "gain.svg",
        "knob-method-lambda.png",
        "knob-method-lambda-sts-average.pdf",
    } <= found
    for path in (tmp_path / "figures").iterdir():
        begins = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}[path.suffix[1:]]
        assert path.read_bytes().startswith(begins)


@pytest.mark.long
def test_the_bundle_is_what_vl_convert_makes() -> None:
    vl_convert = pytest.importorskip("vl_convert", reason="the extra `figures` is not installed")
    from tune_sentcl.analysis.report import formats

    held = Path(formats.__file__).parent / "page" / "vega.js"
    assert held.read_text(encoding="utf-8") == vl_convert.javascript_bundle()


@pytest.mark.parametrize("kind", ["html", "json", "tex", "csv"])
def test_a_study_that_has_nothing_to_show_reports(tmp_path: Path, kind: str) -> None:
    write_study(tmp_path / "empty", [], [DEV])
    write_study(tmp_path / "failed", [Trial(f"t{n}", config(n), (), "failed") for n in range(3)])
    for name in ("empty", "failed"):
        report(tmp_path / name, "--format", kind, "--out", tmp_path / f"{name}.{kind}")


def test_a_table_marks_what_is_proven_worse_and_nothing_else(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    means = {"best": 80.0, "near": 79.99, "far": 70.0}
    trials = []
    for place, (name, mean) in enumerate(means.items()):
        noise = np.random.default_rng(place).normal(0, 0.2, 10)
        values = mean + noise - noise.mean()
        knobs = {"name": "scl", "lambda": mean / 100}
        trials += [
            Trial(f"{name}{n}", config(n, method=knobs), [score(dev, v)], configuration=name)
            for n, v in enumerate(values.tolist())
        ]
    plan = SeedPlan(tuple(range(10)), 3, tuple(means))
    write_study(tmp_path, trials, [DEV], plan=plan)
    board = section(text_of(tmp_path), "Leaderboard").splitlines()
    marks = {row.split(" | ")[-1].rstrip("|*- "): row[-1] for row in board if row.startswith("| ")}
    assert {name: marks[name] for name in means} == {"best": "*", "near": "|", "far": "-"}
    tex = report(tmp_path, "--format", "tex").stdout
    assert r"\bfseries 80.00" in tex and r"\color{gray} 70.00" in tex and "& 79.99" in tex
    page = tmp_path / "report.html"
    report(tmp_path, "--out", page)
    assert 'data-id="far" class="worse"' in page.read_text()


def test_the_next_command_of_a_search_without_scores_is_that_search(tmp_path: Path) -> None:
    # Finds the name of a space in place of its file.
    write_study(tmp_path, [Trial("t", config(0), (), "failed")], [DEV])
    manifest = tmp_path / "study.json"
    typed = as_typed(["/usr/bin/tune-sentcl", *["search", "my/tiny.toml", "--study", "s"]])
    manifest.write_text(manifest.read_text().replace('"x"', f'"{typed}"'))
    assert f"next: {typed}\n" in text_of(tmp_path)


def test_a_report_of_an_own_task_without_scores_is_written(tmp_path: Path) -> None:
    own = config(0, evaluation={"own": ["docs=docs"], "suites": []})
    write_study(tmp_path, [Trial("t", own, (), "failed")], ["docs:ndcg@10:dev"])
    assert "No trial has finished with a score." in text_of(tmp_path)


def test_a_report_of_one_trial_rounds_its_score_once_and_has_no_verdict(tmp_path: Path) -> None:
    text = text_of(write_each(tmp_path, [(80.8853, {})]))
    assert section(text, "Quality against cost").count("80.89") == 1
    assert "80.88 " not in text and "| 2 s |" in text  # a trial's time, in its unit
    assert "ESTABLISHED" not in text and "UNDECIDED" not in text


def test_fresh_seeds_choose_nothing(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    trials = [Trial(f"t{n}", config(n), [score(dev, 70.0 + 2 * n)]) for n in range(2)]
    trials.append(Trial("confirm", config(7), [score(dev, 60.0)], origin="confirm"))
    write_study(tmp_path / "study", trials, [DEV])
    text = text_of(tmp_path / "study")
    board = section(text, "Leaderboard")
    assert "71.00 ± 1.41 | 2 | 60.00 | 1 |" in board and "confirmation seeds" in board
    assert "has STS-B Spearman on dev 60.0" in text, "the seeds that no choice saw"
    (row,) = csv.DictReader(io.StringIO(report(tmp_path / "study", "--format", "csv").stdout))
    assert (row[f"{DEV}_n"], row["confirm_mean"], row["confirm_n"]) == ("2", "60.0", "1")


def test_no_name_and_no_line_break_ends_what_it_stands_in(tmp_path: Path) -> None:
    names = ("plain", "a\nb -- </script> | <b>\n")
    cases = [(70.0 + n, {"encoder": {"checkpoint": name}}) for n, name in enumerate(names)]
    place = write_each(tmp_path / "x <b>|\ny", cases)
    tex = report(place, "--format", "tex").stdout.splitlines()
    assert tex[0].startswith("% x <b>| y: The best")
    assert tex[1].startswith("% Needs")
    printed = r"a b -{}-{} \textless{}/script\textgreater{} \textbar{}"
    assert any(printed in line for line in tex)
    page = tmp_path / "report.html"
    report(place, "--out", page)
    own, _, _ = page.read_text(encoding="utf-8").partition("<script")
    assert "<b>" not in own.partition("<body>")[2].replace("<b>71", "") and "&lt;b&gt;" in own


def test_knobs_are_printed_as_they_were_set_and_told_apart(tmp_path: Path) -> None:
    rates = (0.00149, 0.00151, 123.6, 0.125, 0.1249)
    write_each(tmp_path / "rates", [(70.0, {"optimizer": {"lr": rate}}) for rate in rates])
    text = text_of(tmp_path / "rates")
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "rates")]).stdout
    for rate in rates:
        assert f"| {rate} |" in text
        assert re.search(rf"\s{re.escape(str(rate))}\s", shown), shown
    methods = [{"name": "mnr", "dims": dims} for dims in ([16], [32, 8])]
    write_each(tmp_path / "lists", [(70.0 + n, {"method": m}) for n, m in enumerate(methods)])
    text = text_of(tmp_path / "lists")
    assert "winner: dims=32+8" in text and "| 32, 8 |" in text and "[32" not in text


def test_several_studies_are_one_report(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    for name, seed, value in (("a", 0, 70.0), ("b", 1, 72.0)):
        write_study(tmp_path / name, [Trial(name, config(seed), [score(dev, value)])], [DEV])
    text = text_of(tmp_path / "a", tmp_path / "b")
    assert text.startswith("# a, b\n") and "| 71.00 ± 1.41 |" in text
    assert len(re.findall(rf"^\| {re.escape(str(tmp_path))}", text, re.M)) == 2
