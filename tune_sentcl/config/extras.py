"""Which of this package's extras a trial cannot do without."""

from tune_sentcl.config.identity import CHECKPOINTS
from tune_sentcl.config.own import own_sources
from tune_sentcl.config.tables import Values


def extras_of(values: Values) -> frozenset[str]:
    """The extras that some values ask for: `embedded`, `lora`, `mteb`.

    Args:
        values: Dotted values of a trial, or some of them.
    """
    found = set()
    names = [str(values.get(key, "")) for key in CHECKPOINTS]
    if any(name.removeprefix("random:") == "minilm" for name in names):
        found.add("embedded")
    if values.get("encoder.lora_rank"):
        found.add("lora")
    if any(source.task for source in own_sources(values.get("evaluation.own") or ())):
        found.add("mteb")
    return frozenset(found)
