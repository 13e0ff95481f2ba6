"""Every format says the same numbers, in order, and none of them breaks on what a study holds."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis_samples import Trial, config, objectives, score, write_study
from report_samples import DEV, HOSTILE, write_whole_study
from typer.testing import CliRunner

from tune_sentcl.analysis import read_study
from tune_sentcl.analysis.report.curves import curve_figures
from tune_sentcl.analysis.report.knobs import parallel_figure
from tune_sentcl.analysis.report.points import Points
from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.analysis.report.text_formats import _tex_escaped
from tune_sentcl.cli import app
from tune_sentcl.store import CurvePoint
from tune_sentcl.store.manifest import SeedPlan


def report(*arguments: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


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
    text = report(study, "--format", "csv", "--details").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    expected = read_study(study).configurations()
    assert [row["configuration"] for row in rows] == expected["configuration"].to_list()
    for row, (_, known) in zip(rows, expected.iterrows(), strict=True):
        assert float(row[f"{DEV}_mean"]) == pytest.approx(known["objective_mean"])
        assert int(row[f"{DEV}_n"]) == known["objective_n"]
        # Without start-up all trials cost the same, whichever of them came first.
        assert float(row["hours_mean"]) == pytest.approx(50 / 3600)
        assert float(row["sts_average_mean"]) == pytest.approx(known["sts_avg_mean"])
        if known["objective_n"] > 1:
            assert float(row[f"{DEV}_sd"]) == pytest.approx(known["objective_sd"])
    assert (
        json.loads(report(study, "--json").stdout)[0]["configuration"] == rows[0]["configuration"]
    )


def test_markdown_is_ready_to_paste(study: Path) -> None:
    text = report(study, "--format", "md").stdout
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    wanted = {"Leaderboard", "Runs", "Plan against actual time", "Stages", "Failed trials"}
    assert wanted | {"Pareto front", "Protocols", "Versions"} <= set(headings)
    assert "| 1 | scl-mean-1e-05 seed 1 |" in text, "which trial failed"
    # Sixteen first seeds of two methods, of which half are SCL's; trials 9 and 31 were stopped.
    stages = text.partition("## Stages")[2].partition("\n## ")[0]
    assert "| 1.56 % | 1 | 0 |" in stages and "| 25 % | 9 | 8 |" in stages
    # It has no baseline: the winner is judged against the runner-up alone.
    assert text.partition("\n## ")[0].count("UNDECIDED") == 1
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    tasks = next(line for line in text.splitlines() if "| STS12 |" in line)
    # SCL averages STS12 to 16; what it does not print stands behind. That is not the average of
    # all seven tasks on the leaderboard, and has another name.
    assert "STS12 | STS13 | STS14 | STS15 | STS16 | STS average of 5 | STS-B | SICK-R" in tasks
    assert "STS average of 5: the mean of STS12, STS13, STS14, STS15, STS16." in text
    assert "STS average: the mean of STS12, STS13, STS14, STS15, STS16, STS-B, SICK-R." in text
    board = text.partition("## Leaderboard")[2].partition("\n## ")[0]
    # Two of them are printed alike, and so are equally good.
    assert len(re.findall(r"\*\*90\.20\*\* ± 0\.20", board)) == 2
    assert "<script" not in text


def test_latex_is_ready_to_paste(study: Path) -> None:
    text = report(study, "--format", "tex").stdout
    # The leaderboard, STS in two parts, transfer; no runs, versions or failures.
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 4
    text = text.replace(r"p{0.4\linewidth}", "p")
    for body in re.findall(r"\\begin\{tabular\}\{([lrp]+)\}(.*?)\\end\{tabular\}", text, re.S):
        rows = [line for line in body[1].splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(body[0]) - 1}
        assert len(body[0]) <= 6
    captions = re.findall(r"\\caption\{(.*)\}", text)
    assert {len(re.findall(r"[.](?: |$)", caption)) for caption in captions} == {2}
    # Ids and times only if asked for.
    assert "scl-mean" not in text and "time a trial" not in text
    details = report(study, "--format", "tex", "--details").stdout
    assert "scl-mean-0.0001" in details and "21.1 s" in details
    assert r"\textbf{" in text and r"{\scriptsize $\pm$ 0.20}" in text
    loose = re.sub(r"\\[a-zA-Z]+|\\.|^%.*$|\$\\pm\$", "", text, flags=re.M)
    assert HOSTILE not in text and not re.search(r"[_#%]", loose.replace("{%", ""))


@pytest.mark.parametrize("together", [False, True])
def test_the_verdicts_are_those_of_judge(tmp_path: Path, together: bool) -> None:
    lambdas, seeds = (0.0, 0.3, 0.5), range(10)
    (dev,) = objectives(DEV)
    trials = [
        Trial(
            f"t{10 * value:g}x{seed}",
            config(seed, method={"name": "scl", "lambda": value}),
            [score(dev, 80 + 4 * value + 0.1 * (seed % 7) + 0.05 * (seed % 3) * value)],
            configuration=f"lambda{value:g}",
        )
        for value in lambdas
        for seed in seeds
    ]
    plan = SeedPlan(tuple(seeds), 3, tuple(f"lambda{value:g}" for value in lambdas))
    write_study(study := tmp_path / "study", trials, [DEV], plan=plan)
    asked = CliRunner().invoke(app, ["judge", str(study), "--json"])
    known = json.loads(asked.stdout)
    assert [one["asked"] for one in known] == ["baseline", "runner-up"]
    write_study(other := tmp_path / "other", trials[:3], [DEV])
    named = [study, other] if together else [study]
    first, _, board = report(*named, "--format", "md").stdout.partition("## Verdicts")
    if together:  # their seeds were planned apart
        assert board.count("UNDECIDED") == 2 and "no common plan of seeds is recorded" in first
        return
    lines = [line for line in board.splitlines() if line.startswith("|")][2:4]
    for line, one in zip(lines, known, strict=True):
        cells = [cell.strip().replace("\\", "") for cell in line.strip("|").split("|")]
        assert cells[2] == one["verdict"] and cells[6] == str(one["n"])
        assert cells[3] == f"{one['difference']:.2f}" and cells[8] == one["procedure"]
        assert [float(cell) for cell in cells[4:6]] == pytest.approx(
            [one["low"], one["high"]], abs=0.005
        )
        assert float(cells[7]) == pytest.approx(one["p"], rel=0.05)
        assert one["sentence"] in unescape(first.replace("\\", ""))


def test_the_winner_is_chosen_by_what_was_searched(tmp_path: Path) -> None:
    dev, test = objectives(DEV, "STS-B:spearman:test")
    values = {"a": (90.0, 70.0), "b": (80.0, 75.0), "plain": (70.0, 60.0)}
    trials = [
        Trial(
            f"{name}{seed}",
            config(seed, method={"name": "scl", "lambda": place / 2}),
            [score(dev, own[0] + seed), score(test, own[1] + seed)],
            configuration=name,
        )
        for place, (name, own) in enumerate(reversed(values.items()))
        for seed in range(3)
    ]
    write_study(tmp_path, trials, [DEV])
    text = report(tmp_path, "--format", "md", "--objective", str(test)).stdout
    first, _, said = text.partition("## Verdicts")
    asked = ["judge", str(tmp_path), "--json", "--objective", str(test)]
    (baseline, other) = json.loads(CliRunner().invoke(app, asked).stdout)
    assert "(a)" in said.splitlines()[4] and baseline["a"] == "a" and other["sentence"] in first


def test_one_configuration_has_no_verdict(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    write_study(tmp_path / "study", [Trial("a", config(0), [score(dev, 80.0)])])
    assert "## Verdicts" not in report(tmp_path / "study", "--format", "md").stdout


def test_out_says_the_format_and_replaces_what_is_there(study: Path, tmp_path: Path) -> None:
    for name, begins in (("a.md", "# study"), ("a.tex", "% study"), ("a.csv", "rank,")):
        (tmp_path / name).write_text("before")
        report(study, "--out", tmp_path / name)
        assert (tmp_path / name).read_text().startswith(begins)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.md", "a.tex"]
    assert "must end in" in report(study, "--out", tmp_path / "a.pdf", code=2).stderr
    for out in (tmp_path / "no" / "a.md", tmp_path / "a.md" / "b.md", "n" * 300 + ".md"):
        assert "cannot be written" in report(study, "--out", out, code=2).stderr
    assert "cannot be written" in report(study, "--out", ".", "--format", "md", code=2).stderr
    assert "writes no report" in report(study, "--json", "--format", "md", code=2).stderr


def test_pictures_of_every_figure(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vl_convert = pytest.importorskip("vl_convert", reason="the extra `figures` is not installed")
    # One figure is drawn, which stands for all: it takes long.
    for name in ("vegalite_to_svg", "svg_to_png", "svg_to_pdf"):
        monkeypatch.setattr(vl_convert, name, first_only(getattr(vl_convert, name)))
    report(study, "--out", tmp_path / "a.md", "--figures", tmp_path / "figures")
    found = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {
        "parallel.svg",
        "knob-method-lambda.png",
        "knob-method-lambda-sts-average.pdf",
    } <= found
    for path in (tmp_path / "figures").iterdir():
        begins = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}[path.suffix[1:]]
        assert path.read_bytes().startswith(begins)


@pytest.mark.long
def test_the_bundle_is_what_vl_convert_makes() -> None:
    vl_convert = pytest.importorskip("vl_convert", reason="the extra `figures` is not installed")
    from tune_sentcl.analysis.report import pages

    held = Path(pages.__file__).parent / "page" / "vega.js"
    assert held.read_text(encoding="utf-8") == vl_convert.javascript_bundle()


@pytest.mark.parametrize("kind", ["html", "md", "tex", "csv"])
def test_a_study_that_has_nothing_to_show_reports(tmp_path: Path, kind: str) -> None:
    write_study(tmp_path / "empty", [], [DEV])
    write_study(tmp_path / "failed", [Trial(f"t{n}", config(n), (), "failed") for n in range(3)])
    for name in ("empty", "failed"):
        report(tmp_path / name, "--format", kind, "--out", tmp_path / f"{name}.{kind}")


def test_a_table_marks_what_its_seeds_do_not_tell_from_the_best(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    # The last one's seeds do not tell it from the best, but 70.00 is better and told from it.
    means = {"best": 80.0, "near": 79.99, "far": 70.0, "fallen": 70.0}
    trials = []
    for place, (name, mean) in enumerate(means.items()):
        noise = np.random.default_rng(place).normal(0, 0.2, 10)
        values = mean + noise - noise.mean()
        values[3] -= 20 * (name == "fallen")
        knobs = {"name": "scl", "lambda": mean / 100}
        for seed, value in enumerate(values.tolist()):
            trial = Trial(f"{name}{seed}", config(seed, method=knobs), [score(dev, value)])
            trials.append(replace(trial, configuration=name))
    write_study(tmp_path, trials, [DEV])
    board = report(tmp_path, "--format", "md").stdout.partition("## Leaderboard")[2]
    assert "| 68.00 ±" in board
    assert "**80.00**" in board and "<ins>79.99</ins>" in board and "| 70.00 ±" in board
    tex = report(tmp_path, "--format", "tex").stdout
    assert r"\textbf{80.00}" in tex and r"\underline{79.99}" in tex and "{70.00}" not in tex
    page = tmp_path / "report.html"
    report(tmp_path, "--out", page)
    assert "<b>80.00</b>" in page.read_text() and "<u>79.99</u>" in page.read_text()


def test_a_table_tells_the_best_from_an_untrained_encoder_of_one_seed(tmp_path: Path) -> None:
    """Its one score holds for every seed."""
    (dev,) = objectives(DEV)
    values = [79.9, 80.0, 80.1]
    trials = [Trial(f"t{n}", config(n), [score(dev, v)]) for n, v in enumerate(values)]
    trials.append(Trial("u", config(0, method={"name": "none"}), [score(dev, 60.0)]))
    write_study(tmp_path, trials, [DEV])
    board = report(tmp_path, "--format", "md").stdout.partition("## Leaderboard")[2]
    assert "**80.00**" in board and "| 60.00 " in board


def test_the_pareto_table_rounds_a_score_once(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    write_study(tmp_path, [Trial("t", config(0), [score(dev, 80.8853)])], [DEV])
    text = report(tmp_path, "--format", "md").stdout
    assert text.partition("## Quality against cost")[2].count("80.89") == 1
    assert "80.88 " not in text and "| 2 s |" in text  # a trial's time, in its unit


def test_fresh_seeds_choose_nothing(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    trials = [Trial(f"t{n}", config(n), [score(dev, 70.0 + 2 * n)]) for n in range(2)]
    trials.append(Trial("fresh", config(7), [score(dev, 60.0)], origin="confirm"))
    write_study(tmp_path / "study", trials, [DEV])
    text = report(tmp_path / "study", "--format", "md").stdout
    board = text.partition("## Leaderboard")[2].partition("\n## ")[0]
    assert "**71.00** ± 1.41" in board and "60.00" in board and "fresh seeds" in board
    # The headline quotes the seeds that no choice saw.
    lead = (
        "(dev) tuned 60.00 on 1 fresh seed (quote this); tuned 71.00 ± 1.41 on 2 seeds that chose"
    )
    assert lead in text.partition("## ")[0]
    (row,) = csv.DictReader(io.StringIO(report(tmp_path / "study", "--format", "csv").stdout))
    assert (row[f"{DEV}_n"], row["fresh_mean"], row["fresh_n"]) == ("2", "60.0", "1")


def test_no_name_and_no_line_break_ends_what_it_stands_in(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    odd = "a\nb </script> | <b>\n"
    trials = [
        Trial(f"t{n}", config(n, encoder={"checkpoint": name}), [score(dev, 70.0 + n)])
        for n, name in enumerate(("plain", odd))
    ]
    trials = [replace(trial, configuration=trial.trial_id) for trial in trials]
    place = tmp_path / "x <b>|\ny"
    write_study(place, trials, [DEV])
    text = report(place, "--format", "md").stdout
    outside = re.sub(r"^(```+)\n.*?^\1$", "", text, flags=re.M | re.S)
    assert "<b>" not in outside and "</script>" not in outside
    title, _, lead = text.splitlines()[:3]
    assert title == r"# x &lt;b>\| y" and lead.startswith("Best")
    rows = text.partition("## Leaderboard")[2].partition("\n## ")[0].splitlines()
    (row,) = (line for line in rows if "71.00" in line and line.startswith("| 1 |"))
    assert r"| a b &lt;/script> \| &lt;b> |" in row and row.endswith(" |")
    assert r"a b &lt;/script> \| &lt;b>" in lead
    tex = report(place, "--format", "tex").stdout.splitlines()
    assert tex[0].startswith("% x <b>| y: Best") and "</script> | <b>" in tex[0]
    assert tex[1].startswith("% Needs")
    assert any(r"a b \textless{}/script\textgreater{} \textbar{}" in line for line in tex)


def test_an_axis_prints_a_knob_as_it_was_set(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    trials = [
        Trial(
            f"t{n}-{copy}",
            config(0, optimizer={"batch_size": n, "lr": n / 1e6}),
            [score(dev, 70.0)],
        )
        for n in (64, 512, 1024)
        for copy in range(4)
    ]
    write_study(
        tmp_path, [replace(trial, configuration=trial.trial_id) for trial in trials], [DEV]
    )
    frames = read_study(tmp_path)
    (figure,) = parallel_figure(Points(Subject(frames, frames.objectives())))
    texts = set(figure.data["ticks"]["text"])
    assert {"64", "512", "1024", "0.001024", "0.000512", "6.4e-5"} <= texts


@pytest.mark.parametrize(
    ("left", "drawn"),
    [
        ("support.dev.ndcg@10", "curve-support-dev-ndcg@10"),
        ("STS-B.dev.spearman", "curve-STS-B-dev-spearman"),
    ],
)
def test_the_curve_of_what_stood_in_for_the_objective_is_drawn(
    tmp_path: Path, left: str, drawn: str
) -> None:
    names = "intent:accuracy:dev", "apples:spearman:dev", "support:ndcg@10:dev", DEV
    scores = [score(one, 70.0) for one in objectives(*names)]
    points = [CurvePoint(step, step / 5, 8 * step, left, 60.0 + step) for step in (1, 2)]
    write_study(tmp_path, [Trial("t", config(0), scores, curves=points)], names[:1])
    frames = read_study(tmp_path)
    figures = curve_figures(Subject(frames, frames.objectives()))
    assert [figure.name for figure in figures] == [drawn]


def test_lists_are_written_alike_everywhere(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    trials = [
        Trial(f"t{n}", config(n, method={"name": "mnr", "dims": dims}), [score(dev, 70.0 + n)])
        for n, dims in enumerate(([16], [32, 8]))
    ]
    write_study(
        tmp_path, [replace(trial, configuration=trial.trial_id) for trial in trials], [DEV]
    )
    text = report(tmp_path, "--format", "md").stdout
    assert "(dims=32+8)" in text and "| 32, 8 |" in text
    assert "[32" not in text
    table = CliRunner().invoke(app, ["show", str(tmp_path)], env={"COLUMNS": "200"}).stdout
    assert "32, 8" in table


def test_latex_prints_what_is_written() -> None:
    assert _tex_escaped("a -- b --- <c> | ~^") == (
        r"a -{}-{} b -{}-{}- \textless{}c\textgreater{} \textbar{} "
        r"\textasciitilde{}\textasciicircum{}"
    )


def test_knobs_that_lie_close_together_are_told_apart(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    rates = (0.00149, 0.00151, 123.6, 0.125, 0.1249)
    trials = [
        Trial(f"t{n}", config(n, optimizer={"lr": rate}), [score(dev, 70.0 + n)])
        for n, rate in enumerate(rates)
    ]
    trials = [replace(trial, configuration=trial.trial_id) for trial in trials]
    write_study(tmp_path / "study", trials, [DEV])
    text = report(tmp_path / "study", "--format", "md").stdout
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "study")]).stdout
    for rate in rates:
        assert f"| {rate} |" in text
        assert re.search(rf"\s{re.escape(str(rate))}\s", shown), shown


def test_several_studies_are_one_report(tmp_path: Path) -> None:
    (dev,) = objectives(DEV)
    for name, seed, value in (("a", 0, 70.0), ("b", 1, 72.0)):
        write_study(tmp_path / name, [Trial(name, config(seed), [score(dev, value)])], [DEV])
    text = report(tmp_path / "a", tmp_path / "b", "--format", "md").stdout
    assert text.startswith("# a, b\n") and "**71.00** ± 1.41" in text
    assert len(re.findall(rf"^\| {re.escape(str(tmp_path))}", text.replace("\\_", "_"), re.M)) == 2
