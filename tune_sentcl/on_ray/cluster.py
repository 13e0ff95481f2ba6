"""A connection to Ray that leaves the caller's signals, and nothing of itself, behind."""

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
_SLOW = "timed out during startup"
_STARTS = 2


@contextmanager
def quiet_ray_logging() -> Iterator[None]:
    """Ray's words stay away: it misses its loggers' files, and its errors are told by us."""
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
    """A connection to Ray; one that the caller had already is used and left open.

    Ray keeps the folder of a cluster that is gone. That of one of this machine's own goes, but
    where an error has ended the search, of which the logs in it may say more.

    Where this process has been asked to end, Ray's is ended by `ShutdownSignals.exit_now`: taking
    leave of it would hang, or kill this process, where a signal to the whole group was quicker.
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
                ray.shutdown()  # also what was begun only


@contextmanager
def _on_loopback(address: str) -> Iterator[None]:
    """Keep a cluster of this machine's own from listening where others reach it.

    Ray takes 127.0.0.1 for this machine's outer address, and listens on all of them, unless it is
    told that no other machine will take part. It reads that when it is imported; its processes do
    when they start.
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
    with _captured_stderr() as stderr:
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


def start_with_retry(start: Callable[[], object]) -> None:
    """Begin Ray; where a crowded machine is too slow for Ray's limit of 30 s, begin once more.

    Ray leaves the processes of a start that it has given up running. They end here, because they
    would slow down the next start.

    Args:
        start: Starts Ray, or raises.

    Raises:
        ResourceError: Both starts were too slow.
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
    """What is written on stderr meanwhile: only there does Ray's core speak of a wrong token.

    The core also ends the process where it stands, as when its node is not to be reached. Then
    `sh`, which has waited for that, prints what it had said: nobody else could.
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
    # A session of its own: what ends this process's group is not to end it.
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
    """Put the caller's handler of SIGTERM back in the place that Ray takes for its own.

    A SIGTERM that comes meanwhile makes Ray leave by SystemExit; the caller's handler hears of it.
    Where the caller has none, Ray's stays.
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
    """Keep signals to our process group from what is started meanwhile.

    `timeout`, a shell whose terminal goes, and Ctrl-C send to the whole group. Ray's processes
    would end beside us, and take us with them before what has ended is told and tidied.
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


os.register_at_fork(after_in_child=_leave_group)  # Ray forks by way of Python's hooks
