"""A cluster as `cluster/local-cluster.sh` makes it: what it runs, hears, and leaves."""

import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clusters import FOLDER, ROOT
from processes import LOOPBACK, alive, descendants, listening, processes, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.long]

SCRIPT = FOLDER / "local-cluster.sh"
BLOCKS = re.findall(r"^```sh run\n(.*?)^```", (FOLDER / "README.md").read_text(), re.M | re.S)


class LocalUser:
    """A user with a home of their own, and the cluster there."""

    def __init__(self, home: Path) -> None:
        plain = {n: value for n, value in os.environ.items() if not n.startswith(("RAY_", "XDG_"))}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        known = {"HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT)}
        temporary = home / ("x" * 60)  # too long for Ray's sockets
        temporary.mkdir()
        self.environment = {**plain, **known, "TMPDIR": str(temporary)}
        self.state = home / ".local/state/tune_sentcl/cluster"
        self.home = home

    def run(self, *command: str, code: int = 0) -> str:
        """What a command prints."""
        done = subprocess.run(
            command,
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def script(self, *words: str, code: int = 0) -> str:
        return self.run(str(SCRIPT), *words, code=code)

    def shell(self, text: str) -> str:
        """What a shell prints that can reach the cluster."""
        return self.run("bash", "-ec", f'eval "$({SCRIPT} env)"\n{text}')

    def members(self) -> set[int]:
        """Every process of the nodes."""
        roots = {int(file.read_text().split()[0]) for file in self.state.glob("*.pid")}
        return roots.union(*map(descendants, roots))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalUser]:
    user = LocalUser(tmp_path_factory.mktemp("home"))
    try:
        user.script("start", "2")
        yield user
    finally:
        user.script("stop")


def test_trap_ray_takes_loopback_for_the_machines_address_and_is_kept_from_it(
    local: LocalUser,
) -> None:
    said = local.shell("tune-sentcl search smoke --study heard")  # its workers stay for a while
    assert "2 trials ended in this run, 0 of them failed" in said
    pids = local.members()
    addresses = listening(pids)
    assert len(pids) > 10 and len(addresses) > 15
    assert {at.split(":")[0] for at in addresses} <= LOOPBACK


def test_the_token_is_in_one_file_and_in_no_process_list(local: LocalUser) -> None:
    file = local.state / "auth_token"
    token = file.read_text()
    assert len(token) == 64 and file.stat().st_mode & 0o077 == 0
    assert not [command for _, command in processes().values() if token in command]
    logs = [path.read_bytes() for path in local.state.glob("*.log")]
    assert len(logs) == 3 and token.encode() not in b"".join(logs)
    assert not (local.home / ".ray").exists()


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_notice_of_a_spot_machine_drains_its_node(local: LocalUser, cloud: str) -> None:
    node = nodes(local)[0]
    with metadata_site() as (site, answers):
        asks = f"SPOT_NOTICE_SITE={site} SPOT_NOTICE_NODE={node} SPOT_NOTICE_EVERY=0.1"
        command = f'{asks} {FOLDER}/spot-notice {cloud} "$RAY_ADDRESS"'
        watcher = threading.Thread(target=local.shell, args=(command,))
        watcher.start()
        wait_until(lambda: answers.asked > 3, "the watcher's questions")
        assert watcher.is_alive() and node in nodes(local)
        answers.taken = True
        watcher.join()
    wait_until(lambda: node not in nodes(local), "the end of the node")


def nodes(local: LocalUser) -> list[str]:
    """The workers that are up."""
    return local.shell(
        "python -c \"import ray; ray.init(logging_level='ERROR', log_to_driver=False);"
        "print(*[n['NodeID'] for n in ray.nodes() if n['Alive'] and n['Resources'].get('CPU')])\""
        " 2>/dev/null"
    ).split()


class Answers(http.server.BaseHTTPRequestHandler):
    """A cloud's metadata site, as it answers before and after a notice."""

    asked, taken = 0, False

    def do_PUT(self) -> None:
        self.answer(200, "a-session")

    def do_GET(self) -> None:
        type(self).asked += 1
        if self.path.startswith("/computeMetadata"):
            right = self.headers["Metadata-Flavor"] == "Google"
            self.answer(200 if right else 403, "TRUE" if self.taken else "FALSE")
        else:
            right = self.headers["X-aws-ec2-metadata-token"] == "a-session"
            self.answer((200 if self.taken else 404) if right else 401, "{}")

    def answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def metadata_site() -> Iterator[tuple[str, type[Answers]]]:
    answers = type("AnswersOfOne", (Answers,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", answers
        finally:
            server.shutdown()


def test_it_ends_its_own_processes_and_leaves_nothing(tmp_path: Path) -> None:
    own = LocalUser(tmp_path)
    said = own.script("start", "1")
    assert f"RAY_AUTH_TOKEN_PATH={own.state}/auth_token" in said and "1 workers" in said
    folder, pids = Path((own.state / "temp").read_text().strip()), own.members()
    worker = (own.state / "worker-1.pid").read_text().split()[0]
    os.kill(int(worker), signal.SIGKILL)  # what a crash leaves is tidied as well
    own.script("stop")
    assert wait_until(lambda: not alive(pids), "the end of the nodes", 30)
    assert not folder.exists() and not own.state.exists()
    assert "no cluster of this user runs" in own.script("status", code=1)
    shutil.rmtree(tmp_path / ".local")
    assert [path for path in tmp_path.rglob("*") if str(path) != own.environment["TMPDIR"]] == []


@pytest.mark.parametrize("commands", ["".join(BLOCKS[:2]), BLOCKS[2]], ids=["local", "token"])
def test_the_commands_of_the_page_run(tmp_path: Path, commands: str) -> None:
    """The local cluster's two blocks share one shell, so the second starts where `env` was read.

    On a machine with an address beside loopback, this also finds a process of a node that takes
    that address for its own: the submitted job then never begins.
    """
    user = LocalUser(tmp_path)
    (tmp_path / "cluster").symlink_to(FOLDER)
    try:
        said = user.run("bash", "-euo", "pipefail", "-c", commands)
    finally:
        user.script("stop")
    assert said.count("2 trials ended in this run, 0 of them failed") == commands.count("--study")
    assert said.count("JobStatus.SUCCEEDED") >= commands.count("ray job list")
