"""How the tests of the command line run it, and the small files that they give it."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

from local_search import searches_without_ray
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.space import load_space

TOY = ("--set", "encoder.checkpoint=toy", "--set", "data.source=toy", "--set", "data.limit=32")
"""The smallest trial."""
_TOY_NOTE = "optimizer.batch_size = 64 is more than the 32 rows, so one batch holds them all"

SMOKE = load_space("smoke").text


class Done:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


def invoke(*arguments: object) -> Done:
    """Run the command line in this process; what it does not turn into a message is raised.

    A search runs without Ray, unless it is given an address.
    """
    with searches_without_ray():
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def rows(*arguments: object) -> list[dict[str, Any]]:
    """The JSON array that is all of a command's stdout."""
    done = invoke(*arguments, "--json")
    assert done.code == 0, done.err
    array: list[dict[str, Any]] = json.loads(done.out)
    assert all(isinstance(row, dict) for row in array)
    return array


def trials(study: Path | str) -> list[dict[str, Any]]:
    return rows("show", study)


def environment(**changes: str) -> dict[str, str]:
    """The variables of a command in its own process: no data root, no network, no cluster."""
    dropped = ("TUNE_SENTCL_DATA", "RAY_ADDRESS")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "HF_HUB_OFFLINE": "1", "RAY_TMPDIR": "/tmp", **changes}


def command(*arguments: object) -> list[str]:
    """The command line as another process runs it."""
    return [sys.executable, "-m", "tune_sentcl", *map(str, arguments)]


def spawn(*arguments: object, cwd: Path | None = None) -> Done:
    """Run the command line in a process of its own."""
    return _ended(command(*arguments), cwd)


def run_code(code: str, *arguments: object) -> Done:
    """Run Python's code, with a command's arguments, in a process of its own."""
    return _ended([sys.executable, "-c", code, *map(str, arguments)])


def _ended(words: list[str], cwd: Path | None = None) -> Done:
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        env=environment(),
        cwd=cwd,
        check=False,
        timeout=300,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def in_terminal(arguments: list[str], env: dict[str, str], columns: int) -> tuple[int, str]:
    """Run a process in a terminal of 24 rows; its exit code and what it wrote there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(arguments, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        written = b""
        try:
            while chunk := os.read(ours, 65536):
                written += chunk
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    return process.returncode, written.decode()


def refused(done: Done, *words: str, faults: int = 1) -> None:
    """The law of bad input: exit 2, a message a fault on stderr and no traceback anywhere.

    What is told of the smallest trial may stand before it.
    """
    assert done.code == 2, (done.code, done.out, done.err)
    assert "Traceback" not in done.out + done.err
    lines = (line for line in done.err.splitlines() if line.strip())
    notes = (_TOY_NOTE, "its files state no")
    messages = [line for line in lines if not any(note in line for note in notes)]
    assert len(messages) == faults, done.err
    for message in messages:
        assert message.startswith("error: "), done.err
        assert message.endswith((".", "?")), done.err
        assert "  " not in message
    for word in words:
        assert word in done.err, (word, done.err)


def tables(text: str) -> list[list[dict[str, str]]]:
    """The tables of an output, each as its rows by the titles of its columns."""
    found: list[list[dict[str, str]]] = []
    spans: list[tuple[int, int]] = []
    titles: list[str] = []
    lines = text.splitlines()
    for above, line in zip(["", *lines], lines, strict=False):
        if line and not line.strip("─ "):
            spans = [match.span() for match in re.finditer("─+", line)]
            titles = [above[start:end].strip() for start, end in spans]
            found.append([])
        elif not line or any(line[end : end + 1].strip() for _, end in spans):
            spans = []  # the table is over
        elif spans:
            cells = [line[start:end].strip() for start, end in spans]
            found[-1].append(dict(zip(titles, cells, strict=True)))
    return found


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every file with its bytes, and every folder; the lock's holder is no content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.name != ".lock"
    }


def changed(text: str, old: str, new: str) -> str:
    """A text with its only `old` replaced."""
    assert text.count(old) == 1, old
    return text.replace(old, new)
