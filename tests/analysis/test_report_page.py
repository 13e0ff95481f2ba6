"""The page of a report in a real browser: it draws, loads nothing, and fits its window."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from report_samples import write_whole_study
from typer.testing import CliRunner

from tune_sentcl.cli import app

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
FIGURES = {
    *("gain", "seeds", "importance", "importance-scl", "curve-STS-B-dev-spearman"),
    *("knob-method-name", "knob-method-lambda", "knob-method-temperature", "curve-loss"),
    *("knob-encoder-checkpoint", "knob-encoder-pooling", "knob-optimizer-lr"),
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


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """A headless browser with a new profile; tests of it are skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}")
    quiet = ("background-networking", "component-update", "sync", "quic", "gpu")
    arguments = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def draw_all(page: Any) -> dict[str, int]:
    """Bring each figure near, and count the marks that it has drawn."""
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    names = page.eval_on_selector_all("figure[data-figure]", "all => all.map(f => f.id)")
    for name in names:
        page.locator(f"figure[data-figure='{name}']").scroll_into_view_if_needed()
        page.wait_for_selector(f"figure[data-figure='{name}'][data-drawn]", timeout=60_000)
    counted = """all => all.map(f => {
        let marks = 0;
        const walk = (item) => {
            if (item.marktype && item.marktype !== 'group' && item.role === 'mark')
                marks += item.items.length;
            (item.items || []).forEach(walk);
        };
        walk(f.view.scenegraph().root);
        return [f.id, marks];
    })"""
    return dict(page.eval_on_selector_all("figure[data-figure]", counted))


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_every_figure_has_marks_and_the_console_is_silent(
    browser: "Browser", page: Path, scheme: Literal["light", "dark"]
) -> None:
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
    if scheme == "dark":
        return
    figure = "figure[data-figure='knob-method-lambda']"
    # A range in one figure, above the largest lambda alone, moves the others and the table.
    view.locator(figure).scroll_into_view_if_needed()
    box = view.locator(figure).locator("canvas").bounding_box()
    assert box is not None, "the figure has no canvas"
    view.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 12)
    view.mouse.down()
    view.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] - 60, steps=4)
    view.mouse.up()
    view.wait_for_function("document.getElementById('chosen').innerText.startsWith('2 of 16 ')")
    rows = view.locator("#leaderboard tbody tr:visible")
    ids = sorted(rows.evaluate_all("all => all.map(row => row.dataset.id)"))
    assert ids == ["scl-cls-0.0001", "scl-mean-0.0001"]
    chosen = "name => Object.keys(document.getElementById(name).view.signal('chosen')).sort()"
    for name in ("knob-optimizer-lr", "curve-loss", "seeds"):
        assert view.evaluate(chosen, name) == ids
    view.click("#chosen button")
    view.wait_for_selector("#chosen", state="hidden")
    assert rows.count() == 16
    # A reader chooses the score.
    shown = "f => f.view.scale('y').domain()"
    before = view.eval_on_selector(figure, shown)
    view.select_option("#target", label="transfer average")
    first = f"document.querySelector(\"{figure}\").view.scale('y').domain()[0]"
    view.wait_for_function(f"{first} != {before[0]}")
    assert view.eval_on_selector(figure, shown)[0] > before[0]
    # And sorts.
    for rank in ("11", "1"):
        view.locator("#leaderboard th").first.click()
        assert view.locator("#leaderboard tbody tr td:first-child").first.inner_text() == rank


def test_a_telephone_shows_it(browser: "Browser", page: Path) -> None:
    view = browser.new_page(viewport={"width": 400, "height": 800})
    view.goto(page.as_uri())
    # The sentence and its picture are on the first screen; the verdicts unfold as text.
    for part in (".lead", "#gain"):
        box = view.locator(part).bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= 400 and box["y"] < 800
    view.locator("summary").first.click()
    verdict = view.locator(".verdict").first.bounding_box()
    assert verdict and verdict["x"] >= 0 and verdict["x"] + verdict["width"] <= 400
    # The knobs of the leaderboard lie in what scrolls.
    board = view.locator("#leaderboard .scroll")
    view.locator("#leaderboard th", has_text="lambda").scroll_into_view_if_needed()
    knob = view.locator("#leaderboard th", has_text="lambda").bounding_box()
    edges = board.bounding_box()
    assert knob and edges and edges["x"] <= knob["x"] < edges["x"] + edges["width"]
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
