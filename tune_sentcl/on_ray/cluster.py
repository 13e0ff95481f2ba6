"""Start Ray or connect to it, clean up after it, and watch for nodes that drain."""

import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # no dependency of its own, because Ray's wheel contains it
import ray
from ray._private import node, ray_constants, services

from tune_sentcl.errors import (
    Fault,
    ResourceError,
    TuneSentclError,
    first_line,
    refuse_credentials,
)
from tune_sentcl.on_ray.environment import set_variable, temporary_token
from tune_sentcl.signals import signal_behind
from tune_sentcl.tuning.machine import this_machine

_ATTEMPTS = "RAY_gcs_server_port_wait_time_s"
_PROCESSES = ("gcs_server", "raylet")
"""Ray's processes of a local cluster that must run before the cluster can start."""
_START_S = 180.0
_SAY_S = 30.0
"""Seconds that Ray's processes may take to start; the user is told after `_SAY_S`."""
# Seconds between two checks; a cloud announces the end of a node 30 to 120 s before.
_LOOK_S = 3.0


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
def cluster(address: str, say: Callable[[str], None]) -> Iterator[None]:
    """Start Ray or connect to it; if the caller is already connected, use that connection.

    A connection of the caller stays open.

    Raises:
        ResourceError: No cluster answers at the address.
        TuneSentclError: Ray cannot be started on this machine.
    """
    if ray.is_initialized():
        yield
        return
    with temporary_token(address), _on_loopback(address), _local_options(address) as local:
        try:
            with _restored_sigterm(), _own_process_groups():
                if address == "local":
                    _start(local, say)
                else:
                    _connect(address)
            yield
        finally:
            ray.shutdown()  # this is needed after an incomplete start too


@contextmanager
def _on_loopback(address: str) -> Iterator[None]:
    """Let a local cluster listen on the loopback interface only.

    Ray replaces 127.0.0.1 by the machine's external address, and listens on all interfaces, unless
    a constant says that clusters have one machine. Ray reads the constant when it is imported; its
    processes read it when they start.
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
    """Ray's options for a local cluster with its own folder; empty for other clusters.

    By default Ray uses TMPDIR/ray, which may belong to another user, or be too long for its
    sockets. The folder here is below RAY_TMPDIR, or else below /tmp. It is deleted at the end,
    except after an error of the search, because its logs may explain the error. Ray lets everybody
    write to its folder, so the folder lies in another that only this user can enter.
    """
    if address != "local":
        yield {}
        return
    machine, parent = this_machine(), os.environ.get("RAY_TMPDIR") or "/tmp"
    try:
        folder = Path(tempfile.mkdtemp(prefix="ray", dir=parent))
    except OSError as error:
        if not os.environ.get("RAY_TMPDIR"):
            raise _no_ray_error(f"{error.strerror}: {parent}") from None
        rule = f"Ray needs a folder to write to ({error.strerror})"
        move = "Set RAY_TMPDIR to another folder."
        raise ResourceError(Fault("RAY_TMPDIR", value=parent, rule=rule, move=move)) from None
    is_kept = False
    try:
        yield {
            "include_dashboard": False,
            "num_cpus": machine.cpus,
            "_memory": int(machine.memory),
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": str(folder / "r"),
        }
    except Exception as error:
        is_kept = signal_behind(error) is None
        raise
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)


def _start(options: Mapping[str, Any], say: Callable[[str], None]) -> None:
    text = f"Ray has not started after {_SAY_S:g} s; waiting up to {_START_S / 60:g} minutes"
    slow = threading.Timer(_SAY_S, say, [f"{text}, because this machine may be busy"])
    slow.daemon = True
    slow.start()
    try:
        with _patience():
            ray.init(address="local", log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray raises no narrower class here
        logs = Path(options["_temp_dir"]) / "session_latest" / "logs"
        raise _no_ray_error(f"{first_line(error)}{_last_logged(logs)}; logs: {logs}") from error
    finally:
        slow.cancel()


@contextmanager
def _patience() -> Iterator[None]:
    """Wait up to `_START_S` for Ray's processes, unless one ends; Ray itself waits only 30 s."""
    end = time.monotonic() + _START_S
    waits = ((node, "wait_for_persisted_port"), (services, "get_node"))
    before = [getattr(module, name) for module, name in waits]
    for (module, name), ask in zip(waits, before, strict=True):
        setattr(module, name, partial(_answer, ask, end))
    try:
        yield
    finally:
        for (module, name), ask in zip(waits, before, strict=True):
            setattr(module, name, ask)


