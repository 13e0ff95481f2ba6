"""What a figure shows is what the space declares, and a table's marks are those of its seeds."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from analysis_samples import Trial, config, objectives, score, write_study
from report_samples import DEV, subject_of, write_each, write_whole_study

from tune_sentcl.analysis.report import figures
from tune_sentcl.analysis.report.figure import Figure
from tune_sentcl.analysis.report.figures import curve_figures, front
from tune_sentcl.analysis.report.formats import picture
from tune_sentcl.analysis.report.knobs import knob_figures
from tune_sentcl.analysis.report.points import Points
from tune_sentcl.analysis.report.report import report_of
from tune_sentcl.analysis.report.scores import leaderboards
from tune_sentcl.analysis.report.table import Table
from tune_sentcl.store import CurvePoint

RANGES = """
[search.ranges]
optimizer.lr = { low = 1e-5, high = 1e-4, log = true }
optimizer.batch_size = { low = 1, high = 1024 }
"""


def grid_study(path: Path) -> Points:
    """Three rates by two sizes of a batch, and one trial that shares neither."""
    (dev,) = objectives(DEV)
    settings = [*itertools.product((1e-5, 2e-5, 3e-5), (1, 512)), (4e-5, 64)]
    points = [CurvePoint(s, s / 5, 8 * s, "STS-B.dev.spearman", 60.0 + s) for s in range(1, 4)]
    trials = [
        Trial(
            f"f{place}e{seed}",
            config(seed, optimizer={"lr": rate, "batch_size": size}),
            [score(dev, 70.0 + place + seed)],
            configuration=f"f0e1d2c3-{place}",
            curves=points,
        )
        for place, (rate, size) in enumerate(settings)
        for seed in range(2)
    ]
    write_study(path, trials, [DEV], text=RANGES)
    return Points(subject_of(path))


def axis(figures: dict[str, Any], name: str) -> Any:
    return figures[name].spec["layer"][-1]["encoding"]["x"]


def test_a_declared_range_decides_the_axis_of_its_knob(tmp_path: Path) -> None:
    # The rates alone look even, and the sizes look logarithmic.
    figures = {one.name: one for one in knob_figures(grid_study(tmp_path))}
    assert axis(figures, "knob-optimizer-lr")["scale"]["type"] == "log"
    assert "type" not in axis(figures, "knob-optimizer-batch_size").get("scale", {})


def test_what_was_stopped_is_drawn_by_the_score_that_stopped_it(tmp_path: Path) -> None:
    """Not below all that finished by more than their spread, and under the first score alone."""
    points = Points(subject_of(write_whole_study(tmp_path)))
    assert points.stopped["last"].to_list() == pytest.approx([82.6181, 82.694, 82.349], abs=1e-3)
    assert points.stopped["seen"].to_list() == ["6.2 %", "25 %", "1.6 %"]
    (figure,) = (one for one in knob_figures(points) if one.name == "knob-method-lambda")
    assert len(figure.data["stopped"]) == 2 and "Triangles show 2 configurations" in figure.caption
    drawn = picture(figure, points)
    assert len(drawn["datasets"]["stopped"]) == 2
    assert drawn["layer"][0]["encoding"]["y"]["field"] == "t0" in drawn["datasets"]["stopped"][0]
    assert picture(figure, points, 1)["layer"][0]["encoding"]["y"]["field"] == "t1"
    assert "t1" not in drawn["datasets"]["stopped"][0]


def test_a_cost_is_an_axis_of_the_front(tmp_path: Path) -> None:
    """By configuration: the score, and the milliseconds; the last is worse in both."""
    found = {"a": (80.0, 9.0), "b": (70.0, 0.02), "c": (60.0, 0.5)}
    asked = (DEV, "cost:milliseconds_64:dev")
    trials = [
        Trial(
            f"{name}{seed}",
            config(seed, optimizer={"lr": place / 1e5}),
            [score(one, value) for one, value in zip(objectives(*asked), values, strict=True)],
            configuration=f"{name}0e1d2c3",
        )
        for place, (name, values) in enumerate(found.items(), 1)
        for seed in range(2)
    ]
    write_study(tmp_path, trials, asked)
    subject = subject_of(tmp_path)
    table, figure = front(Points(subject), 0)
    assert isinstance(table, Table) and isinstance(figure, Figure)
    assert table.ids == ("a0e1d2c3", "b0e1d2c3")
    assert table.columns[2] == "ms a text in batches of 64" and "start-up" not in table.note
    encoding = figure.spec["layer"][-1]["encoding"]
    assert encoding["x"]["title"] == table.columns[2]
    assert encoding["x"]["scale"]["type"] == "log"
    (board,) = leaderboards(subject, 0)
    cells = [row[board.columns.index(table.columns[2])] for row in board.rows]
    assert [getattr(cell, "mean", None) for cell in cells] == [9.0, 0.02, 0.5]


def test_a_line_joins_configurations_that_differ_in_its_knob_alone(tmp_path: Path) -> None:
    points = grid_study(tmp_path)
    frame = points.frame.set_index("id")
    column = points.line("optimizer.lr")
    for _, own in frame[frame[column].notna()].groupby(column):
        assert len(own) == 3 and own[points.knob("optimizer.batch_size")].nunique() == 1
    assert frame[column].isna().sum() == 1  # the trial that shares neither


def test_a_legend_names_knobs_and_no_hash(tmp_path: Path) -> None:
    points = grid_study(tmp_path)
    (figure,) = curve_figures(points.subject)
    legend = set(figure.data["curves"]["group"]) - {"others"}
    assert "1: lr=4e-05, batch_size=64" in legend and len(legend) == 6
    assert not any("f0e1" in text for text in legend)


def test_the_others_are_counted_although_the_best_have_no_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an untrained encoder among the best; 119 others were told as 120 of 119."""
    monkeypatch.setattr(figures, "_OTHERS", 4)
    (dev,) = objectives(DEV)
    points = [CurvePoint(step, step / 5, 8 * step, "loss", 1.0) for step in (1, 2)]
    trials = [
        Trial(
            f"c{n:03}",
            config(0, optimizer={"lr": (1 + n) / 1e6}),
            [score(dev, 90.0 - n)],
            configuration=f"c{n:03}",
            curves=points if n else (),
        )
        for n in range(14)
    ]
    write_study(tmp_path, trials, [DEV])
    (figure,) = curve_figures(subject_of(tmp_path))
    assert "Grey lines: 4 of the 8 others" in figure.caption


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
    assert [figure.name for figure in curve_figures(subject_of(tmp_path))] == [drawn]


