"""Several processes on one GPU by MPS: its server begins and ends with them, or they say why not.

A stand-in takes the place of NVIDIA's commands, so no test needs a GPU.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mps_worker
import pytest
from processes import alive, child, go, processes, told, wait_until

from tune_sentcl.tuning import mps

CONTROL = r"""#!/bin/sh
# A process stands for the server; its number stands for the sockets of the pipe directory.
here=$(dirname "$0")
server=${CUDA_MPS_PIPE_DIRECTORY:-$here}/nvidia-cuda-mps-control.pid
if [ "$1" = -d ]; then
    [ -e "$here/refuses" ] && exit 1
    (set -C; : > "$server") 2>/dev/null || exit 1
    echo "$CUDA_VISIBLE_DEVICES $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" >> "$here/starts"
    sleep 600 &
    echo $! > "$server"
elif [ -s "$server" ]; then
    read -r asked
    case $asked in
        quit*) kill "$(cat "$server")"; rm "$server";;
        *) echo 100.0;;
    esac
else
    echo "Cannot find MPS control daemon process"
    exit 1
fi
"""
ONE = "0, GPU-aaa-1, 81559, Disabled, NVIDIA H100 80GB HBM3"
OTHER = "1, GPU-bbb-2, 4096, [N/A], NVIDIA T1000"
LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stand-ins, for this process and those that it starts."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name in (*mps_worker.SET, "TUNE_SENTCL_MPS", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(mps, "_PARENT", tmp_path)
    monkeypatch.setattr(mps, "_PROBE", mps_worker.STARTS)
    monkeypatch.setattr(mps, "_joined", None)
    (folder / "cards").write_text(f"{ONE}\n")
    smi = f'#!/bin/sh\ncat "{folder}/cards"\n'
    for name, text in (("nvidia-cuda-mps-control", CONTROL), ("nvidia-smi", smi)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


@contextmanager
def joined(parent: Path, share: float, *more: object) -> Iterator[tuple[Any, Any]]:
    """A process that joins and waits, and what it says of itself."""
    with child(mps_worker, parent, share, *more) as process:
        yield process, json.loads(told(process))


def server(folder: Path) -> int:
    return int((folder / "nvidia-cuda-mps-control.pid").read_text())


def ended(folder: Path) -> bool:
    """Whether neither a server is left nor anything that waits for its end."""
    waiting = [pid for pid, (_, command) in processes().items() if str(folder) in command]
    return not waiting and not (folder / "nvidia-cuda-mps-control.pid").exists()


def test_workers_share_a_server_that_ends_with_the_last_of_them_after_sigkill(
    commands: Path, tmp_path: Path
) -> None:
    folder = tmp_path / f"tune_sentcl_mps_{os.getuid()}_GPU-aaa-1"
    with joined(tmp_path, 0.25) as (first, one), joined(tmp_path, 0.5) as (second, other):
        for said, limit in ((one, "0=20389M"), (other, "0=40779M")):
            assert said["reason"] == "" and said[LIMIT] == limit
            assert said["CUDA_VISIBLE_DEVICES"] == "GPU-aaa-1"
            assert said["CUDA_MPS_PIPE_DIRECTORY"] == str(folder)
        assert (commands / "starts").read_text() == "GPU-aaa-1 \n", "one, without a limit"
        assert folder.stat().st_mode & 0o777 == 0o700
        pid = server(folder)
        first.kill()
        first.wait()
        assert alive({pid})
        second.kill()
    wait_until(lambda: ended(folder), "the end of the server")
    assert not alive({pid})


@pytest.mark.long
@pytest.mark.ray
def test_on_ray_the_server_ends_with_the_workers(commands: Path, tmp_path: Path) -> None:
    """Ray kills what its workers have started, but neither the server nor what ends it."""
    with joined(tmp_path, 0.5, 2) as (process, workers):
        folder = Path(workers[0]["CUDA_MPS_PIPE_DIRECTORY"])
        assert len({said["pid"] for said in workers}) == 2
        assert {(said["reason"], said[LIMIT]) for said in workers} == {("", "0=40779M")}
        assert alive({server(folder)})
        go(process)
        process.wait()
    wait_until(lambda: ended(folder), "the end of the server")


UNKNOWN = "nvidia-smi does not tell which GPU this is, and how much memory it has"


@pytest.mark.parametrize(
    ("cards", "environment", "reason"),
    [
        (ONE, {"PATH": "/nowhere"}, "nvidia-cuda-mps-control is not installed"),
        ("", {}, UNKNOWN),
        (ONE, {"CUDA_VISIBLE_DEVICES": "MIG-1"}, UNKNOWN),
        (ONE.replace("Disabled", "Enabled"), {}, UNKNOWN),
        (f"{ONE}\n{OTHER}", {"CUDA_VISIBLE_DEVICES": "1"}, UNKNOWN),
        (ONE, {}, "the MPS server does not answer; see the logs in {folder}"),
        (OTHER, {"CUDA_VISIBLE_DEVICES": "1"}, "{folder} cannot be used (others can write to it)"),
    ],
)
def test_a_process_that_cannot_join_says_why_and_changes_nothing(
    cards: str,
    environment: dict[str, str],
    reason: str,
    commands: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (commands / "cards").write_text(cards)
    (commands / "refuses").touch()
    folder = tmp_path / f"tune_sentcl_mps_{os.getuid()}_{cards[3:12]}"
    if "others" in reason:
        folder.mkdir()
        folder.chmod(0o755)  # whatever the umask is
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(mps, "_START_S", 0.0)
    before = dict(os.environ)
    assert mps.join(0.5, cuda_begun=False) == reason.format(folder=folder)
    assert dict(os.environ) == before
    monkeypatch.setenv("PATH", str(Path(__file__).parent))
    assert mps.join(0.5, cuda_begun=True) == reason.format(folder=folder), "asked once only"


def test_no_server_is_started_when_cuda_has_been(commands: Path) -> None:
    assert mps.join(0.5, cuda_begun=True) == "this process has used CUDA before"
    assert not (commands / "starts").exists()


@pytest.mark.parametrize("name", ["CUDA_MPS_PIPE_DIRECTORY", "TUNE_SENTCL_MPS"])
def test_a_users_own_server_and_a_users_no_are_left_alone(
    name: str, commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, str(tmp_path) if "PIPE" in name else "0")
    if "PIPE" in name:
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
    before = dict(os.environ)
    assert mps.join(0.5, cuda_begun=False) == ""
    assert dict(os.environ) == before
    assert not list(tmp_path.glob("tune_sentcl_mps_*"))
    if "PIPE" in name:
        os.kill(server(tmp_path), signal.SIGKILL)


def test_a_system_without_locks_and_servers_imports_all() -> None:
    """As Windows does, where a worker says that a command is not installed."""
    hide = "import sys; sys.modules |= dict.fromkeys(['fcntl', 'resource'])"
    program = f"{hide}; import tune_sentcl.tuning.worker"
    subprocess.run([sys.executable, "-c", program], check=True)
