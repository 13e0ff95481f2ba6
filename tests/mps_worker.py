"""Processes that share a stand-in's GPU: python mps_worker.py PARENT SHARE [WORKERS ON RAY].

Each tells how it has joined, as JSON on one line, and then waits.
"""

import json
import os
import sys
from pathlib import Path

from tune_sentcl.tuning import mps

SET = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
STARTS = "print('CUDA would start')"


def joined(parent: str, share: float) -> dict[str, str | int | None]:
    """What comes of joining, in a process that has not used CUDA."""
    mps._PARENT, mps._PROBE = Path(parent), STARTS
    reason = mps.join(share, cuda_begun=False)
    return {"reason": reason, "pid": os.getpid(), **{name: os.environ.get(name) for name in SET}}


def on_ray(parent: str, share: float, number: int) -> list[dict[str, str | int | None]]:
    """Join in workers of Ray, which takes this machine to have a GPU."""
    import mps_worker  # by its name, so that workers import it
    import ray
    from local_ray import no_token

    with no_token():
        ray.init(
            address="local",
            num_cpus=number,
            num_gpus=1,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            log_to_driver=False,
        )
    join = ray.remote(num_gpus=share)(mps_worker.joined)
    return list(ray.get([join.remote(parent, share) for _ in range(number)]))


if __name__ == "__main__":
    folder, part, workers = sys.argv[1], float(sys.argv[2]), [*map(int, sys.argv[3:])]
    said = on_ray(folder, part, *workers) if workers else joined(folder, part)
    sys.stdout.write(f"{json.dumps(said)}\n")
    sys.stdout.flush()
    sys.stdin.readline()
