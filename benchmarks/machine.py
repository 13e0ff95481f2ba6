"""What a benchmark ran on: processor, cores, its matrix units, torch's threads, the GPU."""

import os
import platform
from pathlib import Path

_UNITS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def describe_machine() -> str:
    """One line: the processor, its cores and matrix units, memory, versions, the GPU or none."""
    import torch

    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    flags = _from_cpuinfo("flags").split()
    units = ", ".join(unit for unit in _UNITS if unit in flags) or platform.machine()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    name = _from_cpuinfo("model name") or platform.processor()
    threads = f"torch {torch.__version__} with {torch.get_num_threads()} threads"
    return f"{name}, {cores} cores ({units}), {memory:.0f} GiB; {threads}; {gpu}"


def _from_cpuinfo(name: str) -> str:
    found = Path("/proc/cpuinfo")
    lines = found.read_text().splitlines() if found.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
