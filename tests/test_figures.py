"""The list of the documentation's figures: what is made again, and what a page may not show.

Commands are stubs in a temporary repository; `$FOLDER` is the folder for a figure's studies.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(FOLDER))

import figures  # noqa: E402 - found by the line above
from figures import Checkout, FigureError, check, faults, make  # noqa: E402 - as above

PAGE = "docs/page.md"
BLOCK = "<!-- figure {0}: begin -->\n\n| a |\n|---|\n| 1 |\n\n<!-- figure {0}: end -->\n"


class Repository:
    """A repository with a list of stub figures, a page that shows them, and what they measure."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("docs", "benchmarks", "source"):
            (root / folder).mkdir()
        self.write("source/code.py", "1")
        self.write(".gitignore", "studies/")
        self.git("init", "-q", "-b", "main")
        for key in ("name", "email"):
            self.git("config", f"user.{key}", "test")

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-C", str(self.root), *words], check=True, capture_output=True)

    def write(self, path: str, text: str) -> None:
        (self.root / path).write_text(text, encoding="utf-8")

    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "change", "--allow-empty")

    def listing(self, more: str = "", **commands: str) -> Checkout:
        """A checkout with these figures, which all measure `source`; the page shows them."""
        entries = [
            f"[[figure]]\nname = '{name}'\nclaim = 'of {name}'\ncommand = '''{command}'''\n"
            f"measures = ['source']\npages = ['{PAGE}']\n{more}\n"
            for name, command in commands.items()
        ]
        self.write("benchmarks/figures.toml", "\n".join(entries))
        self.write(PAGE, "# Page\n\n" + "\n".join(map(BLOCK.format, commands)))
        self.commit()
        return self.checkout

    @property
    def checkout(self) -> Checkout:
        return Checkout(self.root)

    def runs(self) -> list[str]:
        """What the stubs have noted."""
        file = self.root / "studies/runs"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setattr(figures, "describe_machine", lambda: "a processor; no GPU")
    monkeypatch.delenv("FIGURES_COMMIT", raising=False)
    return Repository(tmp_path)


def stub(word: str) -> str:
    return f"echo {word} >> studies/runs; echo the figure {word}"


