"""Tokenization of sentences by the tokenizers of the transformers library."""

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Int

from tune_sentcl.model.tokens import Tokens

_TOKENIZING = Lock()


def token_ids(
    tokenizer: Any, max_length: int, sentences: Sequence[str], *, special: bool = True
) -> list[list[int]]:
    """Token numbers of sentences, truncated to `max_length` tokens including special tokens."""
    if not sentences:
        return []
    # Truncation is a setting of the tokenizer, which threads share, so only one thread may
    # tokenize.
    with _TOKENIZING:
        encoded = tokenizer(
            list(sentences),
            add_special_tokens=special,
            truncation=True,
            max_length=max_length,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
    return [list(ids) for ids in encoded["input_ids"]]


# The cache has 6 entries: texts, queries and documents, each for the final evaluation and for
# intermediate points.
@lru_cache(maxsize=6)
def evaluation_tokens(tokenizer: Any, max_length: int, sentences: tuple[str, ...]) -> Tokens:
    """Tokenize evaluation sentences, once per process for all trials."""
    return Tokens.of(token_ids(tokenizer, max_length, sentences))


def is_lower_case(tokenizer: Any) -> bool:
    """Whether a tokenizer's normalizer lower-cases texts."""
    from tokenizers import normalizers

    library: Any = normalizers
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    steps = list(normalizer) if isinstance(normalizer, library.Sequence) else [normalizer]
    return any(isinstance(step, library.Lowercase) for step in steps)


def adds_cls(tokenizer: Any) -> bool:
    """Whether a tokenizer puts a classification token first."""
    ids = tokenizer("")["input_ids"]
    return bool(ids) and tokenizer.cls_token_id is not None and ids[0] == tokenizer.cls_token_id


def plain_vocabulary(tokenizer: Any) -> Int[np.ndarray, " tokens"]:
    """The numbers of all tokens that are not special."""
    numbers = set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids)
    return np.array(sorted(numbers), dtype=np.int64)
