"""Trial ids: a hash of everything that shapes a trial's weights.

The hash takes dotted values, so a stored config that no longer parses still has an id.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tune_sentcl.config.catalogue import knobs
from tune_sentcl.config.idle import canonical_values, is_idle
from tune_sentcl.config.registry import cached
from tune_sentcl.config.sections import completed
from tune_sentcl.config.tables import Values
from tune_sentcl.config.trial import TrialConfig

CHECKPOINTS = ("encoder.checkpoint", "method.guide")
"""The hyperparameters that name an encoder: the base model and a guide."""

ROWS = tuple(
    f"data.{name}"
    for name in (
        *("source", "columns", "blanks", "positives", "limit", "min_score"),
        *("mined", "mined_by", "mined_margin", "mined_depth"),
    )
)
"""The hyperparameters that only select the examples to read."""

_NAMES = (*CHECKPOINTS, *ROWS)
"""Hyperparameters that name weights and rows; ids hash fingerprints of the content instead."""

_AFFECTS_WEIGHTS = ("evaluation.every", "evaluation.select")
"""The hyperparameters of `evaluation` that shape weights; the others only affect measuring."""

_ORIGINAL_AUTO = {"encoder.pooling": "mean_without_cls", "encoder.max_length": 512}

ORIGINAL_DEFAULTS: dict[tuple[str, str], Any] = {
    ("conisi", "method.batch_norm"): "separate",
    **{("", key): value for key, value in _ORIGINAL_AUTO.items()},
}
"""The first values of defaults that have changed since, by owner and key.

Ids leave these values out, and a stored config without the key means these values.
"""


@dataclass(frozen=True)
class Fingerprints:
    """Content hashes of a trial's inputs; names and paths do not affect its identity.

    Attributes:
        data: Hash of the training rows, after `data.limit`.
        checkpoint: Hash of the base model's weights and tokenizer.
        selection: Hash of the dev set; used only if the dev set selects the weights.
        code: Hash of the plugin that defines the method; empty for a built-in method.
    """

    data: str
    checkpoint: str
    selection: str = ""
    code: str = ""


def trial_id(config: TrialConfig, fingerprints: Fingerprints) -> str:
    """The trial id of a config; see `trial_id_of`."""
    return trial_id_of(config.dotted(), fingerprints)


def trial_id_of(values: Values, fingerprints: Fingerprints) -> str:
    """Compute a trial id of 16 hexadecimal digits from what shapes the weights.

    Method, encoder, data, optimizer, seed, `evaluation.every` and `evaluation.select` are hashed.
    Hyperparameters without effect (`is_idle`) are left out. Values at their original defaults are
    left out, too, so new fields and defaults do not rename old trials. Values with the same effect
    hash alike (`canonical_values`). Fingerprints replace the names of checkpoints and data, so
    that a moved folder gives the same id. The seed is hashed even if the trial draws no random
    numbers, because each seed of a configuration is a trial.

    Args:
        values: The dotted values of a whole config, from `TrialConfig.dotted`.
        fingerprints: The content hashes of the trial's inputs.
    """
    counting = weight_values(values)
    counting["method.name"] = values["method.name"]
    selection = fingerprints.selection if "evaluation.select" in counting else ""
    prints = [fingerprints.data, fingerprints.checkpoint, selection]
    return _digest(counting, prints + [fingerprints.code] * bool(fingerprints.code))


def configuration_id_of(values: Values, fingerprints: Fingerprints) -> str:
    """The configuration id: the `trial_id_of` with seed 0."""
    return trial_id_of({**values, "seed": 0}, fingerprints)


def affects_weights(key: str) -> bool:
    """Whether a hyperparameter can affect a trial's weights rather than only its scores."""
    return not key.startswith("evaluation.") or key in _AFFECTS_WEIGHTS


def weight_values(values: Values) -> dict[str, Any]:
    """The values of a config that `trial_id_of` hashes, besides fingerprints and method name.

    These are the hyperparameters that have an effect and differ from their original defaults. Two
    configs with equal values train alike on the same rows and base model.
    """
    values = {**values, **canonical_values(values)}
    return {k: v for k, v in _departures(values).items() if not is_idle(k, values)}


def _departures(values: Values) -> dict[str, Any]:
    """Values that differ from their original defaults; `method.name` has no default."""
    values = completed(values, _ORIGINAL_AUTO)
    defaults = _defaults(values["method.name"], values.get("optimizer.name", ""))
    return {
        key: values[key]
        for key, default in defaults.items()
        if key in values and values[key] != default
    }


@cached
def _defaults(method: str, optimizer: str) -> Mapping[str, Any]:
    owners = {"method": method, "optimizer": optimizer}
    named = {key: owners.get(knob.section, "") for key, knob in knobs().items()}
    return {
        key: ORIGINAL_DEFAULTS.get((named[key], key), knob.default(named[key]))
        for key, knob in knobs().items()
        if key not in _NAMES and affects_weights(key)
    }


def _digest(values: Values, prints: list[str]) -> str:
    tables: dict[str, Any] = {"fingerprints": prints}
    for key, value in values.items():
        section, _, name = key.partition(".")
        if name:
            tables.setdefault(section, {})[name] = value
        else:
            tables[section] = value
    text = json.dumps(tables, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
