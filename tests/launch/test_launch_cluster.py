"""Clusters of more than one node, and addresses where there is none."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from launch_processes import start_ray
from launch_samples import lambda_space, numbers, rows, run_here, run_on_ray, statuses
from ray.cluster_utils import Cluster

from tune_sentcl.errors import ResourceError
from tune_sentcl.launch.ray.preflight import check_address, check_fit, check_reach

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    """The address of a cluster of two nodes with one core each, to which this process connects."""
    ray.shutdown()
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()
        start_ray()


@pytest.mark.slow
def test_a_folder_that_every_node_sees_is_taken(two_nodes: str, tmp_path: Path) -> None:
    assert len([node for node in ray.nodes() if node["Alive"]]) == 2
    check_reach(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_trap_a_folder_that_other_nodes_do_not_see_is_refused(
    two_nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # which is another folder for each process
    with pytest.raises(ResourceError, match="must be a folder that every node sees"):
        check_reach("/proc/self/cwd")
    assert list(tmp_path.iterdir()) == []
    check_reach("s3://bucket/study")


@pytest.mark.slow
def test_trap_cores_are_counted_a_node_and_not_over_the_cluster(two_nodes: str) -> None:
    assert ray.cluster_resources()["CPU"] == 2
    assert check_fit(1, None) == check_fit(1, 0.0) == 0.0
    with pytest.raises(ResourceError, match="1 CPU, 0 GPU; 1 CPU, 0 GPU"):
        check_fit(2, None)


@pytest.mark.slow
def test_two_nodes_share_a_search_and_give_the_same_scores(two_nodes: str, tmp_path: Path) -> None:
    space = lambda_space(tmp_path / "space", 0.3, 0.7)
    outcome = run_on_ray(space, tmp_path / "study", address=two_nodes, seeds=(0, 1))
    assert (outcome.ran, outcome.failures) == (4, 0)
    assert statuses(tmp_path / "study") == ["finished"] * 4
    run_here(space, tmp_path / "here", seeds=(0, 1))
    assert numbers(tmp_path / "study") == numbers(tmp_path / "here")


def test_trap_an_address_where_nothing_listens_is_refused_at_once(tmp_path: Path) -> None:
    ray.shutdown()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ResourceError, match="must be the address of a Ray cluster"):
            run_on_ray(lambda_space(tmp_path / "space", 0.3), tmp_path / "study", address=address)
    assert rows(tmp_path / "study") == []
    assert not ray.is_initialized()


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999999"])
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    ray.shutdown()
    with pytest.raises(ResourceError, match="must be the address of a Ray cluster"):
        run_on_ray(lambda_space(tmp_path / "space", 0.3), tmp_path / "study", address=address)


def test_only_addresses_of_host_and_port_are_tried() -> None:
    for other in ("local", "auto", "ray://head:10001"):
        check_address(other)
