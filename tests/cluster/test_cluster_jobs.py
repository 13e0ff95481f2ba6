"""Searches handed to a real Ray head, with its dashboard and a token."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from clusters import LOOPBACK, OTHER, TOKEN, Cluster, cluster, environment, free_ports
from processes import descendants, wait_until

from tune_sentcl.errors import StudyError
from tune_sentcl.store.study import Study

pytestmark = [pytest.mark.ray, pytest.mark.slow]

# A job of any command, by the library: its study, its command, and the number of its run.
ORDER = """
import sys
from tune_sentcl.errors import TuneSentclError
from tune_sentcl.launch.ray.environment import prepare_ray
prepare_ray()
from tune_sentcl.launch.ray.jobs import Jobs, Order
from tune_sentcl.launch.ray.shipment import Shipment
from tune_sentcl.space import load_space
address, study, command, number = sys.argv[1:]
jobs = Jobs(address)
order = Order(study, command, Shipment.of(load_space("smoke")).files)
print("ready", flush=True)
sys.stdin.read()
try:
    print(jobs.submit(order, int(number)).job)
except TuneSentclError as error:
    sys.exit(str(error))
"""


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("head")) as found:
        yield found


def command(head: Cluster, *words: object) -> list[str]:
    told = [str(word) for word in words]
    return [sys.executable, "-m", "tune_sentcl", *told, "--address", head.dashboard]


def run(head: Cluster, *words: object, **variables: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        command(head, *words),
        env=head.environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert "INFO" not in done.stderr  # Ray's own words
    assert TOKEN not in done.stdout + done.stderr and OTHER not in done.stdout + done.stderr
    return done


def ordering(head: Cluster, study: Path, line: str, number: int = 1) -> "subprocess.Popen[str]":
    """A process that is about to submit a job; it does when its input ends."""
    started = subprocess.Popen(
        [sys.executable, "-c", ORDER, head.dashboard, str(study), line, str(number)],
        env=head.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n", started.communicate()
    return started


def submit_command(head: Cluster, study: Path, line: str, number: int = 1) -> None:
    with ordering(head, study, line, number) as started:
        _, said = started.communicate()
    assert started.returncode == 0, said


def runs(head: Cluster, study: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(head, "jobs", "status", study, "--json").stdout)
    return found


def rows(study: Path) -> list[str]:
    """Statuses of a study's trials; none before there is a study."""
    try:
        return [known.status for known in Study.read(study).ended().values()]
    except StudyError:
        return []


