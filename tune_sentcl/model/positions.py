"""How a transformer numbers the positions of tokens."""

from collections.abc import Mapping
from typing import Any

_ROBERTAS = frozenset(
    {
        *("camembert", "data2vec-text", "ibert", "longformer", "luke", "mpnet", "roberta"),
        *("roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    }
)


def padding_position(transformer: Any) -> int | None:
    """The position of padding, where a model has one and counts its positions from the next.

    RoBERTa and its kin do; they give that position to a padding token inside a sentence, too.
    """
    table = getattr(getattr(transformer, "embeddings", None), "position_embeddings", None)
    found = getattr(table, "padding_idx", None)
    return None if found is None else int(found)


def usable_positions(transformer: Any) -> int | None:
    """How many tokens an input may have; None: nothing limits them."""
    positions = getattr(transformer.config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    padding = padding_position(transformer)  # as many rows of the table are never used
    return int(positions) - (0 if padding is None else padding + 1)


def stated_positions(config: Mapping[str, Any]) -> int | None:
    """What `usable_positions` gives of a model, by its `config.json` alone."""
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int) or positions < 1:
        return None
    if config.get("model_type") not in _ROBERTAS:
        return positions
    padding = config.get("pad_token_id")
    return positions - (padding if isinstance(padding, int) else 1) - 1
