"""Ray's tokens: none is left behind, and a cluster that asks for one says so."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from search_samples import statuses

from tune_sentcl.on_ray.environment import temporary_token

TOKEN, OTHER = "a" * 64, "b" * 64
SEARCH = """
import os, sys
from tune_sentcl.errors import ResourceError
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.launch import search
for study in sys.argv[2:]:
    try:
        search("smoke", study, options=SearchOptions(max_concurrent=1, address=sys.argv[1]))
    except ResourceError as error:
        print(error)
print([name for name in os.environ if name.startswith("RAY_AUTH")])
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """This process's, in a home of its own and without anything of Ray's tokens."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**plain, "HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0", **more}


def run_searches(home: Path, address: str, *studies: Path, **more: str) -> str:
    command = [sys.executable, "-c", SEARCH, address, *map(str, studies)]
    done = subprocess.run(
        command, env=environment(home, **more), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert TOKEN not in done.stdout + done.stderr and OTHER not in done.stdout + done.stderr
    return done.stdout


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports


@contextmanager
def head(home: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """A Ray cluster of one node on loopback, started as a user starts one."""
    port, agent, grpc, metrics = free_ports(4)
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *("--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=1"),
        *("--include-dashboard=false", f"--dashboard-agent-listen-port={agent}"),
        *(f"--dashboard-agent-grpc-port={grpc}", f"--metrics-export-port={metrics}"),
        *("--object-store-memory=80000000", "--disable-usage-stats"),
    ]
    with subprocess.Popen(
        command,
        env=environment(home, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as started:
        try:
            assert started.stdout is not None
            if not any("Ray runtime started" in line for line in started.stdout):
                pytest.fail("the cluster did not start")
            yield f"127.0.0.1:{port}"
        finally:
            os.killpg(started.pid, signal.SIGTERM)


@pytest.mark.parametrize("address", ["local", "head:6379"])
def test_a_local_cluster_has_a_token_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for _ in range(2):
        with temporary_token(address):
            assert ("RAY_AUTH_TOKEN" in os.environ) == (address == "local")
            os.environ["RAY_AUTH_MODE"] = "token"  # as Ray does
        assert ("RAY_AUTH_MODE" in os.environ) == (address != "local")
        assert "RAY_AUTH_TOKEN" not in os.environ
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text(TOKEN)
    with temporary_token("local"):
        assert "RAY_AUTH_TOKEN" not in os.environ, "the user's own holds"


@pytest.mark.long
@pytest.mark.ray
def test_a_local_search_leaves_no_token(tmp_path: Path) -> None:
    studies = [tmp_path / "first", tmp_path / "second"]
    assert run_searches(tmp_path, "local", *studies) == "[]\n"
    for study in studies:  # the second in the same process, whose core has read the token
        assert statuses(study) == ["finished"] * 2
    assert not (tmp_path / ".ray").exists()


@pytest.mark.long
@pytest.mark.ray
def test_a_cluster_that_asks_for_a_token_says_so(tmp_path: Path) -> None:
    study, mode = tmp_path / "study", {"RAY_AUTH_MODE": "token"}
    unanswered = "must be the address of a Ray cluster that answers"
    cases: dict[str, tuple[dict[str, str], str]] = {
        "disabled": ({}, unanswered),
        "missing": (mode, "this cluster requires its token, and no token was found to send"),
        "other": ({**mode, "RAY_AUTH_TOKEN": OTHER}, unanswered),
    }
    with head(tmp_path, {**mode, "RAY_AUTH_TOKEN": TOKEN}) as address:
        # Side by side, for Ray tries for 20 s.
        with ThreadPoolExecutor() as pool:
            waiting = {
                name: pool.submit(run_searches, tmp_path, address, tmp_path / name, **variables)
                for name, (variables, _) in cases.items()
            }
        for name, (_, rule) in cases.items():
            said = waiting[name].result()
            assert f"{address}: {rule}" in said and "token" in said
        said = run_searches(tmp_path, address, study, **mode, RAY_AUTH_TOKEN=TOKEN)
        assert "this cluster" not in said
    assert statuses(study) == ["finished"] * 2
    assert TOKEN.encode() not in b"".join(
        path.read_bytes() for path in study.rglob("*") if path.is_file()
    )
