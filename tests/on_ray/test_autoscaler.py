"""A cluster of which no node is up that can run a trial: Ray's own autoscaler starts them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from processes import alive, descendants, wait_until
from search_samples import lambda_space, rows, run_on_ray
from test_tokens import environment, free_ports

pytestmark = [pytest.mark.ray, pytest.mark.long]

HEAD = "f" * 51 + "00000"  # as Ray's provider of make-believe machines calls it
KINDS = {
    "head": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
    "small": {
        "resources": {"CPU": 1, "object_store_memory": 80_000_000},
        "labels": {"ray.io/accelerator-type": "T4"},
        "node_config": {},
        "min_workers": 0,
        "max_workers": 2,
    },
}


@contextmanager
def scaled_to_zero(folder: Path) -> Iterator[str]:
    """A head without cores, whose autoscaler may start nodes: real raylets, no real machines."""
    gcs, agent, grpc, metrics = free_ports(4)
    config = {
        "cluster_name": "make-believe",
        "max_workers": 8,
        "idle_timeout_minutes": 10,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": f"127.0.0.1:{gcs}",
            "head_node_id": HEAD,
            "launch_multiple": True,
        },
        "available_node_types": KINDS,
        "head_node_type": "head",
        # `ray up` fills these in, and Ray's autoscaler asks for all of them.
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "initialization_commands": [],
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
        "file_mounts_sync_continuously": False,
        "upscaling_speed": 1.0,
    }
    file = folder / "cluster.yaml"
    file.write_text(json.dumps(config))  # which is YAML too
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *("--node-ip-address=127.0.0.1", f"--port={gcs}", "--num-cpus=0"),
        *("--include-dashboard=false", f"--dashboard-agent-listen-port={agent}"),
        *(f"--dashboard-agent-grpc-port={grpc}", f"--metrics-export-port={metrics}"),
        *("--object-store-memory=80000000", "--disable-usage-stats"),
        f"--autoscaling-config={file}",
    ]
    variables = {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
        "RAY_CLOUD_INSTANCE_ID": HEAD,
    }
    (folder / "home").mkdir()
    with subprocess.Popen(
        command,
        env=environment(folder / "home", **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as started:
        try:
            assert started.stdout is not None
            said: list[str] = []
            for line in started.stdout:
                said.append(line)
                if "Ray runtime started" in line:
                    break
            else:
                pytest.fail("".join(said))
            yield f"127.0.0.1:{gcs}"
        finally:
            family = descendants(started.pid)
            os.killpg(started.pid, signal.SIGTERM)
            for pid in alive(family):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not alive(family), "the end of the cluster")


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[str]:
    ray.shutdown()
    try:
        with scaled_to_zero(tmp_path) as address:
            ray.init(address=address, log_to_driver=False)
            yield address
            ray.shutdown()
    finally:
        ray.shutdown()


def test_a_cluster_scaled_to_zero_is_no_fault_and_grows(
    growing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1, 0.3, 0.5), tmp_path / "study"
    outcome = run_on_ray(space, study, address=growing, accelerator="T4", gpus_per_trial=0.0)
    assert (outcome.ran, outcome.failures) == (3, 0)
    up = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    assert len(up) == 2, "both were asked for while no trial ran"
    assert {row["status"] for row in rows(study)} == {"finished"}
    said = capsys.readouterr().err
    assert said.count("no node that is up fits a trial (1 CPU, 0 GPU (T4)") == 1
