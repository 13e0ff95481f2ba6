"""Saving an encoder as a folder that sentence-transformers and this package both load."""

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from tune_sentcl.config import Pooling
from tune_sentcl.errors import CheckpointError, Fault
from tune_sentcl.model.checkpoints.adapters import whole_state, write_adapters
from tune_sentcl.model.checkpoints.checkpoint_files import OWN_FILE, PROMPTS_FILE
from tune_sentcl.model.dense import write_dense
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.tokenizing import is_lower_case

_MODULES: dict[Pooling, tuple[str, ...]] = {
    "mean": ("Pooling",),
    "mean_without_cls": ("WordWeights", "Pooling"),
    "cls": ("Pooling",),
    "last": ("Pooling",),
    "first_last": ("WeightedLayerPooling", "Pooling"),
    "static_last": ("WeightedLayerPooling", "Pooling"),
}
"""The modules of sentence-transformers that pool alike."""
_LAYER_START: dict[Pooling, int] = {"first_last": 1, "static_last": 0}
_TYPES = "sentence_transformers.models."


def export(
    encoder: Encoder, path: Path, metadata: Mapping[str, object], card: str | None = None
) -> None:
    """Write an encoder so that `SentenceTransformer(path)` gives the same embeddings.

    `mean_without_cls` becomes a WordWeights module that gives the classification token weight 0,
    at all its occurrences if a text spells it out. `first_last` and `static_last` become a
    WeightedLayerPooling of two layers. A checkpoint's Normalize comes last. Prefixes become
    prompts, and adapters are added into the weights. `TrialFiles.write_checkpoint` makes the
    filled folder appear at once.

    Args:
        encoder: Saved in its present precision.
        path: The folder to fill; new or empty.
        metadata: Facts to store with it, such as the trial's id; values that JSON can hold.
        card: The text of `README.md`; None: a list of the facts.

    Raises:
        CheckpointError: No module of sentence-transformers pools as this encoder does.
        OSError: A file cannot be written.
    """
    if encoder.pooling not in _MODULES:
        rule = "no module of sentence-transformers pools like that, so that the folder would not"
        move = f"Choose a trial with one of {', '.join(_MODULES)}."
        raise CheckpointError(Fault("encoder.pooling", "", encoder.pooling, rule, move))
    _write_whole(encoder, path, metadata, card)


def _write_whole(
    encoder: Encoder, path: Path, metadata: Mapping[str, object], card: str | None = None
) -> None:
    path.mkdir(parents=True, exist_ok=True)
    try:
        _write_transformer(encoder, path)
        write_modules(encoder, path)
    except SafetensorError as error:  # safetensors raises it on a full disk
        raise OSError(str(error)) from error
    write_json(path / OWN_FILE, own_metadata(encoder, metadata))
    text = _card(encoder, metadata) if card is None else card
    (path / "README.md").write_text(text, encoding="utf-8")


def own_metadata(encoder: Encoder, metadata: Mapping[str, object]) -> dict[str, object]:
    """The content of `tune_sentcl.json`."""
    found = {f"{name}_prefix": text for name, text in asdict(encoder.prefixes).items() if text}
    return {
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
        **found,
        "facts": dict(metadata),
    }


