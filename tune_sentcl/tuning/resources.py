"""How many trials run at a time; nobody else works this out."""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass

from tune_sentcl.tuning.search_options import SearchOptions

_UNCOUNTED = 1_000_000
"""Trials that a node holds of which nobody has counted anything."""


@dataclass(frozen=True)
class Bundle:
    """What one trial takes of a node.

    Attributes:
        cpus: Cores.
        gpus: GPUs, or a share of one.
        memory: Bytes of the node's memory that are reserved; 0: none.
        accelerator: The GPU that it has to be, by the node's label; None: any.
    """

    cpus: int
    gpus: float
    memory: int = 0
    accelerator: str | None = None

    def __str__(self) -> str:
        """For messages."""
        memory = f", {self.memory / 1e9:.3g} GB" if self.memory else ""
        return f"{_shown(self.cpus, self.gpus, self.accelerator)}{memory}"


@dataclass(frozen=True)
class Node:
    """What a machine has for trials.

    Attributes:
        cpus: Cores.
        gpus: GPUs.
        memory: Bytes of memory; infinite where nobody counts it.
        accelerator: Which GPU it has, where it has a label that says so.
    """

    cpus: float
    gpus: float
    memory: float = math.inf
    accelerator: str | None = None

    def __str__(self) -> str:
        """For messages."""
        return _shown(self.cpus, self.gpus, self.accelerator)

    def slots(self, trial: Bundle) -> int:
        """How many such trials it holds.

        A share lies on one GPU: of GPUs asked for by 0.4, each holds two trials.
        """
        if trial.accelerator not in (None, self.accelerator):
            return 0
        fit = self.cpus / trial.cpus + 1e-6
        if trial.memory:
            fit = min(fit, self.memory / trial.memory)
        if trial.gpus > 0:
            fit = min(fit, self._by_gpus(trial.gpus))
        return int(min(fit, _UNCOUNTED))

    def _by_gpus(self, gpus: float) -> int:
        whole = int(self.gpus + 1e-6)
        return whole * int(1 / gpus + 1e-6) if gpus < 1 else int(whole / gpus + 1e-6)


def this_machine() -> Node:
    """The machine that the driver runs on."""
    import torch  # here alone, so that options and rules are read without it

    return Node(os.cpu_count() or 1, torch.cuda.device_count())


def gpus_a_trial(asked: float | None, nodes: Iterable[Node]) -> float:
    """The share of a GPU that a trial takes: as asked, else one where there is any."""
    if asked is not None:
        return asked
    return 1.0 if any(node.gpus >= 1 for node in nodes) else 0.0


def bundle_of(options: SearchOptions, nodes: Iterable[Node]) -> Bundle:
    """What a trial takes of the nodes that there are or may be."""
    wanted = options.accelerator
    nodes = [node for node in nodes if wanted in (None, node.accelerator)]
    gpus = gpus_a_trial(options.gpus_per_trial, nodes)
    memory = round(1e9 * (options.memory_per_trial or 0))
    return Bundle(options.cpus_per_trial, gpus, memory, wanted)


def trials_at_a_time(options: SearchOptions, nodes: Iterable[Node]) -> int:
    """How many trials of a search run side by side on some machines, one at least."""
    nodes = list(nodes)
    if options.launcher == "local":
        return 1
    trial = bundle_of(options, nodes)
    fit = max(1, sum(node.slots(trial) for node in nodes))
    return min(fit, options.max_concurrent or fit)


def trials_to_request(fit: int, startable: int, running: int, queued: int) -> int:
    """How many trials to have under way, those included that wait for a node.

    Ray's autoscaler starts nodes for what waits. Trials that are known can all wait, for nothing
    is lost by asking early. Sampled ones are drawn ahead of what the running ones would teach, so
    no more of them wait than run: a cluster doubles each time, and one that cannot grow has one
    trial ready for the next free slot.

    Args:
        fit: Trials that the nodes hold that are up.
        startable: Trials that all nodes would hold if every one were started that may be.
        running: Trials under way now.
        queued: Trials that are to run and need no draw.
    """
    ahead = max(1, min(startable - fit, fit))
    return max(fit + ahead, min(startable, running + queued))


def _shown(cpus: float, gpus: float, accelerator: str | None) -> str:
    return f"{cpus:g} CPU, {gpus:g} GPU" + (f" ({accelerator})" if accelerator else "")
