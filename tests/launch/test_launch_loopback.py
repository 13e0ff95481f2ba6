"""Nothing that a search starts on this machine listens where other machines reach it."""

import os

import pytest
from processes import LOOPBACK, descendants, listening

from tune_sentcl.launch.ray.environment import prepare_ray


@pytest.mark.ray
@pytest.mark.slow
def test_a_cluster_of_ones_own_listens_on_loopback_only() -> None:
    prepare_ray()
    import ray

    from tune_sentcl.launch.ray.cluster import cluster, quiet

    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    before = os.environ.get(name)
    with quiet(), cluster("local"):
        assert ray.get(ray.remote(lambda: 1).remote()) == 1  # a worker listens too
        found = listening({os.getpid(), *descendants(os.getpid())})
    assert found
    assert {at for at in found if at.partition(":")[0] not in LOOPBACK} == set(), found
    assert os.environ.get(name) == before
