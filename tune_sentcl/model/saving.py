"""Saving an encoder: for this package to read again, or in sentence-transformers' format."""

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from tune_sentcl.config import Pooling
from tune_sentcl.errors import CheckpointError, Fault
from tune_sentcl.model.checkpoints.adapters import merge
from tune_sentcl.model.checkpoints.checkpoint_files import OWN_FILE, Prefixes, without_pooler
from tune_sentcl.model.checkpoints.tokenizer_files import quiet, reads_alike
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.static import TokenVectors, static_module
from tune_sentcl.model.tokenizing import is_lower_case

_MODES: Mapping[Pooling, str] = {
    "cls": "cls",
    "last": "lasttoken",
    **dict.fromkeys(("mean", "mean_without_cls", "first_last", "static_last"), "mean"),
}
"""The mode of sentence-transformers' module Pooling for each pooling."""
_LAYER_START: dict[Pooling, int] = {"first_last": 1, "static_last": 0}
_SETTINGS, _TYPES = "sentence_bert_config.json", "sentence_transformers.models."


def export(encoder: Encoder, path: Path, metadata: Mapping[str, object], card: str = "") -> None:
    """Write an encoder for sentence-transformers, which then computes the same embeddings.

    `mean_without_cls` becomes a WordWeights module that gives the classification token weight 0,
    even where a text spells it out. `first_last` and `static_last` become a WeightedLayerPooling
    of two layers. A static encoder becomes a StaticEmbedding. A checkpoint's Normalize comes last.
    Prefixes become prompts, and adapters are added into the weights. `TrialFiles.write_checkpoint`
    makes the filled folder appear at once.

    Args:
        encoder: The encoder; it is saved in its current precision.
        path: The folder to fill; new or empty.
        metadata: JSON values to store with the encoder, such as the trial's id.
        card: The text of `README.md`; empty: no card.

    Raises:
        CheckpointError: No module of sentence-transformers pools as this encoder does; or
            transformers would load another tokenizer than the encoder's, as it does for Qwen2.
        OSError: A file cannot be written.
    """
    if encoder.pooling not in (*_MODES, "modules"):
        rule = "sentence-transformers has no module for this pooling"
        move = f"Choose a trial with one of {', '.join(_MODES)}."
        raise CheckpointError(
            Fault("encoder.pooling", value=encoder.pooling, rule=rule, move=move)
        )
    from sentence_transformers import SentenceTransformer

    is_static = isinstance(encoder.transformer, TokenVectors)
    # The library reads the weights back by memory map, and must not overwrite a file that it has
    # mapped, so they first go to a scratch folder.
    with TemporaryDirectory() as scratch, quiet(), torch.random.fork_rng(devices=[]):
        if is_static:
            parts = [static_module(encoder.transformer, _saved_tokenizer(encoder))]
        else:
            parts = [_transformer_module(encoder, Path(scratch)), *_pooling_modules(encoder)]
        whole: Any = SentenceTransformer(
            modules=[*parts, *_behind(encoder)], device="cpu", **_settings(encoder)
        )
        with _disk_errors():
            whole.save_pretrained(str(path), create_model_card=False)
    if not is_static:
        stated = json.loads((path / _SETTINGS).read_text(encoding="utf-8"))
        # When it loads the folder, the library rebuilds most tokenizers, and a rebuilt one does
        # not lower-case without this setting.
        stated["do_lower_case"] = is_lower_case(encoder.tokenizer)
        # Without this, loading the folder would draw and report new weights for the pooler.
        if no_pooler := without_pooler(encoder.transformer):
            stated["model_kwargs"] = no_pooler
        write_json(path / _SETTINGS, stated)
    write_json(path / OWN_FILE, own_metadata(encoder, metadata))
    share(path)
    if card:
        (path / "README.md").write_text(card, encoding="utf-8")


