"""Ray clusters as users start them: a head with its dashboard, and nodes, each with its raylet.

Everything listens on loopback, or on the addresses that are given, and asks for a token. All that
was started is gone when the block ends.
"""

import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from processes import alive, descendants, wait_until

from tune_sentcl.on_ray.environment import prepare_ray

prepare_ray()

from tune_sentcl.on_ray.jobs import job_id  # noqa: E402

TOKEN, OTHER = "a" * 64, "b" * 64
# Ray puts the outer address of the machine in the place of 127.0.0.1.
LOOPBACK = "127.0.0.2"
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster"
_PORTS = range(20_000, 32_000)  # Ray's workers take those below, the system's clients those above
_END_S = 20.0


# From another place in each process; none twice in a row.
_START = (os.getpid() * 37) % len(_PORTS)
_ports_in_turn = itertools.cycle([*_PORTS[_START:], *_PORTS[:_START]])


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    ports: list[int] = []
    while len(ports) < count:
        port = next(_ports_in_turn)
        with suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            ports.append(port)
    return ports


def environment(home: Path, **more: str) -> dict[str, str]:
    """This process's, in a home of its own, and without anything of Ray's or of this checkout."""
    kept = (n for n in os.environ if not n.startswith("RAY_") and n != "PYTHONPATH")
    plain = {name: os.environ[name] for name in kept}
    own = {"HOME": str(home), "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    return {**plain, **own, **more}


def with_token(token: str = TOKEN) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


@dataclass
class Node:
    """A process `ray start --block` and what it has started."""

    process: subprocess.Popen[str]
    log: Path

    def kill(self) -> None:
        """End the node and all on it at once, as a machine that loses its power."""
        self._kill({self.process.pid, *descendants(self.process.pid)})

    def end(self) -> None:
        """End it as an operator does; what does not go is killed."""
        doomed = {self.process.pid, *descendants(self.process.pid)}
        with suppress(ProcessLookupError):
            self.process.terminate()
        with suppress(TimeoutError):
            wait_until(lambda: not alive(doomed - {self.process.pid}), "its processes", _END_S)
        self._kill(doomed)

    def _kill(self, pids: set[int]) -> None:
        for pid in alive(pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Cluster:
    """A head, and the nodes that were added to it, in their order.

    `gcs` is HOST:PORT for `ray.init`; `dashboard` is a URL. `temp` holds Ray's folders, one of
    each node. Clients of the cluster run in `prefix` too.
    """

    home: Path
    gcs: str
    dashboard: str
    temp: Path
    head: Node
    python: str
    variables: dict[str, str]
    prefix: tuple[str, ...] = ()
    nodes: list[Node] = field(default_factory=list)

    def environment(self, **more: str) -> dict[str, str]:
        """The variables of a client that has the token and runs this checkout."""
        return environment(self.home, **{**self.variables, "PYTHONPATH": str(ROOT), **more})

    def ray_job(self, action: str, study: Path | str = "", run: int = 1) -> str:
        """What Ray's own `ray job` prints about a study's run; its exit code has to be 0."""
        job = [job_id(str(study), run)] if study else []
        command = [*self.prefix, sys.executable, "-m", "ray.scripts.scripts", "job", action, *job]
        done = subprocess.run(
            [*command, "--address", self.dashboard],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def statuses(self, study: Path | str) -> list[str]:
        """The statuses of a study's jobs, in the order of their runs."""
        listed = self.ray_job("list")
        found = re.findall(
            r"submission_id='([^']+-run(\d+))'.*?status=<JobStatus\.(\w+)", listed, re.S
        )
        mine = {int(run): status for name, run, status in found if name == job_id(str(study), run)}
        return [mine[run] for run in sorted(mine)]

    def add_node(
        self, *options: str, cpus: int = 1, ip: str = LOOPBACK, prefix: Sequence[str] = ()
    ) -> Node:
        """Add a node with more options of `ray start`, and run it by the prefix."""
        command = [
            *prefix,
            *_start_command(self.python),
            f"--address={self.gcs}",
            f"--node-ip-address={ip}",
        ]
        command += [f"--num-cpus={cpus}", *_ports(), *options]
        # Nodes that shared one would unpack what a job brings over each other's copy.
        command += [f"--temp-dir={self.temp / str(len(self.nodes))}"]
        node = _start(
            command,
            environment(self.home, **self.variables),
            self.home / f"node-{len(self.nodes)}.log",
        )
        self.nodes.append(node)
        return node


def _start_command(python: str) -> list[str]:
    return [
        *(python, "-m", "ray.scripts.scripts", "start", "--block"),
        *("--object-store-memory=80000000", "--disable-usage-stats"),
        # Drawn by the system: raylets of one address would else fight over one range.
        *("--min-worker-port=0", "--max-worker-port=0"),
    ]


def _ports() -> list[str]:
    agent, grpc, metrics = free_ports(3)
    return [
        f"--dashboard-agent-listen-port={agent}",
        f"--dashboard-agent-grpc-port={grpc}",
        f"--metrics-export-port={metrics}",
    ]


def _start(command: Sequence[str], variables: Mapping[str, str], log: Path) -> Node:
    """Start a node, which Ray gives half a minute."""
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            env=variables,
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    node = Node(process, log)
    try:
        wait_until(lambda: _up(node) or process.poll() is not None, "a Ray node")
    except BaseException:
        node.end()
        raise
    if not _up(node):
        pytest.fail(f"the node did not start: {log.read_text()}")
    return node


def _up(node: Node) -> bool:
    return "Ray runtime started" in node.log.read_text()


@contextmanager
def cluster(
    home: Path,
    *options: str,
    cpus: int = 1,
    ip: str = LOOPBACK,
    python: str = sys.executable,
    prefix: tuple[str, ...] = (),
    **variables: str,
) -> Iterator[Cluster]:
    """A cluster of a head with dashboard and token, with more options of `ray start --head`.

    `home` keeps what it leaves beside Ray's own. `prefix` runs the head, such as `ip netns exec
    NAME`. `python` is the interpreter of its nodes. `variables` are of its
    processes and its clients, beside the token's.
    """
    home.mkdir(parents=True, exist_ok=True)
    port, dashboard, client = free_ports(3)
    temp = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets' paths must be short
    # Ray calls `python` and `pip` by name.
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {"PATH": path, **with_token(), **variables}
    command = [*prefix, *_start_command(python), "--head", f"--port={port}"]
    command += [f"--node-ip-address={ip}"]
    command += [
        f"--num-cpus={cpus}",
        f"--temp-dir={temp}/head",
        f"--ray-client-server-port={client}",
    ]
    command += ["--include-dashboard=true", f"--dashboard-host={ip}"]
    command += [f"--dashboard-port={dashboard}", *_ports(), *options]
    try:
        head = _start(command, environment(home, **variables), home / "head.log")
        at, url = f"{ip}:{port}", f"http://{ip}:{dashboard}"
        started = Cluster(home, at, url, temp, head, python, variables, prefix)
        try:
            yield started
        finally:
            for node in [*reversed(started.nodes), head]:
                node.end()
    finally:
        shutil.rmtree(temp, ignore_errors=True)
