"""Parse nested tables to a frozen config, or report all their faults."""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import ValidationError

from tune_sentcl.config.catalogue import Knob, knobs, union_members
from tune_sentcl.config.data_names import is_toy, own_sources
from tune_sentcl.config.identity import CHECKPOINTS
from tune_sentcl.config.idle import is_idle
from tune_sentcl.config.registry import is_trainer
from tune_sentcl.config.tables import Values, flatten, nest, shown
from tune_sentcl.config.trial import TrialConfig
from tune_sentcl.errors import ConfigError, Fault, refuse_credentials

ALIASES = {
    "learning_rate": "optimizer.lr",
    "lr_scheduler": "optimizer.schedule",
    "lr_scheduler_type": "optimizer.schedule",
    "scheduler": "optimizer.schedule",
    "optim": "optimizer.name",
    "train_batch_size": "optimizer.batch_size",
    "per_device_train_batch_size": "optimizer.batch_size",
    "num_epochs": "optimizer.epochs",
    "num_train_epochs": "optimizer.epochs",
    "warmup_ratio": "optimizer.warmup",
    "warmup_steps": "optimizer.warmup (a share of all steps)",
    "adam_epsilon": "optimizer.eps",
    "fp16": "optimizer.precision (tf32, bf16 or auto)",
    "bf16": "optimizer.precision (tf32, bf16 or auto)",
    "scale": "method.temperature (the inverse: scale 20 is temperature 0.05)",
    "tau": "method.temperature",
    "temp": "method.temperature",
    "loss": "method.name",
    "matryoshka_dims": "method.dims",
    "truncate_dim": "method.dims",
    "mini_batch_size": "method.chunk",
    "model_name": "encoder.checkpoint",
    "model_name_or_path": "encoder.checkpoint",
    "max_seq_length": "encoder.max_length",
    "pooling_mode": "encoder.pooling",
    "lora_r": "encoder.lora_rank",
    "train_file": "data.source",
    "train_dataset": "data.source",
    "dataset_name": "data.source",
    "max_train_samples": "data.limit",
    "dataloader_drop_last": "data.drop_last",
    "eval_steps": "evaluation.every",
    "random_seed": "seed",
    "data_seed": "seed",
}
"""Names that other tools give hyperparameters, with a note if values differ; for messages."""

METHOD_ALIASES = {
    "infonce": "mnr",
    "multiplenegativesranking": "mnr",
    "mnrl": "mnr",
    "ntxent": "mnr with method.symmetric = true",
    "multiplenegativessymmetricranking": "mnr with method.symmetric = true",
    "cachedmultiplenegativesranking": "mnr with method.chunk",
    "cachedmnrl": "mnr with method.chunk",
    "matryoshka": "mnr with method.dims",
    "supsimcse": "mnr on triplets",
    "unsupsimcse": "simcse",
    "gistembed": "gist",
    "cachedgistembed": "gist with method.chunk",
    "cosinesimilarity": "cosent on pairs with a score",
    "contrastive": "cosent on pairs with a score of 0 or 1",
    "supcon": "scl",
    "softmax": "sbert",
    "untrained": "none",
}
"""Other names of methods, in lower case, without punctuation and the word loss; for messages."""


def parse_config(values: Values, where: str) -> TrialConfig:
    """Validate nested tables and freeze them; `where` is their file or option, for messages.

    Raises:
        ConfigError: One fault for each unknown key and each value that breaks its rule. A URL with
            credentials is the only fault, and its text is left out.
    """
    for key, value in flatten(values):
        refuse_credentials(where, key, str(value))
    try:
        return TrialConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(list(_faults(error, where))) from None


def parse_dotted(values: Values, where: str) -> TrialConfig:
    """Like `parse_config`, from dotted keys: `{"method.lambda": 0.3}`."""
    return parse_config(nest(values, where), where)


def unknown_key(where: str, key: str, value: str) -> Fault:
    """A fault for an unknown key, which suggests a known one.

    For a key that the method lacks, the fault says which methods have this key.
    """
    all_knobs = knobs()
    if key in all_knobs:
        return Fault(
            where,
            key=key,
            value=value,
            rule=f"only {_owners(all_knobs[key])} this key",
            move="Remove the key.",
        )
    name = key.rpartition(".")[2]
    if name in ALIASES:
        hint = f"{name} is called {ALIASES[name]} here."
        return Fault(where, key=key, value=value, rule="no such key", move=hint)
    near = [other for other in all_knobs if other.rpartition(".")[2] == name]
    near = near or difflib.get_close_matches(key, all_knobs, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(all_knobs)}."
    return Fault(where, key=key, value=value, rule="no such key", move=hint)


_RULES = {
    "missing": "must be given",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be {le:g} or less",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be {ge:g} or more",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "tuple_type": "must be a list",
    "model_type": "must be a table of keys",
    "model_attributes_type": "must be a table of keys",
}
"""Rules for pydantic's error types; other types keep pydantic's message."""


