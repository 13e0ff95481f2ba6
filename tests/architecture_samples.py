"""Tiny models of the architectures that people use now, with random weights, as folders."""

from pathlib import Path
from typing import Any

import torch
from model_samples import byte_level_tokenizer

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 96,
}
DECODERS = ("Llama", "Mistral", "Qwen2", "Qwen3")
KINDS = ("ModernBert", *DECODERS)
END = "<|endoftext|>"


def decoder_tokenizer() -> Any:
    """As a decoder's: bytes, an end token that it does not add, and none for padding."""
    import tokenizers
    import transformers

    library: Any = transformers
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pieces = [END, *letters]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    backend.normalizer = tokenizers.normalizers.NFC()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return library.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=END, padding_side="left"
    )


def save_t5(folder: Path, kind: str = "T5ForConditionalGeneration") -> Path:
    """A T5 with or without its decoder, and its tokenizer, which knows single letters."""
    import transformers

    library: Any = transformers
    pieces = ["<pad>", "</s>", "<unk>", "\u2581", *"abcdefghijklmnopqrstuvwxyz."]
    vocabulary = [(piece, -float(number)) for number, piece in enumerate(pieces)]
    library.T5Tokenizer(vocab=vocabulary, extra_ids=0).save_pretrained(folder)
    family = kind.partition("T5")[0] + "T5"  # mT5's and umT5's classes are named alike
    config = getattr(library, f"{family}Config")(
        vocab_size=len(pieces),
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=3,
        num_heads=2,
        decoder_start_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        getattr(library, kind)(config).save_pretrained(folder)
    return folder


def save_architecture(name: str, folder: Path, **more: Any) -> Path:
    """A model of an architecture with its tokenizer, saved as its users save theirs."""
    import transformers

    library: Any = transformers
    tokenizer = byte_level_tokenizer() if name == "ModernBert" else decoder_tokenizer()
    tokenizer.save_pretrained(folder)
    if name == "ModernBert":
        more = {"local_attention": 8, "global_attn_every_n_layers": 2, "pad_token_id": 1, **more}
    if name in DECODERS:
        more = {"num_key_value_heads": 1, "head_dim": 8, **more}
    config = getattr(library, f"{name}Config")(vocab_size=len(tokenizer), **SIZES, **more)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        transformer = library.AutoModel.from_config(config, dtype=torch.float32)
        for weight in transformer.parameters():  # the library's own are too small to tell apart
            if weight.ndim > 1:
                weight.data = torch.randn_like(weight) * 0.3
    transformer.save_pretrained(folder)
    return folder
