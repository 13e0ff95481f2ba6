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
from stand_in import Fate, StandIn, Stopped

from tune_sentcl.config import TrialConfig

LAMBDA_KEY = "method.lambda"
LAMBDAS = (0.25, 0.5, 0.75)
FATES: dict[float, Fate] = {0.25: "finish", 0.5: "prune", 0.75: "fail"}
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fate(config: TrialConfig) -> Fate:
    return FATES.get(config.dotted()["method.lambda"], "finish")


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
@pytest.mark.parametrize("ranges", ["", LAMBDA], ids=["a grid alone", "ranges"])
def test_the_dashboard_shows_a_search_as_it_runs(tmp_path: Path, ranges: str) -> None:
    """A grid's points lie in no range; their axes are then the grid's own."""
    study = tmp_path / "study"
    space = lambda_space(tmp_path / "space", *LAMBDAS, ranges=ranges)
    due = {
        1: {"Running": 2},
        5: {"Complete": 1, "Pruned": 1, "Running": 1},
        7: {"Complete": 1, "Pruned": 1, "Fail": 1},
    }
    calls = count(1)
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

        run_planted(space, study, Watched(study, fate))
        look()
        assert not due
        (one, other, last) = trials(address)
    assert {one["state"], other["state"], last["state"]} == {"Complete", "Pruned", "Fail"}
    shown = {one["params"][0]["param_external_value"]: one for one in (one, other, last)}
    assert {param["name"] for one in shown.values() for param in one["params"]} == {LAMBDA_KEY}
    assert len(shown["0.25"]["values"]) == 1
    (point,) = shown["0.5"]["intermediate_values"]
    assert (point["step"], point["value"]) == (32, 10.0)


def test_the_journal_goes_on_where_a_driver_was_killed(tmp_path: Path) -> None:
    """A dashboard that is open all the time reads on where it was."""
    study, space = tmp_path / "study", lambda_space(tmp_path / "space", *LAMBDAS, ranges=LAMBDA)
    with pytest.raises(Stopped):
        run_planted(space, study, StandIn(study, points=2))
    before = (study / "optuna.journal").read_bytes()
    assert Counter(trial.state.name for trial in mirrored(study))["RUNNING"]
    run_planted(space, study)
    assert (study / "optuna.journal").read_bytes().startswith(before)
    assert Counter(trial.state.name for trial in mirrored(study)) == {"COMPLETE": 3}
