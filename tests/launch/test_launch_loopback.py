"""Nothing that a search starts on this machine listens where other machines reach it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from processes import LOOPBACK

# A process of its own: Ray reads some of its settings once.
BEGIN = """
import json, os
from tune_sentcl.on_ray.environment import prepare_ray
prepare_ray()
import ray
from processes import descendants, listening
from tune_sentcl.on_ray.cluster import cluster, quiet
name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
before = os.environ.get(name)
with quiet(), cluster("local"):
    ray.get(ray.remote(lambda: 1).remote())  # a worker listens too
    found = listening({os.getpid(), *descendants(os.getpid())})
print(json.dumps({at: sorted(who) for at, who in found.items()}))
print(json.dumps(os.environ.get(name) == before))
"""


@pytest.mark.ray
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
