"""What a trial is called: a hash of what shapes its weights."""

import hashlib
import json
from dataclasses import dataclass

from tune_sentcl.config.trial import TrialConfig


@dataclass(frozen=True)
class Fingerprints:
    """Content hashes of what a trial reads; names and paths play no part in its identity.

    Attributes:
        data: Of the training rows, after `data.limit`.
        checkpoint: Of the encoder's starting weights and tokenizer.
        selection: Of the development set, where `evaluation.select` lets it shape the weights;
            else empty.
    """

    data: str
    checkpoint: str
    selection: str = ""


def trial_id(config: TrialConfig, fingerprints: Fingerprints) -> str:
    """Name a trial by what shapes its weights.

    Method, encoder, data, optimizer, seed, `evaluation.every` and `evaluation.select` count;
    fields at their defaults are left out, so that a new field never renames old trials. Names of
    checkpoints and data give way to their fingerprints, so that a moved folder is still the same
    trial.

    Returns:
        16 hexadecimal digits.
    """
    values = config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    evaluation = values.pop("evaluation", {})
    values["evaluation"] = {k: evaluation[k] for k in ("every", "select") if k in evaluation}
    values.get("encoder", {}).pop("checkpoint", None)
    for key in ("source", "limit", "min_score"):
        values.get("data", {}).pop(key, None)
    if not config.method.takes_steps:
        for section in ("optimizer", "data"):
            values.pop(section, None)
    tables = {key: value for key, value in values.items() if value != {}}
    tables["fingerprints"] = [fingerprints.data, fingerprints.checkpoint, fingerprints.selection]
    text = json.dumps(tables, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def configuration_id(config: TrialConfig, fingerprints: Fingerprints) -> str:
    """Name a configuration: the `trial_id` that it has under seed 0."""
    return trial_id(config.model_copy(update={"seed": 0}), fingerprints)
