"""What Ray reads from the environment, set before it is imported."""

import os

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
