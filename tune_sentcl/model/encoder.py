"""A pretrained transformer with its tokenizer and pooling: sentences in, embeddings out."""

import copy
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from tune_sentcl.config import Pooling
from tune_sentcl.errors import CheckpointError, Fault, NonFiniteError
from tune_sentcl.model.checkpoint import Checkpoint
from tune_sentcl.model.dense import Tail
from tune_sentcl.model.inputs import InputTemplate, Segments
from tune_sentcl.model.loading import pristine
from tune_sentcl.model.pooling import pool
from tune_sentcl.shapes import EmbeddingMatrix, Embeddings

Progress = Callable[[int, int], None]
"""Called with how many distinct sentences are done, and how many there are."""


class Encoder(nn.Module):
    """Encodes sentences, for training by `forward` and for evaluation by `encode`.

    Attributes:
        transformer: A transformers model; all its weights are this module's weights.
        tokenizer: The tokenizer that belongs to it.
        pooling: How token states become an embedding.
        max_length: Longest input in tokens, special tokens included; longer ones are cut.
        train_length: The same for `tokenize` and `contents`, which training uses.
        tail: Layers behind the pooling; often none.
        trains_in_bf16: Whether the transformer runs under bfloat16 autocast in training; pooling,
            heads and losses never do.
        dim: Width of what the pooling gives.
    """

    def __init__(
        self,
        transformer: Any,
        tokenizer: Any,
        pooling: Pooling,
        max_length: int,
        train_length: int | None = None,
    ) -> None:
        """Put the parts together; they are taken over, not copied.

        Args:
            transformer: An encoder that `AutoModel` loads.
            tokenizer: Its tokenizer.
            pooling: How token states become an embedding.
            max_length: What is asked for; the transformer's positions may allow less.
            train_length: None takes `max_length`.

        Raises:
            CheckpointError: The pooling needs a classification token and the tokenizer adds none.
        """
        super().__init__()
        if pooling in ("cls", "mean_without_cls") and not _adds_cls(tokenizer):
            rule = "the tokenizer puts no classification token first"
            raise CheckpointError(Fault("encoder.pooling", "", pooling, rule, "Take mean."))
        self.transformer = transformer
        self.tokenizer = tokenizer
        self.pooling: Pooling = pooling
        self._positions = _positions(transformer)
        self.max_length = min(max_length, self._positions or max_length)
        self.train_length = min(train_length or self.max_length, self.max_length)
        self.tail = Tail()
        self.trains_in_bf16 = False
        self.dim = int(transformer.config.hidden_size)

    @property
    def width(self) -> int:
        """Width of an embedding, behind the tail."""
        return self.tail.width(self.dim)

    def tokenize(self, sentences: Sequence[str]) -> list[list[int]]:
        """Turn sentences into token numbers, special tokens included, cut to `train_length`."""
        return _token_ids(self.tokenizer, self.train_length, sentences)

    def contents(self, sentences: Sequence[str]) -> list[list[int]]:
        """Turn sentences into tokens without special ones, cut to what `single` may hold."""
        room = self.train_length - self._template.single_length
        return _token_ids(self.tokenizer, max(room, 0), sentences, special=False)

    def single(self, content: Sequence[int]) -> list[int]:
        """Put the special tokens of one sentence around its content."""
        return self._template.single(content)

    def pair(self, first: Sequence[int], second: Sequence[int]) -> Segments:
        """Put the special tokens of a pair of sentences around their contents, as one input."""
        return self._template.pair(first, second)

    def check_pairs_fit(self) -> None:
        """See that two sentences of `train_length` fit one input.

        Raises:
            CheckpointError: They do not.
        """
        content = self.train_length - self._template.single_length
        needed = 2 * content + self._template.pair_length
        if self._positions is not None and needed > self._positions:
            most = (self._positions - self._template.pair_length) // 2
            rule = f"a pair takes {needed} tokens, and the encoder has {self._positions} positions"
            move = f"Set encoder.train_length to {most + self._template.single_length} or less."
            value = str(self.train_length)
            raise CheckpointError(Fault("encoder.train_length", "", value, rule, move))

    def plain_vocabulary(self) -> Int[np.ndarray, " tokens"]:
        """The numbers of all tokens that are not special."""
        special = set(self.tokenizer.all_special_ids)
        numbers = set(self.tokenizer.get_vocab().values()) - special
        return np.array(sorted(numbers), dtype=np.int64)

    @cached_property
    def _template(self) -> InputTemplate:
        return InputTemplate.of(self.tokenizer)

    def forward(
        self,
        token_ids: Sequence[Sequence[int]],
        divisor: int | None = None,
        types: Sequence[Sequence[int]] | None = None,
    ) -> Embeddings:
        """Encode tokenized sentences, padded to the longest of them.

        Args:
            token_ids: From `tokenize`, `single` or `pair`; at least one sentence.
            divisor: As for `pool`.
            types: Which segment each token belongs to, for tokenizers that tell segments apart;
                None: all to the first.
        """
        ids, mask = self._padded(token_ids)
        inputs = {"input_ids": ids, "attention_mask": mask}
        if "token_type_ids" in self.tokenizer.model_input_names:
            inputs["token_type_ids"] = torch.zeros_like(ids)
            if types is not None:
                for row, segments in enumerate(types):
                    inputs["token_type_ids"][row, : len(segments)] = torch.tensor(segments)
        # hidden_states[0] is what enters the first layer; [1] is what leaves it.
        layer = {"static_last": 0, "first_last": 1}.get(self.pooling)
        wanted = layer is not None
        bf16 = self.training and self.trains_in_bf16
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=bf16):
            output = self.transformer(**inputs, output_hidden_states=wanted, return_dict=True)
        first = output.hidden_states[layer] if wanted else None
        pooled = pool(output.last_hidden_state, mask, self.pooling, divisor, first)
        embeddings: Embeddings = self.tail(pooled)
        return embeddings

    def encode(
        self, sentences: Sequence[str], batch_size: int = 64, progress: Progress | None = None
    ) -> EmbeddingMatrix:
        """Encode sentences for evaluation: no dropout, no gradient, each distinct one once.

        Means divide by each sentence's own tokens, so that neither the batch size nor the
        company a sentence keeps matters beyond rounding.

        Args:
            sentences: Any number; the rows keep their order.
            batch_size: How many are encoded at a time, those of like length together.
            progress: Told of each batch.

        Raises:
            NonFiniteError: An embedding holds NaN or infinity; names the first such sentence.
        """
        distinct = tuple(dict.fromkeys(sentences))
        token_ids = _evaluation_ids(self.tokenizer, self.max_length, distinct)
        # Longest first: a batch that does not fit in memory fails at once.
        order = sorted(range(len(distinct)), key=lambda row: -len(token_ids[row]))
        matrix = np.empty((len(distinct), self.width), dtype=np.float32)
        was_training = self.training
        self.eval()
        try:
            with torch.inference_mode():
                for start in range(0, len(order), batch_size):
                    rows = order[start : start + batch_size]
                    embeddings = self([token_ids[row] for row in rows])
                    matrix[rows] = embeddings.float().cpu().numpy()
                    if progress is not None:
                        progress(start + len(rows), len(order))
        finally:
            self.train(was_training)
        check_finite(matrix, distinct)
        numbers = {sentence: row for row, sentence in enumerate(distinct)}
        return matrix[[numbers[sentence] for sentence in sentences]]

    def _padded(self, token_ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        longest = max(map(len, token_ids))
        pad = self.tokenizer.pad_token_id or 0
        ids = torch.full((len(token_ids), longest), pad, dtype=torch.long)
        mask = torch.zeros((len(token_ids), longest), dtype=torch.long)
        for row, sentence in enumerate(token_ids):
            ids[row, : len(sentence)] = torch.tensor(sentence, dtype=torch.long)
            mask[row, : len(sentence)] = 1
        device = next(self.transformer.parameters()).device
        return ids.to(device), mask.to(device)


def load_encoder(
    checkpoint: Checkpoint,
    pooling: Pooling,
    max_length: int,
    device: str = "cpu",
    train_length: int | None = None,
) -> Encoder:
    """Make an encoder with a checkpoint's starting weights.

    Files are read once a process; every call gives a module of its own, in single precision and in
    evaluation mode. Torch's global generator is left as it was.

    Args:
        checkpoint: From `resolve_checkpoint`.
        pooling: How token states become an embedding.
        max_length: Longest input in tokens, special tokens included.
        device: Where the weights go, in torch's words.
        train_length: Longest input in training; None takes `max_length`.

    Raises:
        CheckpointError: It cannot be loaded, or does not go with the pooling.
    """
    transformer, tokenizer, tail = pristine(checkpoint)
    # The tokenizer is shared: nothing trains it, and copying a vocabulary takes long.
    encoder = Encoder(copy.deepcopy(transformer), tokenizer, pooling, max_length, train_length)
    encoder.tail = copy.deepcopy(tail)
    return encoder.eval().to(device)


# Two: a trial's whole evaluation set, and the development set of its intermediate points.
@lru_cache(maxsize=2)
def _evaluation_ids(
    tokenizer: Any, max_length: int, sentences: tuple[str, ...]
) -> tuple[list[int], ...]:
    """Tokenize what every trial of a process is scored on, once; treat the lists as frozen."""
    return tuple(_token_ids(tokenizer, max_length, sentences))


def _token_ids(
    tokenizer: Any, max_length: int, sentences: Sequence[str], special: bool = True
) -> list[list[int]]:
    if not sentences:
        return []
    found = tokenizer(
        list(sentences),
        add_special_tokens=special,
        truncation=True,
        max_length=max_length,
        padding=False,
        return_attention_mask=False,
        return_token_type_ids=False,
    )
    return [list(ids) for ids in found["input_ids"]]


def _adds_cls(tokenizer: Any) -> bool:
    ids = tokenizer("")["input_ids"]
    return bool(ids) and tokenizer.cls_token_id is not None and ids[0] == tokenizer.cls_token_id


def _positions(transformer: Any) -> int | None:
    positions = getattr(transformer.config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    table = getattr(getattr(transformer, "embeddings", None), "position_embeddings", None)
    # RoBERTa and its kin count positions from padding_idx + 1, so that many rows are never used.
    unused = getattr(table, "padding_idx", None)
    return int(positions) - (0 if unused is None else unused + 1)


def check_finite(matrix: EmbeddingMatrix, sentences: Sequence[str]) -> None:
    """Refuse embeddings that are no numbers.

    Raises:
        NonFiniteError: An embedding holds NaN or infinity; names the first such sentence.
    """
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if bad.size:
        raise NonFiniteError(
            f"the embedding of {sentences[bad[0]]!r} is not finite, nor those of "
            f"{bad.size - 1} other sentences. The weights have diverged: lower optimizer.lr."
        )
