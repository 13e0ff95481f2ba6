"""A cluster of which no node is up that can run a trial: Ray's own autoscaler starts them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clusters import LOOPBACK, cluster, free_ports
from search_samples import lambda_space
from sweeps import Client, rows

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
# `ray up` fills these in, and Ray's autoscaler asks for all of them.
FILLED_IN: dict[str, Any] = {
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
VARIABLES: dict[str, Any] = {
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_FAKE_CLUSTER": "1",
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
    "RAY_CLOUD_INSTANCE_ID": HEAD,
}
COUNT = """
import ray
ray.init(log_to_driver=False, logging_level="ERROR")
print(sum(node["Alive"] and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes()))
"""


def test_a_cluster_scaled_to_zero_is_no_fault_and_grows(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    address = f"{LOOPBACK}:{port}"
    config = {
        "cluster_name": "make-believe",
        "max_workers": 8,
        "idle_timeout_minutes": 10,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": address,
            "head_node_id": HEAD,
            "launch_multiple": True,
        },
        "available_node_types": KINDS,
        "head_node_type": "head",
        **FILLED_IN,
    }
    file = tmp_path / "cluster.yaml"
    file.write_text(json.dumps(config))  # which is YAML too
    space, study = lambda_space(tmp_path / "space", 0.1, 0.3, 0.5), tmp_path / "study"
    options = (f"--port={port}", f"--autoscaling-config={file}")
    with cluster(tmp_path / "home", *options, cpus=0, **VARIABLES) as head:
        words = ["search", space.source, "--study", study, "--address", address]
        words += ["--accelerator", "T4", "--gpus-per-trial", "0"]
        told = Client(tmp_path / "log", (), words, head.environment()).ends()
        assert [row["status"] for row in rows(study)] == ["finished"] * 3
        assert told.count("no running node fits a trial (1 CPU, 0 GPU (T4)") == 1
        variables = head.environment(RAY_ADDRESS=address)
        up = subprocess.check_output([sys.executable, "-c", COUNT], env=variables, text=True)
        assert int(up) == 2, "both were asked for while no trial ran"
