"""One study of thirty trials on a cluster that loses drivers, workers, nodes and ways.

TUNE_SENTCL_CHAOS_ROUNDS=20 pytest --log-cli-level=INFO \
        tests/cluster/test_cluster_chaos.py
"""

import itertools
import json
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from clusters import Cluster
from networks import Machine, network
from processes import alive, descendants, wait_until
from search_samples import mirrored
from sweeps import (
    OFTEN,
    SOON,
    Client,
    drain,
    driver_of,
    ends_as,
    rows,
    states,
    submitted,
    three_nodes,
    undisturbed,
    written_space,
)

# Some waits are longer than other tests may take.
pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(2400)]

ROUNDS = int(os.environ.get("TUNE_SENTCL_CHAOS_ROUNDS", "9"))
"""Each fault comes once in nine rounds."""
TRIALS = 30
_log = logging.getLogger(__name__)


class Chaos:
    """A cluster and a study, and what is done to them.

    Attributes:
        reached: The last step of each trial of which a state was seen before something was done.
            Not counted is what is seen right behind the loss of a node: what ran there goes on for
            a moment, and may write a state that its successor, which began before, never read.
    """

    def __init__(
        self, head: Cluster, machines: tuple[Machine, ...], space: Path, study: Path
    ) -> None:
        self._head, self._machines, self._space, self._study = head, machines, space, study
        self._chance = random.Random(7)
        self._follower: Client | None = None
        self._nodes = dict(zip(machines[1:], head.nodes, strict=True))
        self._haunted = False
        self._reached: dict[tuple[str, str], int] = {}
        faults = list(self._faults().items())
        self._chance.shuffle(faults)
        self._in_turn = itertools.cycle(faults)

    def round(self) -> str:
        """Let the search get somewhere, then do something to it; returns what."""
        name, strike = next(self._in_turn)
        follower = self._running()
        there = self._progress()
        wait_until(
            lambda: self._progress() != there or follower.process.poll() is not None, "progress"
        )
        for state in () if self._haunted else states(self._study):
            with suppress(OSError, ValueError):  # replaced, or gone with its trial's end
                step = json.loads((state / "state.json").read_text())["number"]
                trial_id, attempt, _ = state.name.split(".")
                self._reached[trial_id, attempt] = step
        strike(self._chance.choice(self._machines[1:]))
        self._haunted = name.startswith("a node ") and name != "a node drained"
        return name

    def reached(self, trial_id: str, but: str) -> int:
        """The last step of a trial that was seen in a state, one attempt's states left out."""
        seen = self._reached.items()
        return max(
            (step for (name, by), step in seen if name == trial_id and by != but), default=0
        )

    def end(self) -> None:
        """Let whoever is at work end, then whoever asks for the rest."""
        self._running().process.wait(timeout=900)
        submitted(self._head, self._space, self._study).ends()

    def _faults(self) -> dict[str, Callable[[Machine], None]]:
        return {
            "the driver killed": lambda _: self._kill_driver(signal.SIGKILL),
            "the driver asked to end": lambda _: self._kill_driver(signal.SIGTERM),
            "a worker killed": self._kill_worker,
            "a node killed": self._kill_node,
            "a node cut off for long": self._cut_for_long,
            "a node cut off for a moment": self._cut_for_a_moment,
            "a node drained": self._drain,
            "a second driver": lambda _: self._second_driver(),
            "the search stopped": lambda _: self._stop(),
        }

    def _running(self) -> Client:
        if self._follower is None or self._follower.process.poll() is not None:
            self._follower = submitted(self._head, self._space, self._study)
        return self._follower

    def _progress(self) -> object:
        times = []
        for path in states(self._study):
            with suppress(OSError):
                times.append(path.stat().st_mtime_ns)
        return len(rows(self._study)), max(times, default=0)

    def _kill_driver(self, how: signal.Signals) -> None:
        with suppress(StopIteration, ProcessLookupError):  # it has ended by itself
            os.kill(driver_of(self._head), how)

    def _workers(self, machine: Machine) -> set[int]:
        family = descendants(self._nodes[machine].process.pid)
        return {pid for pid, words in family.items() if words.startswith("ray::ImplicitFunc")}

    def _kill_worker(self, machine: Machine) -> None:
        for pid in self._workers(machine):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _kill_node(self, machine: Machine) -> None:
        self._nodes[machine].kill()
        self._replace(machine)

    def _replace(self, machine: Machine) -> None:
        self._nodes[machine] = self._head.add_node(ip=machine.ip, prefix=machine.prefix)

    def _cut_for_long(self, machine: Machine) -> None:
        """Until the cluster gives the node up, which then ends as soon as it hears of that."""
        family = set(descendants(self._nodes[machine].process.pid))
        machine.cut()
        wait_until(lambda: self._dead() & {machine.ip}, "the cluster to give it up")
        machine.mend()
        wait_until(lambda: not alive(family), "its end")
        self._replace(machine)

    def _dead(self) -> set[str]:
        """Addresses at which no node lives."""
        code = (
            "import ray; ray.init(address='auto', log_to_driver=False, logging_level='ERROR')\n"
            "print(*{n['NodeManagerAddress'] for n in ray.nodes() if n['Alive']})"
        )
        done = subprocess.run(
            [*self._head.prefix, sys.executable, "-c", code],
            env=self._head.environment(RAY_ADDRESS=self._head.gcs),
            check=True,
            capture_output=True,
            text=True,
        )
        return {machine.ip for machine in self._machines} - set(done.stdout.split())

    def _cut_for_a_moment(self, machine: Machine) -> None:
        machine.cut()
        there = self._progress()
        with suppress(TimeoutError):  # the others have nothing to do
            wait_until(lambda: self._progress() != there, "the others' progress", 5.0)
        machine.mend()

    def _drain(self, machine: Machine) -> None:
        node = self._nodes[machine]
        drain(self._head, node)
        wait_until(lambda: not self._workers(machine), "its trials to leave")
        node.end()
        self._replace(machine)

    def _second_driver(self) -> None:
        words = ["search", self._space, "--study", self._study, "--address", self._head.gcs]
        log = self._head.home / "second.log"
        other = Client(log, self._head.prefix, [*words, *OFTEN], self._head.environment())
        code = other.process.wait(timeout=900)
        # The first one may have ended meanwhile.
        assert code in (0, 2), other.said
        assert code == 0 or "another driver writes to this study" in other.said, other.said

    def _stop(self) -> None:
        run = len(self._head.statuses(self._study))
        self._head.ray_job("stop", self._study, run)


