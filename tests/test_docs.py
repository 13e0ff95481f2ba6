"""What the pages promise: their commands exist, their code runs, their links lead somewhere."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tune_sentcl.analysis import read_study
from tune_sentcl.cli import app
from tune_sentcl.config import knobs
from tune_sentcl.space import space_names

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT, ROOT / "docs", ROOT / "search_spaces", ROOT / "cluster")
PAGES = [page for folder in FOLDERS for page in sorted(folder.glob("*.md"))]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_the_example_of_the_loss_runs() -> None:
    # By name: the package's attribute of this name is the function.
    module = importlib.import_module("tune_sentcl.losses.supervised_contrastive")
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """To a file, and to a heading of it if the link has an anchor."""
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", read(page)):
        place = page.parent / target if target else page
        assert place.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", read(place), re.M)
            ids = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in ids, f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    text = re.sub(r"\\\n\s*", " ", read(page))  # a command may go on below
    for command, rest in set(re.findall(r"tune-sentcl (data check|[a-z]+)([^`\n]*)", text)):
        result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
        assert result.exit_code == 0, command
        options = set(re.findall(r"(?<=\s)--[a-z-]+", rest))
        assert options <= set(re.findall(r"--[a-z-]+", result.output)), command
    makefile = read(ROOT / "Makefile")
    for target in set(re.findall(r"\bmake (demo|test|check|format)\b", text)):
        assert f"\n{target}:" in makefile


def test_what_a_script_imports_exists() -> None:
    script = read(ROOT / "cluster/local-cluster.sh")
    found = re.findall(r"from (tune_sentcl[\w.]*) import (\w+)", script)
    assert found
    for module, imported in found:
        assert hasattr(importlib.import_module(module), imported)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_name_knobs_that_exist(page: Path) -> None:
    keys = set(re.findall(r"--set '?([a-z_.]+)=", read(page)))
    assert keys <= set(knobs())


def test_the_table_of_spaces_is_complete() -> None:
    listed = re.findall(
        r"^\| `([a-z_0-9/]+)` \|", read(ROOT / "search_spaces" / "README.md"), re.M
    )
    assert sorted(listed) == space_names()


def test_the_library_example_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Ray, and with one sampled configuration in the place of four.

    The two configurations of the grid run with both seeds, the sampled one at least with one.
    """
    (code,) = re.findall(r"```python\n(.*?)```", read(ROOT / "README.md"), re.S)
    assert code.count("SearchOptions(samples=4)") == 1
    monkeypatch.chdir(tmp_path)
    exec(code.replace("samples=4", "samples=1, launcher='local'"), {})
    study, lines = read_study("studies/api"), capsys.readouterr().out.splitlines()
    assert len(study.trials) in (5, 6)
    assert len(lines) == (1 + len(study.trials)) + (1 + len(study.configurations()))
