"""A tiny RoBERTa on disk, and folders as sentence-transformers writes them."""

from pathlib import Path
from typing import Any

import torch

from tune_sentcl.config import DataConfig
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.load import load_rows

SENTENCES = [
    "a dog runs .",
    "the man",
    "",
    "the woman sees a dog in the park while a man sleeps and a boy runs to the river .",
]


def byte_level_tokenizer(merges: list[tuple[str, str]] | None = None) -> Any:
    """RoBERTa's tokenizer over single bytes, and whatever pairs of pieces are merged."""
    import tokenizers
    import transformers

    library: Any = transformers
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pieces = [*specials, *letters, *("".join(pair) for pair in merges or [])]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return library.RobertaTokenizer(vocab=vocabulary, merges=merges or [])


def save_roberta(folder: Path, positions: int = 18) -> Path:
    """A RoBERTa of two layers with a byte-level tokenizer, saved as its users save theirs."""
    import transformers

    library: Any = transformers
    tokenizer = byte_level_tokenizer()
    tokenizer.save_pretrained(folder)
    config = library.RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=positions,
        type_vocab_size=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        library.RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def sentence_transformer(folder: Path) -> Any:
    """The folder as sentence-transformers loads it."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def toy_rows(count: int) -> Corpus:
    """The first labeled pairs of the toy set."""
    return load_rows("labeled_pairs", DataConfig(source="toy", limit=count), None)
