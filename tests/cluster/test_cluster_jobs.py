"""Searches handed to a real Ray head, with its dashboard and a token."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import OTHER, TOKEN, Cluster, cluster
from processes import descendants, wait_until

from tune_sentcl.errors import StudyError
from tune_sentcl.store.study import Study

pytestmark = [pytest.mark.ray, pytest.mark.long]

# A job of any command, submitted by the library when its input ends.
SUBMIT = """
import sys
from tune_sentcl.errors import TuneSentclError
from tune_sentcl.on_ray.environment import prepare_ray
prepare_ray()
from tune_sentcl.on_ray.jobs import StudyJobs, runtime_environment
from tune_sentcl.space import load_space
address, study, command = sys.argv[1:]
jobs = StudyJobs(address, study)
print("ready", flush=True)
sys.stdin.read()
try:
    job = jobs.submit(command, load_space("smoke"), runtime_environment(pip=False, extras=()))
except TuneSentclError as error:
    sys.exit(str(error))
print(job, flush=True)
jobs.follow(job, print, print)
"""
LOOK = """
import importlib.metadata, os, ray
def look():
    import tune_sentcl
    return tune_sentcl.__file__, importlib.metadata.version("tune-sentcl"), sorted(os.listdir())
print("driver", *look())
ray.init(log_to_driver=False)
print("worker", *ray.get(ray.remote(look).remote()))
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


def submitting(head: Cluster, study: Path, line: str) -> "subprocess.Popen[str]":
    """A process that is about to submit a job; it does when its input ends."""
    started = subprocess.Popen(
        [sys.executable, "-c", SUBMIT, head.dashboard, str(study), line],
        env=head.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n", started.communicate()
    return started


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
    for words in ("submitted: tune-sentcl-study-", "follow: ray job logs --follow", "resume: "):
        assert words in done.stdout
    assert "2 runs ended now" in done.stdout
    again = run(head, "submit", "smoke", "--study", study, "--set", "data.limit=64", "--follow")
    assert again.returncode == 0  # a run that has ended blocks none
    assert "0 runs ended now" in again.stdout
    assert head.statuses(study) == ["SUCCEEDED", "SUCCEEDED"]
    assert "0 runs ended now" in head.ray_job("logs", study, 2)


def test_driver_and_workers_import_the_package_that_was_sent(
    head: Cluster, tmp_path: Path
) -> None:
    with submitting(head, tmp_path, f"python -c {shlex.quote(LOOK)}") as started:
        printed, said = started.communicate()
    assert started.returncode == 0, said
    for who in ("driver", "worker"):
        found = re.search(rf"^{who} ({head.temp}/.*)/tune_sentcl/__init__.py", printed, re.M)
        assert found, printed
    assert printed.count("'space.toml', 'tune_sentcl', 'tune_sentcl-0.1.0.dist-info'") == 2


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
    assert "-run1 is RUNNING on this cluster" in second.stderr
    assert re.search(r"Or stop it: ray job stop tune-sentcl-\S+-run1 --address", second.stderr)
    assert head.statuses(study) == ["RUNNING"]
    assert "was stopped" in head.ray_job("stop", study)
    assert not set(drivers) & set(descendants(head.head.process.pid))
    held = len(rows(study))
    again = run(head, "submit", "smoke", "--study", study, "--follow")
    assert again.returncode == 0, again.stderr
    assert len(rows(study)) >= held
    assert head.statuses(study) == ["STOPPED", "SUCCEEDED"]


def test_of_two_that_submit_at_once_one_wins(head: Cluster, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    line = f"sh -c 'echo began >> {marks}'"
    pair = [submitting(head, tmp_path, line) for _ in range(2)]
    for one in pair:  # both are connected, and wait for this
        assert one.stdin is not None
        one.stdin.close()
        one.stdin = None
    ended = [(*one.communicate(), one.returncode) for one in pair]
    (won,) = [end for end in ended if end[2] == 0]
    (lost,) = [end for end in ended if end[2] != 0]
    assert won[0].startswith("tune-sentcl-")
    assert re.search(r"-run1 (is [A-Z]+|was \w+ just now) on this cluster\. Follow it", lost[1])
    assert marks.read_text() == "began\n"
    assert head.statuses(tmp_path) == ["SUCCEEDED"]


def test_a_run_that_fails_says_why(head: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "nothing"
    arguments = ("--set", "data.source=nli", "--data", data, "--study", tmp_path / "study")
    done = run(head, "submit", "smoke", *arguments, "--follow")
    assert done.returncode == 2  # the driver's: its input was bad
    assert str(data) in done.stdout
    assert "-run1 has ended: FAILED" in done.stderr
    assert head.statuses(tmp_path / "study") == ["FAILED"]


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
        assert f"this cluster requires its token, and {why}. Set" in done.stderr
    assert head.statuses(tmp_path) == []
