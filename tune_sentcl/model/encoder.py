"""A pretrained transformer with its tokenizer and pooling: it turns sentences into embeddings."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tune_sentcl.arithmetic import Arithmetic, tensor_cores
from tune_sentcl.config import Auto, Pooling
from tune_sentcl.data.task import Prompt
from tune_sentcl.errors import CheckpointError, Fault
from tune_sentcl.model import token_states
from tune_sentcl.model.checkpoints.adapters import Adapted
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint, used
from tune_sentcl.model.checkpoints.checkpoint_files import Prefixes, num_rows, usable_positions
from tune_sentcl.model.checkpoints.loading import load_base
from tune_sentcl.model.device import is_out_of_memory
from tune_sentcl.model.encoding import Progress, by_batches, check_finite
from tune_sentcl.model.modules import Modules, Tail
from tune_sentcl.model.packing import make_packable, packs_on
from tune_sentcl.model.pooling import Divisor, pool
from tune_sentcl.model.static import TokenVectors
from tune_sentcl.model.token_states import Runner, TransformerInput
from tune_sentcl.model.tokenizing import adds_cls, evaluation_tokens, token_ids
from tune_sentcl.model.tokens import InputTemplate, Tokens
from tune_sentcl.shapes import EmbeddingMatrix, Embeddings

# cuDNN's attention is left out, because it plans anew for each shape: on an H200, a step of MiniLM
# in bf16 takes 267 ms with it and 24 ms without.
_ATTENTION = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)

_Found = TypeVar("_Found")


class Encoder(nn.Module):
    """Encodes sentences, for training by `forward` and for evaluation by `encode`.

    Attributes:
        transformer: A transformers model, or the `TokenVectors` of a static encoder; all its
            weights are this module's weights.
        tokenizer: The transformer's tokenizer.
        pooling: How token states become an embedding.
        max_length: Longest input in tokens, special tokens included; longer inputs are truncated.
        train_length: Longest input for `tokenize` and `contents`, which training uses.
        prefixes: Prefixes of sentences in `tokenize`, `contents` and `encode`.
        adapted: The checkpoint on which its adapters were trained; None without adapters.
        head: The modules that pool, if the pooling is `modules`.
        tail: Modules after the pooling; often none.
        normalize: The checkpoint's module that scales embeddings to length 1, or None. `export`
            writes it again. This class does not apply it, because no cosine depends on lengths.
        settings: Prompts, similarity and width that the checkpoint's files state.
        packed: Whether the transformer gets inputs without padding, if it supports that; False
            pads inputs to the longest.
        arithmetic: The arithmetic of training. With `bf16`, the transformer runs under bfloat16
            autocast, but pooling, heads and losses do not.
        runner: Computes the pooled states of packed inputs in training; None: this module computes
            them.
    """

    def __init__(
        self,
        transformer: Any,
        tokenizer: Any,
        pooling: Pooling,
        max_length: int,
        train_length: int | None = None,
    ) -> None:
        """Join the parts without a copy; inputs are cut to the transformer's positions.

        Raises:
            CheckpointError: The pooling needs a classification token and the tokenizer adds none,
                or the pooling of a static encoder is not `mean`.
        """
        super().__init__()
        if isinstance(transformer, TokenVectors) and pooling != "mean":
            raise _refused(pooling, "a static encoder takes the mean of its tokens", "Take mean.")
        if pooling in ("cls", "mean_without_cls") and not adds_cls(tokenizer):
            raise _refused(
                pooling, "the tokenizer puts no classification token first", "Take mean."
            )
        self.transformer = transformer
        self.tokenizer = tokenizer
        self.pooling: Pooling = pooling
        self.packed = True
        self._packable = make_packable(transformer) and pooling != "modules"
        self._positions = usable_positions(transformer)
        self._rows = num_rows(transformer)
        self.max_length = min(max_length, self._positions or max_length)
        self.train_length = min(train_length or self.max_length, self.max_length)
        self.prefixes = Prefixes()
        self.adapted: Adapted | None = None
        self.head = Modules()
        self.tail = Tail()
        self.normalize: nn.Module | None = None
        self.settings: Mapping[str, Any] = {}
        self.arithmetic: Arithmetic = "fp32"
        self.runner: Runner | None = None

    @property
    def dim(self) -> int:
        """Width of the pooled states."""
        return self.head.width(int(self.transformer.config.hidden_size))

    @property
    def width(self) -> int:
        """Width of an embedding, after the tail."""
        return self.tail.width(self.dim)

    @property
    def packs(self) -> bool:
        """Whether inputs are packed: `packed` is set, and transformer and device support it."""
        return self.packed and self._packable and packs_on(self.device)

    def tokenize(self, sentences: Sequence[str], *, prompt: Prompt = "text") -> list[list[int]]:
        """Token numbers of sentences with prefix and special tokens, cut to `train_length`."""
        return token_ids(self.tokenizer, self.train_length, self._read(sentences, prompt=prompt))

    def contents(self, sentences: Sequence[str], *, prompt: Prompt = "text") -> list[list[int]]:
        """Token numbers without special tokens, truncated so that the results of `singles` fit."""
        num_tokens = self.train_length - self._template.single_length
        read = self._read(sentences, prompt=prompt)
        return token_ids(self.tokenizer, max(num_tokens, 0), read, special=False)

    def _read(self, sentences: Sequence[str], *, prompt: Prompt) -> list[str]:
        """Add the prefixes to sentences.

        Raises:
            CheckpointError: The encoder's own modules leave prefixes out of the pooling.
        """
        read = self.prefixes.put(sentences, prompt=prompt)
        whole = all(getattr(module, "include_prompt", True) for module in self.head)
        if not whole and read != list(sentences):
            rule = "the model's modules leave prompts out of the pooling, which is not supported"
            raise _refused(self.pooling, rule, "Use mean pooling, or no prefixes.")
        return read

    def singles(self, contents: Tokens) -> Tokens:
        """Make an input of each content (tokens of a sentence) by adding special tokens."""
        return self._template.singles(contents)

    def pairs(self, first: Tokens, second: Tokens) -> Tokens:
        """Make an input of each two contents by adding the special tokens of a pair."""
        return self._template.pairs(first, second)

    def check_pairs_fit(self) -> None:
        """Raise CheckpointError if two sentences of `train_length` do not fit one input."""
        content = self.train_length - self._template.single_length
        needed = 2 * content + self._template.pair_length
        if self._positions is not None and needed > self._positions:
            most = (self._positions - self._template.pair_length) // 2
            rule = f"a pair takes {needed} tokens, and the encoder has {self._positions} positions"
            move = f"Set encoder.train_length to {most + self._template.single_length} or less."
            value = str(self.train_length)
            raise CheckpointError(Fault("encoder.train_length", value=value, rule=rule, move=move))

    @property
    def _transformer_input(self) -> TransformerInput:
        segments = "token_type_ids" in self.tokenizer.model_input_names
        pad = self.tokenizer.pad_token_id or 0
        return TransformerInput(self.transformer, pad, segments, self.pooling)

    @cached_property
    def _template(self) -> InputTemplate:
        return InputTemplate.of(self.tokenizer)

    def forward(
        self,
        inputs: Tokens | Sequence[Sequence[int]],
        divisor: Divisor = None,
    ) -> Embeddings:
        """Encode tokenized sentences.

        Args:
            inputs: At least one sentence, as Tokens or as lists from `tokenize`.
            divisor: The divisor of `pool`.
        """
        tokens = inputs if isinstance(inputs, Tokens) else Tokens.of(inputs)
        embeddings: Embeddings = self.tail(self._pooled(tokens, divisor))
        return embeddings

    def _pooled(self, tokens: Tokens, divisor: Divisor) -> Embeddings:
        self._check_rows(tokens)
        if isinstance(self.transformer, TokenVectors):
            means: Embeddings = self.transformer(tokens, divisor)
            return means
        if self.pooling == "modules":
            return self.head.from_features(self._run(token_states.padded_features, tokens))
        # A batch with an input of no tokens cannot be packed, so it is padded.
        packed = self.packs and bool(tokens.lengths.all())
        if packed and self.training and (runner := self.runner) is not None:
            pooled = self._run(lambda given, tokens: runner(given, tokens, divisor), tokens)
            if pooled is not None:
                return pooled
        states = token_states.packed_states if packed else token_states.padded_states
        last, mask, first = self._run(states, tokens)
        return pool(last, mask, self.pooling, divisor, first)

    def _check_rows(self, tokens: Tokens) -> None:
        """Raise CheckpointError for a token without a vector, which would crash a GPU process."""
        number = int(tokens.ids.max(initial=0))
        if self._rows is not None and number >= self._rows:
            token = self.tokenizer.convert_ids_to_tokens(number)
            rule = (
                f"the model's table of {self._rows} rows has no row for {token!r}, which a text "
                "contains"
            )
            move = "Remove this token from the texts."
            raise CheckpointError(Fault("encoder.checkpoint", rule=rule, move=move))

    def _run(self, states: Callable[[TransformerInput, Tokens], _Found], tokens: Tokens) -> _Found:
        """Run the transformer in the arithmetic of training or of evaluation."""
        arithmetic = self.arithmetic if self.training else "tf32"
        with (
            torch.autocast(self.device.type, torch.bfloat16, enabled=arithmetic == "bf16"),
            sdpa_kernel([*_ATTENTION]),
            tensor_cores(self.device, allowed=arithmetic == "tf32"),
        ):
            return states(self._transformer_input, tokens)

    def together(
        self, parts: Sequence[Tokens], divisors: Sequence[int | None]
    ) -> tuple[Embeddings, ...]:
        """Encode several batches; packed inputs need only one forward pass.

        Args:
            parts: The batches, each with at least one input.
            divisors: The divisor of `pool` for each part; either all are None or none is.
        """
        if not self.packs:
            both = zip(parts, divisors, strict=True)
            return tuple(self(part, divisor) for part, divisor in both)
        sizes = [len(part) for part in parts]
        given = [divisor for divisor in divisors if divisor is not None]
        whole: Embeddings = self(
            Tokens.concatenate(parts), np.repeat(given, sizes) if given else None
        )
        embeddings: tuple[Embeddings, ...] = whole.split(sizes)
        return embeddings

    def encode(
        self,
        sentences: Sequence[str],
        progress: Progress | None = None,
        *,
        prompt: Prompt = "text",
    ) -> EmbeddingMatrix:
        """Encode sentences for evaluation: no dropout, no gradient, each distinct sentence once.

        Mean pooling divides by each sentence's own number of tokens, so the batch size and the
        other sentences of a batch change embeddings only by rounding.

        Args:
            sentences: Any number; the rows keep their order.
            progress: Called after each batch.
            prompt: The kind of the sentences, which decides their prefix.

        Raises:
            NonFiniteError: An embedding holds NaN or infinity; the error names the first
                sentence.
        """
        distinct = tuple(dict.fromkeys(sentences))
        read = tuple(self._read(distinct, prompt=prompt))
        tokens = evaluation_tokens(self.tokenizer, self.max_length, read)
        was_training = self.training
        self.eval()
        try:
            with torch.inference_mode():
                matrix = by_batches(self._encoded_batch, tokens, self.width, self.device, progress)
        finally:
            self.train(was_training)
        check_finite(matrix, distinct)
        if len(distinct) == len(sentences):
            return matrix
        numbers = {sentence: row for row, sentence in enumerate(distinct)}
        return matrix[[numbers[sentence] for sentence in sentences]]

    def drop_runner(self) -> bool:
        """Free the runner's memory; this module then computes. False without a runner."""
        runner, self.runner = self.runner, None
        if runner is not None:
            runner.release()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return runner is not None

    def _encoded_batch(self, tokens: Tokens) -> Tensor:
        """The embeddings of a batch, which is halved until it fits the memory."""
        try:
            embeddings: Embeddings = self(tokens)
        except RuntimeError as error:
            if not is_out_of_memory(error) or (len(tokens) == 1 and self.runner is None):
                raise
        else:
            return embeddings.float()
        # The retry runs after the handler: inside it, the exception's traceback would keep the
        # states in memory.
        if self.drop_runner():
            return self._encoded_batch(tokens)
        halves = np.array_split(np.arange(len(tokens)), 2)
        return torch.cat([self._encoded_batch(tokens.take(half)) for half in halves])

    @property
    def device(self) -> torch.device:
        """The device of the transformer."""
        device: torch.device = next(self.transformer.parameters()).device
        return device


