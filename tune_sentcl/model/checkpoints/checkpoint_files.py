"""Reads the small files of a checkpoint without loading the model."""

import inspect
import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tune_sentcl.config import EncoderConfig, Pooling
from tune_sentcl.data.task import Prompt
from tune_sentcl.errors import CheckpointError, Fault

_QUERY_COLUMNS = frozenset({"anchor"})


@dataclass(frozen=True)
class Prefixes:
    """The prefixes of sentences; often empty.

    Attributes:
        query: The prefix of queries.
        text: The prefix of all other sentences.
        document: The prefix of the documents of retrieval; None: `text`.
    """

    query: str = ""
    text: str = ""
    document: str | None = None

    @classmethod
    def of(cls, options: EncoderConfig) -> "Prefixes":
        """The prefixes of a config."""
        return cls(options.query_prefix, options.text_prefix)

    def put(self, sentences: Sequence[str], *, prompt: Prompt = "text") -> list[str]:
        """Put the prefix of their kind before sentences."""
        before = getattr(self, prompt)
        before = self.text if before is None else before
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

PACKED_KINDS = frozenset(
    {
        *("albert", "bert", "camembert", "data2vec-text", "distilbert", "electra", "ernie"),
        *("eurobert", "gemma", "gemma3_text", "gpt2", "gpt_neox", "granite", "llama", "mistral"),
        *("modernbert", "nomic_bert", "olmo2", "qwen2", "qwen3", "roberta"),
        *("roberta-prelayernorm", "smollm3", "xlm-roberta", "xlm-roberta-xl"),
    }
)
"""The `model_type` of models whose inputs can be packed; see `packing`.

In these models only attention mixes tokens. It runs through transformers' table of attention
functions, and `is_causal` and `sliding_window` state which tokens a token sees. The attention of
MPNet, DeBERTa and T5 adds a bias for each pair of tokens, which would cover all tokens of a batch.
"""


def padding_position(transformer: Any) -> int | None:
    """The position of padding if a model counts positions from the next number, else None.

    RoBERTa and similar models count so. They also give that position to a padding token in a
    sentence.
    """
    table = getattr(getattr(transformer, "embeddings", None), "position_embeddings", None)
    position = getattr(table, "padding_idx", None)
    return None if position is None else int(position)


