"""A Ray that a search starts here: nobody else reaches it, and it leaves others their share."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from processes import LOOPBACK
from ray._private import ray_constants

from tune_sentcl.errors import ResourceError
from tune_sentcl.on_ray.cluster import _LONGEST_PARENT, _folder_for_ray, _on_loopback
from tune_sentcl.on_ray.environment import prepare_ray

_OTHERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

# A process of its own: Ray reads some of its settings once.
BEGIN = """
import json, os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from tune_sentcl.on_ray.environment import prepare_ray
prepare_ray()
import ray
from processes import descendants, listening
from tune_sentcl.on_ray.cluster import cluster, quiet_ray_logging
name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
before = os.environ.get(name)
with quiet_ray_logging(), cluster("local"):
    ray.get(ray.remote(lambda: 1).remote())  # a worker listens too
    found = listening({os.getpid(), *descendants(os.getpid())})
    cores = ray.cluster_resources()["CPU"]
    socket = ray._private.worker._global_node.plasma_store_socket_name
print(json.dumps({at: sorted(who) for at, who in found.items()}))
print(json.dumps(os.environ.get(name) == before))
print(json.dumps([cores, socket, os.getpid()]))
"""


def test_ray_is_told_to_listen_on_loopback_for_a_local_cluster_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(_OTHERS, raising=False)
    before = ray_constants.ENABLE_RAY_CLUSTER
    with _on_loopback("head:6379"):
        assert _OTHERS not in os.environ
    with _on_loopback("local"):
        assert (os.environ[_OTHERS], ray_constants.ENABLE_RAY_CLUSTER) == ("0", False)
    assert _OTHERS not in os.environ and before == ray_constants.ENABLE_RAY_CLUSTER


@pytest.mark.ray
@pytest.mark.long
def test_a_cluster_of_ones_own_listens_on_loopback_only_and_has_the_cores_of_its_process() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        longest = Path(folder, "x" * (_LONGEST_PARENT - len(folder) - 1))
        longest.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {HERE!r})\n{BEGIN}"],
            env={**os.environ, "RAY_TMPDIR": str(longest)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert list(longest.iterdir()) == []
    found, restored, (cores, socket, pid) = map(json.loads, done.stdout.splitlines())
    assert found and restored
    assert {at for at in found if at.partition(":")[0] not in LOOPBACK} == set(), found
    assert cores == 1
    assert len(socket) + 7 - len(str(pid)) == 107, "as long as a path may be"


@pytest.mark.parametrize("named", ["", "x" * 60, "nowhere"])
def test_ray_gets_a_short_folder_of_its_own_or_the_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 60)))
    if named:
        monkeypatch.setenv("RAY_TMPDIR", f"/tmp/{named}")
        with pytest.raises(ResourceError, match=f"^RAY_TMPDIR: /tmp/{named}: Ray's sockets need"):
            _folder_for_ray()
        return
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    folder = _folder_for_ray()
    assert folder.parent == Path("/tmp") and folder.stat().st_mode & 0o77 == 0
    folder.rmdir()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "localhost,127.0.0.1"),
        ({"NO_PROXY": ".corp"}, ".corp,localhost,127.0.0.1"),
        ({"no_proxy": "127.0.0.1", "NO_PROXY": "*"}, "127.0.0.1,localhost"),
        ({"no_proxy": "*"}, "*"),
    ],
)
def test_no_proxy_is_asked_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, str], after: str
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        prepare_ray()
        assert os.environ["no_proxy"] == after


# The search waits for Ray in a thread, and in the main thread inside of a loop, as in a notebook.
SEARCH = """
import asyncio, sys
from tune_sentcl import search
def run(study):
    found = search("smoke", study, overrides={"data.limit": 32})
    assert (found.ran, found.failures) == (2, 0), found
async def main(folder):
    run(f"{folder}/loop")
    await asyncio.to_thread(run, f"{folder}/thread")
if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.ray
@pytest.mark.long
def test_a_search_runs_in_a_loop_and_in_a_thread_beside_others_who_use_the_machine(
    tmp_path: Path,
) -> None:
    """TMPDIR is too long for Ray and holds another's `ray`; nothing listens at the proxy."""
    crowded = tmp_path / ("x" * 60)
    crowded.mkdir()
    (crowded / "ray").touch()
    dropped = ("RAY_TMPDIR", "RAY_ADDRESS", "no_proxy", "NO_PROXY")
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), "http://127.0.0.1:9")
    program = tmp_path / "program.py"
    program.write_text(SEARCH)
    done = subprocess.run(
        ["taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable, program, tmp_path],
        env={
            **{name: value for name, value in os.environ.items() if name not in dropped},
            **proxies,
            "TMPDIR": str(crowded),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.count(", 1 at a time on this machine (1 CPU") == 2


HERE = str(Path(__file__).parents[1])
