"""What Ray reads from the environment, set before it is imported."""

import functools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AUTH_MODE = "RAY_AUTH_MODE"
_TOKEN, _TOKEN_PATH = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"

# Its tables and loggers stay off: progress is ours, and the study's tables are the record. An
# interruption must reach us, not a graceful stop that hides it, and SIGTERM no C++ stack trace. A
# trial that failed reports no number. Workers start side by side, not each when the one before it
# is up; how many trials wait is our searcher's choice. Nothing is phoned home.
_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "200",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


def prepare_ray() -> None:
    """Set what the user has not set; call before the first import of Ray."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)


@contextmanager
def temporary_token(address: str) -> Iterator[None]:
    """Give a cluster of this machine's own a token that goes with it.

    Ray would leave one in the user's home for good, and whoever starts a cluster after that gets
    one that asks for it, without a word. Where the user has a token, or wants none, that holds.
    """
    has_token = any(map(os.environ.get, (AUTH_MODE, _TOKEN, _TOKEN_PATH)))
    if address != "local" or has_token or (Path.home() / ".ray/auth_token").exists():
        yield
        return
    os.environ[_TOKEN] = _token_of_this_process()
    try:
        yield
    finally:
        for name in (_TOKEN, AUTH_MODE):  # Ray sets the second
            os.environ.pop(name, None)


@functools.cache
def _token_of_this_process() -> str:
    """One for all its clusters, for Ray's core reads it once."""
    return secrets.token_hex(32)