def test_a_second_call_makes_nothing_and_the_page_says_where_it_was_measured(
    repository: Repository,
) -> None:
    checkout = repository.listing(one=stub("one"))
    assert make(checkout, ["one"]) == 0
    page = repository.read(PAGE)
    head = subprocess.run(
        ["git", "-C", str(repository.root), "rev-parse", "--short=8", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"the figure one\n\n*Measured at commit {head.stdout.strip()} on " in page
    assert "a processor; no GPU; load" in page
    assert make(repository.checkout, []) == 0 and repository.runs() == ["one"]
    assert repository.read(PAGE) == page
    assert check(repository.checkout) == 0


def test_a_failure_is_told_and_the_others_are_made(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = repository.listing(bad="echo half; false", silent="true", good=stub("good"))
    assert make(checkout, []) == 1
    assert list(repository.checkout.stamps) == ["good"]
    told = capsys.readouterr().err
    assert "bad failed: its command ended with 1" in told
    assert "silent failed: its command did not write anything" in told
    assert make(checkout, ["goo"]) == 2  # no figure has this name


def test_an_interrupted_study_goes_on_and_its_seconds_add_up(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished one does not go on: its results are of the version that ran it."""
    checkout = repository.listing(study="ls $FOLDER; touch $FOLDER/trial")
    clock, output = iter(range(0, 1000, 10)), figures._output

    def interrupted(*arguments: Any) -> str:
        output(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(figures, "_output", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make(checkout, [])
    assert not checkout.stamps
    monkeypatch.setattr(figures, "_output", output)
    repository.write("docs/other.md", "not measured")
    repository.commit()
    assert make(checkout, []) == 0
    stamp = checkout.stamps["study"]
    assert stamp["seconds"] == 20.0 and "trial" in stamp["text"]
    repository.write("source/code.py", "2")
    repository.commit()
    assert make(checkout, []) == 0
    stamp = checkout.stamps["study"]
    assert stamp["seconds"] == 10.0 and "trial" not in stamp["text"]
    assert len(list((repository.root / "studies/figures").glob("study.*/trial"))) == 1


def test_a_run_notes_its_seconds_before_it_ends(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed notes nothing at its end, so the stamp would leave out its seconds."""
    monkeypatch.setattr(figures, "_NOTED_EVERY_S", 0.01)
    noted = "until grep -q 'seconds.: [0-9.]*[1-9]' $FOLDER/begun.json; do :; done"
    checkout = repository.listing(study=f'timeout 60 bash -c "{noted}"; echo 1')
    assert make(checkout, []) == 0 and checkout.stamps["study"]["seconds"] > 0


def test_a_change_of_what_it_measures_makes_a_figure_old(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = repository.listing(one=stub("one"))
    make(checkout, [])
    repository.write("docs/other.md", "not measured")
    repository.write("source/code.py", "2")
    assert make(checkout, []) == 1  # not committed
    assert "commit what it measures first" in capsys.readouterr().err
    repository.commit()
    assert check(checkout) == 0
    assert "one: older than the last change" in capsys.readouterr().out
    assert make(checkout, []) == 0 and repository.runs() == ["one", "one"]


@pytest.mark.parametrize(
    ("before", "after", "is_old"),
    [
        ('"""Words."""\nx = 1\n', '"""Other words."""\nx = 1  # one\n', False),
        ("def f():\n    return 1\n", 'def f():\n    """One."""\n    return 1\n', False),
        ('"""Words."""\nx = 1\n', '"""Words."""\nx = 2\n', True),
        ('x = "words"\n', 'x = "other words"\n', True),
    ],
)
def test_words_of_code_make_no_figure_old(
    repository: Repository, before: str, after: str, is_old: bool
) -> None:
    repository.write("source/code.py", before)
    make(repository.listing(one=stub("one")), [])
    repository.write("source/code.py", after)
    repository.commit()
    checkout = repository.checkout
    assert bool(checkout.age(checkout.figures[0], checkout.stamps)) == is_old


def test_a_figure_of_which_the_code_changes_meanwhile_has_no_stamp(repository: Repository) -> None:
    """Its study is not continued either, when the change is taken back."""
    spoils = "test -e studies/again || echo 2 > source/code.py"
    checkout = repository.listing(one=f"ls $FOLDER; touch $FOLDER/trial; echo 1; {spoils}")
    assert make(checkout, []) == 1 and not checkout.stamps
    repository.git("checkout", "source")
    repository.write("studies/again", "")
    assert make(checkout, []) == 0 and "trial" not in checkout.stamps["one"]["text"]


def test_a_study_of_another_machine_is_not_continued(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = repository.listing(one="ls $FOLDER; touch $FOLDER/trial; test -e studies/again")
    assert make(checkout, []) == 1
    monkeypatch.setattr(figures, "describe_machine", lambda: "another processor; no GPU")
    repository.write("studies/again", "")
    assert make(checkout, []) == 0
    stamp = checkout.stamps["one"]
    assert "trial" not in stamp["text"] and stamp["machine"].startswith("another")


def test_a_file_that_a_command_does_not_write_gets_no_stamp(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write("docs/one.html", "the last one")
    files = "files = ['docs/one.html']"
    checkout = repository.listing(files, one="echo 1")
    assert make(checkout, []) == 1 and not checkout.stamps
    assert "did not write docs/one.html" in capsys.readouterr().err
    checkout = repository.listing(files, one="echo 1 | tee docs/one.html")
    assert make(checkout, []) == 0 and check(repository.checkout) == 0


def test_a_figure_of_an_old_study_is_not_made(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would show results of the study's commit as those of its own."""
    repository.listing(one=stub("one"), two=stub("two"))
    listed = repository.read("benchmarks/figures.toml").replace("'two'", "'two'\nstudy_of = 'one'")
    repository.write("benchmarks/figures.toml", listed)
    assert make(repository.checkout, ["two"]) == 1 and not repository.runs()
    assert "it shows the study of one, which is to be made" in capsys.readouterr().err
    assert make(repository.checkout, []) == 0 and repository.runs() == ["one", "two"]
    repository.write(
        "benchmarks/figures.toml", listed.replace("study_of = 'one'", "study_of = 'x'")
    )
    assert "two shows the study of x, which no entry lists" in faults(repository.checkout)


def test_a_command_that_a_killed_run_left_behind_is_not_timed_beside(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = repository.listing(one="mkfifo studies/end; echo > studies/begun; cat studies/end")
    code = (
        "from pathlib import Path; from figures import Checkout, make; make(Checkout(Path()), [])"
    )
    words = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    with subprocess.Popen(words, cwd=repository.root, env=environment) as run:
        while not (repository.root / "studies/begun").exists():
            assert run.poll() is None
        run.kill()
    assert make(checkout, []) == 1
    assert "still goes on" in capsys.readouterr().err
    repository.write("studies/end", "1")


def test_what_git_cannot_say_is_no_answer(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = repository.listing(one=stub("one"))
    repository.write(".git/HEAD", "")
    assert make(checkout, []) == 1 and not checkout.stamps
    assert "git cannot say what has changed" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "<<<<<<< ours", "[]", "{}"])
def test_a_damaged_stamp_is_named(repository: Repository, text: str) -> None:
    checkout = repository.listing(one=stub("one"))
    make(checkout, [])
    repository.write("benchmarks/figures/one.json", text)
    with pytest.raises(FigureError, match=r"one\.json is damaged: take it from git"):
        make(checkout, [])


def test_a_stamp_of_another_history_is_made_again(repository: Repository) -> None:
    """Squashing the commits of a branch loses the stamps' commits."""
    checkout = repository.listing(one=stub("one"))
    make(checkout, [])
    stamp = {**checkout.stamps["one"], "commit": "1" * 40}
    repository.write("benchmarks/figures/one.json", json.dumps(stamp))
    assert make(checkout, []) == 0 and check(checkout) == 0


def test_a_damaged_note_of_a_run_is_put_aside(repository: Repository) -> None:
    checkout = repository.listing(one="ls $FOLDER; test -e $FOLDER/../again")
    assert make(checkout, []) == 1
    repository.write("studies/figures/one/begun.json", "")
    repository.write("studies/figures/again", "")
    assert make(checkout, []) == 0


def test_long_figures_are_named_and_left(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = repository.listing("hours = 2", one=stub("one"))
    assert make(checkout, []) == 0 and not repository.runs()
    assert "one is left: not measured yet; FIGURES=one makes it" in capsys.readouterr().out


def test_a_figure_prints_no_marks(repository: Repository) -> None:
    """Otherwise each call would write the page anew."""
    checkout = repository.listing(one="echo '1 <!-- figure one: end --> 2'")
    assert make(checkout, []) == 1 and not checkout.stamps


def test_a_judge_that_is_killed_gives_no_verdict(tmp_path: Path) -> None:
    fake = tmp_path / "tune-sentcl"
    words, path = [str(FOLDER / "verdicts.sh"), "study"], f"{tmp_path}:{os.environ['PATH']}"
    for script, ends_well in (
        ("echo UNDECIDED; exit 3", True),
        ("echo REVERSED; exit 1", True),
        ("exit 1", False),
        ("echo half; exit 2", False),
        ("echo half; kill -9 $$", False),
    ):
        fake.write_text(f"#!/bin/bash\n{script}\n")
        fake.chmod(0o755)
        done = subprocess.run(
            words, env={**os.environ, "PATH": path}, capture_output=True, check=False
        )
        assert (done.returncode == 0) == ends_well


def test_pages_are_written_from_the_stamps(repository: Repository) -> None:
    """So a page that was edited by hand is a fault, and is repaired without measuring."""
    repository.write("docs/costs.md", BLOCK.format("costs"))
    checkout = repository.listing(one=stub("one"))
    assert make(checkout, []) == 0
    assert "| of one | `make figures FIGURES=one` | " in repository.read("docs/costs.md")
    page = repository.read(PAGE)
    repository.write(PAGE, page.replace("the figure", "a better figure"))
    assert list(faults(checkout)) == [f"{PAGE} differs from the stamps; `make figures` writes it"]
    make(checkout, [])
    assert repository.read(PAGE) == page and repository.runs() == ["one"]


def test_figures_of_an_earlier_version_say_so(repository: Repository) -> None:
    checkout = repository.listing(one=stub("one"))
    assert any("differs from the stamps" in fault for fault in faults(checkout))
    figures.write_pages(checkout)
    once = repository.read(PAGE)
    assert f"| 1 |\n\n{figures.EARLIER}\n" in once
    figures.write_pages(checkout)
    assert repository.read(PAGE) == once and not list(faults(checkout))


MEASURED = "| a | b |\n|---|---|\n| x | 1.5±0.2 |\n| 3 | |\n"
SETTINGS = "| a | b |\n|---|---|\n| x | at 1.5 |\n| 3 | y |\n"


@pytest.mark.parametrize(
    ("path", "text", "rule"),
    [
        (PAGE, "nothing", "has no block of one"),
        ("README.md", BLOCK.format("two"), "shows two, which no entry lists"),
        ("README.md", BLOCK.format("one"), "shows one, which no entry lists for this page"),
        ("README.md", "<!-- figure one: begin -->", "lacks the other mark"),
        (
            PAGE,
            f"<!-- figure one: begin -->\nwords\n{BLOCK.format('one')}",
            "lacks the other mark",
        ),
        ("docs/new.md", f"\n{MEASURED}", "line 2: a measured table that no entry lists"),
        ("CHANGELOG.md", "| a | b |\n|---|---|\n| x | **1.5** |", "a measured table"),
        ("docs/new.md", SETTINGS, ""),
        ("docs/new.png", "", "docs/new.png is a figure that no entry lists"),
        ("benchmarks/figures/two.json", "", "is of a figure that is not listed"),
        ("benchmarks/figures/one.json", "", "its commit 00000000 is not in this history"),
    ],
)
def test_what_a_page_may_not_show(repository: Repository, path: str, text: str, rule: str) -> None:
    checkout = repository.listing(one=stub("one"))
    make(checkout, [])
    if path.endswith(".json"):
        stamp = {**checkout.stamps["one"]}
        if "one" in path:
            stamp["commit"] = "0" * 40
        text = json.dumps(stamp)
    repository.write(path, text)
    found = list(faults(checkout))
    assert any(rule in fault for fault in found) if rule else not found


def test_without_history_commits_are_not_checked(
    repository: Repository, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without git, the commit is named by FIGURES_COMMIT; a shallow clone lacks it."""
    make(repository.listing(one=stub("one")), [])
    (repository.root / ".git").rename(repository.root / "away")
    checkout = repository.checkout
    assert check(checkout) == 0
    assert "commits of figures are not checked" in capsys.readouterr().out
    (repository.root / "benchmarks/figures/one.json").unlink()
    assert make(checkout, []) == 1
    monkeypatch.setenv("FIGURES_COMMIT", "main")  # which moves
    assert make(checkout, []) == 1
    monkeypatch.setenv("FIGURES_COMMIT", "0123456789" * 4)
    assert make(checkout, []) == 0 and checkout.stamps["one"]["commit"] == "0123456789" * 4


def test_figures_that_need_a_gpu_are_one_table(repository: Repository) -> None:
    row = {"part": "steps", "ours": 2.0, "peer": None, "peer_name": "none", "ratio": None}
    row |= {"unit": "pairs/s", "target": None, "share": None, "ours_range": None}
    repository.listing(steps=f"echo '{json.dumps([row])}'", idle="false")
    listed = repository.read("benchmarks/figures.toml")
    listed = re.sub(r"pages = .*", "gpu = true", listed)
    repository.write("benchmarks/figures.toml", listed)
    repository.write(PAGE, BLOCK.format("gpu"))
    checkout = repository.checkout
    assert make(checkout, []) == 0 and not checkout.stamps  # only by name
    assert repository.read(PAGE).count("unmeasured") == 2
    assert make(checkout, ["steps"]) == 0
    lines = repository.read(PAGE).splitlines()
    assert any(
        re.fullmatch(r"\| steps \| 2 pairs/s .* no GPU, \w{8}, [\d-]+ \|", line) for line in lines
    )
    assert any(re.fullmatch(r"\| of idle .* unmeasured \|", line) for line in lines)
    for output in ("[]", "[{}]", "no rows"):
        repository.write("benchmarks/figures.toml", listed.replace(json.dumps([row]), output))
        assert make(repository.checkout, ["steps"]) == 1


def test_the_list_of_this_checkout_has_its_pages() -> None:
    """`make check` says the same; the history is not looked at, which a test may lack."""
    checkout = Checkout(FOLDER.parent)
    vars(checkout)["has_history"] = False
    assert not list(faults(checkout))


def test_each_figure_has_a_name_of_its_own(repository: Repository) -> None:
    repository.listing(one=stub("one"))
    listed = repository.read("benchmarks/figures.toml")
    for name in ("one", "a.b"):
        twin = listed.replace("name = 'one'", f"name = '{name}'")
        repository.write("benchmarks/figures.toml", f"{listed}\n{twin}")
        assert any("a name of its own" in fault for fault in faults(repository.checkout))
