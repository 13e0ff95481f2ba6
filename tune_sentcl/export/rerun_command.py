"""The command that trains a stored trial again."""

import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from tune_sentcl.config import (
    ORIGINAL_DEFAULTS,
    TrialConfig,
    evaluation_data,
    flatten,
    is_idle,
    knobs,
    parse_dotted,
    plugin_of,
    source_names,
)
from tune_sentcl.data.rows.sources import is_named
from tune_sentcl.errors import ConfigError
from tune_sentcl.objective import DEFAULT, Objective, unmeasured

STUDY, ROOT = "NEW_STUDY", "DATA_ROOT"
"""Placeholders for paths that the user must replace."""


def _stored_config(text: str) -> TrialConfig | None:
    """The config of a stored row; None if this release cannot read it."""
    try:
        values = dict(flatten(json.loads(text)))
        method = values.get("method.name")
        came = {
            key: value for (name, key), value in ORIGINAL_DEFAULTS.items() if name in ("", method)
        }
        return parse_dotted({**came, **values}, "config")
    except (ConfigError, ValueError):
        return None


def train_command(
    text: str,
    objectives: Sequence[Objective] = (),
    stage: Objective | None = None,
    plugins: Mapping[str, str] | None = None,
) -> str | None:
    """The command that trains one stored trial again, in a new study that keeps its weights.

    Args:
        text: The row's config as JSON.
        objectives: The search's objectives; objectives that the trial does not measure are left
            out.
        stage: The stage objective, if it has selected the weights.
        plugins: The plugins of tasks and sources, as `Manifest.plugins`.

    Returns:
        One line for a shell; None if this release cannot read the config.
    """
    config = _stored_config(text)
    if config is None:
        return None
    words = ["tune-sentcl", "train", "--study", STUDY]
    if _needs_root(config):
        words += ["--data", ROOT]
    given = [o for o in objectives if not any(unmeasured([o], [config.evaluation]))]
    if given != [DEFAULT]:
        # The command maximizes DEFAULT if it names no objective.
        words += [word for objective in given for word in ("--objective", str(objective))]
    if stage is not None and stage != next(iter(given), DEFAULT):
        words += ["--stage-objective", str(stage)]
    if any(objective.split == "test" for objective in given):
        words += ["--allow-test-objective"]
    own = (entry.rpartition("=")[2] for entry in config.evaluation.own)
    used = [(plugins or {}).get(name, "") for name in (*source_names(config.data.source), *own)]
    for plugin in filter(None, dict.fromkeys([plugin_of(config.method.name), *used])):
        words += ["--plugin", plugin]
    for key, value in settings(config).items():
        words += ["--set", f"{key}={as_setting(value)}"]
    return shlex.join(words)


def _needs_root(config: TrialConfig) -> bool:
    """Whether a trial reads files under the data root."""
    by_name = {name for name in source_names(config.data.source) if is_named(name)} - {"toy"}
    suites = evaluation_data(config) == "root" and bool(config.evaluation.suites)
    return suites or (config.method.trains_on_rows and bool(by_name))


def settings(config: TrialConfig) -> dict[str, Any]:
    """The values of a config that differ from their defaults, and always the method's name."""
    owners = {"method": config.method.name, "optimizer": config.optimizer.name}
    values = config.dotted()
    return {
        key: values[key]
        for key, knob in knobs().items()
        if key in values
        and not (config.method.is_trainer and is_idle(key, values))
        and (
            key == "method.name"
            or values[key] != _plain(knob.default(owners.get(knob.section, "")))
        )
    }


def as_setting(value: Any) -> str:
    """A value for `--set KEY=VALUE`: TOML, or bare text that does not parse as TOML."""
    if isinstance(value, str):
        try:
            tomllib.loads(f"value = {value}")
        except ValueError:
            bare = value == value.strip() and not value.startswith("[") and "\n" not in value
            return value if bare else json.dumps(value)
        return json.dumps(value)
    return as_toml(value)


def as_toml(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    return repr(value)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
