"""Starts Ray or connects to it; restores the caller's signal handlers and cleans up after Ray."""

import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants

from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.on_ray.environment import set_variable, temporary_token
from tune_sentcl.on_ray.preflight import authentication_error, check_address, no_cluster_error
from tune_sentcl.signals import descendants, shutdown_signals
from tune_sentcl.tuning.resources import this_machine

_ATTEMPTS = "RAY_gcs_server_port_wait_time_s"
_SLOW = "timed out during startup"
_STARTS = 2
# A path of a socket has at most 107 bytes, of which Ray takes 64 for the session, with a process
# of 7 digits, and the name `plasma_store`. The folder here takes 14.
_LONGEST_PARENT = 107 - 64 - 14


@contextmanager
def quiet_ray_logging() -> Iterator[None]:
    """Silence Ray's loggers: this package reports Ray's errors itself."""
    loggers = [logging.getLogger(name) for name in ("ray", "ray.tune")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def cluster(address: str) -> Iterator[None]:
    """Start Ray or connect to it; an existing connection of the caller is used and left open.

    If this process was asked to end, `ShutdownSignals.exit_now` ends Ray's processes. Then
    `ray.shutdown()` would hang or kill this process, because the signal may have ended Ray
    already.
    """
    if ray.is_initialized():
        yield
        return
    with temporary_token(address), _on_loopback(address), _local_options(address) as local:
        try:
            with _restored_sigterm(), _own_process_groups():
                _start_or_connect(address, local)
            yield
        finally:
            if shutdown_signals.reason is None:
                ray.shutdown()  # also after an incomplete start


@contextmanager
def _on_loopback(address: str) -> Iterator[None]:
    """Let a local cluster listen on the loopback interface only.

    Ray replaces 127.0.0.1 by the machine's external address, and listens on all interfaces, unless
    it knows that no other machine takes part. It reads this when it is imported; its processes
    read it when they start.
    """
    if address != "local" or not hasattr(ray_constants, "ENABLE_RAY_CLUSTER"):
        yield
        return
    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        with set_variable("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0"):
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def _local_options(address: str) -> Iterator[dict[str, Any]]:
    """Ray's options for a local cluster with a folder of its own; none for other clusters.

    Ray would take TMPDIR/ray, which may be another user's, or too long for its sockets. The folder
    is deleted at the end, except after an error of the search, because its logs may explain it.
    Ray lets everybody write to its folder, so that lies in one of this user's alone.
    """
    if address != "local":
        yield {}
        return
    machine, folder = this_machine(), _folder_for_ray()
    with shutdown_signals.deleted_on_exit(folder):
        yield {
            "include_dashboard": False,
            "num_cpus": machine.cpus,
            "_memory": int(machine.memory),
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": str(folder / "r"),
        }
        if shutdown_signals.reason is None:
            shutil.rmtree(folder, ignore_errors=True)


def _folder_for_ray() -> Path:
    """A new folder below RAY_TMPDIR, else below TMPDIR, else below /tmp."""
    named = os.environ.get("RAY_TMPDIR")
    parents = [named] if named else [tempfile.gettempdir(), "/tmp"]
    for parent in parents:
        if len(os.fsencode(parent)) <= _LONGEST_PARENT:
            with suppress(OSError):
                return Path(tempfile.mkdtemp(prefix="ray", dir=parent))
    rule = "Ray's sockets need a folder that you may write to, with a path of at most"
    move = "Set RAY_TMPDIR to such a folder."
    where, rule = ", ".join(parents), f"{rule} {_LONGEST_PARENT} bytes"
    raise ResourceError(Fault("RAY_TMPDIR", "", where, rule, move))


def _start_or_connect(where: str, local: Mapping[str, Any]) -> None:
    check_address(where)
    start = partial(
        ray.init,
        address=where,
        log_to_driver=False,
        logging_level=logging.ERROR,
        **local,
    )
    # Ray makes twenty attempts of half a minute. `auto` finds any Ray on this machine, and one of
    # somebody else's may never answer.
    attempts = nullcontext() if where == "local" else set_variable(_ATTEMPTS, "1")
    try:
        with attempts:
            start_with_retry(start)
    except ResourceError:  # a ValueError too
        raise
    except ray.exceptions.AuthenticationError as error:
        raise authentication_error(where, "no token was found to send") from error
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise no_cluster_error(where, error) from error


def start_with_retry(start: Callable[[], object]) -> None:
    """Call `start`, which starts Ray, and once more if the start exceeds Ray's limit of 30 s.

    A crowded machine may be too slow for that limit. Ray leaves the processes of a failed start
    running. They are killed here, because they would slow down the next start.
    """
    for _ in range(_STARTS):
        before = set(descendants())
        try:
            start()
        except Exception as error:  # Ray raises nothing narrower
            if _SLOW not in str(error):
                raise
            for pid in set(descendants()) - before:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            return
    rule = f"Ray must start within its limit of 30 s, and {_STARTS} starts on this machine did not"
    move = "Repeat the command when the machine has less to do."
    raise ResourceError(Fault("--address", "", "local", rule, move))


@contextmanager
def _restored_sigterm() -> Iterator[None]:
    """Restore the caller's SIGTERM handler, which Ray replaces by its own.

    A SIGTERM during the start makes Ray raise SystemExit; the caller's handler gets the signal
    then. Without a handler of the caller, Ray's remains.
    """
    handler = signal.getsignal(signal.SIGTERM)
    is_main_thread = threading.current_thread() is threading.main_thread()
    if handler is signal.SIG_DFL or not is_main_thread:
        yield
        return
    try:
        yield
    except SystemExit:
        signal.signal(signal.SIGTERM, handler)
        signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, handler)


_starting_ray = False


@contextmanager
def _own_process_groups() -> Iterator[None]:
    """Start Ray's processes in process groups of their own.

    `timeout`, a closed terminal and Ctrl-C signal the whole group. Ray's processes would then end
    at once, and end this process before it has cleaned up and printed its last message.
    """
    global _starting_ray
    _starting_ray = True
    try:
        yield
    finally:
        _starting_ray = False


def _leave_group() -> None:
    if _starting_ray:
        os.setpgid(0, 0)


os.register_at_fork(after_in_child=_leave_group)  # Ray forks with Python's hooks
