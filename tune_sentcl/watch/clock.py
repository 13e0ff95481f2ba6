"""Durations as text; a separate module, because `watch.terminal` imports torch."""


def clock(seconds: float) -> str:
    """Format a duration as `1:05` or `2:01:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
