"""Seconds for 24 trials that train for two steps each, through the Ray launcher on two cores.

What is left is what the launcher costs: starting actors and their imports, handing out trials,
evaluating on the toy sets, and committing rows. Ray is up before the clock starts.

    python benchmarks/trivial_trials.py [--max-concurrent N]
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from toy_space import written_space

from tune_sentcl.launch.ray.environment import prepare_ray

prepare_ray()

import ray  # noqa: E402 - its settings come first
from ray._private import state  # noqa: E402

import tune_sentcl.launch.ray.launcher  # noqa: E402, F401 - as in a search, imported before Ray starts
from tune_sentcl.launch.options import SearchOptions  # noqa: E402
from tune_sentcl.launch.search import search  # noqa: E402
from tune_sentcl.space import load_space  # noqa: E402

TRIALS = 24


def _answer() -> int:
    return os.getpid()


def main() -> None:
    """Run once and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-concurrent", type=int)
    options = SearchOptions(max_concurrent=parser.parse_args().max_concurrent)
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
    )
    answer = ray.remote(_answer)
    # Ray is up when both cores have answered; before that its own services are still starting.
    ray.get([answer.remote() for _ in range(2)])
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        path = written_space(Path(folder), "trivial", TRIALS)
        space = load_space(path)
        start = time.perf_counter()
        outcome = search(space, Path(folder) / "study", options=options)
        seconds = time.perf_counter() - start
    actors = len({actor["Pid"] for actor in state.actors().values() if actor["Pid"]})
    ray.shutdown()
    print(
        f"{outcome.ran} trials, {outcome.failures} failed: {seconds:.1f} s with {actors} actors "
        f"(load {load:.1f} before, {os.getloadavg()[0]:.1f} after)"
    )


if __name__ == "__main__":
    main()
