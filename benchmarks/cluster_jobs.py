"""Measure the costs of a submitted search on the head: time, memory of driver and supervisor.

The script starts a Ray head with dashboard and token on loopback, and submits a search of the
space `smoke` with many seeds, as users do. It reads the memory after a few trials have ended: RSS
counts pages that processes share in each, PSS divides them.

    python benchmarks/cluster_jobs.py [--quick] [--json]
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "cluster")]

from clusters import Cluster, cluster  # noqa: E402 - found by the line above
from measuring import Row, finish, options  # noqa: E402
from processes import descendants, wait_until  # noqa: E402

from tune_sentcl.errors import StudyError  # noqa: E402
from tune_sentcl.store.study import Study  # noqa: E402

PROCESSES = {"supervisor": "ray::JobSupervisor", "driver": "python -m tune_sentcl search"}
SEEDS = ",".join(map(str, range(200)))


def main() -> None:
    """Measure and print."""
    given = options(__doc__)
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder) / "head") as head:
        found = _measured(head, Path(folder) / "study", 2 if given.quick else 10)
    rows = [Row(part, value, None, "none", unit) for (part, unit), value in found.items()]
    finish(rows, given.json)


def _measured(head: Cluster, study: Path, rows: int) -> dict[tuple[str, str], float]:
    began = time.monotonic()
    _told(head, "submit", "smoke", "--study", str(study), "--seeds", SEEDS)
    submitted = time.monotonic()
    wait_until(lambda: _pid_of(head, PROCESSES["driver"]), "the driver")
    driving = time.monotonic()
    wait_until(lambda: _rows(study) >= 1, "a row")
    first = time.monotonic()
    wait_until(lambda: _rows(study) >= rows, f"{rows} rows")
    found = {
        ("submit", "s"): submitted - began,
        ("submitted to driver", "s"): driving - submitted,
        ("driver to first row", "s"): first - driving,
    }
    for name, command in PROCESSES.items():
        for kind, size in _memory(_pid_of(head, command)).items():
            found[f"{name}, {kind}", "MB"] = size
    asked = time.monotonic()
    head.ray_job("stop", study)
    return {**found, ("ray job stop", "s"): time.monotonic() - asked}


def _told(head: Cluster, *words: str) -> None:
    command = [sys.executable, "-m", "tune_sentcl", *words, "--address", head.dashboard]
    subprocess.run(command, env=head.environment(), stdout=subprocess.DEVNULL, check=True)


def _pid_of(head: Cluster, command: str) -> int:
    found = [p for p, c in descendants(head.head.process.pid).items() if c.startswith(command)]
    return found[0] if found else 0


def _rows(study: Path) -> int:
    try:
        return len(Study.read(study).ended())
    except StudyError:
        return 0


def _memory(pid: int) -> dict[str, float]:
    text = (Path("/proc") / str(pid) / "smaps_rollup").read_text()
    sizes = re.findall(r"^(Rss|Pss): +(\d+) kB", text, re.MULTILINE)
    return {kind.upper(): int(size) / 1024 for kind, size in sizes}


if __name__ == "__main__":
    main()
