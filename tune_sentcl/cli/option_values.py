"""Parses the values of `--set`, `--seeds`, `--own` and times."""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from tune_sentcl.config.data_names import own_sources
from tune_sentcl.errors import ConfigError, Fault


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE pairs; the last value of a repeated key counts."""
    faults = [
        Fault("--set", "", text, "must be KEY=VALUE", "Write --set method.lambda=0.3.")
        for text in texts
        if not text.partition("=")[0].strip() or "=" not in text
    ]
    if faults:
        raise ConfigError(faults)
    pairs = (text.partition("=") for text in texts)
    return {key.strip(): parse_value(value.strip()) for key, _, value in pairs}


def parse_value(text: str) -> Any:
    """A TOML value; otherwise `[a,b]` is a list of strings, and any other text a string."""
    try:
        # Inside a list, TOML refuses a comment or another line behind the value.
        tomllib.loads(f"value = [{text}]")
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # no TOML value, or an integer with too many digits for Python
        if text.startswith("[") and text.endswith("]"):
            items = (item.strip().strip("\"'") for item in text[1:-1].split(","))
            return [item for item in items if item]
        return text


def parse_seeds(text: str | None) -> tuple[int, ...] | None:
    """Parse `0,1,2`: distinct whole numbers of 0 or more."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    # 18 digits always fit the study's column of seeds.
    seeds = tuple(int(part) for part in parts if part.isdecimal() and len(part) <= 18)
    if len(set(seeds)) < len(parts):
        rule = "must be distinct whole numbers of 0 or more, with commas between"
        raise ConfigError(Fault("--seeds", "", text, rule, "Write --seeds 0,1,2."))
    return seeds


def own_entries(given: Sequence[str] | None) -> tuple[str, ...]:
    """Check entries of `evaluation.own`."""
    entries = tuple(given or ())
    try:
        own_sources(entries)
    except ValueError as error:
        shown = ", ".join(entries)
        move = "Write --own support=path/to/folder."
        raise ConfigError(Fault("--own", "", shown, f"must be {error}", move)) from None
    return entries


_PARTS = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?"
)
_SECONDS = (24 * 3600, 3600, 60, 1)


def parse_duration(option: str, text: str | None) -> float | None:
    """Parse `90s`, `30m`, `1h30m` or `2d` as seconds; a number needs its unit."""
    if text is None:
        return None
    found = _PARTS.fullmatch(text.strip().lower().replace(" ", ""))
    if found is None or not any(found.groups()):
        rule = "must be a time with units: d, h, m, s"
        raise ConfigError(Fault(option, "", text, rule, f"Write {option} 1h30m."))
    return sum(
        float(part or 0) * unit for part, unit in zip(found.groups(), _SECONDS, strict=True)
    )
