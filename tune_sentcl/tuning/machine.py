"""The resources of a trial, and how many trials run at a time."""

import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tune_sentcl.tuning.options import SearchOptions

_ROOT = Path("/")
_GPU_FILES = ("nvidia*", "nvhost*", "nvgpu*", "dxg", "kfd")
"""Patterns of device files: NVIDIA's cards and boards, Windows' Linux subsystem, AMD's cards."""
_MEMORY_SHARE = 0.7  # trials get this share of the memory, and Ray's object store gets the rest
_UNCOUNTED = 1_000_000
"""How many trials fit a node with infinite resources."""


@dataclass(frozen=True)
class Bundle:
    """The resources of one trial.

    Attributes:
        cpus: Cores.
        gpus: GPUs, or a share of one.
        memory: Bytes of the node's memory to reserve; 0: no reservation.
        accelerator: Required GPU type, as Ray labels nodes; None: any.
    """

    cpus: int
    gpus: float
    memory: int = 0
    accelerator: str | None = None

    def __str__(self) -> str:
        memory = f", {self.memory / 1e9:.3g} GB" if self.memory else ""
        return f"{_shown(self.cpus, self.gpus, self.accelerator)}{memory}"


@dataclass(frozen=True)
class Node:
    """The resources of a machine.

    Attributes:
        cpus: Cores.
        gpus: GPUs.
        memory: Bytes of memory; infinite if memory is not counted.
        accelerator: GPU type by the node's label; None without a label.
    """

    cpus: float
    gpus: float
    memory: float = math.inf
    accelerator: str | None = None

    def __str__(self) -> str:
        return _shown(self.cpus, self.gpus, self.accelerator)

    def slots(self, trial: Bundle) -> int:
        """How many trials with these resources fit the node.

        A share of a GPU lies on one GPU: with 0.4 GPUs a trial, each GPU runs two trials.
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


def usable_cores() -> int:
    """The cores that this process may use, by affinity and control groups' quotas; at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)  # only Linux has this function
    cores: float = len(affinity(0)) if affinity else os.cpu_count() or 1
    # Version 2 of control groups writes quota and period into one file, version 1 into two.
    for quota, period in (*_limits("cpu.max"), *_limits("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        cores = min(cores, quota / period)
    return max(1, int(cores))


def this_machine() -> Node:
    """The resources of this machine that trials may use; a local Ray gets the same numbers."""
    gpus = 0
    if _may_have_gpus():
        # Only torch knows whether it can use the GPUs, but its import is slow.
        import torch

        gpus = torch.cuda.device_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for (limit,) in (*_limits("memory.max"), *_limits("memory.limit_in_bytes")):
        memory = min(memory, limit)
    return Node(usable_cores(), gpus, _MEMORY_SHARE * memory)


def _may_have_gpus() -> bool:
    """Whether there may be GPUs; on Linux torch sees no GPU without a device file."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return False
    return sys.platform != "linux" or any(any((_ROOT / "dev").glob(name)) for name in _GPU_FILES)


def _limits(*files: str) -> Iterator[list[int]]:
    """The numbers in these files of this process's control groups and of their parents.

    A group without a limit has `max` or -1 and is left out. In a container, a group's path may be
    the host's; then only the mounted root exists.
    """
    lines: list[str] = []
    with suppress(OSError):
        # This file exists only on Linux.
        lines = (_ROOT / "proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # Version 2 names no controller, which gives one empty name.
        for controller in controllers.split(","):
            mount = _ROOT / "sys/fs/cgroup" / controller
            group = mount / path.lstrip("/")
            for folder in (group, *group.parents[: len(group.parts) - len(mount.parts)]):
                with suppress(OSError):
                    words = " ".join((folder / file).read_text() for file in files).split()
                    if all(map(str.isdecimal, words)):
                        yield list(map(int, words))


def gpus_a_trial(asked: float | None, nodes: Iterable[Node]) -> float:
    """The GPUs of each trial: as asked for, else 1 if a node has a GPU."""
    if asked is not None:
        return asked
    return 1.0 if any(node.gpus >= 1 for node in nodes) else 0.0


def bundle_of(options: SearchOptions, nodes: Iterable[Node]) -> Bundle:
    """The resources of a trial on these nodes."""
    wanted = options.accelerator
    nodes = [node for node in nodes if wanted in (None, node.accelerator)]
    gpus = gpus_a_trial(options.gpus_per_trial, nodes)
    if wanted and not nodes and options.gpus_per_trial is None:
        gpus = 1.0
        # No node has this accelerator yet, but an autoscaler may start one.
    memory = round(1e9 * (options.memory_per_trial or 0))
    return Bundle(options.cpus_per_trial, gpus, memory, wanted)


def trials_at_a_time(options: SearchOptions, nodes: Iterable[Node]) -> int:
    """How many trials run at a time on these nodes; at least 1."""
    nodes = list(nodes)
    if options.launcher == "local":
        return 1
    trial = bundle_of(options, nodes)
    fit = max(1, sum(node.slots(trial) for node in nodes))
    return min(fit, options.max_concurrent or fit)


def trials_to_request(fit: int, known: int) -> int:
    """How many trials to request from Ray, including those that wait for a node.

    An autoscaler starts nodes only for waiting trials, and Ray does not say whether there is an
    autoscaler. At most one sampled trial waits, because it was drawn without the results of
    running trials. Queued trials need no draw, so as many of them wait as fit now, or all if none
    fits.

    Args:
        fit: How many trials fit the nodes that are up.
        known: How many trials run or are queued without needing a draw.
    """
    return max(fit + 1, min(2 * fit, known) if fit else known)


def _shown(cpus: float, gpus: float, accelerator: str | None) -> str:
    return f"{cpus:g} CPU, {gpus:g} GPU" + (f" ({accelerator})" if accelerator else "")