def _answer(ask: Callable[..., Any], end: float, *args: Any, **kwargs: Any) -> Any:
    """Call `ask` until Ray answers; give up at `end`, a time of `time.monotonic`."""
    while True:
        try:
            return ask(*args, **kwargs)
        except RuntimeError:
            # Ray has not answered yet, or one of its processes has ended.
            if ended := _ended_process():
                raise TuneSentclError(f"its process {ended} has ended") from None
            if time.monotonic() > end:
                late = f"its processes have not answered for {_START_S:g} s"
                raise TuneSentclError(late) from None
            time.sleep(0.1)


def _ended_process() -> str:
    """The name of a Ray process that this process started and that ended; else empty."""
    ended = (c for c in psutil.Process().children() if c.status() == psutil.STATUS_ZOMBIE)
    return next((c.name() for c in ended if c.name() in _PROCESSES), "")


def _last_logged(logs: Path) -> str:
    """The last error in the logs of Ray's processes, in parentheses; empty without an error."""
    files = [file for name in _PROCESSES for file in logs.glob(f"{name}.*")]
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines()]
    errors = [line.strip() for line in lines if " C " in line or " E " in line]
    return f" ({errors[-1]})" if errors else ""


def _no_ray_error(cause: Exception | str) -> TuneSentclError:
    move = "Give --launcher local to run one trial at a time without Ray"
    return TuneSentclError(f"Ray cannot start on this machine: {first_line(cause)}. {move}")


def _connect(where: str) -> None:
    check_address(where)
    try:
        # Ray would try twenty times, for half a minute each time. `auto` finds any Ray of this
        # machine, also another user's, which may never answer.
        with set_variable(_ATTEMPTS, "1"):
            ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR)
    except ray.exceptions.AuthenticationError as error:
        raise authentication_error(where, "no token was found to send") from error
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise no_cluster_error(where, error) from error


@contextmanager
def _restored_sigterm() -> Iterator[None]:
    """Restore the caller's SIGTERM handler, which Ray replaces by its own.

    A SIGTERM while Ray starts makes Ray raise SystemExit; then the caller's handler gets the
    signal. If the caller has no handler, Ray's handler stays.
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

    `timeout`, a closed terminal and Ctrl-C signal a whole group. In the same group, Ray's
    processes would end at once, and end this process before it has cleaned up and printed its last
    message.
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


# Ray starts its processes by a fork that runs Python's hooks, so they run this function.
os.register_at_fork(after_in_child=_leave_group)


def check_address(address: str) -> None:
    """Check that a server listens at HOST:PORT, as Ray would try for minutes and then exit."""
    refuse_credentials("--address", "", address)
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise no_cluster_error(address, error) from None


def no_cluster_error(address: str, error: Exception) -> ResourceError:
    """The error for an address at which no Ray cluster answers."""
    rule = f"must be the address of a Ray cluster that answers ({error})"
    move = (
        "Correct the address, start the cluster, set the cluster's token, or use --address local."
    )
    if address == "auto":
        move = (
            "A cluster that runs here may be another user's: name yours by --address HOST:PORT, "
            "or start it."
        )
    return ResourceError(Fault("--address", value=address, rule=rule, move=move))


def authentication_error(address: str, why: str) -> ResourceError:
    """The error for a cluster that requires another token."""
    rule = f"this cluster requires its token, but {why}"
    move = (
        "Set RAY_AUTH_MODE=token, and give the cluster's token: RAY_AUTH_TOKEN, "
        "RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token."
    )
    return ResourceError(Fault("--address", value=address, rule=rule, move=move))


def draining() -> frozenset[str]:
    """The ids of draining nodes; empty if this version of Ray lacks the private call."""
    with suppress(AttributeError, ImportError, ray.exceptions.RayError, RuntimeError):
        from ray._private.state import state

        return frozenset(state.get_draining_nodes())
    return frozenset()


@contextmanager
def watch_draining() -> Iterator[Callable[[], bool]]:
    """Watch whether this process's node drains; yields a function that returns the answer.

    A thread asks, because a call to a head node that does not answer would block the training.
    """
    node, drains, ended = (
        ray.get_runtime_context().get_node_id(),
        threading.Event(),
        threading.Event(),
    )

    def look() -> None:
        while not drains.is_set():
            if node in draining():
                drains.set()
            elif ended.wait(_LOOK_S):
                return

    threading.Thread(target=look, daemon=True).start()
    try:
        yield drains.is_set
    finally:
        ended.set()
