"""A Ray that a search starts here: nobody else reaches it, and nothing of it is left."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from processes import LOOPBACK
from search_samples import statuses

from tune_sentcl.errors import ResourceError, TuneSentclError
from tune_sentcl.on_ray.cluster import _local_options
from tune_sentcl.on_ray.environment import prepare_ray, temporary_token

LONGEST_PARENT = 29  # bytes, as docs/clusters.md says
TESTS = str(Path(__file__).parents[1])

# A process of its own: Ray reads some of its settings once.
BEGIN = f"""
import json, os, sys
sys.path.insert(0, {TESTS!r})
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
from tune_sentcl.on_ray.environment import prepare_ray
prepare_ray()
import ray
from processes import descendants, listening
from tune_sentcl.on_ray.cluster import cluster, quiet_ray_logging
with quiet_ray_logging(), cluster("local", print):
    ray.get(ray.remote(lambda: 1).remote())  # a worker listens too
    heard = listening({{os.getpid(), *descendants(os.getpid())}})
    cores = ray.cluster_resources()["CPU"]
    socket = ray._private.worker._global_node.plasma_store_socket_name
print(json.dumps([list(heard), cores, socket, os.getpid()]))
"""


@pytest.mark.ray
@pytest.mark.long
def test_a_cluster_of_ones_own_listens_on_loopback_only_and_has_the_cores_of_its_process() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        longest = Path(folder, "x" * (LONGEST_PARENT - len(folder) - 1))
        longest.mkdir()
        variables = {**os.environ, "RAY_TMPDIR": str(longest)}
        printed = subprocess.check_output([sys.executable, "-c", BEGIN], env=variables)
        assert list(longest.iterdir()) == []
    addresses, cores, socket, pid = json.loads(printed)
    assert addresses and {at.partition(":")[0] for at in addresses} <= LOOPBACK
    assert cores == 1
    assert len(socket) + 7 - len(str(pid)) == 107, "as long as a path may be"


def refuse_room(**given: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_ray_gets_a_folder_of_its_own_or_the_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 60)))
    monkeypatch.setenv("RAY_TMPDIR", "/tmp/nowhere")
    refused = pytest.raises(ResourceError, match="RAY_TMPDIR: /tmp/nowhere: Ray needs")
    with refused, _local_options("local"):
        pass
    monkeypatch.delenv("RAY_TMPDIR")
    with monkeypatch.context() as full, pytest.raises(TuneSentclError, match="No space left"):
        full.setattr(tempfile, "mkdtemp", refuse_room)
        with _local_options("local"):
            pass
    with _local_options("local") as options:
        folder = Path(options["_temp_dir"]).parent
        assert folder.parent == Path("/tmp") and folder.stat().st_mode & 0o77 == 0
    assert not folder.exists()


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


@pytest.mark.parametrize("address", ["local", "head:6379"])
def test_a_local_cluster_has_a_token_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for _ in range(2):
        with temporary_token(address):
            assert ("RAY_AUTH_TOKEN" in os.environ) == (address == "local")
            os.environ["RAY_AUTH_MODE"] = "token"  # as Ray does
        assert ("RAY_AUTH_MODE" in os.environ) == (address != "local")
        assert "RAY_AUTH_TOKEN" not in os.environ
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("a" * 64)
    with temporary_token("local"):
        assert "RAY_AUTH_TOKEN" not in os.environ, "the user's own holds"


# The search waits for Ray in a thread, and in the main thread inside of a loop, as in a notebook.
SEARCH = """
import asyncio, os, sys
from tune_sentcl import search
def run(study):
    outcome = search("smoke", study, overrides={"data.limit": 32})
    assert (outcome.ran, outcome.failures) == (2, 0), outcome
async def main(folder):
    run(f"{folder}/loop")
    await asyncio.to_thread(run, f"{folder}/thread")
if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    assert not [name for name in os.environ if name.startswith("RAY_AUTH")]
"""


@pytest.mark.ray
@pytest.mark.long
def test_a_search_in_a_loop_and_in_a_thread_beside_others_leaves_no_file(tmp_path: Path) -> None:
    """TMPDIR is too long for Ray and holds another's `ray`; nothing listens at the proxy.

    The second search runs in a process whose core has read a token, which no file keeps.
    """
    crowded = tmp_path / ("x" * 60)
    crowded.mkdir()
    (crowded / "ray").touch()
    kept = {n: v for n, v in os.environ.items() if not n.startswith("RAY_")}
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), "http://127.0.0.1:9")
    program = tmp_path / "program.py"
    program.write_text(SEARCH)
    done = subprocess.run(
        ["taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable, program, tmp_path],
        env={
            **{name: kept[name] for name in kept.keys() - {"no_proxy", "NO_PROXY"}},
            **proxies,
            "TMPDIR": str(crowded),
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for noise in ("Configuration for experiment", "FileNotFoundError", "Traceback", "WARNING"):
        assert noise not in done.stderr
    assert done.stderr.count(", 1 at a time on this machine (1 CPU") == 2
    assert [statuses(tmp_path / study) for study in ("loop", "thread")] == 2 * [2 * ["finished"]]
    assert not (tmp_path / ".ray").exists() and not (tmp_path / "ray_results").exists()
    assert list(crowded.glob("tune_sentcl_*")) == []
