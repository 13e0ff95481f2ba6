"""CUDA graphs of a training step: one launch in place of about a thousand.

On an H200 the launches of a step with 64 pairs take ten times as long as its kernels. A graph has
fixed shapes, so packed inputs are padded to one of a few numbers of tokens, by at most an eighth.
The padding is a dummy sequence that no other token attends to and no loss reads.
"""

import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from tune_sentcl.arithmetic import Arithmetic
from tune_sentcl.errors import CaptureError
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.checkpoints.checkpoint_files import padding_position
from tune_sentcl.model.device import free_memory, pinned
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.packing import Bounds, Packing, named_inputs
from tune_sentcl.model.pooling import Divisor, pool_packed, pooled_ranges
from tune_sentcl.model.token_states import TransformerInput, run_transformer
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.shapes import Embeddings
from tune_sentcl.train import capture
from tune_sentcl.train.optimizer import GraphedUpdate

_GRAPHED_ON = "cuda"
# Before this release, torch counts a capture's random numbers in 32 bits, and a failed capture
# breaks its allocator.
_FIRST_TORCH = "2.13"
_STEPS = 8  # sizes per doubling of the tokens, so padding adds at most an eighth
_SHORTEST = 64  # a block of the attention kernel holds this many tokens
_MOST_TOKENS = 8192  # a larger batch runs without a graph, because it keeps a GPU busy anyway
# In multiples of a forward pass's states: room for the graph, for the backward pass, and some
# spare.
_ROOM = 3
# In multiples of the weights: room for two copies of the gradients and for the optimizer's two
# moments.
_COPIES = 4
_MOST_GRAPHS = 32
_ROUNDING: dict[Arithmetic, float] = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}
# As a share of the norm of all gradients: a smaller gradient may be 0 up to rounding, as that of a
# key's bias is.
_SMALL = 1e-2


NO_ROOM = "some batches were trained without CUDA graphs, because memory was short"
DIFFERS = "some batches were trained without CUDA graphs, because a graph computed another result"


