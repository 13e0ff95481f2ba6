"""The settings in a checkpoint's files: pooling, longest input, prefixes and positions."""

import json
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from tune_sentcl.config import EncoderConfig, Pooling

_QUERY_COLUMNS = frozenset({"anchor"})


@dataclass(frozen=True)
class Prefixes:
    """The prefixes of sentences; often empty.

    Attributes:
        query: The prefix of queries.
        text: The prefix of all other sentences.
    """

    query: str = ""
    text: str = ""

    @classmethod
    def of(cls, options: EncoderConfig) -> "Prefixes":
        """The prefixes of a config."""
        return cls(options.query_prefix, options.text_prefix)

    def put(self, sentences: Sequence[str], *, query: bool = False) -> list[str]:
        """Add the prefix of queries or of texts to sentences."""
        before = self.query if query else self.text
        return [before + sentence for sentence in sentences] if before else list(sentences)


def holds_queries(column: str) -> bool:
    """Whether a column of training rows holds queries."""
    return column in _QUERY_COLUMNS


_ROBERTAS = frozenset(
    {
        *("camembert", "data2vec-text", "ibert", "longformer", "luke", "mpnet", "roberta"),
        *("roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    }
)


def padding_position(transformer: Any) -> int | None:
    """The position of padding, if a model counts its positions from the next number; else None.

    RoBERTa and similar models do. They also give that position to a padding token in a sentence.
    """
    table = getattr(getattr(transformer, "embeddings", None), "position_embeddings", None)
    found = getattr(table, "padding_idx", None)
    return None if found is None else int(found)


def usable_positions(transformer: Any) -> int | None:
    """The most tokens of an input that a model's positions allow; None: no limit."""
    positions = getattr(transformer.config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    padding = padding_position(transformer)  # rows of the table up to this one are not used
    return int(positions) - (0 if padding is None else padding + 1)


def stated_positions(config: Mapping[str, Any]) -> int | None:
    """`usable_positions` of a model, computed from its `config.json`."""
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int) or positions < 1:
        return None
    if config.get("model_type") not in _ROBERTAS:
        return positions
    padding = config.get("pad_token_id")
    return positions - (padding if isinstance(padding, int) else 1) - 1


OWN_FILE = "tune_sentcl.json"
PROMPTS_FILE = "config_sentence_transformers.json"
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
"""peft's file names for the settings and the weights of low-rank adapters."""

_POOLINGS: tuple[Pooling, ...] = typing.get_args(Pooling)
_TEXT_PROMPTS = ("document", "passage", "corpus")  # in the order of `encode_document`
_OLD_KEY = "pooling_mode_"
_MODES: Mapping[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_SETTINGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Names of the settings file of sentence-transformers' module Transformer."""
_NO_LENGTH = 100_000  # transformers writes 1e30 for a tokenizer without a longest input


@dataclass(frozen=True)
class Description:
    """The settings in a folder's files; the attributes are those of `Checkpoint`.

    Attributes:
        problem: Why a stated pooling is not supported; else empty.
    """

    pooling: Pooling | None
    max_length: int | None
    problem: str = ""
    dense: tuple[str, ...] = ()
    normalizes: bool = False
    prefixes: Prefixes = field(default_factory=Prefixes)
    width: int | None = None
    layers: int | None = None
    lower_case: bool = False
    positions: int | None = None


def read_description(folder: Path) -> Description:
    """Read `tune_sentcl.json`, else `modules.json` and its modules.

    Missing and damaged files count as empty.
    """
    found = _described(folder)
    return replace(
        found,
        positions=stated_positions(_table(folder / "config.json")),
        normalizes="Normalize" in map(_kind, _modules(folder)),
    )


def _described(folder: Path) -> Description:
    own = _table(folder / OWN_FILE)
    pools_here = own.get("pooling") in _POOLINGS  # perhaps as no module of theirs does
    dense, misplaced = _stated_layers(folder, pools_here=pools_here)
    settings = _settings(folder)
    max_length, lower = _stated_length(folder, settings), settings.get("do_lower_case") is True
    if misplaced:
        return Description(None, max_length, misplaced, lower_case=lower)
    config = _table(folder / "config.json")
    layers = _count(config.get("num_hidden_layers", config.get("num_layers")))
    width = _width(folder, dense)
    if pools_here:
        prefixes = Prefixes(str(own.get("query_prefix", "")), str(own.get("text_prefix", "")))
        length = _count(own.get("max_length"))
        return Description(
            own["pooling"],
            length,
            dense=dense,
            prefixes=prefixes,
            width=width,
            layers=layers,
            lower_case=lower,
        )
    pooling, problem = _stated_pooling(folder)
    prefixes = _stated_prefixes(folder)
    return Description(
        pooling,
        max_length,
        problem,
        dense=dense,
        prefixes=prefixes,
        width=width,
        layers=layers,
        lower_case=lower,
    )


def _settings(folder: Path) -> Mapping[str, Any]:
    """The settings of sentence-transformers' module Transformer, if there is a modules.json."""
    found = (_table(folder / name) for name in _SETTINGS if _modules(folder))
    return next(filter(None, found), {})


def _stated_length(folder: Path, settings: Mapping[str, Any]) -> int | None:
    """The longest input of the module Transformer, else of the tokenizer, within positions."""
    stated = settings.get("max_seq_length")
    if stated is None:
        stated = _table(folder / "tokenizer_config.json").get("model_max_length")
    length = _count(stated)
    if length is None or length >= _NO_LENGTH:
        return None
    return min(length, stated_positions(_table(folder / "config.json")) or length)


def _width(folder: Path, dense: Sequence[str]) -> int | None:
    if dense:
        return _count(_table(folder / dense[-1] / "config.json").get("out_features"))
    config = _table(folder / "config.json")
    return _count(config.get("hidden_size", config.get("d_model")))


def _stated_prefixes(folder: Path) -> Prefixes:
    """The prompts of sentence-transformers for queries and for other sentences."""
    config = _table(folder / PROMPTS_FILE)
    stated = config.get("prompts")
    prompts = stated if isinstance(stated, dict) else {}
    names = [config.get("default_prompt_name"), *_TEXT_PROMPTS]
    text = next((prompts[name] for name in names if name in prompts), "")
    return Prefixes(str(prompts.get("query", "")), str(text))


def read_base(folder: Path) -> tuple[str, str] | None:
    """The name and fingerprint of the base of a folder's adapters; None: it has no adapters."""
    base = _table(folder / OWN_FILE).get("base")
    if not isinstance(base, dict):
        return None
    return str(base.get("checkpoint", "")), str(base.get("fingerprint", ""))


def _stated_layers(folder: Path, *, pools_here: bool) -> tuple[tuple[str, ...], str]:
    """The folders of the layers after the pooling, or why they are not supported."""
    outside = [path for path in map(_path, _modules(folder)) if not _is_below(path)]
    if outside:
        return (), f"its modules.json names {outside[0]}, which is not below it"
    kinds = [_kind(module) for module in _modules(folder)]
    dense = [number for number, kind in enumerate(kinds) if kind == "Dense"]
    if dense and not pools_here and "Pooling" not in kinds[: dense[0]]:
        return (), "it has a module Dense before its pooling"
    if dense and "Normalize" in kinds[: dense[-1]]:
        return (), "it has a module Dense after a Normalize"
    return tuple(_path(_modules(folder)[number]) for number in dense), ""


def _stated_pooling(folder: Path) -> tuple[Pooling | None, str]:
    pooling: Pooling | None = None
    for module in _modules(folder):
        kind = _kind(module)
        if kind == "Pooling":
            config = _table(folder / _path(module) / "config.json")
            mode = _mode(config)
            if mode not in _MODES:
                return None, f"its pooling is {mode}, which is not among {', '.join(_POOLINGS)}"
            pooling = _MODES[mode]
            if config.get("include_prompt") is False and _stated_prefixes(folder) != Prefixes():
                return None, "its pooling leaves prompts out"
        elif kind not in ("Transformer", "Normalize", "Dense"):
            return None, f"it has a module {kind} beside its pooling"
    return pooling, ""


def _kind(module: Mapping[str, Any]) -> str:
    return str(module.get("type", "")).rpartition(".")[2]


def _path(module: Mapping[str, Any]) -> str:
    return str(module.get("path", ""))


def _is_below(text: str) -> bool:
    path = PurePosixPath(text)
    return not path.is_absolute() and ".." not in path.parts


def _mode(config: Mapping[str, Any]) -> str:
    stated = config.get("pooling_mode")
    if stated is None:  # written before sentence-transformers 6
        chosen = [
            key.removeprefix(_OLD_KEY).removesuffix("_tokens").removesuffix("_token")
            for key, value in config.items()
            if key.startswith(_OLD_KEY) and value
        ]
        stated = chosen or ["mean"]
    modes = [stated] if isinstance(stated, str) else [str(mode) for mode in stated]
    return " + ".join(modes)


def _modules(folder: Path) -> list[Mapping[str, Any]]:
    modules = _json(folder / "modules.json")
    return [m for m in modules if isinstance(m, dict)] if isinstance(modules, list) else []


def _table(path: Path) -> Mapping[str, Any]:
    table = _json(path)
    return table if isinstance(table, dict) else {}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
