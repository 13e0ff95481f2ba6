"""Requirements of a config: extras to install, evaluation data, and usual ranges."""

from typing import Literal

from tune_sentcl.config.catalogue import union_members
from tune_sentcl.config.data_names import is_toy, own_sources
from tune_sentcl.config.identity import CHECKPOINTS
from tune_sentcl.config.idle import is_idle
from tune_sentcl.config.tables import Values
from tune_sentcl.config.trial import TrialConfig


def extras_of(values: Values) -> frozenset[str]:
    """The extras that some dotted values need: `embedded`, `lora`, `mteb`."""
    found = set()
    names = [str(values.get(key, "")) for key in CHECKPOINTS]
    if any(name.removeprefix("random:") == "minilm" for name in names):
        found.add("embedded")
    if values.get("encoder.lora_rank"):
        found.add("lora")
    if any(source.task for source in own_sources(values.get("evaluation.own") or ())):
        found.add("mteb")
    return frozenset(found)


DataName = Literal["toy", "root"]
"""The toy sets, or the files under the data root."""


def evaluation_data(config: TrialConfig) -> DataName:
    """The evaluation data of a config; `auto` is toy for trials trained on toy."""
    return _meant(config.evaluation.data, config.data.source)


def evaluation_data_of(values: Values) -> DataName:
    """The evaluation data of a whole config's dotted values."""
    return _meant(values["evaluation.data"], values["data.source"])


def _meant(data: Literal["auto", "toy", "root"], source: str) -> DataName:
    if data == "auto":
        return "toy" if is_toy(source) else "root"
    return data


_FINE_TUNING, _ADAPTERS, _SMALL_NETWORK = (1e-6, 1e-3), (1e-6, 1e-2), (1e-4, 10.0)


def usual_ranges(values: Values) -> dict[str, tuple[float, float]]:
    """The usual lowest and highest values of knobs with an effect.

    The ranges include all values of the papers and of the shipped spaces. Rates of adapters are up
    to ten times those of whole encoders; SGD, LARS and small networks use larger rates.
    """
    small = union_members("method")[values["method.name"]].freezes_encoder
    if small or values["optimizer.name"] != "adamw":
        rates = _SMALL_NETWORK
    else:
        rates = _ADAPTERS if values["encoder.lora_rank"] else _FINE_TUNING
    usual = {"optimizer.lr": rates, "method.temperature": (0.005, 5.0)}
    return {key: ends for key, ends in usual.items() if not is_idle(key, values)}