def test_chaos_loses_nothing_and_repeats_little(tmp_path: Path) -> None:
    space = written_space(tmp_path / "chaos.toml", trials=TRIALS, epochs=60)
    whole = undisturbed(space, tmp_path / "whole")
    study = tmp_path / "study"
    with (
        network(3) as machines,
        three_nodes(tmp_path / "cluster", machines, **SOON) as head,
    ):
        chaos = Chaos(head, machines, space, study)
        for number in range(1, ROUNDS + 1):
            what = chaos.round()
            found = rows(study)
            _log.info("round %d: %s, %d rows", number, what, len(found))
            assert len({row["trial_id"] for row in found}) == len(found)
            assert {row["status"] for row in found} <= {"finished"}
        chaos.end()
    ends_as(study, whole)
    went_on = 0
    for row in rows(study):
        words = (row["notes"] or "").partition("continued from step ")[2].split()
        went_on += bool(words)
        lost = chaos.reached(row["trial_id"], but=row["attempt_files"])
        assert not words or int(words[0]) >= lost
        assert "started again" not in (row["notes"] or "")
    _log.info("%d of %d trials went on from what a lost attempt had left", went_on, TRIALS)
    assert {trial.state.name for trial in mirrored(study)} == {"COMPLETE"}
    left = [path.name for path in study.rglob(".*") if path.name != ".lease"]
    assert left == []
