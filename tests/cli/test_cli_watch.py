"""What people see of a search while it runs: in a terminal of 80 columns, and in a file."""

import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

from cli_samples import command, environment, invoke, refused
from processes import wait_until

from tune_sentcl.cli.watch_command import _Looking
from tune_sentcl.config import parse_config
from tune_sentcl.space import load_space
from tune_sentcl.store import SearchRecord, Study, StudyDriver, TrialRow
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.progress import PROGRESS, SearchProgress
from tune_sentcl.watch.progress_file import ProgressFileWatcher
from tune_sentcl.watch.terminal import RichWatcher

pytest_plugins = ["cli_fixtures"]

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# As `search` runs it, without the seconds that Ray takes to begin. Each trial waits for a line,
# and where that says "halfway", for another one behind its first point.
_SEARCH = """
import sys
from tune_sentcl.tuning import local_launcher as local
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.launch import search

class Waiting(local.Attempt):
    def points(self):
        halfway = sys.stdin.readline() == "halfway\\n"
        for progress in super().points():
            yield progress
            if halfway:
                halfway = False
                sys.stdin.readline()

local.Attempt = Waiting
small = {"data.limit": 64, "evaluation.every": 1}
options = SearchOptions(launcher="local", gpus_per_trial=0.0)
search("smoke", sys.argv[1], overrides=small, seeds=range(int(sys.argv[2])), options=options)
"""


_UNDER_WAY = r"[0-9a-f]{8}  \d\d:\d\d:\d\d  \d/4   \d+\.\d\d"


def searching(study: Path, seeds: int = 3) -> list[str]:
    """Two trials a seed, on the CPU, one after another."""
    return [sys.executable, "-c", _SEARCH, str(study), str(seeds)]


@contextmanager
def started(arguments: list[str], **options: object) -> Iterator["subprocess.Popen[str]"]:
    pipe = subprocess.PIPE
    pipes = {"stdin": pipe, "stdout": pipe, "stderr": pipe, **options}
    with subprocess.Popen(arguments, env=environment(), text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def release(search: "subprocess.Popen[str]", lines: str = "\n" * 100) -> None:
    """Let trials of a search run, one a line."""
    assert search.stdin is not None
    search.stdin.write(lines)
    search.stdin.flush()


def in_a_terminal(
    arguments: list[str], until: str = "", then: Callable[[], object] = lambda: None
) -> tuple[int, str]:
    """Run a command in a terminal of 80 columns; its exit code and all that it wrote.

    Once it has written what the pattern `until` finds, `then` is called.
    """
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {**environment(TERM="xterm"), "COLUMNS": "", "LINES": ""}
    with subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=env
    ) as process:
        os.close(theirs)
        written = b""
        waits = bool(until)
        try:
            while chunk := _read(ours):
                written += chunk
                if waits and re.search(until, _CODES.sub("", written.decode(errors="replace"))):
                    waits = False
                    then()
        except BaseException:
            process.kill()  # else it is waited for
            raise
    os.close(ours)
    return process.returncode, written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # nobody has it open any more
        return b""


def shown(written: str) -> list[str]:
    """The lines that a terminal was made to show, one after another."""
    return [_CODES.sub("", line) for line in re.split(r"[\r\n]+", written)]


def begun(study: Path, search: "subprocess.Popen[str]") -> SearchProgress:
    """The word of a search of which a trial has ended."""

    def look() -> SearchProgress | None:
        assert search.poll() is None, search.communicate()
        said = SearchProgress.read(StudyFiles.at(study))
        return said if said is not None and said.ended else None

    said: SearchProgress = wait_until(look, "the end of a trial")
    return said


@contextmanager
def under_way(study: Path) -> Iterator["subprocess.Popen[str]"]:
    """A search of six trials, the first of which has ended; the others wait."""
    with started(searching(study)) as search:
        release(search, "\n")
        begun(study, search)
        yield search