def _transformer_module(encoder: Encoder, scratch: Path) -> Any:
    """A Transformer of sentence-transformers with an encoder's weights and tokenizer."""
    from sentence_transformers.sentence_transformer.modules import Transformer

    library: Any = Transformer
    transformer = encoder.transformer
    if encoder.adapted is not None:
        transformer = copy.deepcopy(transformer)
        merge(transformer)
    _write_weights(transformer, scratch)
    _saved_tokenizer(encoder).save_pretrained(scratch)
    options = {"dtype": encoder.transformer.dtype, "local_files_only": True}
    first = library(
        str(scratch),
        model_kwargs={**options, **without_pooler(transformer)},
        # Otherwise the library passes texts through the tokenizer's chat template, if it has one.
        modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        module_output_name="token_embeddings",
    )
    rebuilt, first.processor = first.tokenizer, _saved_tokenizer(encoder)
    if not reads_alike(rebuilt, first.processor):
        rule = f"transformers would read its tokenizer.json as a {type(rebuilt).__name__}"
        rule += ", which gives other tokens"
        move = "Choose an encoder whose tokenizer has the class that its model type uses."
        raise CheckpointError(Fault("encoder.checkpoint", rule=rule, move=move))
    first.processor.model_max_length = encoder.max_length
    # The module WeightedLayerPooling needs the states of all layers, which the config must ask
    # for.
    if encoder.pooling != "modules":
        first.model.config.output_hidden_states = encoder.pooling in _LAYER_START
    return first


def keep(encoder: Encoder, path: Path, metadata: Mapping[str, object]) -> None:
    """Write an encoder so that `resolve_checkpoint` can read it.

    For an encoder with adapters, only the adapters and modules are written, about a thousandth of
    the size. `tune_sentcl.json` then names the base checkpoint and its fingerprint. The base must
    exist under this name when the folder is read.

    Args:
        encoder: The trained encoder.
        path: The folder to fill; new or empty.
        metadata: JSON values to store with the encoder.

    Raises:
        OSError: A file cannot be written.
    """
    path.mkdir(parents=True, exist_ok=True)
    own = own_metadata(encoder, metadata)
    with quiet(), _disk_errors():
        _write_modules(encoder, path)
        _write_weights(encoder.transformer, path)
        if encoder.adapted is None:
            _saved_tokenizer(encoder).save_pretrained(path)
        else:
            base, print_ = encoder.adapted.base, encoder.adapted.fingerprint
            own["base"] = {"checkpoint": base, "fingerprint": print_}
    write_json(path / OWN_FILE, own)
    share(path)


def own_metadata(encoder: Encoder, metadata: Mapping[str, object]) -> dict[str, object]:
    """The content of `tune_sentcl.json`."""
    plain, prefixes = asdict(Prefixes()), asdict(encoder.prefixes)
    stated = {f"{name}_prefix": prefixes[name] for name in plain if prefixes[name] != plain[name]}
    return {
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
        **stated,
        "facts": dict(metadata),
    }


