"""What a trial is called: a hash of what shapes its weights.

Identity is worked out on dotted values, so that it can be read off a stored config as well,
without building one.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tune_sentcl.config.catalogue import knobs
from tune_sentcl.config.idle import acting_alike, is_idle
from tune_sentcl.config.sections import UNSAID, completed
from tune_sentcl.config.tables import Values
from tune_sentcl.config.trial import TrialConfig

CHECKPOINTS = ("encoder.checkpoint", "method.guide")
"""The knobs that name an encoder to start from, or to ask."""

ROWS = ("data.source", "data.columns", "data.blanks", "data.limit", "data.min_score")
"""The knobs that say which rows are read, and nothing else."""

_NAMES = (*CHECKPOINTS, *ROWS)
"""What names weights and rows that are read; their fingerprints count instead."""

_SHAPING = ("evaluation.every", "evaluation.select")
"""What counts of the evaluation; the rest only measures."""

CAME_WITH: dict[tuple[str, str], Any] = {
    ("conisi", "method.batch_norm"): "separate",
    **{("", key): value for key, value in UNSAID.items()},
}
"""Where a default has changed: the value that the knob came with, by owner and key. It is what an
id leaves out, and what a stored config means that lacks the key."""


@dataclass(frozen=True)
class Fingerprints:
    """Content hashes of what a trial reads; names and paths play no part in its identity.

    Attributes:
        data: Of the training rows, after `data.limit`.
        checkpoint: Of the encoder's starting weights and tokenizer.
        selection: Of the development set, where `evaluation.select` lets it shape the weights;
            else it does not count.
    """

    data: str
    checkpoint: str
    selection: str = ""


def trial_id(config: TrialConfig, fingerprints: Fingerprints) -> str:
    """Name a trial; see `trial_id_of`."""
    return trial_id_of(config.dotted(), fingerprints)


def configuration_id(config: TrialConfig, fingerprints: Fingerprints) -> str:
    """Name a configuration: the `trial_id` that it has under seed 0."""
    return configuration_id_of(config.dotted(), fingerprints)


def trial_id_of(values: Values, fingerprints: Fingerprints) -> str:
    """Name a trial by what shapes its weights.

    Method, encoder, data, optimizer, seed, `evaluation.every` and `evaluation.select` count.
    Fields at the defaults that they came with are left out, so that neither a new field nor a new
    default renames old trials, and so are knobs without effect (`is_idle`); of two values that act
    alike one stands for both (`acting_alike`). Names of checkpoints and data give way to their
    fingerprints, so that a moved folder is still the same trial. The seed counts even where
    nothing is drawn: each seed of a configuration is a trial.

    Args:
        values: The dotted values of a whole config, as `TrialConfig.dotted` gives them.
        fingerprints: Of what it reads.

    Returns:
        16 hexadecimal digits.
    """
    counting = shaping(values)
    counting["method.name"] = values["method.name"]
    selection = fingerprints.selection if "evaluation.select" in counting else ""
    return _digest(counting, [fingerprints.data, fingerprints.checkpoint, selection])


def configuration_id_of(values: Values, fingerprints: Fingerprints) -> str:
    """Name a configuration: the `trial_id_of` that it has under seed 0."""
    return trial_id_of({**values, "seed": 0}, fingerprints)


def may_shape(key: str) -> bool:
    """Whether a knob can have a part in what a trial's weights become; the others only measure."""
    return not key.startswith("evaluation.") or key in _SHAPING


def shaping(values: Values) -> dict[str, Any]:
    """What `trial_id_of` hashes of a config beside the fingerprints and the method's name.

    Two configs for which this is the same do the same with the same rows and starting weights.

    Args:
        values: The dotted values of a whole config.

    Returns:
        The knobs with an effect that depart from the defaults that they came with.
    """
    values = {**values, **acting_alike(values)}
    return {k: v for k, v in _departures(values).items() if not is_idle(k, values)}


def _departures(values: Values) -> dict[str, Any]:
    """The values that may count and that an id does not leave out; `method.name` has none."""
    values = completed(values)
    defaults = _defaults(values["method.name"], values.get("optimizer.name", ""))
    return {
        key: values[key]
        for key, default in defaults.items()
        if key in values and values[key] != default
    }


@functools.cache
def _defaults(method: str, optimizer: str) -> Mapping[str, Any]:
    owners = {"method": method, "optimizer": optimizer}
    named = {key: owners.get(knob.section, "") for key, knob in knobs().items()}
    return {
        key: CAME_WITH.get((named[key], key), knob.default(named[key]))
        for key, knob in knobs().items()
        if key not in _NAMES and may_shape(key)
    }


def _digest(shaping: Values, prints: list[str]) -> str:
    tables: dict[str, Any] = {"fingerprints": prints}
    for key, value in shaping.items():
        section, _, name = key.partition(".")
        if name:
            tables.setdefault(section, {})[name] = value
        else:
            tables[section] = value
    text = json.dumps(tables, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