def _write_transformer(encoder: Encoder, folder: Path) -> None:
    config = copy.deepcopy(encoder.transformer.config)
    # WeightedLayerPooling gets the layers only if the config asks for them.
    config.output_hidden_states = encoder.pooling in _LAYER_START
    config.architectures = [type(encoder.transformer).__name__]
    config.save_pretrained(folder)
    lora = None if encoder.adapted is None else encoder.adapted.lora
    weights = {
        name: weight.detach().cpu().contiguous().clone()
        for name, weight in whole_state(encoder.transformer, lora).items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = copy.deepcopy(encoder.tokenizer)
    if getattr(tokenizer, "is_fast", False):
        # Else truncation and padding of the last call would be saved, and change the fingerprint.
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(folder)


def write_modules(encoder: Encoder, folder: Path) -> None:
    """Write the modules after the transformer, as sentence-transformers does.

    Of a pooling that it does not have, `OWN_FILE` alone says the name.
    """
    names = ["Transformer", *_MODULES.get(encoder.pooling, ())]
    layers = list(encoder.tail.layers)
    names += ["Dense"] * len(layers)
    names += ["Normalize"] * encoder.normalizes
    modules = []
    for number, name in enumerate(names):
        # The number keeps programs that look for 1_Pooling alone from finding a later pooling.
        path = f"{number}_{name}" if number else ""
        modules.append(
            {"idx": number, "name": str(number), "path": path, "type": f"{_TYPES}{name}"}
        )
        if path and name != "Normalize":  # it has no files
            (folder / path).mkdir()
            if name == "Dense":
                write_dense(layers.pop(0), folder / path)
                continue
            write_json(folder / path / "config.json", _module_config(name, encoder))
        if name == "WeightedLayerPooling":
            weights = torch.zeros(_layers(encoder) + 1 - _LAYER_START[encoder.pooling])
            weights[0] = weights[-1] = 1.0
            save_file({"layer_weights": weights}, folder / path / "model.safetensors")
    write_json(folder / "modules.json", modules)
    write_json(
        folder / "sentence_bert_config.json",
        {
            "max_seq_length": encoder.max_length,
            # The library rebuilds most tokenizers, and the result lacks our lower-casing step.
            "do_lower_case": is_lower_case(encoder.tokenizer),
        },
    )
    query, text = encoder.prefixes.query, encoder.prefixes.text
    if query or text:
        # `encode` uses the default prompt for sentences whose kind is not given.
        default = "document" if text else None
        prompts = {"query": query, "document": text}
        write_json(folder / PROMPTS_FILE, {"prompts": prompts, "default_prompt_name": default})


def _module_config(name: str, encoder: Encoder) -> dict[str, Any]:
    # The keys of sentence-transformers 5; later releases read them too.
    if name == "WordWeights":
        cls = encoder.tokenizer.cls_token
        vocabulary = _vocabulary(encoder.tokenizer)
        # The library also looks up a word's weight in lower case, so list words that differ from
        # the classification token in case alone.
        alike = {word: 1.0 for word in vocabulary if word.lower() == cls and word != cls}
        weights = {**alike, cls: 0.0}
        return {"vocab": vocabulary, "word_weights": weights, "unknown_word_weight": 1.0}
    if name == "WeightedLayerPooling":
        return {
            "word_embedding_dimension": encoder.dim,
            "layer_start": _LAYER_START[encoder.pooling],
            "num_hidden_layers": _layers(encoder),
        }
    return {
        "word_embedding_dimension": encoder.dim,
        "pooling_mode_cls_token": encoder.pooling == "cls",
        "pooling_mode_mean_tokens": encoder.pooling not in ("cls", "last"),
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_lasttoken": encoder.pooling == "last",
    }


def _layers(encoder: Encoder) -> int:
    return int(encoder.transformer.config.num_hidden_layers)


def _vocabulary(tokenizer: Any) -> list[str]:
    numbers = tokenizer.get_vocab()
    words = [""] * (max(numbers.values()) + 1)
    for word, number in numbers.items():
        words[number] = word
    return words


def _card(encoder: Encoder, metadata: Mapping[str, object]) -> str:
    lines = [
        "---",
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        "---",
        "# Sentence encoder",
        "",
        f"Trained with tune_sentcl. Embeddings have {encoder.width} dimensions; pooling is "
        f"{encoder.pooling}; inputs are truncated to {encoder.max_length} tokens.",
        "",
        *[f"- {name}: {value}" for name, value in metadata.items()],
        "",
        "```python",
        "from sentence_transformers import SentenceTransformer",
        "",
        'embeddings = SentenceTransformer("path/of/this/folder").encode(["A sentence."])',
        "```",
        "",
    ]
    return "\n".join(lines)


def write_json(path: Path, values: object) -> None:
    """Write values as indented JSON."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def keep(encoder: Encoder, path: Path, metadata: Mapping[str, object]) -> None:
    """Write an encoder so that `resolve_checkpoint` can read it.

    Of an encoder with adapters only these and the layers after the pooling are written, about a
    thousandth of its size. The file names their base checkpoint and its fingerprint; the base must
    exist under this name when the folder is read.

    Args:
        encoder: The trained encoder.
        path: The folder to fill; new or empty.
        metadata: As for `export`.

    Raises:
        OSError: A file cannot be written.
    """
    if encoder.adapted is None:
        _write_whole(encoder, path, metadata)
        return
    path.mkdir(parents=True, exist_ok=True)
    try:
        write_adapters(encoder.transformer, encoder.adapted.lora, path)
        if len(encoder.tail):
            write_modules(encoder, path)
    except SafetensorError as error:  # safetensors raises it on a full disk
        raise OSError(str(error)) from error
    base = {"checkpoint": encoder.adapted.base, "fingerprint": encoder.adapted.fingerprint}
    write_json(path / OWN_FILE, {**own_metadata(encoder, metadata), "base": base})