def load_encoder(
    checkpoint: Checkpoint,
    pooling: Pooling | Auto,
    max_length: int | Auto,
    device: str = "cpu",
    train_length: int | None = None,
) -> Encoder:
    """Make an encoder with a checkpoint's weights.

    Files are read once per process. Every call returns a new module, in single precision and in
    evaluation mode. Torch's global generator does not change.

    Args:
        checkpoint: From `resolve_checkpoint`.
        pooling: The pooling; `auto` takes the files' value, see `used`.
        max_length: Longest input in tokens, special tokens included; `auto` as for `pooling`.
        device: The torch device of the weights.
        train_length: Longest input in training; None: `max_length`.

    Raises:
        CheckpointError: The checkpoint cannot be loaded or does not support the pooling.
    """
    base = load_base(checkpoint)
    pooling, max_length = used(checkpoint, pooling, max_length)
    # Only the transformer is copied. All encoders share one tokenizer, because training does not
    # change it and copying its vocabulary takes long.
    transformer = copy.deepcopy(base.transformer)
    encoder = Encoder(transformer, base.tokenizer, pooling, max_length, train_length)
    if pooling == "modules" and not len(base.head):
        raise _refused(pooling, "the checkpoint has no modules", "Use another pooling.")
    if pooling == "modules":
        encoder.head = copy.deepcopy(base.head)
    elif len(base.tail) and base.head.width(encoder.dim) != encoder.dim:
        rule = f"the model's later modules read embeddings of width {base.head.width(encoder.dim)}"
        raise _refused(pooling, rule, "Set encoder.pooling to modules.")
    encoder.tail = copy.deepcopy(base.tail)
    encoder.normalize, encoder.settings = copy.deepcopy(base.normalize), base.settings
    return encoder.eval().to(device)


def _refused(pooling: str, rule: str, move: str) -> CheckpointError:
    return CheckpointError(Fault("encoder.pooling", value=pooling, rule=rule, move=move))
