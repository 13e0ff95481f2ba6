"""What people see of a search while it runs: in a terminal of 80 columns, and in a file."""

import io
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_samples import Done, invoke, refused
from processes import wait_until
from rich.console import Console
from stand_in import StandIn, by

from tune_sentcl.cli import watch_command
from tune_sentcl.config import parse_config
from tune_sentcl.score import Score
from tune_sentcl.space import load_space
from tune_sentcl.store import SearchRecord, StudyDriver, TrialRow
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.manifest import now
from tune_sentcl.store.progress import PROGRESS, RunningTrial, SearchProgress, State
from tune_sentcl.store.writer_lock import Holder
from tune_sentcl.trial import Progress
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import ask
from tune_sentcl.tuning.search import run_search
from tune_sentcl.watch import progress_file
from tune_sentcl.watch.progress_file import ProgressFileWatcher
from tune_sentcl.watch.terminal import RichWatcher

pytest_plugins = ["cli_fixtures"]

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
DEV = "STS-B:spearman:dev"


def shown(written: str) -> list[str]:
    """The lines that a terminal was made to show, one after another."""
    return [_CODES.sub("", line) for line in re.split(r"[\r\n]+", written)]


def search_watched(study: Path, console: Console) -> None:
    """Two trials that train nothing."""
    space = load_space("smoke", {"data.limit": 32, "evaluation.every": 0})
    question = ask(space, None, (0,), SearchOptions(launcher="local"))
    run_search(replace(question, watcher=RichWatcher(console)), str(study), by(StandIn(study)))


def finished_row(trial: str) -> TrialRow:
    config = parse_config({"method": {"name": "scl"}}, "test")
    names: dict[str, Any] = {"trial_id": trial, "configuration": trial, "space": "smoke"}
    scores = ((DEV, 60.0),)
    return TrialRow(config, **names, origin="grid", status="finished", objectives=scores)


class Search:
    """What a search of six trials leaves on the disk, step by step."""

    def __init__(self, driver: StudyDriver) -> None:
        self._driver, self._done = driver, 0
        driver.record(SearchRecord((DEV,), "tpe", 0))
        self._tell()

    def go_on(self, *_: object) -> None:
        """The trial under way ends and another one begins; the search ends with its sixth."""
        if self._done < 6:
            measured = Score("sts", "STS-B", "dev", "spearman", "cosine", "root", 60.0, 9)
            self._driver.commit(finished_row(f"{self._done:016x}"), [measured])
            self._done += 1
        self._tell("running" if self._done < 6 else "ended")

    def _tell(self, state: State = "running") -> None:
        running = (RunningTrial("abcdef0123456789", now(), 1, 4, 61.5),) if self._done < 6 else ()
        driver = Holder.of_this_process(self._driver.study.files.where)
        counts = {"done": self._done, "total": 6, "ended": self._done}
        progress = SearchProgress(state, now(), 1.0, **counts, running=running, driver=driver)
        self._driver.write_progress(progress)


def test_the_time_left_is_by_the_rate_of_this_run() -> None:
    begun = SearchProgress("running", now(), 10.0, done=3, total=8)
    assert begun.seconds_left is None
    assert replace(begun, ended=2).seconds_left == 25.0


def driving(study: Path | str) -> StudyDriver:
    return StudyDriver.open(study, space=load_space("smoke"), command=["test"])


def sleeping(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], None]) -> None:
    """Replace the sleep of `show --watch`."""
    sleeps = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr(watch_command, "time", sleeps)


