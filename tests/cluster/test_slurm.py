"""The Slurm script; a stand-in takes the scheduler's place alone, and the nodes are Ray's."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster_folder import FOLDER, ROOT
from processes import alive, descendants, processes, wait_until

from tune_sentcl import read_study
from tune_sentcl.store.study import Study

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.cluster]

# As srun: one task a node, each told which it is; a signal to it goes to all of them.
SRUN = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do
  [[ $1 == --ntasks=* ]] && tasks=${1#*=}
  shift
done
for ((node = 0; node < tasks; node++)); do
  SLURM_NODEID=$node SLURM_PROCID=$node "$@" &
  pids+=($!)
done
trap 'kill -TERM "${pids[@]}"' TERM
for pid in "${pids[@]}"; do while kill -0 $pid 2>/dev/null; do wait $pid; done; done
"""
SCONTROL = """#!/usr/bin/env bash
echo "$@" >> "$ASKED_OF_SCONTROL"
"""


class Scheduler:
    """What Slurm does for a job: gives it a number, variables and a signal."""

    def __init__(self, folder: Path, job: int, nodes: int) -> None:
        tools = folder / "bin"
        tools.mkdir()
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        (folder / "home").mkdir()
        self.folder, self.asked = folder, folder / "asked"
        path = [str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]
        self.environment = {
            **{n: v for n, v in os.environ.items() if not n.startswith(("RAY_", "SLURM_"))},
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder / "home"),
            "ASKED_OF_SCONTROL": str(self.asked),
            "SLURM_JOB_ID": str(job),
            "SLURM_JOB_NUM_NODES": str(nodes),
            "SLURM_CPUS_PER_TASK": "1",
            "SLURM_SUBMIT_DIR": str(folder),
            "TUNE_SENTCL_HEAD_IP": "127.0.0.1",
        }

    @contextmanager
    def job(self, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
        """The script as it runs on node 0; all that it started is gone afterwards."""
        with (self.folder / "said").open("w") as said:
            script = FOLDER / "slurm" / "search.sbatch"
            started = subprocess.Popen(
                ["bash", str(script), *words],
                cwd=self.folder,
                env=self.environment,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                yield started
            finally:
                left = {started.pid, *descendants(started.pid)}
                for pid in alive(left):
                    os.kill(pid, signal.SIGKILL)
                started.wait()

    def said(self) -> str:
        return (self.folder / "said").read_text()

    def token(self) -> Path:
        return self.folder / ".tune-sentcl" / self.environment["SLURM_JOB_ID"] / "auth_token"


def job_number() -> int:
    """One that no other test has at the time, for a job's ports follow from it."""
    return os.getpid() * 13 % 1_000_000


def test_two_nodes_finish_a_search(tmp_path: Path) -> None:
    scheduler, study = Scheduler(tmp_path, job_number(), 2), tmp_path / "study"
    with scheduler.job("smoke", "--study", str(study), "--max-concurrent", "2") as job:
        wait_until(lambda: study.exists() or job.poll() is not None, "the search")
        token, seen = scheduler.token().read_text(), descendants(job.pid)
        assert scheduler.token().stat().st_mode & 0o077 == 0
        assert not [command for _, command in processes().values() if token in command]
        assert job.wait() == 0, scheduler.said()
    assert "2 of 2 nodes are up" in scheduler.said()
    assert list(read_study(str(study)).trials.status) == ["finished"] * 2
    assert_gone(scheduler, seen)
    assert token not in scheduler.said() and not scheduler.asked.exists()


def test_before_its_time_is_over_it_ends_cleanly_and_goes_on_when_queued_again(
    tmp_path: Path,
) -> None:
    scheduler, study = Scheduler(tmp_path, job_number() + 1, 1), tmp_path / "study"
    words = ("smoke", "--study", str(study), "--seeds", "0,1,2,3")
    with scheduler.job(*words) as job:
        wait_until(lambda: any(study.glob("trials/*.parquet")) or job.poll(), "the first row")
        seen = descendants(job.pid)
        os.kill(job.pid, signal.SIGUSR2)  # to the script alone, as B: has it
        assert job.wait() == 143, scheduler.said()
    number = scheduler.environment["SLURM_JOB_ID"]
    assert scheduler.asked.read_text() == f"requeue {number}\n"
    assert_gone(scheduler, seen)
    rows = Study.read(study).trials().to_pylist()
    assert {row["status"] for row in rows} == {"finished"} and 0 < len(rows) < 8
    with scheduler.job(*words) as job:
        assert job.wait() == 0, scheduler.said()
    trials = read_study(str(study)).trials
    assert list(trials.status) == ["finished"] * 8 and trials.trial_id.is_unique
    assert scheduler.asked.read_text() == f"requeue {number}\n"


def test_a_job_that_is_cancelled_is_not_queued_again(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path, job_number() + 2, 1)
    with scheduler.job("smoke", "--study", str(tmp_path / "study")) as job:
        wait_until(lambda: "nodes are up" in scheduler.said() or job.poll(), "the nodes")
        seen = descendants(job.pid)
        job.terminate()
        assert job.wait() == 143, scheduler.said()
    assert_gone(scheduler, seen)
    assert not scheduler.asked.exists()


def assert_gone(scheduler: Scheduler, seen: dict[int, str]) -> None:
    """Nothing of a job is left; Ray's helpers see within a second that their node has ended."""
    wait_until(lambda: not alive(seen), "the end of the nodes", 30)
    folders = [command.partition("--temp-dir=")[2].split() for command in seen.values()]
    named = {Path(words[0]) for words in folders if words and words[0].startswith("/tmp/")}
    assert named and not [folder for folder in named if folder.exists()]
    assert not scheduler.token().parent.exists()
