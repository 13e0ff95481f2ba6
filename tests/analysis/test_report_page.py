"""The page of a report in a real browser: it draws, loads nothing, and fits its window."""

import re
from pathlib import Path
from typing import Literal

import pytest
from report_samples import chromium, draw_all, write_whole_study
from typer.testing import CliRunner

from tune_sentcl.cli import app

FIGURES = {
    "seeds",
    "knob-method-name",
    "knob-method-lambda",
    "knob-method-temperature",
    "knob-encoder-checkpoint",
    "knob-encoder-pooling",
    "knob-optimizer-lr",
    "parallel",
    "importance",
    "importance-scl",
    "curve-STS-B-dev-spearman",
    "curve-loss",
    "front-sts-average-transfer-average",
    "front-sts-average-gpu-hours",
    "front-transfer-average-gpu-hours",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    study = write_whole_study(folder / "study")
    done = CliRunner().invoke(app, ["report", str(study), "--out", str(folder / "report.html")])
    assert done.exit_code == 0, done.output
    return folder / "report.html"


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_every_figure_has_marks_and_the_console_is_silent(
    page: Path, scheme: Literal["light", "dark"]
) -> None:
    with chromium() as browser:
        view = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
        said: list[str] = []
        asked: list[str] = []
        view.on("console", lambda message: said.append(message.text))
        view.on("pageerror", lambda error: said.append(str(error)))
        view.on("request", lambda request: asked.append(request.url))
        view.goto(page.as_uri())
        marks = draw_all(view)
        assert said == []
        assert marks.keys() == FIGURES and min(marks.values()) >= 2
        assert view.evaluate("document.documentElement.scrollWidth") <= 1280
        assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_a_reader_chooses_the_score_and_sorts(page: Path) -> None:
    with chromium() as browser:
        view = browser.new_page(viewport={"width": 1280, "height": 900})
        view.goto(page.as_uri())
        figure = "figure[data-figure='knob-method-lambda']"
        view.locator(figure).scroll_into_view_if_needed()
        view.wait_for_selector(f"{figure}[data-drawn]")
        shown = "f => f.view.scale('y').domain()"
        before = view.eval_on_selector(figure, shown)
        view.select_option("#target", label="transfer average")
        first = f"document.querySelector(\"{figure}\").view.scale('y').domain()[0]"
        view.wait_for_function(f"{first} != {before[0]}")
        assert view.eval_on_selector(figure, shown)[0] > before[0]
        ranks = "#leaderboard tbody tr td:first-child"
        view.locator("#leaderboard th").first.click()
        assert view.locator(ranks).first.inner_text() == "16"
        view.locator("#leaderboard th").first.click()
        assert view.locator(ranks).first.inner_text() == "1"


def test_a_range_in_one_figure_moves_the_others_and_the_table(page: Path) -> None:
    with chromium() as browser:
        view = browser.new_page(viewport={"width": 1280, "height": 900})
        view.goto(page.as_uri())
        draw_all(view)
        figure = view.locator("figure[data-figure='knob-method-lambda']")
        figure.scroll_into_view_if_needed()
        box = figure.locator("canvas").bounding_box()
        if box is None:
            raise AssertionError("the figure has no canvas")
        # From above the upper half of the range to its right end: only the largest lambda, 0.5.
        view.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 40)
        view.mouse.down()
        view.mouse.move(box["x"] + box["width"] - 2, box["y"] + 210, steps=4)
        view.mouse.up()
        said = "document.getElementById('chosen').innerText.startsWith('2 of 16 ')"
        view.wait_for_function(said)
        rows = view.locator("#leaderboard tbody tr:visible")
        ids = rows.evaluate_all("all => all.map(row => row.dataset.id)")
        assert sorted(ids) == ["scl-cls-0.0001", "scl-mean-0.0001"]
        chosen = "name => Object.keys(document.getElementById(name).view.signal('chosen')).sort()"
        for name in ("knob-optimizer-lr", "parallel", "curve-loss", "seeds"):
            assert view.evaluate(chosen, name) == sorted(ids)
        view.click("#chosen button")
        view.wait_for_selector("#chosen", state="hidden")
        assert rows.count() == 16


def test_a_telephone_shows_it(page: Path) -> None:
    with chromium() as browser:
        view = browser.new_page(viewport={"width": 400, "height": 800})
        view.goto(page.as_uri())
        # The verdict is text on the first screen, and no wide table.
        verdict = view.locator(".verdict").first.bounding_box()
        assert verdict and verdict["x"] >= 0 and verdict["x"] + verdict["width"] <= 400
        assert verdict["y"] < 800
        draw_all(view)
        assert view.evaluate("document.documentElement.scrollWidth") <= 400
        sizes = """() => [...document.querySelectorAll('p, td, th, h1, h2, h3, figcaption, a')]
            .map(e => parseFloat(getComputedStyle(e).fontSize))"""
        assert min(view.evaluate(sizes)) >= 12


def test_the_page_names_no_address_to_load(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    own, _, _ = text.partition("<script>")
    assert not re.search(r"(src|href)=\"(?!#|data:)", own)
    assert "default-src 'none'" in own
    # What an error or a knob says ends no script.
    assert "&lt;script&gt;alert(" in text and "\\u003cscript>alert(" in text
    assert "<script>alert" not in text
