"""The ranges in which people set a knob; a search tells values outside of them."""

from tune_sentcl.config.catalogue import union_members
from tune_sentcl.config.idle import is_idle
from tune_sentcl.config.tables import Values

_FINE_TUNING, _ADAPTERS, _SMALL_NETWORK = (1e-6, 1e-3), (1e-6, 1e-2), (1e-4, 10.0)


def usual_ranges(values: Values) -> dict[str, tuple[float, float]]:
    """The usual lowest and highest value of knobs that have an effect.

    The bounds hold every value of the papers and of the shipped spaces. Rates of adapters are up
    to ten times those of whole encoders; SGD, LARS and small networks take larger ones.

    Args:
        values: The dotted values of a whole config.
    """
    small = union_members("method")[values["method.name"]].freezes_encoder
    if small or values["optimizer.name"] != "adamw":
        rates = _SMALL_NETWORK
    else:
        rates = _ADAPTERS if values["encoder.lora_rank"] else _FINE_TUNING
    usual = {"optimizer.lr": rates, "method.temperature": (0.005, 5.0)}
    return {key: ends for key, ends in usual.items() if not is_idle(key, values)}
