"""A knob that may be unset differs by that, and an untrained encoder has no knobs of training."""

from pathlib import Path
from typing import Any

import pytest
from analysis_samples import DEV, Trial, config, score, write_study
from typer.testing import CliRunner

from tune_sentcl.analysis import read_study
from tune_sentcl.analysis.report.report import report_of
from tune_sentcl.analysis.report.report_data import ReportData
from tune_sentcl.cli import app
from tune_sentcl.config import (
    is_start,
    knobs,
    naming_knobs,
    parse_config,
    stated,
    title,
    varied,
)
from tune_sentcl.store import Study


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two values of one knob, one of them unset, beside the untrained encoder."""
    trials = [
        Trial(
            f"{name}seed{seed}",
            config(seed, "mnr", optimizer={"max_grad_norm": norm, "lr": 1e-4}),
            [score(DEV, base + seed / 10)],
            configuration=name,
        )
        for name, norm, base in (("clip0", None, 70.0), ("clip1", 1.0, 72.0))
        for seed in range(3)
    ]
    untrained = Trial("u", config(0, "none"), [score(DEV, 60.0)], configuration="start")
    return write_study(tmp_path / "study", [*trials, untrained])


def run(*words: object) -> str:
    return CliRunner().invoke(app, [str(word) for word in words]).stdout


def test_show_has_a_column_of_it(study: Study) -> None:
    lines = [line.split() for line in run("show", study.files.where).splitlines()]
    assert any("max_grad_norm" in line for line in lines)
    ids = ("clip", "unse", "star", "conf")
    cells = {word for line in lines if len(line) > 3 and line[0][:4] in ids for word in line}
    assert {"unset", "1", "untrained"} <= cells
    assert not {"none", "5e-05"} & cells, "what the untrained encoder does not use"


def test_judge_names_the_value(study: Study) -> None:
    said = run("judge", study.files.where, "max_grad_norm=1", "max_grad_norm=unset")
    assert "max_grad_norm=1 (clip1)" in said and "max_grad_norm=unset (clip0)" in said
    for baseline in ("method=none", "method=untrained"):
        said = run("judge", study.files.where, "--baseline", baseline)
        assert "untrained (start)" in said


def test_the_report_draws_and_names_it(study: Study) -> None:
    report = report_of(ReportData(read_study(study.files.where), (DEV,)))
    assert report.answer.winner == "max_grad_norm=1"
    (leaderboard, *_) = report.tables
    at = leaderboard.columns.index("max_grad_norm")
    assert [row[at] for row in leaderboard.rows] == [1.0, "unset", None]
    drawn = report.points.frame[report.points.knob("optimizer.max_grad_norm")]
    assert drawn.tolist() == ["1", "unset", None]


def test_every_knob_that_may_be_unset_differs_by_it() -> None:
    values: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "encoder.train_length": ("mnr", 16, {}),
        "data.limit": ("mnr", 64, {}),
        "optimizer.warmup_epochs": ("mnr", 1.0, {}),
        "optimizer.max_grad_norm": ("mnr", 1.0, {}),
        "method.chunk": ("mnr", 8, {}),
        "method.false_margin": ("mnr", 0.1, {}),
        "method.share": ("conisi", 0.5, {"method.strategy": "o1"}),
        "method.whitening_dim": ("none", 8, {"method.whitening": True}),
    }
    assert values.keys() == {key for key, knob in knobs().items() if knob.may_be_unset}
    for key, (method, value, others) in values.items():
        plain = {**dotted(method), **others}
        assert key in varied([{**plain, key: None}, {**plain, key: value}])


def dotted(name: str) -> dict[str, Any]:
    return parse_config({"method": {"name": name}}, "").dotted()


def test_a_knob_without_effect_is_no_difference() -> None:
    start, trained = dotted("none"), dotted("mnr")
    faster = {**trained, "optimizer.lr": 1.0}
    assert varied([start, faster]) == ["method.name"]
    assert stated("optimizer.lr", start) is stated("optimizer.max_grad_norm", start) is None
    keys = varied([start, trained, faster])
    assert keys == ["method.name", "optimizer.lr"]
    assert [title(row, keys) for row in (start, faster)] == ["untrained", "method=mnr, lr=1"]


def test_a_trained_configuration_has_a_name_beside_two_untrained_ones() -> None:
    start, mnr = dotted("none"), dotted("mnr")
    rows = [start, {**start, "method.whitening": True}, mnr]
    names = [title(row, naming_knobs(rows)) for row in rows]
    assert names == ["untrained, whitening=false", "untrained, whitening=true", "method=mnr"]
    assert [is_start(row, mnr) for row in rows] == [True, False, False]
    assert not is_start({**start, "encoder.pooling": "cls"}, mnr)


def test_a_study_without_trials_is_shown(tmp_path: Path) -> None:
    empty = write_study(tmp_path / "empty", [])
    assert "no trial has ended yet" in CliRunner().invoke(app, ["show", empty.files.where]).stderr


def test_knobs_given_in_full_are_found_where_titles_print_alike(tmp_path: Path) -> None:
    trials = [
        Trial(
            f"r{n}", config(0, optimizer={"lr": rate}), [score(DEV, 70.0)], configuration=f"r{n}"
        )
        for n, rate in enumerate((0.00075651, 0.00075654))
    ]
    where = write_study(tmp_path, trials).files.where
    assert "lr=0.0007565 (r1)" in run("judge", where, "lr=0.00075654", "lr=0.00075651")
    said = CliRunner().invoke(app, ["judge", where, "lr=0.0007565", "lr=0.00075651"]).stderr
    assert "fits several configurations" in said
