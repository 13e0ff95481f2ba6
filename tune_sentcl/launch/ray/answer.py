"""What a node says of itself. It is sent there as it stands, for this package may be missing.

So nothing but the standard library is imported at the top, and nothing is taken for granted below:
what is lacking becomes part of the answer.
"""

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

Answer = dict[str, Any]

# To torch, one of several MIG slices is visible; Ray gives each to another worker.
_TORCH = """
import os, torch
seen, ids = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
print(ids.count("MIG-") if seen and "MIG-" in ids else seen, torch.version.cuda or "")
"""
_TORCH_S = 60


def answer(question: dict[str, Any]) -> Answer:
    """Look around; called on a node.

    Args:
        question: `folder`, where the driver was started; `packages`, whose versions are wanted;
            `checkpoints`, which are to be read; `gpus`, whether this node offers any to Ray;
            `nonces`, None or the `place` in which this node has to find the driver's file `driver`
            and to leave the file `mine`, both with `text`.

    Returns:
        `versions` of Python and the packages, empty where one is missing; `checkpoints`, the
        fingerprint or what went wrong, by name; `reach`, why the place is not the driver's, or
        empty; `gpu_bytes` of each GPU; `cuda` and `devices`, see `_torch`; `memory_bytes`;
        `token`, whether Ray asks for one; and `autoscaler`, see `_autoscaler`.
    """
    return {
        "versions": _versions(question["packages"]),
        "checkpoints": _checkpoints(question["checkpoints"], question["folder"]),
        "reach": _reach(question["nonces"]),
        "gpu_bytes": _gpu_bytes(),
        **(_torch() if question["gpus"] else {}),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "token": _token(),
        "autoscaler": _autoscaler(),
    }


def _versions(packages: list[str]) -> dict[str, str]:
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def _checkpoints(names: list[str], folder: str) -> dict[str, tuple[bool, str]]:
    """Whether each can be read, and its fingerprint or why not."""
    if not names:
        return {}
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # on another machine it may not exist
            stack.enter_context(contextlib.chdir(folder))  # relative paths are the driver's
        return {name: _checkpoint(name) for name in names}


def _checkpoint(name: str) -> tuple[bool, str]:
    try:
        from tune_sentcl.model.checkpoint import resolve_checkpoint

        return True, resolve_checkpoint(name).fingerprint
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return False, _told(error)


def _reach(nonces: dict[str, str] | None) -> str:
    """Find the driver's file and leave one's own."""
    if nonces is None:
        return ""
    try:
        from tune_sentcl.store.files import StudyFiles

        files = StudyFiles.at(nonces["place"])
        if not files.exists(nonces["driver"]):
            return "does not see it"
        if files.read_json(nonces["driver"]) != nonces["text"]:
            return "sees another folder there"
        files.write_bytes(nonces["mine"], f'"{nonces["text"]}"'.encode())
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return f"cannot use it: {_told(error)}"
    return ""


def _gpu_bytes() -> list[int]:
    """Asked of the driver's tool, for a task without a GPU is shown none by CUDA."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return [int(line) * 2**20 for line in done.stdout.split()]
    return []


def _torch() -> Answer:
    """The CUDA that torch was built for, and how many GPUs it sees; nothing where it fails.

    Ray may hide GPUs from a task that asks for none, and asking torch would begin CUDA in a worker
    that goes on to run trials. So another process is asked, in the environment of the raylet.
    """
    name = "CUDA_VISIBLE_DEVICES"
    own = {key: value for key, value in os.environ.items() if key != name}
    command = [sys.executable, "-c", _TORCH]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        raylet = Path(f"/proc/{os.getppid()}/environ").read_text(errors="replace").split("\0")
        own.update((name, line[len(name) + 1 :]) for line in raylet if line.startswith(f"{name}="))
        done = subprocess.run(
            command, env=own, capture_output=True, text=True, timeout=_TORCH_S, check=True
        )
        devices, _, cuda = done.stdout.strip().partition(" ")
        return {"cuda": cuda, "devices": int(devices)}
    return {}


def _token() -> bool:
    from ray import _raylet

    mode = getattr(_raylet, "get_authentication_mode", None)
    if mode is None:  # it is private
        return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
    return bool(mode() == getattr(_raylet, "AuthenticationMode").TOKEN)  # noqa: B009 - not in its stub


def _autoscaler() -> dict[str, Any] | None:
    """What the autoscaler of this node may start, if it runs here: on the head, that is.

    Returns:
        None where none runs here. Else the kinds of nodes by name, each with `resources`, `labels`
        and `max_workers`: none of a cluster that cannot grow; and nothing else of its config,
        which may hold secrets.
    """
    import ray

    ours = f"--gcs-address={ray.get_runtime_context().gcs_address}"  # a machine may have several
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        words: list[str] = []
        with contextlib.suppress(OSError):  # it has ended just now, or is another user's
            words = process.read_bytes().decode(errors="replace").split("\0")
        if ours in words and any(word.endswith("/monitor.py") for word in words):
            return _kinds(words)
    return None


def _kinds(words: list[str]) -> dict[str, Any] | None:
    option = "--autoscaling-config="
    file = next((word.removeprefix(option) for word in words if word.startswith(option)), "")
    if not file:
        return {}
    import yaml

    try:
        config = yaml.safe_load(Path(file).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):  # as if it ran elsewhere
        return None
    most = config.get("max_workers", 0)
    return {
        name: {
            "resources": dict(kind.get("resources") or {}),
            "labels": dict(kind.get("labels") or {}),
            "max_workers": kind.get("max_workers", most),
        }
        for name, kind in (config.get("available_node_types") or {}).items()
    }


def _told(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