def usable_positions(transformer: Any) -> int | None:
    """The most tokens of an input that a model's positions allow; None: no limit."""
    positions = getattr(transformer.config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    # Positions begin after the padding's, so the rows up to it are unused.
    padding = padding_position(transformer)
    return int(positions) - (0 if padding is None else padding + 1)


def num_rows(transformer: Any) -> int | None:
    """The number of tokens that have a vector; None: the model has no such table."""
    try:
        table = transformer.get_input_embeddings()
    except NotImplementedError:
        # Canine, for example, has no table of tokens: it computes its vectors from characters.
        return None
    return getattr(table, "num_embeddings", None)


def without_pooler(transformer: Any) -> dict[str, bool]:
    """The arguments that load a model's class without a pooler; empty if it has no pooler."""
    parameters = inspect.signature(type(transformer)).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in parameters else {}


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

_STATIC, _TOKENIZER = "StaticEmbedding", "tokenizer.json"
_OLD_KEY = "pooling_mode_"
_MODES: Mapping[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_SETTINGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Names of the settings file of sentence-transformers' module Transformer."""
_UNSUPPORTED = (
    *("processing_kwargs", "query_length", "document_length", "query_expansion"),
    "tokenizer_name_or_path",
)
"""Settings of that module that change inputs in ways that this package does not support."""
_ARGUMENTS = {
    "tokenizer_args": "processor_kwargs",
    "model_args": "model_kwargs",
    "config_args": "config_kwargs",
}
"""Old and new names of the arguments that sentence-transformers passes to transformers."""
_PLACES = frozenset(
    {"subfolder", "token", "cache_dir", "revision", "local_files_only", "trust_remote_code"}
)
"""Arguments that sentence-transformers sets itself and does not take from the file."""
# transformers writes 1e30 for no limit, so a length above this means no limit.
_NO_LENGTH = 100_000


@dataclass(frozen=True, kw_only=True)
class Description:
    """The statements of a checkpoint's small files.

    Attributes:
        pooling: How the encoder pools; None if the files state nothing.
        max_length: Longest input in tokens, or None.
        prefixes: Prefixes of sentences.
        width: Width of an embedding, or None.
        layers: Number of transformer layers, or None.
        positions: Longest input that the positions allow, in tokens; None: no limit.
        rows: Number of rows in the transformer's table of embeddings, or None.
        notes: Messages that a search prints once.
        place: The transformer's folder, relative to the checkpoint's folder.
        shaping: The folders of further modules that shape embeddings: all but the transformer, a
            pooling with a name in `encoder.pooling`, and a Normalize at the end.
        lower_case: Whether texts are lower-cased first.
        arguments: Arguments that the module Transformer passes to transformers: `processor_kwargs`
            to the tokenizer, `model_kwargs` to the model, `config_kwargs` to its configuration.
        is_static: Whether the encoder has a vector for each token in place of a transformer.
    """

    pooling: Pooling | None = None
    max_length: int | None = None
    prefixes: Prefixes = field(default_factory=Prefixes)
    width: int | None = None
    layers: int | None = None
    positions: int | None = None
    rows: int | None = None
    notes: tuple[str, ...] = ()
    place: str = ""
    shaping: tuple[str, ...] = ()
    lower_case: bool = False
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    is_static: bool = False


def fault_of(name: str, rule: str, move: str) -> CheckpointError:
    """An error about a checkpoint, under the name that the user wrote."""
    return CheckpointError(Fault("encoder.checkpoint", value=repr(name), rule=rule, move=move))


def read_description(name: str, folder: Path) -> Description:
    """Read `tune_sentcl.json`, `modules.json` and the small files of its modules.

    Missing and damaged files count as empty; loading the model reports them.

    Raises:
        CheckpointError: A module lies outside the folder, or a module or setting is not
            supported.
    """
    modules = _modules(name, folder)
    place = modules[0][1] if modules else ""
    config, own = read_table(folder / place / "config.json"), read_table(folder / OWN_FILE)
    is_static = bool(modules) and modules[0][0] == _STATIC
    settings = _settings(folder / place) if modules and not is_static else {}
    arguments = _arguments(name, settings)
    config = {**config, **arguments.get("config_kwargs", {})}
    if is_static:
        pooling: Pooling | None = "mean"
        max_length = _count(
            (read_table(folder / place / _TOKENIZER).get("truncation") or {}).get("max_length")
        )
    else:
        pooling = _stated_pooling(folder, modules, config)
        max_length = _stated_length(name, folder / place, {**settings, **arguments}, config)
    prefixes = _prompts(folder)
    if own.get("pooling") in typing.get_args(Pooling):
        pooling, max_length = own["pooling"], _count(own.get("max_length"))
        keys = {name: f"{name}_prefix" for name in typing.get_args(Prompt)}
        prefixes = Prefixes(**{name: str(own[key]) for name, key in keys.items() if key in own})
    while modules and modules[-1][0] == "Normalize":
        modules.pop()
    kinds = [kind for kind, _ in modules]
    shaping = modules[1 if pooling == "modules" or is_static else num_pooled(kinds) :]
    return Description(
        pooling=pooling,
        max_length=max_length,
        prefixes=prefixes,
        width=_width(folder, modules, config),
        layers=_count(config.get("num_hidden_layers", config.get("num_layers"))),
        positions=stated_positions(config),
        rows=_count(config.get("vocab_size")),
        notes=tuple(_notes(folder, config)),
        place=place,
        shaping=tuple(place for _, place in shaping),
        lower_case=bool(settings.get("do_lower_case")),
        arguments=arguments,
        is_static=is_static,
    )


def read_base(folder: Path) -> tuple[str, str] | None:
    """The name and fingerprint of the base of a folder's adapters; None without adapters.

    If peft wrote the folder, the fingerprint is empty. The name is empty if the folder states
    none. Adapters beside a whole model count as part of it.
    """
    base = read_table(folder / OWN_FILE).get("base")
    if isinstance(base, dict):
        return str(base.get("checkpoint", "")), str(base.get("fingerprint", ""))
    if (folder / "config.json").is_file() or not (folder / ADAPTER_FILES[0]).is_file():
        return None
    return str(read_table(folder / ADAPTER_FILES[0]).get("base_model_name_or_path") or ""), ""


def reads_bytes(folder: Path) -> bool:
    """Whether a tokenizer reads bytes or characters and therefore has no vocabulary file."""
    stated = read_table(folder / "tokenizer_config.json").get("tokenizer_class")
    return stated in ("ByT5Tokenizer", "CanineTokenizer")


def _modules(name: str, folder: Path) -> list[tuple[str, str]]:
    """The kind and the folder of each module."""
    content = _json(folder / "modules.json")
    rows = [row for row in content if isinstance(row, dict)] if isinstance(content, list) else []
    modules = [
        (str(row.get("type", "")).rpartition(".")[2], str(row.get("path", ""))) for row in rows
    ]
    for _, place in modules:
        path = PurePosixPath(place)
        if path.is_absolute() or ".." in path.parts:
            rule = f"its modules.json names {place}, which is outside the folder"
            raise fault_of(name, rule, "Correct modules.json.")
    if any(kind == "Router" for kind, _ in modules[1:]):
        rule = "its modules differ for queries and other texts (Router), which is not supported"
        raise fault_of(name, rule, "Use another encoder.")
    if modules and modules[0][0] not in ("Transformer", _STATIC):
        rule = f"its first module is a {modules[0][0]}, but only a Transformer or a {_STATIC} "
        rule += "can be trained"
        raise fault_of(name, rule, "Use another encoder.")
    return modules


def _notes(folder: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """Messages about settings that scores here do not follow, and about inputs that are padded."""
    stated = read_table(folder / PROMPTS_FILE)
    similarity, width = stated.get("similarity_fn_name"), stated.get("truncate_dim")
    ends = _json(folder / "modules.json") or [{}]
    if similarity in ("dot", "euclidean", "manhattan") and not (
        similarity == "dot" and str(ends[-1].get("type", "")).endswith(".Normalize")
    ):
        yield f"its files compare embeddings by {similarity}, but scores here use cosines"
    if width:
        yield f"its files cut embeddings to {width} numbers, but embeddings are not cut here"
    kind = config.get("model_type")
    if kind and kind not in PACKED_KINDS:
        yield f"its inputs are padded, because inputs of the model type {kind} cannot be packed"


def _settings(folder: Path) -> Mapping[str, Any]:
    """The settings of sentence-transformers' module Transformer."""
    return next(filter(None, (read_table(folder / name) for name in _SETTINGS)), {})


def _arguments(name: str, settings: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The arguments that a module Transformer passes on, without empty ones.

    Raises:
        CheckpointError: An argument is not a table, or another setting is not supported.
    """
    move = (
        "Remove this setting from the settings of the model's module Transformer, and tune "
        "without it."
    )
    for key in _UNSUPPORTED:
        if settings.get(key):
            raise fault_of(name, f"its {key} = {settings[key]} is not supported", move)
    if "message" in (settings.get("modality_config") or {}):
        rule = "its modality_config puts texts into a chat template, which is not supported"
        raise fault_of(name, rule, move)
    arguments = {}
    for old, new in _ARGUMENTS.items():
        key = old if old in settings else new
        stated = settings.get(key, {})
        if not isinstance(stated, dict):
            rule = f"its {key} = {stated} must be a table of arguments"
            raise fault_of(name, rule, "Correct the settings of the model's module Transformer.")
        arguments[new] = {key: value for key, value in stated.items() if key not in _PLACES}
    return {key: table for key, table in arguments.items() if table}


def _stated_length(
    name: str, folder: Path, settings: Mapping[str, Any], config: Mapping[str, Any]
) -> int | None:
    """The longest input with which a tokenizer is loaded, within the model's positions.

    Raises:
        CheckpointError: It is not a positive whole number.
    """
    given = dict(settings.get("processor_kwargs", {}))
    if settings.get("max_seq_length") is not None:
        given.setdefault("model_max_length", settings["max_seq_length"])
    given = {**read_table(folder / "tokenizer_config.json"), **given}
    stated = given.get("model_max_length", given.get("max_len"))
    if stated is None or (isinstance(stated, (int, float)) and stated >= _NO_LENGTH):
        return None
    length = _count(stated)
    if length is None:
        rule = f"its longest input, {stated!r}, must be a positive whole number"
        raise fault_of(name, rule, "Correct max_seq_length or model_max_length in its files.")
    return min(length, stated_positions(config) or length)


def _width(
    folder: Path, modules: Sequence[tuple[str, str]], config: Mapping[str, Any]
) -> int | None:
    for kind, place in reversed(modules):
        stated = read_table(folder / place / "config.json")
        if kind == "Dense":
            return _count(stated.get("out_features"))
        if kind == "Pooling":
            # The outputs of all pooling modes are concatenated, so their widths add up.
            keys = ("embedding_dimension", "word_embedding_dimension")
            each = next((n for key in keys if (n := _count(stated.get(key)))), None)
            return each and each * len(_modes(stated))
    return _count(config.get("hidden_size", config.get("d_model")))


def _prompts(folder: Path) -> Prefixes:
    """The prompts of `encode_query`, `encode` and `encode_document`."""
    config = read_table(folder / PROMPTS_FILE)
    stated = config.get("prompts")
    prompts = stated if isinstance(stated, dict) else {}
    names = ("query", config.get("default_prompt_name"), "document")
    query, text, document = (str(prompts.get(name) or "") for name in names)
    return Prefixes(query, text, None if document == text else document)


def _stated_pooling(
    folder: Path, modules: Sequence[tuple[str, str]], config: Mapping[str, Any]
) -> Pooling | None:
    """The pooling that the modules perform; `modules` if `encoder.pooling` has no name for it."""
    if not modules:
        # sentence-transformers pools a folder without modules in this way. Only the last token of
        # a causal model sees all the others.
        heads = config.get("architectures") or [""]
        causal = str(heads[0]).endswith("ForCausalLM") and config.get("is_causal", True)
        return "last" if causal else None
    kinds = [kind for kind, _ in modules]
    if kinds[1 : num_pooled(kinds)] != ["Pooling"]:
        return "modules"
    pooling = read_table(folder / modules[1][1] / "config.json")
    leaves_out = pooling.get("include_prompt") is False and _prompts(folder) != Prefixes()
    return "modules" if leaves_out else _MODES.get(" + ".join(_modes(pooling)), "modules")


def num_pooled(kinds: Sequence[str]) -> int:
    """The number of modules up to the last Pooling; without a Pooling, of all modules."""
    return len(kinds) - kinds[::-1].index("Pooling") if "Pooling" in kinds else len(kinds)


def _modes(config: Mapping[str, Any]) -> list[str]:
    stated = config.get("pooling_mode")
    if stated is None:
        # Versions of sentence-transformers before 6 wrote one flag for each mode.
        chosen = [
            key.removeprefix(_OLD_KEY).removesuffix("_tokens").removesuffix("_token")
            for key, value in config.items()
            if key.startswith(_OLD_KEY) and value
        ]
        stated = chosen or ["mean"]
    return [stated] if isinstance(stated, str) else [str(mode) for mode in stated]


def read_table(path: Path) -> Mapping[str, Any]:
    """Read a JSON object; empty if the file is missing or holds something else."""
    table = _json(path)
    return table if isinstance(table, dict) else {}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
