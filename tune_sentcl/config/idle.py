"""Hyperparameters without effect (idle), and the hyperparameters in which configs differ.

A loss with weight 0 makes its hyperparameters idle only if it is not computed at all; a computed
loss has a curve, which depends on them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tune_sentcl.config.catalogue import belongs, knobs, short_name, union_members
from tune_sentcl.config.data_names import source_names
from tune_sentcl.config.methods import PairMethodConfig
from tune_sentcl.config.registry import plugin_of
from tune_sentcl.config.sections import AUTO_FALLBACKS
from tune_sentcl.config.tables import MethodBase, Values


def _method(values: Values) -> type[MethodBase]:
    """The class of a method; `MethodBase` for an unknown one."""
    name = str(values.get("method.name"))
    method: type[MethodBase] = union_members("method").get(name, MethodBase)
    return method


def _freezes(values: Values) -> bool:
    return _method(values).freezes_encoder


def _is_stepless(values: Values) -> bool:
    return not _method(values).takes_steps


def _of(values: Values, key: str) -> Any:
    value = values[key] if key in values else knobs()[key].default(values["method.name"])
    return AUTO_FALLBACKS[key] if key in AUTO_FALLBACKS and value == "auto" else value


def _longer_than_any(values: Values) -> bool:
    length = _of(values, "encoder.train_length")
    return length is None or length >= _of(values, "encoder.max_length")


def _without_adapters(values: Values) -> bool:
    return _freezes(values) or _of(values, "encoder.lora_rank") == 0


def _reads_no_triplets(values: Values) -> bool:
    return _method(values).model_construct(name=str(values["method.name"])).rows != "triplets"


def _mines_nothing(values: Values) -> bool:
    return _of(values, "data.mined") == 0 or _reads_no_triplets(values)


IDLE: dict[str, Callable[[Values], bool]] = {
    "method.divisor": lambda v: _of(v, "encoder.pooling") in ("cls", "last", "modules"),
    "method.temperature": lambda v: v["method.name"] == "conisi" and _of(v, "method.lambda") == 1,
    "method.strategy": lambda v: _of(v, "method.lambda") == 0,
    "method.interaction": lambda v: _of(v, "method.lambda") == 0,
    "method.share": lambda v: _of(v, "method.strategy") == "s" or _of(v, "method.lambda") == 0,
    "method.hardened": lambda v: _of(v, "method.hardness") == 0,
    "method.margin_kind": lambda v: _of(v, "method.margin") == 0,
    "method.whitening_dim": lambda v: not _of(v, "method.whitening"),
    "encoder.train_length": _freezes,
    "encoder.share_duplicates": lambda v: not issubclass(_method(v), PairMethodConfig),
    "encoder.packed": _freezes,
    "data.mined": _reads_no_triplets,
    "data.mined_by": _mines_nothing,
    "data.mined_margin": _mines_nothing,
    "data.mined_depth": _mines_nothing,
    "data.mix": lambda v: len(source_names(_of(v, "data.source"))) == 1,
    "encoder.freeze_layers": _freezes,
    "encoder.lora_rank": _freezes,
    "encoder.lora_alpha": _without_adapters,
    "encoder.lora_dropout": _without_adapters,
    "encoder.lora_targets": _without_adapters,
    "optimizer.warmup": lambda v: _of(v, "optimizer.warmup_epochs") is not None,
    "optimizer.precision": _freezes,
    "evaluation.every": _is_stepless,
    "evaluation.select": lambda v: _is_stepless(v) or _of(v, "evaluation.every") == 0,
}
"""By key, a test whether a hyperparameter of the config's method has no effect."""

_UNUSED_BY_TRAINERS = ("encoder", "data", "optimizer")
"""The tables that a method with a trainer does not use, because its function decides these."""

_UNUSED_WITHOUT_STEPS = ("data", "optimizer")
"""The tables that a method without steps does not use."""