@dataclass(frozen=True)
class Size:
    """The shape of a graph.

    Attributes:
        tokens: The number of tokens of all inputs, with padding.
        inputs: The number of inputs, with padding.
        longest: An upper limit of the tokens of an input.
    """

    tokens: int
    inputs: int
    longest: int

    @classmethod
    def of(cls, packing: Packing) -> "Size":
        """The smallest size that holds some inputs and their padding."""
        tokens, longest = _rounded(len(packing.tokens.ids)), _SHORTEST
        while longest < packing.longest:
            longest *= 2
        longest = min(longest, tokens)  # no input is longer, so the kernel needs no larger limit
        filling = -(-(tokens - len(packing.tokens.ids)) // longest)
        most = -(-tokens // (_STEPS * longest))
        return cls(tokens, _rounded(len(packing.tokens) + max(filling, most)), longest)

    def bounds(self, packing: Packing) -> np.ndarray:
        """The bounds of the inputs and of the padding; further inputs are empty."""
        ends = packing.tokens.offsets
        filled = np.arange(ends[-1] + self.longest, self.tokens, self.longest)
        found = np.full(self.inputs + 1, self.tokens, dtype=np.int32)
        found[: len(ends)] = ends
        found[len(ends) : len(ends) + len(filled)] = filled
        return found

    @property
    def parts(self) -> list[int]:
        """The lengths of the parts of `numbers`."""
        return [3 * self.tokens, self.inputs + 1, 2 * self.inputs, self.inputs, self.inputs]

    def numbers(
        self, packing: Packing, transformer_input: TransformerInput, divisor: Divisor
    ) -> np.ndarray:
        """All numbers of a batch that a graph reads, in one array, so that one copy sends them.

        Returns:
            The parts: tokens with positions and segments, bounds, ranges and counts for
            `pool_packed`, and the position of each input among the packed inputs.
        """
        given = packing.numbers(padding_position(transformer_input.transformer))
        tokens = np.zeros((len(given), self.tokens), dtype=np.int64)
        tokens[:, : given.shape[1]] = given
        bounds, places = self.bounds(packing), np.arange(self.inputs)
        places[packing.order] = np.arange(len(packing.order))
        if isinstance(divisor, np.ndarray):
            filled = np.ones(self.inputs, dtype=np.int64)
            filled[: len(divisor)] = divisor[packing.order]
            divisor = filled
        ranges, counts = pooled_ranges(transformer_input.pooling, bounds, divisor)
        return np.concatenate([tokens.ravel(), bounds, ranges, counts, places])


def _rounded(number: int) -> int:
    step = max(1, (1 << (number.bit_length() - 1)) // _STEPS)
    return -(-number // step) * step


class GraphedTransformer:
    """Runs an encoder's transformer and pooling from CUDA graphs, one for each size of a batch.

    The graphs share their memory, so only one may be in use from a forward pass to its backward
    pass. Another forward pass in between runs without a graph. A new graph must compute what the
    transformer computes without a graph, and the previous graph must still do so, too.

    Attributes:
        update: Updates the weights from CUDA graphs, too.
        notes: The reasons why passes ran without a graph.
    """

    def __init__(self, encoder: Encoder) -> None:
        named = encoder.transformer.named_parameters()
        self._weights = {name: weight for name, weight in named if weight.requires_grad}
        # Autograd runs a backward pass only for an input that requires a gradient. A weight cannot
        # be this input: its autograd node remembers a stream, and a capture must not meet a node
        # of another stream.
        self._anchor = torch.zeros((), device=encoder.device, requires_grad=True)
        self._encoder = encoder
        self._size = sum(w.numel() * w.element_size() for w in self._weights.values())
        # torch reuses freed memory only within one stream.
        self._stream: Any = torch.cuda.Stream(encoder.device)
        self._graphs: dict[Size, _Graph | None] = {}
        self._latest: _Graph | None = None
        self._gradients: dict[str, Tensor] = {}
        # Bytes of the largest graph's states; all graphs share this memory.
        self._states = 0
        self._pool = torch.cuda.graph_pool_handle()
        self._in_use: weakref.ref[_Use] | None = None
        self.update = GraphedUpdate(encoder.device)
        self.notes: list[str] = []

    def __call__(
        self, transformer_input: TransformerInput, tokens: Tokens, divisor: Divisor
    ) -> Embeddings | None:
        """See `Runner`."""
        busy = self._in_use is not None and self._in_use() is not None
        if busy or not torch.is_grad_enabled() or not self._weights:
            return None
        packing = Packing(tokens, self._encoder.device)
        size = Size.of(packing)
        is_new = size not in self._graphs
        if size.tokens > _MOST_TOKENS or (is_new and len(self._graphs) == _MOST_GRAPHS):
            return None
        numbers = size.numbers(packing, transformer_input, divisor)
        if is_new:
            self._graphs[size] = self._captured(transformer_input, size, numbers)
        graph, use = self._graphs[size], _Use()
        if graph is None:
            return None
        graph.fill(numbers)
        self._in_use = weakref.ref(use)
        embeddings: Embeddings = _Replay.apply(self._anchor, graph, use, len(tokens))  # type: ignore[no-untyped-call]
        return embeddings

    def _captured(
        self, transformer_input: TransformerInput, size: Size, numbers: np.ndarray
    ) -> "_Graph | None":
        """A graph of a size; None if memory is short or the graph computes something else."""
        device = self._encoder.device
        with capture.undisturbed(device):
            before = torch.cuda.memory_allocated(device)
            graph = _Graph(transformer_input, size, self._stream, numbers, self._weights)
            states = max(self._states, graph.most_allocated - before)
            if _ROOM * states + _COPIES * self._size > free_memory(device):
                self._note(NO_ROOM)
                return None
            self._states = states
            for name in graph.used:
                self._gradients.setdefault(name, torch.zeros_like(self._weights[name]))
            graph.capture(self._weights, self._gradients, self._pool)
            is_right = self._is_right(graph)
            # The replay of the new graph may have overwritten memory that the previous graph still
            # reads, so that one is checked too.
            if self._latest is not None and not self._is_right(self._latest):
                self._graphs[self._latest.size] = None
                self._latest = None
        if not is_right:
            return None
        self._latest = graph
        return graph

    def _is_right(self, graph: "_Graph") -> bool:
        if graph.computes_as_launched(_ROUNDING[self._encoder.arithmetic]):
            return True
        self._note(DIFFERS)
        return False

    def _note(self, reason: str) -> None:
        if reason not in self.notes:
            self.notes.append(reason)

    def release(self) -> None:
        """Free the graphs and their memory; called during a training if memory is short."""
        self._note(NO_ROOM)
        self._graphs.clear()
        self._gradients.clear()
        self._latest, self._states = None, 0
        self._pool = torch.cuda.graph_pool_handle()
        self.update = GraphedUpdate(self._encoder.device)


@contextmanager
def graphed(method: AnyMethod) -> Iterator[list[str]]:
    """Train from CUDA graphs inside this block, if method, encoder and device allow it.

    Graphs are not used with TUNE_SENTCL_GRAPHS=0; with `method.chunk`, which computes the passes
    twice and in another order; and with deterministic algorithms, because the free memory decides
    which passes are captured, and that changes the noise of dropout.

    Yields:
        The reasons why passes ran without a graph; the list may grow.
    """
    encoder, allowed = method.encoder, os.environ.get(CaptureError.variable)
    if (
        not isinstance(encoder, Encoder)
        or encoder.device.type != _GRAPHED_ON
        or not encoder.packs
        or _host_reads(encoder.transformer.config)
        or allowed == "0"
        or torch.are_deterministic_algorithms_enabled()
        or getattr(method.config, "chunk", None) is not None
    ):
        yield []
        return
    if allowed == CaptureError.failed or torch.__version__ < _FIRST_TORCH:
        is_old = f"torch {torch.__version__} is older than {_FIRST_TORCH}"
        why = "a capture had failed" if allowed == CaptureError.failed else is_old
        yield [f"trained without CUDA graphs, because {why}"]
        return
    encoder.runner = runner = GraphedTransformer(encoder)
    try:
        yield runner.notes
    finally:
        if not capture.has_failed():
            encoder.drop_runner()


def _host_reads(config: Any) -> bool:
    """Whether the host reads positions in a pass: rotations follow the longest input."""
    rotations = str(getattr(config, "rope_parameters", None))
    return "dynamic" in rotations or "longrope" in rotations


def _fixed_like(embeddings: Tensor) -> Tensor:
    """A fixed gradient without zeros, in which no two rows or columns are equal."""
    numbers = torch.arange(embeddings.numel(), device=embeddings.device)
    return numbers.cos().view_as(embeddings).to(embeddings.dtype)


def _are_close(found: list[Tensor], expected: list[Tensor], rounding: float) -> bool:
    """Whether each tensor equals the expected one up to rounding; NaN never does."""
    sizes = torch.stack(torch._foreach_norm(expected))
    errors = torch.stack(torch._foreach_norm(torch._foreach_sub(found, expected)))
    return bool((errors <= rounding * (sizes + _SMALL * sizes.norm())).all())


class _Use:
    """A token of a replayed forward pass, which lives until autograd frees the pass."""


class _Graph:
    """The graphs of the forward and the backward pass for one size."""

    def __init__(
        self,
        transformer_input: TransformerInput,
        size: Size,
        stream: Any,
        numbers: np.ndarray,
        weights: Mapping[str, Tensor],
    ) -> None:
        self.transformer_input, self.size, self.stream = transformer_input, size, stream
        self.numbers = torch.zeros(len(numbers), dtype=torch.int64, device=stream.device)
        self.fill(numbers)
        # These tensors share the memory of the weights, but their autograd nodes belong to this
        # stream.
        self.leaves = {name: w.detach().requires_grad_() for name, w in weights.items()}
        self._launched()  # a first run, because libraries allocate their workspaces in it
        self.embeddings, gradients = self._launched()
        self.used, self.upstream = [*gradients], torch.empty_like(self.embeddings)
        self._computed: list[Tensor] = []

    def fill(self, numbers: np.ndarray) -> None:
        """Copy a batch's numbers to the memory that the graph reads."""
        self.numbers.copy_(pinned(numbers, self.stream.device), non_blocking=True)

    def _launched(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The embeddings and the gradients of the used weights, computed without a graph."""
        device = self.stream.device
        self.stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self.stream):
            computed = self._run()
            self.most_allocated = torch.cuda.memory_allocated(device)
            leaves = list(self.leaves.values())
            upstream = _fixed_like(computed)
            found = torch.autograd.grad(computed, leaves, upstream, allow_unused=True)
        torch.cuda.current_stream(device).wait_stream(self.stream)
        named = zip(self.leaves, found, strict=True)
        return computed.detach().clone(), {n: one for n, one in named if one is not None}

    def computes_as_launched(self, rounding: float) -> bool:
        """Whether a replay computes the same as without a graph, for this batch and noise."""
        device, totals = self.stream.device, [total for _, total in self.weights]
        in_use = [(total, total.clone()) for weight, total in self.weights if weight.grad is total]
        noise = torch.cuda.get_rng_state(device)
        embeddings, gradients = self._launched()
        torch.cuda.set_rng_state(noise, device)
        self.forward.replay()
        self.upstream.copy_(_fixed_like(self.upstream))
        self.backward.replay()
        is_right = _are_close([self.embeddings], [embeddings], rounding)
        is_right &= _are_close(totals, [*gradients.values()], rounding)
        for total, value in in_use:
            total.copy_(value)
        return is_right

    def capture(
        self, weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor], pool: Any
    ) -> None:
        """Capture both passes; the backward pass writes into `gradients`, by the weight's name."""
        self.weights = [(weights[name], gradients[name]) for name in self.used]
        self.forward = capture.captured(self._forward, pool=pool, stream=self.stream)
        self.backward = capture.captured(self._backward, pool=pool, stream=self.stream)

    def _forward(self) -> None:
        self._computed = [self._run()]
        self.embeddings.copy_(self._computed[0].detach())

    def _backward(self) -> None:
        # The list gives up the states, because the next graph uses the same memory.
        computed = self._computed.pop()
        used = [self.leaves[name] for name in self.used]
        found = torch.autograd.grad(computed, used, self.upstream)
        torch._foreach_copy_([total for _, total in self.weights], list(found))

    def _run(self) -> Tensor:
        transformer, leaves = self.transformer_input.transformer, self.leaves

        def call(**given: Any) -> Any:
            return functional_call(transformer, leaves, (), given)

        reader = replace(self.transformer_input, transformer=call)
        rows, bounds, ranges, counts, places = self.numbers.split(self.size.parts)
        given, layout = named_inputs(rows.view(3, -1)), Bounds(bounds.int(), self.size.longest)
        # Autocast would keep its casts in a cache that outlives this pass, so the cache is off.
        enabled = torch.is_autocast_enabled("cuda")
        with (
            torch.enable_grad(),
            torch.autocast("cuda", torch.bfloat16, enabled=enabled, cache_enabled=False),
        ):
            last, other = run_transformer(reader, given, layout)
            first = None if other is None else other[0]
            return pool_packed(last[0], ranges, counts, first).index_select(0, places)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: Tensor, graph: _Graph, use: _Use, inputs: int) -> Tensor:
        # A loss may outlive its step, so it refers to the graph only weakly: it must not keep the
        # memory that all graphs share.
        ctx.graph, ctx.use = weakref.ref(graph), use
        graph.forward.replay()
        return graph.embeddings[:inputs].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[None, ...]:
        graph: _Graph = ctx.graph()
        graph.upstream.zero_()
        graph.upstream[: len(upstream)] = upstream
        # The replay overwrites the gradients that an earlier pass of this step left, so they are
        # copied first.
        earlier = [
            (total, total.clone() if weight.grad is total else weight.grad)
            for weight, total in graph.weights
            if weight.grad is not None
        ]
        graph.backward.replay()
        for weight, total in graph.weights:
            weight.grad = total
        for total, gradient in earlier:
            total.add_(gradient)
        ctx.use = None
        return None, None, None, None