def test_a_study_is_watched_in_a_terminal(tmp_path: Path) -> None:
    study = tmp_path / "study"
    with under_way(study) as search:
        release(search, "halfway\n")
        watching = command("show", study, "--watch")
        code, written = in_a_terminal(watching, _UNDER_WAY, lambda: release(search))
        assert search.wait(timeout=300) == 0
    lines = shown(written)
    assert code == 0 and max(map(len, lines)) <= 80
    assert any(re.match("1 of 6 done, 1 running: 1 finished, 0 pruned", one) for one in lines)
    assert any(re.match(r"best \d+\.\d\d, \d+\.\d a minute, left 0:\d\d$", one) for one in lines)
    assert any(re.match(_UNDER_WAY, one) for one in lines)
    assert any(re.match(r"[0-9a-f]{8}  finished  \d+\.\d\d", one) for one in lines)
    assert [one for one in lines if one][-1] == "the search has ended, 6 of 6 trials are done"


def test_a_study_is_watched_in_a_file(tmp_path: Path) -> None:
    study = tmp_path / "study"
    with under_way(study) as search:
        with started(command("show", study, "--watch")) as watching:
            assert watching.stdout is not None
            read = [watching.stdout.readline() for _ in range(3)]
            release(search)
            out, err = watching.communicate(timeout=300)
            out = "".join(read) + out
        assert search.wait(timeout=300) == 0
    assert (watching.returncode, err) == (0, "")
    assert "\x1b" not in out and "\r" not in out
    first, *lines = out.splitlines()
    assert first == str(study) and max(map(len, lines)) <= 80
    ends = [one for one in lines if re.match(r"\[\d/6\] [0-9a-f]{16} finished \d+\.\d\d  ", one)]
    assert ends and lines[-1] == "the search has ended, 6 of 6 trials are done"
    assert lines[-3] == "6 finished, 0 pruned, 0 failed"


def test_watching_ends_with_ctrl_c_and_with_a_search_that_was_killed(tmp_path: Path) -> None:
    study = tmp_path / "study"
    with under_way(study) as search:
        with started(command("show", study, "--watch")) as watching:
            assert watching.stdout is not None and watching.stdout.readline() == f"{study}\n"
            watching.send_signal(signal.SIGINT)
            _, err = watching.communicate(timeout=300)
        assert (watching.returncode, err[:11]) == (130, "interrupted")
        assert search.poll() is None
        with started(command("show", study, "--watch")) as watching:
            assert watching.stdout is not None and watching.stdout.readline() == f"{study}\n"
            search.kill()
            search.wait()
            out, _ = watching.communicate(timeout=300)
    assert watching.returncode == 0
    assert re.search(r"\nthe search was cut off, 1 of 6 trials are done\n$", out)


def test_a_search_shows_itself_in_a_terminal_and_in_a_file(tmp_path: Path) -> None:
    code, written = in_a_terminal(searching(tmp_path / "terminal", 2))
    lines = shown(written)
    assert code == 0 and max(map(len, lines)) <= 80
    bars = [one for one in lines if one.startswith("trials ")]
    assert any(
        re.search(r"2/4 best \d+\.\d\d  left \d:\d\d  failed 0 running \d$", one) for one in bars
    ), bars
    with started(searching(tmp_path / "file", 1)) as search:
        out, err = search.communicate("\n" * 2, timeout=300)
    assert "\x1b" not in out + err and "\r" not in out + err
    assert max(map(len, err.splitlines())) <= 80
    assert re.search(r"^\[1/2\] [0-9a-f]{16} finished \d+\.\d\d  best ", err, re.MULTILINE)


def test_a_study_whose_search_is_over_is_shown_once(held: Path) -> None:
    done = invoke("show", held, "--watch")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "the search has ended, 1 of 1 trials are done"


