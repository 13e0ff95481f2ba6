"""Durations as people read them; apart from the terminal's lines, which bring torch."""


def clock(seconds: float) -> str:
    """A span as people read it: `1:05`, `2:01:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
