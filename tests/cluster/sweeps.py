"""Searches submitted to a cluster, and what their studies hold in the end."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from clusters import Cluster, Node, cluster
from networks import Machine
from processes import descendants

from tune_sentcl.errors import StudyError
from tune_sentcl.store.study import Study

SPACE = """
name = "faults"
[fixed]
encoder.checkpoint = "toy"
encoder.pooling = "mean"
data.source = "toy"
data.limit = 64
optimizer.lr = 1e-3
optimizer.batch_size = 32
optimizer.epochs = {epochs}
evaluation.every = 40
[[block]]
fixed.method.name = "scl"
grid.method.lambda = {lambdas}
"""
OFTEN = ("--save-every", "0.001")
# How soon Ray gives up a node that does not answer.
SOON = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
}


def written_space(path: Path, trials: int, epochs: int) -> Path:
    """A space of so many trials that differ in lambda."""
    lambdas = [n / trials for n in range(trials)]
    path.write_text(SPACE.format(epochs=epochs, lambdas=lambdas))
    return path


def undisturbed(space: Path, study: Path) -> Path:
    """The study of a search that nothing disturbs."""
    words = ["search", str(space), "--study", str(study), *OFTEN]
    subprocess.run([sys.executable, "-m", "tune_sentcl", *words], check=True, capture_output=True)
    return study


@contextmanager
def three_nodes(folder: Path, machines: Sequence[Machine] = (), **more: str) -> Iterator[Cluster]:
    """A head without cores and three nodes of one core each; on loopback without machines."""
    variables: dict[str, Any] = {"TUNE_SENTCL_ANSWER_SECONDS": "240", **more}
    places: list[dict[str, Any]] = [{"ip": m.ip, "prefix": m.prefix} for m in machines]
    first, *others = places or [{}] * 4
    with cluster(folder, cpus=0, **first, **variables) as found:
        for place in others:
            found.add_node(**place)
        yield found


class Client:
    """A command at work, whose words are kept in a file."""

    def __init__(
        self, log: Path, prefix: Sequence[str], words: Sequence[object], variables: dict[str, str]
    ) -> None:
        self._log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "tune_sentcl", *map(str, words)],
                env=variables,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        """All its words up to now."""
        return self._log.read_text()

    def ends(self, code: int | None = 0, seconds: float = 900) -> str:
        """Wait for its end; None: any code but 0. Returns all its words."""
        found = self.process.wait(timeout=seconds)
        assert found == code if code is not None else found != 0, self.said
        return self.said


def submitted(head: Cluster, space: Path, study: Path | str) -> Client:
    """A process that has submitted the search and follows it to its end."""
    log = head.home / f"client-{len(list(head.home.glob('client-*')))}.log"
    words = ["submit", space, "--study", study, "--follow", *OFTEN, "--address", head.dashboard]
    return Client(log, head.prefix, words, head.environment())


def first_driver_s(study: Path) -> set[str]:
    """The trials whose rows are the first driver's."""
    return {row["trial_id"] for row in rows(study) if row["attempt_files"].startswith("1-")}


def states(study: Path) -> list[Path]:
    return [mark.parent for mark in study.glob("states/[0-9a-f]*/complete")]


def rows(study: Path | str) -> list[dict[str, Any]]:
    """The trials of a study; none before there is one."""
    with suppress(StudyError):
        return list(Study.read(study).trials().to_pylist())
    return []


def numbers(study: Path | str) -> dict[str, set[tuple[Any, ...]]]:
    """All scores and all points of curves but those that tell of time."""
    read = Study.read(study)
    return {
        "scores": {tuple(row.values()) for row in read.scores().to_pylist()},
        "curves": {tuple(row.values()) for row in read.curves().to_pylist()},
    }


def ends_as(study: Path, whole: Path) -> None:
    """Every trial is there once, with the same scores and curves, and nothing is left over."""
    expected = {row["trial_id"] for row in rows(whole)}
    assert [row["status"] for row in rows(study)] == ["finished"] * len(expected)
    assert {row["trial_id"] for row in rows(study)} == expected
    assert numbers(study) == numbers(whole)
    assert states(study) == []


def driver_of(head: Cluster) -> int:
    """The process that the job's shell runs."""
    family = descendants(head.head.process.pid)
    found = {pid: words for pid, words in family.items() if " tune_sentcl search " in words}
    return next(pid for pid, words in found.items() if not words.startswith("/bin/sh "))


def drain(head: Cluster, node: Node) -> None:
    """Tell the cluster that a node is draining, as a cloud's notice does."""
    words = " ".join(descendants(node.process.pid).values())
    found = re.search(r"--node_id=([0-9a-f]{56})", words)
    assert found, words
    told = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", "--address", head.gcs]
    told += ["--node-id", found[1], "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
    told += ["--reason-message", "a test's"]
    variables = head.environment()
    subprocess.run([*head.prefix, *told], check=True, capture_output=True, env=variables)