def is_idle(key: str, values: Values) -> bool:
    """Whether a hyperparameter has no effect in a config; missing keys are at their defaults."""
    section = key.partition(".")[0]
    if not belongs(key, values):
        return True
    if section in _UNUSED_WITHOUT_STEPS and _is_stepless(values):
        return True
    if section in _UNUSED_BY_TRAINERS and _method(values).is_trainer:
        return True
    # IDLE speaks of built-in hyperparameters, and a plugin's hyperparameters may have the same
    # names.
    own = section == "method" and plugin_of(values["method.name"])
    return not own and key in IDLE and IDLE[key](values)


UNSET, UNTRAINED = "unset", "untrained"


def stated(key: str, values: Values) -> Any:
    """A hyperparameter's value as tables and titles state it.

    Returns:
        `untrained` for a method without steps, `unset` for an optional hyperparameter without a
        value, and None for a hyperparameter without effect.
    """
    value = values.get(key)
    if is_idle(key, values):
        return None
    if value is None:
        return UNSET if knobs()[key].may_be_unset else None
    return UNTRAINED if key == "method.name" and _is_stepless(values) else value


def varied(rows: Sequence[Values]) -> list[str]:
    """The hyperparameters in which configurations differ: `method.name` first, never the seed.

    `unset` counts as a value. Configurations in which a hyperparameter has no effect do not count.
    """
    keys = ["method.name"]
    for key in knobs():
        # The comparison of texts comes first because it is cheap: most hyperparameters have one
        # value.
        if key not in ("seed", "method.name") and len({str(row.get(key)) for row in rows}) > 1:
            values = {str(stated(key, row)) for row in rows} - {"None"}
            keys += [key] if len(values) > 1 else []
    return keys


def naming_knobs(rows: Sequence[Values]) -> list[str]:
    """The hyperparameters that name configurations in `title`.

    `method.name` is left out if all trained configurations share it and differ in another
    hyperparameter.
    """
    keys, trained = varied(rows), [row for row in rows if draws(row)]
    methods = {row["method.name"] for row in trained}
    return keys[1:] if len(methods) == 1 and len(varied(trained)) > 1 else keys


_START = ("checkpoint", "pooling", "max_length", "query_prefix", "text_prefix")


def has_no_weights(values: Values) -> bool:
    """Whether a trial's weights are those of its checkpoint."""
    return not draws(values) and not values.get("method.whitening")


def is_unchanged(values: Values) -> bool:
    """Whether a trial uses the checkpoint unchanged, with whole embeddings."""
    is_whole = values.get("method.quantization") in (None, "none")
    return has_no_weights(values) and is_whole and not values.get("method.dims")


def is_start(values: Values, trained: Values) -> bool:
    """Whether `values` describe the unchanged base model of a training with `trained`."""
    return is_unchanged(values) and all(
        values.get(f"encoder.{name}") == trained.get(f"encoder.{name}") for name in _START
    )


def title(values: Values, keys: Sequence[str]) -> str:
    """A configuration's name: its values of the hyperparameters in which configurations differ."""
    parts = [] if draws(values) else [UNTRAINED]
    for key in keys:
        value = stated(key, values)
        if value not in (None, UNTRAINED):
            parts.append(f"{short_name(key)}={value_text(value)}")
    return ", ".join(parts)


def value_text(value: Any) -> str:
    """A hyperparameter's value in a title; numbers have four significant digits."""
    if isinstance(value, list | tuple):
        return "+".join(map(value_text, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def draws(values: Values) -> bool:
    """Whether the results of a config depend on the seed.

    A method without training steps draws no random numbers, so every seed gives the same result.
    """
    return not _is_stepless(values)


def canonical_values(values: Values) -> dict[str, Any]:
    """Values to hash in place of values with the same effect.

    A `train_length` of `max_length` or more is no limit. With a loss of weight 0, ConIsI's head
    gets only two of its three inputs. It normalizes these two together or separately, so `pairs`
    equals one of the other modes.
    """
    replaced: dict[str, Any] = {"encoder.train_length": None} if _longer_than_any(values) else {}
    if values["method.name"] == "conisi" and _of(values, "method.batch_norm") == "pairs":
        stands = {0: "separate", 1: "joint"}.get(_of(values, "method.lambda"))
        replaced |= {"method.batch_norm": stands} if stands else {}
    return replaced
