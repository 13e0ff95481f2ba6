"""optuna-dashboard on a study's journal: the real server, asked by HTTP on loopback."""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until
from search_samples import LAMBDA, lambda_space, mirrored, run_planted
from staged import fate, run_staged
from stand_in import StandIn, Stopped

LAMBDA_KEY = "method.lambda"
LAMBDAS = (0.25, 0.5, 0.75)
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    for port in range(21000 + os.getpid() % 8000, 32000):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)):
                return port
    raise RuntimeError("no free port")


@contextmanager
def dashboard(journal: Path) -> Iterator[str]:
    """The dashboard of a journal; its address."""
    address = f"127.0.0.1:{free_port()}"
    host, port = address.split(":")
    command = [sys.executable, "-m", "optuna_dashboard._cli", str(journal)]
    log = journal.parent.parent / "dashboard.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*command, "--host", host, "--port", port], stdout=out, stderr=out
        ) as server,
    ):
        try:
            wait_until(lambda: server.poll() is not None or answers(address), "the dashboard")
            assert server.poll() is None, log.read_text()
            yield address
        finally:
            server.terminate()


def answers(address: str) -> bool:
    try:
        return bool(asked(address, "studies"))
    except OSError:
        return False


def asked(address: str, what: str) -> Any:
    with DIRECT.open(f"http://{address}/api/{what}", timeout=30) as answer:
        return json.load(answer)


def trials(address: str) -> list[dict[str, Any]]:
    """What the dashboard shows of the journal's only study."""
    (study,) = asked(address, "studies")["study_summaries"]
    found: list[dict[str, Any]] = asked(address, f"studies/{study['study_id']}")["trials"]
    return found


def states(address: str) -> Counter[str]:
    return Counter(trial["state"] for trial in trials(address))


@pytest.mark.long
@pytest.mark.parametrize(
    ("ranges", "due"),
    [
        ("", {3: {"Complete": 1}, 5: {"Complete": 1, "Fail": 1}}),
        (
            LAMBDA,
            {
                10: {"Complete": 1, "Fail": 1},  # those that are paused may go on
                11: {"Complete": 2, "Pruned": 3, "Fail": 1},
            },
        ),
    ],
    ids=["a grid alone", "ranges"],
)
def test_the_dashboard_shows_what_has_ended_of_a_search(
    tmp_path: Path, ranges: str, due: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grid's points lie in no range; their axes are then the grid's own."""
    study, calls = tmp_path / "study", count(1)
    with ExitStack() as stack:
        address = ""

        def look() -> None:
            nonlocal address
            address = address or stack.enter_context(dashboard(study / "optuna.journal"))
            if expected := due.pop(next(calls), None):  # it remembers trials for ten seconds
                wait_until(lambda: states(address) == expected, f"{expected}, as the trials are")

        class Watched(StandIn):
            def _die(self) -> None:  # behind each point, and before each end
                look()

        run_staged(tmp_path, Watched(study, fate), monkeypatch, ranges=ranges)
        look()
        assert not due
        found = trials(address)
    shown = {one["params"][0]["param_external_value"]: one for one in found}
    assert {param["name"] for one in found for param in one["params"]} == {LAMBDA_KEY}
    assert shown["0.25"]["state"] == "Complete" and len(shown["0.25"]["values"]) == 1
    assert shown["0.75"]["state"] == "Fail"
    points = [
        [(point["step"], point["value"]) for point in one["intermediate_values"]]
        for key, one in shown.items()
        if key not in ("0.25", "0.75")
    ]
    assert points == ([[(25, 10.0)]] * 4 if ranges else [])


def test_a_journal_is_written_anew_after_a_kill(tmp_path: Path) -> None:
    study, space = tmp_path / "study", lambda_space(tmp_path / "space", *LAMBDAS, ranges=LAMBDA)
    with pytest.raises(Stopped):
        run_planted(space, study, StandIn(study, points=2))
    assert Counter(trial.state.name for trial in mirrored(study)) == {"COMPLETE": 1}
    run_planted(space, study)
    assert Counter(trial.state.name for trial in mirrored(study)) == {"COMPLETE": 3}
