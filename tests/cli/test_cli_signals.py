"""How commands end that are asked to: by real signals, real pipes and real terminals."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from cli_samples import command, environment, trials
from processes import alive, descendants, wait_until
from search_samples import reported

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SMALL = ("--set", "data.limit=32", "--set", "evaluation.every=0", "--address", "local")
SEEDS = ",".join(map(str, range(40)))
LONG = (
    *("train", "--set", "encoder.checkpoint=toy", "--set", "data.source=toy"),
    *("--set", "optimizer.epochs=1000", "--set", "evaluation.every=4"),
)


@pytest.fixture(autouse=True)
def no_signal_is_ignored() -> Iterator[None]:
    """Under nohup all processes of the tests would ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Folders for temporary files of the command's own; Ray's is a short one."""
    (tmp_path / "tmp").mkdir()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield environment(TMPDIR=str(tmp_path / "tmp"), RAY_TMPDIR=folder)


@contextmanager
def started(
    arguments: list[str], env: dict[str, str], **options: Any
) -> Iterator["subprocess.Popen[str]"]:
    """A process in a group of its own, of which nothing is left afterwards."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    with subprocess.Popen(arguments, env=env, start_new_session=True, **pipes) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def searching(study: Path, *options: object) -> list[str]:
    """Eighty half-second trials, one at a time."""
    one = ("--max-concurrent", "1")
    return command("search", "smoke", "--study", study, *SMALL, *one, "--seeds", SEEDS, *options)


def read_until(stream: IO[str] | None, start: str) -> None:
    assert stream is not None
    seen = "\n"
    while not seen.startswith(start):
        seen = stream.readline()
        assert seen, f"it ended before it wrote {start}"


def gone(family: dict[int, str]) -> None:
    wait_until(lambda: not alive(family), f"the end of {family}")


def has(word: str) -> Callable[[dict[int, str]], bool]:
    return lambda family: any(word in line for line in family.values())


def said(number: int) -> str:
    by = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    return f"interrupted{by}; repeat the command to continue\n"


@pytest.mark.ray
@pytest.mark.long
def test_a_search_ends_in_order(tmp_path: Path, own: dict[str, str]) -> None:
    study, number = tmp_path / "study", signal.SIGTERM
    # `timeout` passes the signal on twice: to its child, and to their group.
    with started(["timeout", "600", *searching(study)], own) as process:
        read_until(process.stderr, "[1/80]")
        family = descendants(process.pid)
        assert has("raylet")(family) and has("gcs_server")(family) and has("ray::")(family)
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 128 + number, err
    *before, last = err.splitlines()
    ended = {line for line in before if line.startswith("[")}
    assert f"{last}\n" == said(number)
    assert {line for line in before if line.strip()} <= {*ended, before[-1]}, err
    assert out == ""
    gone(family)
    assert list(Path(own["RAY_TMPDIR"]).iterdir()) == []
    found = trials(study)
    assert {row["status"] for row in found} == {"finished"}
    assert len(found) >= max(1, len(ended))
    assert list((tmp_path / "tmp").glob("tune_sentcl_*")) == []
    # A worker's half files go when the study is next opened; the driver's own are gone.
    assert list(study.rglob(f"*.{process.pid}@*")) == []


@pytest.mark.ray
@pytest.mark.long
def test_a_search_ends_while_ray_begins(tmp_path: Path, own: dict[str, str]) -> None:
    with started(searching(tmp_path / "study"), own) as process:
        wait_until(lambda: has("raylet")(descendants(process.pid)), "the raylet")
        family = descendants(process.pid)
        process.terminate()
        _, err = process.communicate(timeout=300)
    assert process.returncode == 143 and err.endswith(said(signal.SIGTERM)), err
    assert "Traceback" not in err and "***" not in err
    gone(family)


def test_a_trial_ends_in_order(tmp_path: Path, own: dict[str, str]) -> None:
    study = tmp_path / "study"
    with started(command(*LONG, "--study", study), own) as process:
        wait_until(lambda: reported(study) or process.poll(), "a point")
        process.terminate()
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (143, "", said(signal.SIGTERM))
    assert trials(study) == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_ends_in_order(tmp_path: Path, own: dict[str, str], number: int) -> None:
    """Also if its scheduler signals it several times."""
    script = """
import os, signal, tempfile
from tune_sentcl import cli

@cli.guarded
def command():
    with tempfile.TemporaryDirectory():
        os.write(1, b"waits\\n")  # a signal within `print` would have it written twice
        signal.pause()

cli.app = command
cli.main()
"""
    with started([sys.executable, "-c", script], own) as process:
        read_until(process.stdout, "waits")
        assert list((tmp_path / "tmp").iterdir()) != []
        for _ in range(3):
            process.send_signal(number)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (128 + number, "", said(number))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_tracker_that_hangs_does_not_keep_a_command_alive(own: dict[str, str]) -> None:
    """Its client may wait for a server when Python exits."""
    script = """
import atexit, threading
from tune_sentcl import cli, signals

@cli.guarded
def command():
    signals.hanging.append(threading.Thread(target=threading.Event().wait))
    signals.hanging[0].start()
    atexit.register(threading.Event().wait)
    print("found")
    raise SystemExit(3)

cli.app = command
cli.main()
"""
    with started([sys.executable, "-c", script], own) as process:
        found = process.communicate(timeout=300)
    assert (process.returncode, *found) == (3, "found\n", "")


def test_a_command_whose_capture_failed_begins_again_without_graphs(own: dict[str, str]) -> None:
    """In a new process, because the old one cannot use its GPU any more."""
    script = """
import os, sys
from tune_sentcl import cli
from tune_sentcl.errors import CaptureError

@cli.guarded
def command():
    print(os.environ.get(CaptureError.variable), *sys.argv[1:])
    if os.environ.get(CaptureError.variable) != CaptureError.failed:
        raise CaptureError("full")

cli.app = command
cli.main()
"""
    with started([sys.executable, "-c", script, "one", "two"], own) as process:
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, "None one two\nfailed one two\n")
    assert err == "full; the command starts again without CUDA graphs\n"


SEARCH = ("search", "smoke", "--study", "study", *SMALL[:4], "--launcher", "local")


@pytest.mark.parametrize(("stream", "words"), [("stdout", ("spaces",)), ("stderr", SEARCH)])
def test_a_closed_pipe_ends_a_command(
    tmp_path: Path, own: dict[str, str], stream: str, words: tuple[str, ...]
) -> None:
    read, write = os.pipe()
    os.close(read)
    with started(command(*words), own, cwd=tmp_path, **{stream: write}) as process:
        os.close(write)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out or "", err or "") == (141, "", "")
    assert list(tmp_path.glob("study/trials/*")) == []
