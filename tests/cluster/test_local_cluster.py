"""A cluster as `cluster/local-cluster.sh` makes it: what it runs, hears, and leaves."""

import http.server
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster_folder import FOLDER
from local_user import LocalUser
from processes import LOOPBACK, alive, listening, processes, wait_until

from tune_sentcl import read_study

pytestmark = [pytest.mark.ray, pytest.mark.long]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalUser]:
    found = LocalUser(tmp_path_factory.mktemp("home"))
    try:
        found.script("start", "2")
        yield found
    finally:
        found.script("stop")


def test_a_search_finishes_on_its_workers(local: LocalUser) -> None:
    local.shell("tune-sentcl search smoke --study found")
    assert list(read_study(str(local.home / "found")).trials.status) == ["finished"] * 2


def test_trap_ray_takes_loopback_for_the_machines_address_and_is_kept_from_it(
    local: LocalUser,
) -> None:
    local.shell("tune-sentcl search smoke --study heard")  # its workers are kept for a while
    pids = local.members()
    found = listening(pids)
    assert len(pids) > 10 and len(found) > 15
    elsewhere = {at: who for at, who in found.items() if at.split(":")[0] not in LOOPBACK}
    assert elsewhere == {}


def test_the_token_is_in_one_file_and_in_no_process_list(local: LocalUser) -> None:
    file = local.state / "auth_token"
    token = file.read_text()
    assert len(token) == 64 and file.stat().st_mode & 0o077 == 0
    assert not [command for _, command in processes().values() if token in command]
    logs = [path.read_bytes() for path in local.state.glob("*.log")]
    assert len(logs) == 3 and token.encode() not in b"".join(logs)
    assert not (local.home / ".ray").exists()


def test_who_has_no_token_is_not_let_in(local: LocalUser) -> None:
    address = (local.state / "address").read_text().strip()
    words = ("search", "smoke", "--study", "no", "--address", address)
    # Without this Ray would look for the cluster at the machine's address, for minutes.
    said = local.run("tune-sentcl", *words, code=2, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
    assert "requires its token" in said


def test_it_says_what_runs_and_refuses_a_second(local: LocalUser) -> None:
    said = local.script("status")
    assert [line for line in said.splitlines() if "runs" in line] == [
        line for line in said.splitlines() if re.match(r"(head|worker-[12]): runs", line)
    ]
    assert said.count(": runs") == 3
    assert "runs already" in local.script("start", code=1)


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
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", answers
        finally:
            server.shutdown()
            thread.join()


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


# Read by each Python of a node. For some seconds Ray is told that the node is not up.
SLOW = """
import sys
import time

if "start" in sys.argv[:2]:
    from ray._private import services
    ask, first = services.get_node, []
    def get_node(*node):
        first.append(time.monotonic())
        if time.monotonic() < first[0] + {seconds}:
            raise RuntimeError("the node is not up")
        return ask(*node)
    services.get_node = get_node
"""


@pytest.mark.parametrize(("seconds", "limit"), [(35, 180), (999, 5)])
def test_a_node_may_take_longer_than_ray_waits_for_it(
    tmp_path: Path, seconds: int, limit: int
) -> None:
    user, folder = LocalUser(tmp_path), tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SLOW.format(seconds=seconds))
    path = f"{folder}{os.pathsep}{user.environment['PYTHONPATH']}"
    user.environment |= {"PYTHONPATH": path, "START_LIMIT": str(limit)}
    up = seconds < limit
    try:
        said = user.script("start", "0", code=0 if up else 1)
        assert ("A head and 0 workers" in said) is up
        assert ("head was not up in 5 s" in said) is not up and "Traceback" not in said
    finally:
        user.script("stop")