def _owners(knob: Knob) -> str:
    *others, last = knob.owners
    if not others:
        return f"{knob.section} {last} has"
    return f"{knob.section}s {', '.join(others)} and {last} have"


def _faults(error: ValidationError, where: str) -> Iterator[Fault]:
    for item in error.errors():
        location = [part for part in item["loc"] if isinstance(part, str)]
        owner = ""
        if len(location) > 1 and union_members(location[0]):
            # For a union, pydantic puts the name of the chosen member into the location.
            owner = location.pop(1)
        key = ".".join(location)
        value = "" if item["type"] == "missing" else shown(item["input"])
        if not location:
            # A validator that compares several keys states the key as the type of its error.
            key, value = item["type"], shown(item["ctx"]["value"])
        if item["type"] == "extra_forbidden":
            unknown = flatten({key: item["input"]})
            yield from (unknown_key(where, name, shown(given)) for name, given in unknown)
        elif item["type"].startswith("union_tag"):
            name = item["input"].get("name")
            names = ", ".join(union_members(key))
            given = "" if name is None else shown(name)
            move = f"Choose one of them{', or load its plugin by --plugin' * (key == 'method')}."
            if key == "method" and (ours := _method_meant(str(name))):
                move = f"{name} is called {ours} here."
            yield Fault(
                where, key=f"{key}.name", value=given, rule=f"must be one of {names}", move=move
            )
        else:
            yield Fault(
                where,
                key=key,
                value=value,
                rule=_rule(item["type"], item),
                move=item.get("ctx", {}).get("move") or _move_for(key, owner),
            )


def _method_meant(name: str) -> str:
    """The method that another name means; empty if the name is unknown."""
    plain = re.sub(r"[\W_]", "", name.casefold()).removesuffix("loss")
    return plain if plain in union_members("method") else METHOD_ALIASES.get(plain, "")


def _rule(kind: str, item: Mapping[str, Any]) -> str:
    if kind in _RULES:
        return _RULES[kind].format_map(item.get("ctx", {}))
    return str(item["msg"]).replace("Input should be", "must be")


def _move_for(key: str, owner: str) -> str:
    all_knobs = knobs()
    if key in all_knobs:
        default = all_knobs[key].default(owner)
        usual = "" if default is None else f" (default {shown(default)})"
        return f"Choose another value: {all_knobs[key].meaning(owner)}{usual}."
    names = [name for name in all_knobs if name.startswith(f"{key}.")]
    return f"Set its keys: {', '.join(names)}." if names else "`tune-sentcl knobs` lists all keys."


def extras_of(values: Values) -> frozenset[str]:
    """The extras that some dotted values need: `embedded`, `trainer`, `lora`, `mteb`."""
    extras = set()
    names = [str(values.get(key, "")) for key in CHECKPOINTS]
    if any(name.rpartition(":")[2] == "minilm" for name in names):
        extras.add("embedded")
    if is_trainer(str(values.get("method.name"))):
        extras.add("trainer")
    if values.get("encoder.lora_rank"):
        extras.add("lora")
    if any(source.task for source in own_sources(values.get("evaluation.own") or ())):
        extras.add("mteb")
    return frozenset(extras)


DataName = Literal["toy", "root"]
"""The toy sets, or the files under the data root."""


def evaluation_data(config: TrialConfig) -> DataName:
    """The evaluation data of a config: `auto` means toy if the trial trains on toy, else root."""
    return _meant(config.evaluation.data, config.data.source)


def evaluation_data_of(values: Values) -> DataName:
    """The evaluation data of a whole config's dotted values."""
    return _meant(values["evaluation.data"], values["data.source"])


def _meant(data: Literal["auto", "toy", "root"], source: str) -> DataName:
    if data == "auto":
        return "toy" if is_toy(source) else "root"
    return data


_FINE_TUNING, _ADAPTERS, _SMALL_NETWORK = (1e-6, 1e-3), (1e-6, 1e-2), (1e-4, 10.0)


def usual_ranges(values: Values, *, is_static: bool = False) -> dict[str, tuple[float, float]]:
    """The usual lowest and highest values of hyperparameters that have an effect.

    The ranges include all values of the papers and presets. Learning rates of adapters go up to
    ten times those of whole encoders. SGD, LARS, small networks and static encoders use larger
    rates.
    """
    small = union_members("method")[values["method.name"]].freezes_encoder
    if small or is_static or values["optimizer.name"] != "adamw":
        rates = _SMALL_NETWORK
    else:
        rates = _ADAPTERS if values["encoder.lora_rank"] else _FINE_TUNING
    usual = {"optimizer.lr": rates, "method.temperature": (0.005, 5.0)}
    return {key: ends for key, ends in usual.items() if not is_idle(key, values)}
