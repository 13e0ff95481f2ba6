"""Which trials take equally long: those whose knobs differ in nothing that costs time."""

from tune_sentcl.config import ROWS, Fingerprints, knobs
from tune_sentcl.config.idle import is_idle
from tune_sentcl.config.tables import Values

Kind = frozenset[tuple[str, str]]
"""Knobs, and what of their values costs time; with fingerprints of what is read."""

_READ = (*ROWS, "encoder.checkpoint", "seed")
"""What the fingerprints say better, and the seed, which says nothing."""


def kind_of(values: Values, prints: Fingerprints) -> Kind:
    """Tell the kind of a trial.

    A real-valued knob moves numbers and no work, so that it counts only by whether it is set. What
    it puts out of play, such as the interactive loss where ConIsI's lambda is 0, is not computed,
    and is no part of the kind.

    Args:
        values: The dotted values of its whole config; what is lacking is at its default.
        prints: Of what it reads.
    """
    found = {("fingerprint.data", prints.data), ("fingerprint.checkpoint", prints.checkpoint)}
    for key, knob in knobs().items():
        if key in _READ or is_idle(key, values):
            continue
        owner = values.get(f"{knob.section}.name", "")
        value = values[key] if key in values else knob.default(owner)
        found.add((key, str(value is not None) if knob.kind == "float" else str(value)))
    return frozenset(found)


def steps_of(kind: Kind) -> Kind:
    """What of a kind decides how long one step takes."""
    sections = ("method.", "encoder.", "data.", "optimizer.", "fingerprint.")
    return frozenset(
        (key, value)
        for key, value in kind
        if key.startswith(sections) and key != "optimizer.epochs"
    )
