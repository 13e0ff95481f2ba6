"""NVIDIA's MPS, with which kernels of several processes run on one GPU at the same time.

Without MPS the processes take turns on the GPU. Each process that joins holds a shared lock on the
server's folder, which the kernel releases however the process ends. A helper command waits until
no process holds the lock, and then ends the server. All searches of a user share a server, which
ends with the last of their workers, even after SIGKILL.

Source: https://docs.nvidia.com/deploy/mps/
"""

import errno
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "TUNE_SENTCL_MPS"
"""The environment variable that forbids MPS if it is 0."""

# The path of a socket has at most 107 bytes, which a long TMPDIR would exceed.
_PARENT = Path("/tmp")
_NAME = "tune_sentcl_mps"
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_CONTROL = "nvidia-cuda-mps-control"
_COMMANDS = (_CONTROL, "nvidia-smi", "flock")
_CARDS = ["nvidia-smi", "--format=csv,noheader,nounits"]
_CARDS += ["--query-gpu=index,uuid,memory.total,mig.mode.current,name"]
_CARD = re.compile(r"^(\d+), (GPU-[\w-]+), (\d+), (?!Enabled)[^,]+, (.+)$", re.MULTILINE)
_ANSWER_S, _START_S = 30.0, 5.0
# The helper that will end the server starts before the server, so no server lacks one. If a server
# already runs, a second server ends at once. Neither process holds the pipes of the caller.
_SERVE = "exec > /dev/null 2>&1; "
_SERVE += f'flock "$0" timeout 30 sh -c "echo quit -t 10 | {_CONTROL}" & {_CONTROL} -d &'
# Another process tests whether CUDA starts, because the server may fail, or serve 48 processes
# already.
_PROBE = """
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
if cuda.cuInit(0) == 0 == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
    print("started")
"""

_joined: str | None = None


def join(share: float, *, cuda_begun: bool) -> str:
    """Let this process share its GPU by MPS; later calls repeat the first answer.

    A server is started unless one answers in the environment's pipe directory. Call this before
    CUDA starts, because CUDA reads the environment at its start.

    Args:
        share: The process's share of the GPU's memory, which the driver enforces.
        cuda_begun: Whether this process has used CUDA.

    Returns:
        Why this process takes turns with others; empty under MPS and with TUNE_SENTCL_MPS=0.
    """
    global _joined
    if _joined is None:
        _joined = "" if os.environ.get(VARIABLE) == "0" else _join(share, cuda_begun)
    return _joined


def _join(share: float, cuda_begun: bool) -> str:
    # A parent that joined with another share may have set the variable to a server of this
    # package; any other server is the user's.
    if _NAME not in os.environ.get(_PIPES, "") and _answers(os.environ):
        return ""  # the user's own server has limits that the user chose
    for command in _COMMANDS:
        if shutil.which(command) is None:
            return f"{command} is not installed"
    if cuda_begun:
        return "this process has used CUDA before"
    card = _card()
    if card is None:
        return "nvidia-smi does not tell which GPU this is, and how much memory it has"
    name, memory = card
    folder = _PARENT / f"{_NAME}_{os.getuid()}_{name}"
    # The server sees only this card, so the server and its clients call it card 0.
    settings = {
        "CUDA_VISIBLE_DEVICES": name,
        "CUDA_MPS_LOG_DIRECTORY": str(folder),
        _PIPES: str(folder),
        _LIMIT: f"0={int(share * memory)}M",
    }
    reason = _serve(folder, os.environ | settings)
    if not reason:
        os.environ.update(settings)
    return reason


def _card() -> tuple[str, int] | None:
    """UUID and MiB of this process's first GPU; None if it is a MIG slice or unknown.

    CUDA and nvidia-smi may number different cards in a different order.
    """
    asked = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    cards = _CARD.findall(_output(_CARDS, os.environ))
    differ = len({name for *_, name in cards}) > 1
    if differ and asked.isdecimal() and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return None
    known = {key: (uuid, int(mib)) for index, uuid, mib, _ in cards for key in (index, uuid)}
    return known.get(asked)


def _serve(folder: Path, environment: dict[str, str]) -> str:
    """Hold a server's folder until this process ends; start its server; return an error text."""
    import fcntl  # Windows has neither fcntl nor MPS

    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        status = os.fstat(held)
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise PermissionError(errno.EPERM, "others can write to it")
        # This waits while a helper ends an earlier server.
        fcntl.flock(held, fcntl.LOCK_SH)
    except OSError as error:
        return f"{folder} cannot be used ({error.strerror})"
    # A limit in the server's environment would apply to every client.
    unlimited = {name: value for name, value in environment.items() if name != _LIMIT}
    _output(["sh", "-c", _SERVE, str(folder)], unlimited)
    if _answers(environment, _START_S) and _output([sys.executable, "-Ic", _PROBE], environment):
        return ""
    os.close(held)
    return f"the MPS server does not answer; see the logs in {folder}"


def _answers(environment: Mapping[str, str], seconds: float = 0.0) -> bool:
    """Whether a server answers in the environment's pipe directory; its sockets are no proof."""
    end = time.monotonic() + seconds
    command = "get_default_active_thread_percentage\n"
    while not re.match(r"\d", _output([_CONTROL], environment, command)):
        if time.monotonic() >= end:
            return False
        time.sleep(0.05)
    return True


def _output(command: list[str], environment: Mapping[str, str], given: str = "") -> str:
    """The output of a command; empty if it fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            # The server must outlive a signal to this process's group.
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
