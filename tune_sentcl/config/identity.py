"""Trial ids: a hash of everything that shapes a trial's weights.

Dotted values are hashed, so that stored configs that cannot be built any more have ids, too.
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
"""The knobs that name an encoder to start from or a guide."""

ROWS = tuple(
    f"data.{name}"
    for name in (
        *("source", "columns", "blanks", "positives", "limit", "min_score"),
        *("mined", "mined_by", "mined_margin", "mined_depth"),
    )
)
"""The knobs that only select the rows to read."""

_NAMES = (*CHECKPOINTS, *ROWS)
"""Names of weights and rows; their fingerprints are hashed instead."""

_AFFECTS_WEIGHTS = ("evaluation.every", "evaluation.select")
"""The evaluation knobs that shape weights; the others only affect measuring."""

_ORIGINAL_AUTO = {"encoder.pooling": "mean_without_cls", "encoder.max_length": 512}

ORIGINAL_DEFAULTS: dict[tuple[str, str], Any] = {
    ("conisi", "method.batch_norm"): "separate",
    **{("", key): value for key, value in _ORIGINAL_AUTO.items()},
}
"""The original values of knobs whose default has changed, by owner and key. Ids leave out these
values, and a stored config without the key means them."""


@dataclass(frozen=True)
class Fingerprints:
    """Content hashes of a trial's inputs; names and paths do not affect its identity.

    Attributes:
        data: Of the training rows, after `data.limit`.
        checkpoint: Of the encoder's starting weights and tokenizer.
        selection: Of the development set; used only if it selects the weights.
        code: Of the plugin that defines the method; empty for a built-in method.
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
    Knobs without effect (`is_idle`) are left out. So are values at their original defaults, so
    that new fields and defaults do not rename old trials. Values with the same effect hash alike
    (`canonical_values`). Fingerprints replace the names of checkpoints and data, so that a moved
    folder gives the same id. The seed is hashed even if the trial draws no random numbers, because
    each seed of a configuration is a trial.

    Args:
        values: The dotted values of a whole config, from `TrialConfig.dotted`.
        fingerprints: Of its inputs.
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
    """Whether a knob can affect a trial's weights; other knobs only affect measuring."""
    return not key.startswith("evaluation.") or key in _AFFECTS_WEIGHTS


def weight_values(values: Values) -> dict[str, Any]:
    """The part of a config that `trial_id_of` hashes, besides fingerprints and method name.

    It holds the knobs with an effect that differ from their original defaults. Two configs with
    equal parts train alike on the same rows and starting weights.
    """
    values = {**values, **canonical_values(values)}
    return {k: v for k, v in _departures(values).items() if not is_idle(k, values)}


def _departures(values: Values) -> dict[str, Any]:
    """Values that differ from the original defaults of identity knobs; `method.name` has none."""
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