@contextmanager
def under_way(study: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A search with one trial behind it, which goes on whenever `show --watch` would sleep."""
    with driving(study) as driver:
        search = Search(driver)
        search.go_on()
        sleeping(monkeypatch, search.go_on)
        yield


def test_a_study_is_watched_in_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, written = tmp_path / "study", io.StringIO()
    console = Console(file=written, width=80, force_terminal=True, highlight=False)
    with under_way(study, monkeypatch):
        watch_command.watch(str(study), (), 100, console)
    lines = shown(written.getvalue())
    assert max(map(len, lines)) <= 80
    counts = {
        r"1 of 6 trials done, 1 running, \d+\.\d a minute, left 0:\d\d$": 1,
        r"abcdef01 +\d\d:\d\d:\d\d +1 +4 +61\.50": 5,
        r"0{15}0": 7,  # after each end, and at last
    }
    for pattern, count in counts.items():
        assert sum(bool(re.match(pattern, line)) for line in lines) == count, pattern


def test_a_study_is_watched_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tmp_path / "study"
    with under_way(study, monkeypatch):
        done = invoke("show", study, "--watch")
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out and "\r" not in done.out
    lines = done.out.splitlines()
    ends = [
        one for one in lines if re.match(r"\d of 6 trials done, 1 running, .*left 0:\d\d$", one)
    ]
    assert len(ends) == 5 and lines[-1] == "the search has ended; 6 of 6 trials are done"
    assert "\n".join(lines[5:-1]) + "\n" == invoke("show", study).out


def test_watching_ends_with_ctrl_c_and_with_a_search_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study"
    with driving(study) as driver:
        Search(driver).go_on()

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    sleeping(monkeypatch, interrupted)
    done = invoke("show", study, "--watch")
    assert (done.code, done.err[:11]) == (130, "interrupted")

    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    said = json.loads((study / PROGRESS).read_text())
    said["driver"]["pid"] = gone.pid
    (study / PROGRESS).write_text(json.dumps(said))
    done = invoke("show", study, "--watch")
    assert done.code == 0
    assert done.out.endswith("\nthe search ended without reporting its end\n")


def test_a_search_shows_itself_in_a_terminal_and_in_a_file(tmp_path: Path) -> None:
    terminal, file = io.StringIO(), io.StringIO()
    search_watched(tmp_path / "a", Console(file=terminal, width=80, force_terminal=True))
    lines = shown(terminal.getvalue())
    assert max(map(len, lines)) <= 80
    bars = [one for one in lines if one.startswith("trials ")]
    pattern = r"2/2 best \d+\.\d\d  left \d:\d\d  failed 0 running \d$"
    assert any(re.search(pattern, one) for one in bars), bars
    search_watched(tmp_path / "b", Console(file=file, width=80))
    told = file.getvalue()
    assert "\x1b" not in told and "\r" not in told
    assert max(map(len, told.splitlines())) <= 80
    assert re.search(r"^\[1/2\] [0-9a-f]{16} finished \d+\.\d\d  best ", told, re.MULTILINE)
    said = SearchProgress.read(StudyFiles.at(tmp_path / "b"))
    assert said is not None
    assert (said.state, said.done, said.total, said.ended, said.running) == ("ended", 2, 2, 2, ())


def test_a_search_says_which_trials_run_and_how_far_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_file, "_DISK_S", 0.0)
    with driving(tmp_path / "study") as driver:
        files = driver.study.files

        def at_a_point() -> SearchProgress | None:
            found = SearchProgress.read(files)
            return found if found and found.running and found.running[0].step else None

        watcher = ProgressFileWatcher(RichWatcher(Console(file=io.StringIO())), driver)
        watcher.begin(1, 3)
        assignment: Any = SimpleNamespace(trial_id="abc")
        watcher.started(assignment)
        watcher.point("abc", Progress(1, 4, 8, 61.5, (), {}, final=False))
        said: SearchProgress = wait_until(at_a_point, "the point")
        (running,) = said.running
        assert (running.trial_id, running.step, running.steps, running.dev) == ("abc", 1, 4, 61.5)
        assert (said.state, said.done, said.total) == ("running", 1, 3)
        watcher.ended(finished_row("abc"), 3, None)
        watcher.end("interrupted")
        last = SearchProgress.read(files)
    assert last is not None and last.running == ()
    assert (last.state, last.done, last.ended) == ("interrupted", 2, 1)


@pytest.mark.parametrize("text", [None, "half of it {", "[]", json.dumps({"state": "running"})])
def test_a_study_without_a_word_is_shown_once(
    held: Path, tmp_path: Path, text: str | None
) -> None:
    study = tmp_path / "study"
    shutil.copytree(held, study)
    if text is None:
        (study / PROGRESS).unlink()
    else:
        (study / PROGRESS).write_text(text)
    done = invoke("show", study, "--watch")
    assert done.code == 0, done.err
    last = "no search has reported its progress in this study\n"
    assert done.out == invoke("show", study).out + last


def test_a_search_that_has_not_begun_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind `submit`, whose job opens the study some seconds later."""
    study, naps = tmp_path / "study", []
    search: list[Search] = []
    with ExitStack() as opened:

        def sleep(_: float) -> None:
            naps.append(study.exists())
            if len(naps) == 3:
                search.append(Search(opened.enter_context(driving(study))))
            elif search:
                search[0].go_on()

        sleeping(monkeypatch, sleep)
        done = invoke("show", study, "--watch")
    assert done.code == 0, done.err
    assert "no search has begun in this study; waiting for at most 5:00" in done.err
    assert done.out.splitlines()[-1] == "the search has ended; 6 of 6 trials are done"
    assert naps[:3] == [False] * 3


def test_watching_has_no_rows(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(invoke("show", held, "--watch", "--csv"), "--watch", "only one of these options")
    monkeypatch.setattr(watch_command, "_BEGIN_S", 0.0)
    done = invoke("show", "nothing", "--watch")
    waiting, message = done.err.splitlines()
    assert "no search has begun in this study" in waiting
    refused(Done(done.code, done.out, message), "must be a study")
