"""Starts Ray or connects to it; restores the caller's signal handlers and cleans up after Ray."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import ray
from ray._private import ray_constants

from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.on_ray.environment import AUTH_MODE, temporary_token
from tune_sentcl.on_ray.preflight import authentication_error, check_address, no_cluster_error
from tune_sentcl.signals import descendants, shutdown_signals

_OTHERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_ATTEMPTS = "RAY_gcs_server_port_wait_time_s"
_SLOW = "timed out during startup"
_STARTS = 2


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

    Ray leaves the session folder of an ended cluster. A local cluster's folder is deleted here,
    except after an error of the search, because its logs may explain it.

    If this process was asked to end, `ShutdownSignals.exit_now` ends Ray's processes. Then
    `ray.shutdown()` would hang or kill this process, because the signal may have ended Ray
    already.
    """
    if ray.is_initialized():
        yield
        return
    with temporary_token(address), _on_loopback(address), ExitStack() as left:
        try:
            with _restored_sigterm(), _own_process_groups():
                folder = _start_or_connect(address)
            if address == "local":
                left.enter_context(_folder_of_ray(folder))
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
    before = os.environ.get(_OTHERS), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[_OTHERS], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before[1]
        del os.environ[_OTHERS]
        if before[0] is not None:
            os.environ[_OTHERS] = before[0]


@contextmanager
def _folder_of_ray(folder: Path) -> Iterator[None]:
    with shutdown_signals.deleted_on_exit(folder):
        yield
        if shutdown_signals.reason is None:
            shutil.rmtree(folder, ignore_errors=True)
            latest = folder.parent / "session_latest"
            if latest.is_symlink() and not latest.exists():
                latest.unlink(missing_ok=True)


def _start_or_connect(where: str) -> Path:
    """Begin; returns where Ray keeps its logs and sockets."""
    local: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    check_address(where)
    start = partial(
        ray.init,
        address=where,
        log_to_driver=False,
        logging_level=logging.ERROR,
        **(local if where == "local" else {}),
    )
    with _captured_stderr() as stderr, _one_attempt(where):
        try:
            start_with_retry(start)
        except ResourceError:  # a ValueError too
            raise
        except ray.exceptions.AuthenticationError as error:
            raise authentication_error(where, "no token was found to send") from error
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            if "InvalidAuthToken" in stderr():
                sent = os.environ.get(AUTH_MODE, "").lower() == "token"
                why = "it refuses the token that was sent" if sent else "no token was sent"
                raise authentication_error(where, why) from error
            raise no_cluster_error(where, error) from error
    context = ray.get_runtime_context()
    return Path(context.get_temp_dir(), context.get_session_name())


@contextmanager
def _one_attempt(address: str) -> Iterator[None]:
    """Give a cluster that does not answer one attempt of half a minute; Ray makes twenty.

    `auto` finds any Ray on this machine, and one of somebody else's may never answer.
    """
    if address == "local" or _ATTEMPTS in os.environ:
        yield
        return
    os.environ[_ATTEMPTS] = "1"
    try:
        yield
    finally:
        del os.environ[_ATTEMPTS]


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
def _captured_stderr() -> Iterator[Callable[[], str]]:
    """Capture stderr during the start, because Ray's core reports a wrong token only there.

    The core may also end this process at once, for example if its node cannot be reached. A
    separate `sh` waits for that and then prints the captured text.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file, _stderr_printed_on_death(file.fileno()):
        stderr_copy = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: _text_of(file)
        finally:
            sys.stderr.flush()
            os.dup2(stderr_copy, 2)
            os.close(stderr_copy)


@contextmanager
def _stderr_printed_on_death(file: int) -> Iterator[None]:
    script = f"read -r _ || cat /dev/fd/{file} >&2"
    # In its own session a signal to this process's group does not end it.
    printer = subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, pass_fds=(file,), start_new_session=True
    )
    try:
        yield
    finally:
        printer.communicate(b"all is well\n")


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


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