def test_a_study_without_a_word_is_shown_once(held: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    subprocess.run(["cp", "-r", str(held), str(study)], check=True)
    for text in (None, "half of it {", "[]", json.dumps({"state": "running"})):
        if text is None:
            (study / PROGRESS).unlink()
        else:
            (study / PROGRESS).write_text(text)
        done = invoke("show", study, "--watch")
        assert done.code == 0, done.err
        assert done.out.splitlines()[-1] == "no search has said how it goes on here"
        assert "1 finished, 0 pruned, 0 failed" in done.out


def _two_searches(study: Path) -> None:
    """The first by STS-B, on toy sets too; the second by SICK-R, cut off before its end."""
    space = load_space("smoke")
    told = [
        ("a", "STS-B", "root", 85.0),
        ("b", "STS-B", "toy", 99.0),
        ("c", "SICK-R", "toy", 98.0),
    ]
    told += [("d", "SICK-R", "root", 72.0), ("e", "SICK-R", "root", 71.0)]
    for trial, task, data, value in told:
        name = f"{task}:spearman:dev"
        config = parse_config({"method": {"name": "scl"}, "evaluation": {"data": data}}, "test")
        with StudyDriver.open(study, space=space, command=["test"]) as driver:
            driver.record(SearchRecord((name,), "tpe", 0))
            driver.commit(
                TrialRow(
                    config,
                    trial_id=trial,
                    configuration=trial,
                    space=space.name,
                    origin="grid",
                    status="finished",
                    objectives=((name, value),),
                )
            )


def test_the_best_is_of_what_the_last_search_maximizes_on_real_sets(tmp_path: Path) -> None:
    _two_searches(tmp_path / "study")
    done = invoke("show", tmp_path / "study", "--watch")
    assert done.code == 0, done.err
    assert "\nbest 72.00\n" in done.out


def test_who_watches_hears_of_a_search_that_maximizes_something_else(tmp_path: Path) -> None:
    study = tmp_path / "study"
    _two_searches(study)
    looking = _Looking(Study.read(study))
    before = looking.look().best
    with StudyDriver.open(study, space=load_space("smoke"), command=["test"]) as driver:
        driver.record(SearchRecord(("STS-B:spearman:dev",), "tpe", 0))
        driver.compact()
    after = looking.look().best
    assert before is not None and after is not None
    assert (before["trial_id"], after["trial_id"]) == ("d", "a")


def test_no_variable_brings_control_codes_into_a_pipe(held: Path) -> None:
    done = subprocess.run(
        command("show", held, "--watch"),
        capture_output=True,
        text=True,
        env=environment(FORCE_COLOR="1"),
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout


def test_watching_brings_neither_torch_nor_optuna(held: Path) -> None:
    code = (
        "import sys; from tune_sentcl.cli import app; "
        f"app(['show', {str(held)!r}, '--watch'], standalone_mode=False); "
        "print(sorted({'torch', 'optuna', 'transformers', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_watching_has_no_rows(held: Path) -> None:
    for option in ("--json", "--csv"):
        refused(invoke("show", held, "--watch", option), "--watch", "has no rows")
    refused(invoke("show", "nothing", "--watch"), "must be a study")


def test_a_disk_that_refuses_the_word_ends_nothing(tmp_path: Path) -> None:
    with StudyDriver.open(tmp_path / "study", space=load_space("smoke"), command=[]) as driver:
        (tmp_path / "study" / PROGRESS).mkdir()
        file_watcher = ProgressFileWatcher(RichWatcher(), driver)
        file_watcher.begin(0, 3)
        file_watcher.end("ended")
    assert (tmp_path / "study" / PROGRESS).is_dir()


def test_an_object_store_hears_the_last_word_at_once_and_the_others_at_times() -> None:
    place, before = "memory://watched/study", set(threading.enumerate())
    with StudyDriver.open(place, space=load_space("smoke"), command=[]) as driver:
        files = driver.study.files
        file_watcher = ProgressFileWatcher(RichWatcher(), driver)
        file_watcher.begin(0, 3)
        wait_until(lambda: SearchProgress.read(files) is not None, "the first word")
        file_watcher.planned(9.0)
        said = SearchProgress.read(files)
        assert said is not None and said.planned_seconds is None
        file_watcher.end("ended")
    said = SearchProgress.read(files)
    assert said is not None and (said.state, said.total) == ("ended", 3)

    def timers() -> list[threading.Thread]:
        new = set(threading.enumerate()) - before
        return [thread for thread in new if isinstance(thread, threading.Timer)]

    wait_until(lambda: not timers(), "the end of the timer")