def write_json(path: Path, values: object) -> None:
    """Write values as indented JSON."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def share(folder: Path) -> None:
    """Give weights the mode of the other files; safetensors lets only the owner read them."""
    mode = next(folder.glob("*.json")).stat().st_mode
    for weights in folder.rglob("*.safetensors"):
        weights.chmod(mode)


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except SafetensorError as error:
        # safetensors raises this error instead of OSError if the disk is full.
        raise OSError(str(error)) from error


def _write_weights(transformer: Any, folder: Path) -> None:
    """Write a transformer; if it has adapters, only the adapters."""
    # Saving in the original format would undo the renamings of adapters that were loaded and
    # merged.
    transformer.save_pretrained(folder, save_original_format=False)


def _saved_tokenizer(encoder: Encoder) -> Any:
    tokenizer = copy.deepcopy(encoder.tokenizer)
    if getattr(tokenizer, "is_fast", False):
        # Otherwise the truncation and padding of the last call would be saved and change the
        # fingerprint.
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    if isinstance(encoder.transformer, TokenVectors):
        # For static embeddings, tokenizer.json is the only file that states length and side of the
        # truncation.
        side = tokenizer.truncation_side
        tokenizer.backend_tokenizer.enable_truncation(encoder.max_length, direction=side)
    return tokenizer


def _write_modules(encoder: Encoder, folder: Path) -> None:
    """Write the modules after the transformer.

    `tune_sentcl.json` states the pooling, so no module of the library is needed for the pooling.
    """
    is_static = isinstance(encoder.transformer, TokenVectors)
    first = "StaticEmbedding" if is_static else "Transformer"
    rows = [{"idx": 0, "name": "0", "path": "", "type": f"{_TYPES}{first}"}]
    pooling = [] if is_static else encoder.head or [None]
    for number, module in enumerate([*pooling, *_behind(encoder)], 1):
        kind = "Pooling" if module is None else type(module).__name__
        place = folder / f"{number}_{kind}"
        place.mkdir()
        if module is None:
            mode = _MODES.get(encoder.pooling, "mean")
            stated = {"embedding_dimension": encoder.dim, "pooling_mode": mode}
            write_json(place / "config.json", stated)
        else:
            module.save(str(place))
        rows.append(
            {"idx": number, "name": str(number), "path": place.name, "type": f"{_TYPES}{kind}"}
        )
    write_json(folder / "modules.json", rows)
    lower = is_lower_case(encoder.tokenizer)
    stated = {"max_seq_length": encoder.max_length, "do_lower_case": lower}
    write_json(folder / _SETTINGS, stated)


def _behind(encoder: Encoder) -> list[nn.Module]:
    """The modules after the pooling, including the checkpoint's Normalize."""
    return [*encoder.tail, *([] if encoder.normalize is None else [encoder.normalize])]


def _settings(encoder: Encoder) -> dict[str, Any]:
    """The base model's settings with the encoder's prefixes as prompts; others stay."""
    ours = encoder.prefixes
    # If its caller names no prompt, `encode` applies the default prompt, here the last one named.
    named = {"query": ours.query, "document": ours.text}
    if ours.document is not None:
        named = {**named, "document": ours.document, "default": ours.text}
    prompts = {**encoder.settings.get("prompts", {}), **named}
    default = [*named][-1] if ours.text else None
    return {**encoder.settings, "prompts": prompts, "default_prompt_name": default}


def _pooling_modules(encoder: Encoder) -> list[nn.Module]:
    """The modules of sentence-transformers that pool like the encoder."""
    from sentence_transformers.sentence_transformer import modules

    library: Any = modules
    if encoder.pooling == "modules":
        return list(encoder.head)
    before = []
    if encoder.pooling == "mean_without_cls":
        cls = encoder.tokenizer.cls_token
        words = _vocabulary(encoder.tokenizer)
        # WordWeights also looks up words in lower case. So each word that equals the
        # classification token in lower case must be listed, or it would get the weight 0.
        alike = {word: 1.0 for word in words if word.lower() == cls and word != cls}
        before = [library.WordWeights(words, {**alike, cls: 0.0}, 1.0)]
    if encoder.pooling in _LAYER_START:
        start, layers = _LAYER_START[encoder.pooling], encoder.transformer.config.num_hidden_layers
        weights = torch.zeros(layers + 1 - start)
        weights[0] = weights[-1] = 1.0
        before = [library.WeightedLayerPooling(encoder.dim, layers, start, nn.Parameter(weights))]
    return [*before, library.Pooling(encoder.dim, _MODES[encoder.pooling])]


def _vocabulary(tokenizer: Any) -> list[str]:
    numbers = tokenizer.get_vocab()
    words = [""] * (max(numbers.values()) + 1)
    for word, number in numbers.items():
        words[number] = word
    return words
