"""A trial's config as the command that trains it again."""

import json
import shlex
import tomllib
from collections.abc import Iterable
from typing import Any

from tune_sentcl.config import (
    CAME_WITH,
    TrialConfig,
    evaluation_data,
    flatten,
    is_toy,
    knobs,
    parse_dotted,
)
from tune_sentcl.errors import ConfigError
from tune_sentcl.objective import DEFAULT, Objective, unmeasured

STUDY, ROOT = "NEW_STUDY", "DATA_ROOT"
"""What stands for places that whoever repeats a trial has to name."""


def _stored_config(text: str) -> TrialConfig | None:
    """The config of a stored row; None where this release knows no such config."""
    try:
        values = dict(flatten(json.loads(text)))
        method = values.get("method.name")
        came = {key: value for (name, key), value in CAME_WITH.items() if name in ("", method)}
        return parse_dotted({**came, **values}, "config")
    except (ConfigError, ValueError):
        return None


def train_command(text: str, objectives: Iterable[Objective] = ()) -> str | None:
    """The command that trains a stored trial alone, in a new study that keeps its weights.

    Args:
        text: Its row's config as JSON.
        objectives: What its search maximized, by the first of which it was compared; those that it
            does not measure are left out.

    Returns:
        One line for a shell; None where this release knows no such config.
    """
    config = _stored_config(text)
    if config is None:
        return None
    words = ["tune-sentcl", "train", "--study", STUDY]
    if evaluation_data(config) == "root" or not is_toy(config.data.source):
        words += ["--data", ROOT]
    given = [o for o in objectives if not any(unmeasured([o], [config.evaluation]))]
    if given != [DEFAULT]:  # else the command takes it by itself
        words += [word for one in given for word in ("--objective", str(one))]
    if any(one.split == "test" for one in given):
        words += ["--allow-test-objective"]
    for key, value in settings(config).items():
        words += ["--set", f"{key}={as_setting(value)}"]
    return shlex.join(words)


def settings(config: TrialConfig) -> dict[str, Any]:
    """The knobs of a config that depart from their defaults, the method's name always."""
    owners = {"method": config.method.name, "optimizer": config.optimizer.name}
    values = config.dotted()
    return {
        key: values[key]
        for key, knob in knobs().items()
        if key in values
        and (
            key == "method.name"
            or values[key] != _plain(knob.default(owners.get(knob.section, "")))
        )
    }


def as_setting(value: Any) -> str:
    """A value as `--set KEY=VALUE` reads it: TOML, or bare text where that is no TOML."""
    if isinstance(value, str):
        try:
            tomllib.loads(f"value = {value}")
        except ValueError:
            bare = value == value.strip() and not value.startswith("[") and "\n" not in value
            return value if bare else json.dumps(value)
        return json.dumps(value)
    return as_toml(value)


def as_toml(value: Any) -> str:
    """A value of a config in TOML."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    return repr(value)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