def test_a_search_runs_from_what_was_sent_to_its_last_row(head: Cluster, tmp_path: Path) -> None:
    study = tmp_path / "study"
    done = run(head, "submit", "smoke", "--study", study, "--set", "data.limit=64", "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(study) == ["finished"] * 2
    for words in ("submitted: tune-sentcl-study-", "follow: tune-sentcl jobs logs ", "resume: "):
        assert words in done.stdout
    assert "2 trials ran now" in done.stdout
    again = run(head, "submit", "smoke", "--study", study, "--set", "data.limit=64", "--follow")
    assert again.returncode == 0  # a run that has ended blocks none
    assert "0 trials ran now" in again.stdout
    first, second = runs(head, study)
    assert (first["run"], second["run"]) == (1, 2)
    assert first["status"] == second["status"] == "SUCCEEDED"
    assert first["started"] <= first["ended"] <= second["started"]
    listed = run(head, "jobs", "status", study)
    assert listed.stdout.count("SUCCEEDED") == 2
    printed = run(head, "jobs", "logs", study)
    assert "0 trials ran now" in printed.stdout


@pytest.mark.cluster
def test_a_job_imports_the_wheel_and_finds_its_metadata(head: Cluster, tmp_path: Path) -> None:
    code = (
        "import importlib.metadata as m, os, tune_sentcl; from pathlib import Path; "
        "print('at', Path(tune_sentcl.__file__).parent, m.version('tune-sentcl'), os.listdir())"
    )
    submit_command(head, tmp_path, f"python -c {shlex.quote(code)}")
    done = run(head, "jobs", "logs", tmp_path, "--follow")
    assert done.returncode == 0
    assert re.search(
        rf"^at {head.temp}/.*/tune_sentcl 0\.1\.0 \['space.toml'\]$", done.stdout, re.M
    )


@pytest.mark.cluster
def test_a_second_submit_is_refused_and_a_stop_is_seen_to_its_end(
    head: Cluster, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    words = ("submit", "smoke", "--study", study, "--seeds", ",".join(map(str, range(40))))
    assert run(head, *words).returncode == 0
    wait_until(lambda: len(rows(study)) >= 2, "rows of a search")
    drivers = [p for p, c in descendants(head.head.process.pid).items() if "m tune_sentcl" in c]
    assert drivers
    second = run(head, *words)
    assert second.returncode == 2
    assert "run 1 of this study is RUNNING on this cluster" in second.stderr
    assert "tune-sentcl jobs stop" in second.stderr
    # Another that follows joins it, and leaves it alone when it goes.
    with subprocess.Popen(
        command(head, "submit", "smoke", "--study", study, "--follow"),
        env=head.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as joined:
        assert joined.stdout is not None
        assert any("Running entrypoint" in line for line in joined.stdout)
        joined.send_signal(signal.SIGTERM)  # as Ctrl-C, which those without a terminal ignore
        _, said = joined.communicate()
    assert joined.returncode == 143
    assert "run 1 is RUNNING already and goes on. Its command is another: python" in said
    assert "run 1 goes on; only this command ends" in said
    assert [one["status"] for one in runs(head, study)] == ["RUNNING"]
    stopped = run(head, "jobs", "stop", study)
    assert stopped.returncode == 0, stopped.stderr
    assert "run 1 is over: STOPPED" in stopped.stdout
    assert not set(drivers) & set(descendants(head.head.process.pid))
    assert "was over: STOPPED" in run(head, "jobs", "stop", study).stdout
    held = len(rows(study))
    again = run(head, "submit", "smoke", "--study", study, "--follow")
    assert again.returncode == 0, again.stderr
    assert len(rows(study)) >= held
    assert [one["status"] for one in runs(head, study)] == ["STOPPED", "SUCCEEDED"]


@pytest.mark.cluster
def test_of_two_that_submit_at_once_one_wins(head: Cluster, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    line = f"sh -c 'echo began >> {marks}'"
    pair = [ordering(head, tmp_path, line) for _ in range(2)]
    for one in pair:  # both are connected, and wait for this
        assert one.stdin is not None
        one.stdin.close()
        one.stdin = None
    ended = [(*one.communicate(), one.returncode) for one in pair]
    (won,) = [end for end in ended if end[2] == 0]
    (lost,) = [end for end in ended if end[2] != 0]
    assert won[0].startswith("tune-sentcl-")
    assert re.search(r"run 1 of this study is [A-Z]+ on this cluster\. Follow it", lost[1]), lost
    assert run(head, "jobs", "logs", tmp_path, "--follow").returncode == 0
    assert marks.read_text() == "began\n"
    assert len(runs(head, tmp_path)) == 1


class CuttingProxy:
    """Passes connections on to a port, and cuts every third in the middle of its answer."""

    def __init__(self, target: int) -> None:
        self.target, (self.port,) = target, free_ports(1)
        self.connections = 0
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self.connections += 1
                cut = self.connections > 4 and self.connections % 3 == 0
                threading.Thread(target=self._pass, args=(client, cut), daemon=True).start()

    def _pass(self, client: socket.socket, cut: bool) -> None:
        with client, socket.create_connection((LOOPBACK, self.target)) as server:
            threading.Thread(target=_copy, args=(client, server), daemon=True).start()
            _copy(server, client, 300 if cut else None)

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


def _copy(source: socket.socket, target: socket.socket, most: int | None = None) -> None:
    passed = 0
    with suppress(OSError):
        while data := source.recv(65536):
            if most is not None and passed + len(data) > most:
                target.sendall(data[: most - passed])
                for end in (source, target):
                    end.shutdown(socket.SHUT_RDWR)
                return
            target.sendall(data)
            passed += len(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def proxied(dashboard: str) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(int(dashboard.rpartition(":")[2]))
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.mark.cluster
def test_a_log_is_followed_over_broken_connections(head: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = (
        "import time, pathlib\n"
        "for n in range(60):\n"
        "    print(f'line {n} of this log, with an é', flush=True)\n"
        "    time.sleep(0.2)\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.1)\n"
        "print('the end')\n"
    )
    submit_command(head, tmp_path, f"python -c {shlex.quote(code)}")
    with proxied(head.dashboard) as proxy:
        words = ["jobs", "logs", str(tmp_path), "--follow"]
        with subprocess.Popen(
            [*command(head, *words)[:-1], f"http://127.0.0.1:{proxy.port}"],
            env=head.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as followed:
            assert followed.stdout is not None and followed.stderr is not None
            seen = []
            for line in followed.stdout:
                seen.append(line)
                if "line 30" in line:
                    break
            wait_until(lambda: proxy.connections > 30, "connections that were cut")
            gate.touch()
            text = "".join(seen) + followed.stdout.read()
            said = followed.stderr.read()
    assert followed.returncode == 0, said
    told = [line for line in text.splitlines() if line.startswith(("line", "the end"))]
    assert told == [*(f"line {n} of this log, with an é" for n in range(60)), "the end"]
    assert "asking again" in said and "the dashboard answers again" in said
    assert "Traceback" not in said


@pytest.mark.cluster
def test_a_run_that_fails_says_why(head: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "nothing"
    arguments = ("--set", "data.source=nli", "--data", data, "--study", tmp_path / "study")
    done = run(head, "submit", "smoke", *arguments, "--follow")
    assert done.returncode == 2  # the driver's: its input was bad
    assert str(data) in done.stdout
    assert "run 1 is over: FAILED" in done.stderr
    (only,) = runs(head, tmp_path / "study")
    assert (only["status"], str(data) in only["message"]) == ("FAILED", True)


def test_an_entrance_without_the_token_is_refused_in_a_sentence(
    head: Cluster, tmp_path: Path
) -> None:
    cases = {
        "no token was sent": {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": ""},
        "it refuses the token that was sent": {"RAY_AUTH_TOKEN": OTHER},
    }
    for why, variables in cases.items():
        done = run(head, "submit", "smoke", "--study", tmp_path, **variables)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert f"this cluster lets in who has its token, and {why}. Set" in done.stderr
    assert runs(head, tmp_path) == []


def test_no_token_is_in_what_others_see(head: Cluster, tmp_path: Path) -> None:
    submit_command(head, tmp_path, "sleep 600")
    try:
        wait_until(lambda: runs(head, tmp_path)[0]["status"] == "RUNNING", "a job")
        code = (
            "import sys; from ray.job_submission import JobSubmissionClient as C; "
            "print(*C(sys.argv[1]).list_jobs())"
        )
        listed = subprocess.run(
            [sys.executable, "-c", code, head.dashboard],
            env=head.environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert "tune-sentcl-" in listed.stdout
        assert TOKEN not in listed.stdout
        assert not any(TOKEN in line for line in descendants(head.head.process.pid).values())
    finally:
        assert run(head, "jobs", "stop", tmp_path).returncode == 0


@pytest.mark.cluster
def test_a_study_without_a_job_is_named(head: Cluster, tmp_path: Path) -> None:
    for words in (("status",), ("logs", "--follow"), ("stop",)):
        done = run(head, "jobs", *words, tmp_path)
        assert done.returncode == 2
        assert "this cluster knows no job of this study" in done.stderr


class Page(BaseHTTPRequestHandler):
    """A web server that is no dashboard."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b"<html>Welcome</html>")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (200, "another program answers there (JSONDecodeError)"),
        (404, "another program answers there (RuntimeError)"),
        (500, "another program answers there (status 500)"),
        (None, "nothing answers there (ConnectionError)"),
    ],
)
def test_what_is_no_dashboard_is_named(status: int | None, why: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    handler = type("Handler", (Page,), {"status": status})
    arguments = [sys.executable, "-m", "tune_sentcl", "jobs", "status", "/s", "--address", address]
    with HTTPServer(("127.0.0.1", port), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        if status is None:
            server.server_close()
        else:
            serving.start()
        try:
            done = subprocess.run(
                arguments,
                env=environment(tmp_path, PYTHONPATH=os.environ.get("PYTHONPATH", "")),
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            if status is not None:
                server.shutdown()
                serving.join()
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    rule = f"--address: {address}: must be the address of a Ray dashboard, but {why}. "
    assert rule in done.stderr


class NoAgent(BaseHTTPRequestHandler):
    """A dashboard whose agent is away: it says its version, and no more."""

    late: bool
    over: threading.Event

    def do_GET(self) -> None:
        known = self.path == "/api/version"
        if self.late and not known:
            self.over.wait()
        self.send_response(200 if known else 500)
        self.end_headers()
        version = {"version": "4", "ray_version": "2.60.0", "ray_commit": ""}
        self.wfile.write(json.dumps(version).encode() if known else b"No available agent")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("late", "why"), [(False, "status 500, No available agent."), (True, "no answer in 0.5 s")]
)
def test_a_dashboard_that_answers_is_not_blamed(
    late: bool, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tune_sentcl.launch.ray import jobs

    monkeypatch.setattr(jobs, "_TIMES", (10.0, 0.5))
    over = threading.Event()
    handler = type("Handler", (NoAgent,), {"late": late, "over": over})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            with pytest.raises(jobs.NoAnswerError) as caught:
                jobs.Jobs(f"http://127.0.0.1:{server.server_port}").runs("/study")
        finally:
            over.set()
            server.shutdown()
    rule = "the Ray dashboard answers, but the head's agent for jobs does not"
    assert caught.value.faults[0].rule == f"{rule} ({why})"


@pytest.mark.cluster
def test_the_address_given_wins_over_the_environment(head: Cluster, tmp_path: Path) -> None:
    (closed,) = free_ports(1)
    elsewhere = f"http://127.0.0.1:{closed}"
    done = run(head, "jobs", "status", tmp_path, "--json", RAY_API_SERVER_ADDRESS=elsewhere)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
