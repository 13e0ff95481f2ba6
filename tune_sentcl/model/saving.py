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
from tune_sentcl.model.checkpoints.adapters import whole_state, write_adapters
from tune_sentcl.model.checkpoints.checkpoint_files import OWN_FILE, PROMPTS_FILE
from tune_sentcl.model.dense import write_dense
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.tokenizing import is_lower_case

_LAYER_START: dict[Pooling, int] = {"first_last": 1, "static_last": 0}
_TYPES = "sentence_transformers.models."


def export(
    encoder: Encoder, path: Path, facts: Mapping[str, object], card: str | None = None
) -> None:
    """Write an encoder; `SentenceTransformer(path)` then gives the same embeddings.

    `mean_without_cls` becomes a WordWeights module that gives the classification token no weight
    (in a text that spells that token out, all its occurrences); `first_last` and `static_last`
    become a WeightedLayerPooling of two layers. Prefixes become prompts, and adapters are added
    into the weights. `TrialFiles.write_checkpoint` makes a folder that is filled here appear
    whole.

    Args:
        encoder: Saved in the precision that it has.
        path: The folder to fill; new or empty.
        facts: What is known of it, such as the trial's name; values that JSON can hold.
        card: What `README.md` says; None: the facts.

    Raises:
        OSError: The disk refused.
    """
    path.mkdir(parents=True, exist_ok=True)
    try:
        _write_transformer(encoder, path)
        write_modules(encoder, path)
    except SafetensorError as error:  # its word for a full disk
        raise OSError(str(error)) from error
    write_json(path / OWN_FILE, own_facts(encoder, facts))
    text = _card(encoder, facts) if card is None else card
    (path / "README.md").write_text(text, encoding="utf-8")


def own_facts(encoder: Encoder, facts: Mapping[str, object]) -> dict[str, object]:
    """What our own file says of an encoder."""
    found = {f"{name}_prefix": text for name, text in asdict(encoder.prefixes).items() if text}
    return {
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
        **found,
        "facts": dict(facts),
    }


def _write_transformer(encoder: Encoder, folder: Path) -> None:
    config = copy.deepcopy(encoder.transformer.config)
    # WeightedLayerPooling finds the layers only where the config itself asks for them.
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
        # The last call's cutting and padding would be saved along, and the fingerprint with it.
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(folder)


def write_modules(encoder: Encoder, folder: Path) -> None:
    """Write what stands behind the transformer, as modules of sentence-transformers."""
    names = ["Transformer"]
    if encoder.pooling == "mean_without_cls":
        names.append("WordWeights")
    if encoder.pooling in _LAYER_START:
        names.append("WeightedLayerPooling")
    names.append("Pooling")
    layers = list(encoder.tail.layers)
    names += ["Dense"] * len(layers)
    modules = []
    for number, name in enumerate(names):
        # Programs that look for 1_Pooling alone must not find it behind another module.
        place = f"{number}_{name}" if number else ""
        modules.append(
            {"idx": number, "name": str(number), "path": place, "type": f"{_TYPES}{name}"}
        )
        if place:
            (folder / place).mkdir()
            if name == "Dense":
                write_dense(layers.pop(0), folder / place)
                continue
            write_json(folder / place / "config.json", _module_config(name, encoder))
        if name == "WeightedLayerPooling":
            weights = torch.zeros(_layers(encoder) + 1 - _LAYER_START[encoder.pooling])
            weights[0] = weights[-1] = 1.0
            save_file({"layer_weights": weights}, folder / place / "model.safetensors")
    write_json(folder / "modules.json", modules)
    write_json(
        folder / "sentence_bert_config.json",
        {
            "max_seq_length": encoder.max_length,
            # Of its own the library builds most tokenizers anew, without what was put in front.
            "do_lower_case": is_lower_case(encoder.tokenizer),
        },
    )
    query, text = encoder.prefixes.query, encoder.prefixes.text
    if query or text:
        # What `encode` puts before sentences of which nothing is said is the default.
        default = "document" if text else None
        prompts = {"query": query, "document": text}
        write_json(folder / PROMPTS_FILE, {"prompts": prompts, "default_prompt_name": default})


def _module_config(name: str, encoder: Encoder) -> dict[str, Any]:
    # The keys of sentence-transformers 5, which later releases read too.
    if name == "WordWeights":
        cls = encoder.tokenizer.cls_token
        vocabulary = _vocabulary(encoder.tokenizer)
        # Lower-casing finds a word's weight as well, so those that it would mistake are named.
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


def _card(encoder: Encoder, facts: Mapping[str, object]) -> str:
    lines = [
        "---",
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        "---",
        "# Sentence encoder",
        "",
        f"Trained with tune_sentcl. Embeddings have {encoder.width} dimensions; pooling is "
        f"{encoder.pooling}; inputs are cut after {encoder.max_length} tokens.",
        "",
        *[f"- {name}: {value}" for name, value in facts.items()],
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
    """Write values as people read them."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def keep(encoder: Encoder, path: Path, facts: Mapping[str, object]) -> None:
    """Write an encoder so that `resolve_checkpoint` finds it again.

    One with adapters is some thousandth of its size: they are written with the layers behind the
    pooling, which a method may have trained. What they stand on is named with its fingerprint, and
    must be there under that name when it is read.

    Args:
        encoder: As it was trained.
        path: The folder to fill; new or empty.
        facts: As for `export`.

    Raises:
        OSError: The disk refused.
    """
    if encoder.adapted is None:
        export(encoder, path, facts)
        return
    path.mkdir(parents=True, exist_ok=True)
    try:
        write_adapters(encoder.transformer, encoder.adapted.lora, path)
        if len(encoder.tail):
            write_modules(encoder, path)
    except SafetensorError as error:  # its word for a full disk
        raise OSError(str(error)) from error
    base = {"checkpoint": encoder.adapted.base, "fingerprint": encoder.adapted.fingerprint}
    write_json(path / OWN_FILE, {**own_facts(encoder, facts), "base": base})
