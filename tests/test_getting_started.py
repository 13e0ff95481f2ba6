"""docs/getting-started.md and docs/how-to.md from their first commands to their last.

The toy encoder takes MiniLM's place.
"""

import re
import shlex
from pathlib import Path

import pytest
from local_search import searches_without_ray
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.data import toy
from tune_sentcl.data.toy import write_domain
from tune_sentcl.store.study import Study

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "getting-started.md").read_text(encoding="utf-8")
HOW_TO = (DOCS / "how-to.md").read_text(encoding="utf-8")
# Fewer trials, and fewer seeds for each.
for long, short in (
    ("--samples 6", "--samples 1"),
    ("--confirm 3", "--confirm 1"),
    ("--rows pairs.csv", "--rows pairs.csv --encoder toy"),
):
    PAGE = PAGE.replace(long, short)


def commands(page: str) -> list[list[str]]:
    """The page's commands, in order."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.S | re.M)
    lines = (line for kind, block in blocks if not kind for line in block.splitlines())
    lines = (line for line in lines if "--study studies/tickets" not in line)  # what init prints
    return [shlex.split(line) for line in lines if line.startswith("tune-sentcl ")]


def run(words: list[str]) -> tuple[int, str, str]:
    """Run a command in this process, a search without Ray."""
    with searches_without_ray():
        done = CliRunner().invoke(app, words[1:])
    return done.exit_code, done.stdout, f"{done.stderr}{done.exception}"


def test_the_template_is_the_pages() -> None:
    (space,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    template = Path(toy.__file__).with_name("support.toml")
    assert template.read_text(encoding="utf-8") == space


def test_the_page_leads_to_a_model_that_is_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    (space,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    small = space.replace('"minilm"', '"toy"').replace("lr = 5e-5", "lr = 5e-3")
    said, errors = {}, {}
    for words in commands(PAGE):
        code, said[words[1]], error = run(words)
        (tmp_path / "support.toml").write_text(small)  # in place of what `demo` has written
        errors[words[1]] = error
        legal = (0, 1, 3) if words[1] == "judge" else (0,)
        assert code in legal, (words, said[words[1]], error)
    assert [words[1] for words in commands(PAGE)] == [
        *("demo", "init", "plan", "search", "show", "search", "judge", "report", "export"),
    ]
    trials = Study.read(tmp_path / "studies/support").trials().to_pylist()
    assert {trial["status"] for trial in trials} <= {"finished", "pruned"}
    values = {t["method.name"]: t["objective"] for t in trials if t["origin"] == "grid"}
    assert values["mnr"] > values["none"]
    assert {trial["objective_name"] for trial in trials} == {"support:ndcg@10:dev"}
    assert "support" in said["judge"]
    # The weights of the winner have the scores of single queries beside them.
    for text in (errors["judge"], (tmp_path / "report.html").read_text()):
        assert "95 % bootstrap interval over 120 items" in text
    assert (tmp_path / "best-model" / "model.safetensors").is_file()
    assert "support" in (tmp_path / "best-model" / "README.md").read_text()


@pytest.mark.long
def test_the_answers_of_how_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands but those that need a full disk or no network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    write_domain(tmp_path)
    pairs = (tmp_path / "pairs.csv").read_text().splitlines(keepends=True)
    (tmp_path / "faq.csv").write_text("".join(["question,answer\n", *pairs[1:]]))
    verdicts = []
    for words in commands(HOW_TO.replace("--rows pairs.csv", "--rows pairs.csv --encoder toy")):
        if "studies/small" in words:
            continue
        code, said, error = run(words)
        verdicts += [said.partition(":")[0]] * (words[1] == "judge")
        assert code == 0 or words[1] == "judge", (words, said, error)
    # The second verdict depends on how a processor rounds.
    assert len(verdicts) == 2 and verdicts[0] == "UNDECIDED"
