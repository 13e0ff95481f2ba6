"""Nothing that a search starts on this machine listens where other machines reach it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import LOOPBACK
from ray._private import ray_constants

from tune_sentcl.on_ray.cluster import _OTHERS, _on_loopback

# A process of its own: Ray reads some of its settings once.
BEGIN = """
import json, os
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
print(json.dumps({at: sorted(who) for at, who in found.items()}))
print(json.dumps(os.environ.get(name) == before))
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
def test_a_cluster_of_ones_own_listens_on_loopback_only() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {HERE!r})\n{BEGIN}"],
        capture_output=True,
        text=True,
        check=True,
    )
    found, restored = map(json.loads, done.stdout.splitlines())
    assert found and restored
    assert {at for at in found if at.partition(":")[0] not in LOOPBACK} == set(), found


HERE = str(Path(__file__).parents[1])
