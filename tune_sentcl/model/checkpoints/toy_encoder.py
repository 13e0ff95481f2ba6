"""The encoder `toy`: a two-layer BERT with random weights that needs no file and no network.

With it, every command runs anywhere in seconds; its scores mean nothing. NumPy's generator draws
the weights, so they are equal on every machine.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tune_sentcl.data.toy import toy_vocabulary
from tune_sentcl.seeding import stream

TOY_MAX_LENGTH, TOY_WIDTH, TOY_LAYERS = 64, 32, 2
_SIZES = {
    "hidden_size": TOY_WIDTH,
    "num_hidden_layers": TOY_LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": TOY_MAX_LENGTH,
}
_SEED = 0
# BERT draws its weights with a standard deviation of 0.02 at width 768. A narrower layer needs a
# larger deviation, so that its outputs have the same variance.
_STD = 0.02 * math.sqrt(768 / 32)


def toy_fingerprint(vocabulary: Sequence[str] | None = None) -> str:
    """A hash of the toy encoder's settings and vocabulary, by default that of the toy data."""
    pieces = list(toy_vocabulary() if vocabulary is None else vocabulary)
    text = json.dumps([pieces, _SIZES, _SEED, repr(_STD)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def build_toy(vocabulary: Sequence[str] | None = None) -> tuple[Any, Any]:
    """Make a `BertModel` without pooler in single precision, and its `BertTokenizer`.

    The vocabulary begins with BERT's five special tokens. Torch's global generator is unchanged.
    """
    import torch
    import transformers

    library: Any = transformers

    pieces = list(toy_vocabulary() if vocabulary is None else vocabulary)
    tokenizer = library.BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    tokenizer.model_max_length = TOY_MAX_LENGTH
    config = library.BertConfig(
        vocab_size=len(pieces), pad_token_id=0, attn_implementation="sdpa", **_SIZES
    )
    # The constructor draws random weights, which the loop below replaces; the fork undoes the
    # draws.
    with torch.random.fork_rng(devices=[]):
        transformer = library.BertModel(config, add_pooling_layer=False)
    with torch.no_grad():
        for name, parameter in transformer.named_parameters():
            parameter.copy_(torch.from_numpy(_draw(name, tuple(parameter.shape))))
    return transformer.eval(), tokenizer


def _draw(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    if name.endswith("LayerNorm.weight"):
        return np.ones(shape, dtype=np.float32)
    if name.endswith("bias"):
        return np.zeros(shape, dtype=np.float32)
    return (stream(_SEED, "toy-encoder", name).standard_normal(shape) * _STD).astype(np.float32)
