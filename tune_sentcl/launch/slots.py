"""How many trials run at a time; nobody else works this out."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from tune_sentcl.launch.options import SearchOptions


@dataclass(frozen=True)
class Node:
    """What a machine has for trials."""

    cpus: float
    gpus: float

    def slots(self, cpus: int, gpus: float) -> int:
        """How many trials of so many cores and such a share of GPUs it holds.

        A share lies on one GPU: of GPUs asked for by 0.4, each holds two trials.
        """
        by_cores = int(self.cpus / cpus + 1e-6)
        if gpus <= 0:
            return by_cores
        whole = int(self.gpus + 1e-6)
        by_gpus = whole * int(1 / gpus + 1e-6) if gpus < 1 else int(whole / gpus + 1e-6)
        return min(by_cores, by_gpus)


def this_machine() -> Node:
    """The machine that the driver runs on."""
    return Node(os.cpu_count() or 1, torch.cuda.device_count())


def gpus_a_trial(asked: float | None, nodes: Iterable[Node]) -> float:
    """The share of a GPU that a trial takes: as asked, else one where there is any."""
    if asked is not None:
        return asked
    return 1.0 if any(node.gpus >= 1 for node in nodes) else 0.0


def trials_at_a_time(options: SearchOptions, nodes: Iterable[Node]) -> int:
    """How many trials of a search run side by side on some machines, one at least."""
    nodes = list(nodes)
    if options.launcher == "local":
        return 1
    gpus = gpus_a_trial(options.gpus_per_trial, nodes)
    fit = max(1, sum(node.slots(options.cpus_per_trial, gpus) for node in nodes))
    return min(fit, options.max_concurrent or fit)
