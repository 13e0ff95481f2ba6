"""The Slurm script under a real Slurm: one controller and two nodes, all on this machine.

Slurm, its key and its files belong to the user that runs the tests; root is not needed. The tests
are skipped where Slurm or munge is not installed.
"""

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from clusters import FOLDER, ROOT, free_ports
from processes import processes, wait_until

from tune_sentcl import read_study
from tune_sentcl.store.study import Study

PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
USER = pwd.getpwuid(os.geteuid()).pw_name
MISSING = [tool for tool in ("slurmctld", "slurmd", "munged") if not shutil.which(tool, path=PATH)]
pytestmark = [
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]

# cred_expire: so long a job that is queued again waits. NoInAddrAny: daemons listen on loopback.
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
FirstJobId={job}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=1
PartitionName=all Nodes=ALL Default=YES
"""
TRIALS = 32
SEEDS = ",".join(map(str, range(TRIALS // 2)))


class Slurm:
    """A Slurm of its own, found by its configuration's path in its processes' environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        controller, first, second = free_ports(3)
        config = CONFIG.format(
            host=socket.gethostname().partition(".")[0],
            user=USER,
            folder=folder,
            controller=controller,
            first=first,
            second=second,
            job=os.getpid() * 13 % 1_000_000 + 1,  # the ports of a job follow from its number
        )
        (folder / "slurm.conf").write_text(config)
        (folder / "munge.key").write_bytes(os.urandom(64))
        (folder / "munge.key").chmod(0o600)
        known = (n for n in os.environ if not n.startswith(("RAY_", "SLURM_", "SBATCH_")))
        self.environment = {
            **{name: os.environ[name] for name in known},
            "PATH": PATH,
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "SLURM_CONF": str(folder / "slurm.conf"),
        }

    def start(self) -> None:
        munge = ("key-file=munge.key", "socket=munge.socket", "pid-file=pid", "seed-file=seed")
        options = [
            f"--{name}={self.folder / file}" for name, file in (m.split("=") for m in munge)
        ]
        # --force: the socket's folder is closed to other users.
        self._daemon("munged", "--foreground", "--force", f"--log-file={self.folder}/m", *options)
        wait_until((self.folder / "munge.socket").exists, "munged")
        self._daemon("slurmctld", "-D", "-i")
        for node in ("n1", "n2"):
            (self.folder / node).mkdir()
            self._daemon("slurmd", "-D", "-N", node)
        wait_until(lambda: self.ask("sinfo", "-h", "-o%D%t") == "2idle", "the nodes of Slurm")

    def _daemon(self, *command: str) -> None:
        with (self.folder / f"{command[0]}-{command[-1]}.log".replace("/", "")).open("w") as log:
            started = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self._daemons.append(started)

    def ask(self, *command: str, cwd: Path | None = None) -> str:
        """What a command of Slurm prints; nothing if it fails, as before the controller is up."""
        done = subprocess.run(
            command, cwd=cwd, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    def pids(self) -> set[int]:
        return having(f"SLURM_CONF={self.folder}/slurm.conf")

    def end(self) -> None:
        """End the jobs, then every process."""
        self.ask("scancel", "--user", USER)
        with suppress(TimeoutError):
            wait_until(lambda: not self.ask("squeue", "-h"), "the end of the jobs", 60)
        folders = node_folders(self.pids())
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for daemon in self._daemons:
            daemon.wait()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def having(variable: str) -> set[int]:
    """The processes that were started with this variable."""
    return {pid for pid in processes() if variable.encode() in variables_of(pid)}


def variables_of(pid: int) -> list[bytes]:
    with suppress(OSError):  # it has ended, or is another user's
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def node_folders(pids: set[int]) -> set[Path]:
    table = processes()
    commands = " ".join(table[pid][1] for pid in pids & table.keys())
    return {Path(found) for found in re.findall(r"--temp-dir=(/tmp/\S+)", commands)}


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # paths of sockets must be short
    found = Slurm(folder)
    try:
        found.start()
        yield found
    finally:
        found.end()
        shutil.rmtree(folder)


class Job:
    """A search of two nodes that was submitted in a folder."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm, self.folder, self.study = slurm, folder, folder / "study"
        words = ["smoke", "--study", str(self.study), "--seeds", SEEDS, "--max-concurrent", "2"]
        options = ["--parsable", "--nodes=2", "--cpus-per-task=1"]
        script = str(FOLDER / "slurm" / "search.sbatch")
        self.number = slurm.ask("sbatch", *options, script, *words, cwd=folder)
        self.token = folder / ".tune-sentcl" / self.number / "auth_token"

    def said(self) -> str:
        file = self.folder / f"slurm-{self.number}.out"
        return file.read_text() if file.exists() else ""

    def state(self) -> dict[str, str]:
        shown = self.slurm.ask("scontrol", "--oneliner", "show", "job", self.number)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def reaches(self, *states: str) -> dict[str, str]:
        """Wait until Slurm says that the job is in one of these states."""
        wait_until(lambda: self.state()["JobState"] in states, f"{states}: {self.state()}")
        return self.state()

    def runs(self) -> set[int]:
        """Wait for the first row; returns the job's processes."""
        wait_until(
            lambda: (
                any(self.study.glob("trials/*.parquet"))
                or self.state()["JobState"] not in ("PENDING", "RUNNING")
            ),
            "the first row",
        )
        assert self.state()["JobState"] == "RUNNING", self.said()
        return having(f"SLURM_JOB_ID={self.number}")

    def finishes(self) -> None:
        """Wait for the end; each trial of the space has finished, once, and nothing is left."""
        ended = self.reaches("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0"), self.said()
        trials = read_study(str(self.study)).trials
        assert list(trials.status) == ["finished"] * TRIALS and trials.trial_id.is_unique


@contextmanager
def ended_in_the_middle(job: Job) -> Iterator[None]:
    """The block ends a job that has some of its rows; its processes and files go."""
    pids = job.runs()
    folders = node_folders(pids)
    assert len(folders) == 2 and all(folder.exists() for folder in folders)
    token = job.token.read_text()
    assert len(token) == 64 and job.token.stat().st_mode & 0o077 == 0
    assert not [command for _, command in processes().values() if token in command]
    yield
    wait_until(lambda: not pids & processes().keys(), "the end of the job's processes")
    assert not [folder for folder in folders if folder.exists()], job.said()
    assert not job.token.parent.exists() and token not in job.said()
    rows = Study.read(job.study).trials().to_pylist()
    assert {row["status"] for row in rows} == {"finished"} and 0 < len(rows) < TRIALS, job.said()


@pytest.mark.parametrize(
    "how",
    [
        ("scancel", "--batch", "--signal=USR2"),  # as `--signal=B:USR2@120` before the end
        ("scontrol", "requeue"),  # as preemption and operators do it
    ],
)
def test_a_job_that_is_queued_again_goes_on(
    slurm: Slurm, tmp_path: Path, how: tuple[str, ...]
) -> None:
    job = Job(slurm, tmp_path)
    with ended_in_the_middle(job):
        slurm.ask(*how, job.number)
    wait_until(lambda: job.state()["Restarts"] == "1", f"the second start: {job.said()}")
    job.finishes()
    assert job.said().count("2 of 2 nodes are up") == 2, job.said()
    assert not job.token.parent.exists()


def test_a_job_that_is_cancelled_ends_and_its_successor_goes_on(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = Job(slurm, tmp_path)
    with ended_in_the_middle(job):
        slurm.ask("scancel", job.number)
    ended = job.reaches("CANCELLED")
    assert (ended["Restarts"], ended["ExitCode"]) == ("0", "143:0"), job.said()
    Job(slurm, tmp_path).finishes()