def test_no_axis_has_a_tick_beyond_what_was_measured(tmp_path: Path) -> None:
    """nDCG does not exceed 100, and no trial takes -0.2 minutes."""
    cases = [(99.0 + n / 2, {"optimizer": {"lr": (1 + n) / 1e6}}) for n in range(3)]
    figures = report_of(subject_of(write_each(tmp_path, cases))).figures
    scales = [
        axis["scale"]
        for figure in figures
        for layer in figure.spec.get("layer", ())
        for axis in (layer["encoding"].get("x"), layer["encoding"].get("y"))
        if axis and axis["type"] == "quantitative" and "scale" in axis
    ]
    assert len(scales) > 6 and not any(scale.get("nice", True) for scale in scales)


def test_where_nothing_is_trained_the_front_of_score_and_costs_comes_first(tmp_path: Path) -> None:
    names = (DEV, "cost:milliseconds_64:dev", "cost:embedding_bytes:dev")
    cases = {"none": (80.0, 3.0, 1536), "int8": (80.1, 3.0, 384), "binary": (75.0, 3.0, 48)}
    trials = [
        Trial(
            kind,
            config(0, method={"name": "none", "quantization": kind}),
            [score(each, value) for each, value in zip(objectives(*names), row, strict=True)],
            configuration=kind,
        )
        for kind, row in cases.items()
    ]
    write_study(tmp_path, trials, [DEV])
    report = report_of(subject_of(tmp_path))
    (first,) = report.first_figures
    assert [*first.data["front"]["score"]] == [80.1, 75.0]
    said = report.answer.sentence
    assert said == "The best of 3 untrained encoders has STS-B Spearman on dev 80.1."
