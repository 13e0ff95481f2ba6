"""A transformer's token states, from a packed or a padded batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from tune_sentcl.config import Pooling
from tune_sentcl.model.checkpoints.checkpoint_files import padding_position
from tune_sentcl.model.device import to_device
from tune_sentcl.model.packing import Bounds, Packing
from tune_sentcl.model.pooling import Divisor
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.shapes import Embeddings, Mask, TokenStates

States = tuple[TokenStates, Mask, TokenStates | None]
"""The last layer's states, the mask of the tokens, and another layer's states or None."""


@dataclass(frozen=True)
class TransformerInput:
    """A transformer with the facts that are needed to call it.

    Attributes:
        transformer: A model that `AutoModel` loads.
        pad_token: The token number of padding.
        segments: Whether the model takes the segment of each token.
        pooling: How its states become embeddings.
    """

    transformer: Any
    pad_token: int
    segments: bool
    pooling: Pooling

    @property
    def layer(self) -> int | None:
        """The index in `hidden_states` of the layer that is needed besides the last, or None."""
        # In transformers, `hidden_states[0]` is the input of the first layer, and
        # `hidden_states[1]` is its output.
        return {"static_last": 0, "first_last": 1}.get(self.pooling)


def packed_states(transformer_input: TransformerInput, tokens: Tokens) -> States:
    """Encode inputs as one sequence without padding; no input may be empty."""
    packing = Packing(tokens, transformer_input.transformer.device)
    given = packing.inputs(padding_position(transformer_input.transformer))
    last, other = run_transformer(transformer_input, given, packing)
    laid, mask = packing.padded_states(last)
    return laid, mask, None if other is None else packing.padded_states(other)[0]


def padded_states(transformer_input: TransformerInput, tokens: Tokens) -> States:
    """Encode inputs as a batch in which all are padded to the longest."""
    given = _padded(transformer_input, tokens)
    last, other = run_transformer(transformer_input, given)
    return last, given["attention_mask"], other


def padded_features(transformer_input: TransformerInput, tokens: Tokens) -> dict[str, Any]:
    """Encode a padded batch, and name the results as sentence-transformers does."""
    given = _padded(transformer_input, tokens)
    taken = dict(given)
    if not transformer_input.segments:
        del taken["token_type_ids"]
    output = transformer_input.transformer(**taken, return_dict=True)
    # The modules of sentence-transformers do not run in bfloat16, so they get single precision.
    features: dict[str, Any] = {**given, "token_embeddings": output.last_hidden_state.float()}
    if output.get("hidden_states") is not None:
        features["all_layer_embeddings"] = [layer.float() for layer in output.hidden_states]
    return features


def _padded(transformer_input: TransformerInput, tokens: Tokens) -> dict[str, Tensor]:
    lengths = tokens.lengths
    # The width is at least 1, because a sentence without words may have no tokens.
    is_token = np.arange(max(lengths.max(), 1)) < lengths[:, None]
    ids = np.full(is_token.shape, transformer_input.pad_token, dtype=np.int64)
    ids[is_token] = tokens.ids
    kinds = np.zeros_like(ids)
    if tokens.types is not None:
        kinds[is_token] = tokens.types
    sent = to_device(
        np.stack([ids, is_token.astype(np.int64), kinds]), transformer_input.transformer.device
    )
    return dict(zip(("input_ids", "attention_mask", "token_type_ids"), sent, strict=True))


def run_transformer(
    transformer_input: TransformerInput,
    given: Mapping[str, Tensor],
    packing: Packing | Bounds | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The last layer's states, and the states of `transformer_input.layer` or None."""
    layer = transformer_input.layer
    taken: dict[str, Any] = dict(given)
    if not transformer_input.segments:
        del taken["token_type_ids"]
    if packing is not None:
        # transformers passes on an attention mask of four dimensions as it is: it neither builds a
        # mask of tokens x tokens, nor reads the position ids back from the device to see whether
        # several inputs are packed. No layer reads this mask.
        taken |= {"packing": packing, "attention_mask": given["input_ids"].new_empty(1, 1, 1, 1)}
    output = transformer_input.transformer(
        **taken,
        output_hidden_states=layer is not None,
        return_dict=True,
    )
    return output.last_hidden_state, None if layer is None else output.hidden_states[layer]


class Runner(Protocol):
    """Computes the pooled states of packed inputs in training, for example with a CUDA graph."""

    def __call__(
        self, transformer_input: TransformerInput, tokens: Tokens, divisor: Divisor, /
    ) -> Embeddings | None:
        """The result of `packed_states` and `pool`; None if the caller must use those two."""

    def release(self) -> None:
        """Free the memory that the runner holds."""
