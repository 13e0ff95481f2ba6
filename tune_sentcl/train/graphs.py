"""CUDA graphs of a transformer in training: one launch where a step would take a thousand.

On an H200 the launches of a step with 64 pairs take ten times as long as its kernels. A graph has
fixed shapes, so packed inputs are filled up to one of a few numbers of tokens, at most an eighth
more. The padding is a dummy sequence that no other token attends to and no loss reads.
"""

import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from tune_sentcl.errors import DeviceError, first_line
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.device import PINNING, free_memory, pinned, without_gc
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.packing import Bounds, Packing
from tune_sentcl.model.token_states import TransformerInput, run_transformer

_GRAPHED_ON = "cuda"
_STEPS = 8  # sizes an octave: an eighth more tokens at most
_SHORTEST = 64  # tokens that a block of the attention kernel takes anyway
_VARIABLE = "TUNE_SENTCL_GRAPHS"
_MOST_TOKENS = 8192  # a larger batch keeps a GPU busy, and memory is held twice
_ROOM = 3  # times the states of a forward pass: those of the graph, of a backward pass, and slack
_COPIES = 4  # of the weights: gradients here and in a backward pass, and the optimizer's moments
_MOST_GRAPHS = 32
_WARM_UPS = 2  # libraries allocate their workspaces in the first runs


@dataclass(frozen=True)
class Size:
    """The shape of a graph.

    Attributes:
        tokens: Of all inputs.
        inputs: Their number.
        longest: No input has more tokens.
    """

    tokens: int
    inputs: int
    longest: int

    @classmethod
    def of(cls, packing: Packing) -> "Size":
        """The smallest size that holds some inputs and what fills them up."""
        tokens, longest = _rounded(len(packing.tokens.ids)), _SHORTEST
        while longest < packing.longest:
            longest *= 2
        longest = min(longest, tokens)  # the kernel asks for no more
        filling = -(-(tokens - len(packing.tokens.ids)) // longest)
        most = -(-tokens // (_STEPS * longest))
        return cls(tokens, _rounded(len(packing.tokens) + max(filling, most)), longest)

    def bounds(self, packing: Packing) -> np.ndarray:
        """The bounds of the inputs and of what fills them up; further inputs are empty."""
        ends = packing.tokens.offsets
        filled = np.arange(ends[-1] + self.longest, self.tokens, self.longest)
        found = np.full(self.inputs + 1, self.tokens, dtype=np.int32)
        found[: len(ends)] = ends
        found[len(ends) : len(ends) + len(filled)] = filled
        return found


def _rounded(number: int) -> int:
    step = max(1, (1 << (number.bit_length() - 1)) // _STEPS)
    return -(-number // step) * step


class GraphedTransformer:
    """Runs an encoder's transformer from CUDA graphs, one for each size of a batch.

    The graphs share their memory: from a forward pass to its backward pass only one may be in
    use. A further forward pass in between is launched as usual.
    """

    def __init__(self, encoder: Encoder) -> None:
        named = encoder.transformer.named_parameters()
        self._weights = {name: weight for name, weight in named if weight.requires_grad}
        # The input for which autograd runs a backward pass. A weight will not do: its node of
        # autograd remembers a stream, and a capture must not meet a node of another stream.
        self._anchor = torch.zeros((), device=encoder.device, requires_grad=True)
        self._encoder = encoder
        self._size = sum(w.numel() * w.element_size() for w in self._weights.values())
        self._graphs: dict[tuple[object, ...], _Graph | None] = {}
        self._gradients: dict[str, Tensor] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._in_use: weakref.ref[_Use] | None = None

    def __call__(
        self, transformer_input: TransformerInput, given: Mapping[str, Tensor], packing: Packing
    ) -> tuple[Tensor, Tensor | None]:
        """As `run_transformer`."""
        busy = self._in_use is not None and self._in_use() is not None
        if busy or not torch.is_grad_enabled() or not self._weights:
            return run_transformer(transformer_input, given, packing)
        size = Size.of(packing)
        key = (size, transformer_input.layer, self._encoder.arithmetic)
        fits = size.tokens <= _MOST_TOKENS and len(self._graphs) < _MOST_GRAPHS
        if key not in self._graphs and fits:
            self._graphs[key] = self._captured(transformer_input, size, given, packing)
        graph, use = self._graphs.get(key), _Use()
        if graph is None:
            return run_transformer(transformer_input, given, packing)
        graph.fill(given, packing)
        self._in_use = weakref.ref(use)
        found = _Replay.apply(self._anchor, graph, use, len(packing.tokens.ids))  # type: ignore[no-untyped-call]
        return found[0], found[1] if len(found) > 1 else None

    def _captured(
        self,
        transformer_input: TransformerInput,
        size: Size,
        given: Mapping[str, Tensor],
        packing: Packing,
    ) -> "_Graph | None":
        """A graph of a size; None if the memory would be short."""
        device = self._encoder.device
        graph = _Graph(transformer_input, size, device)
        graph.fill(given, packing)
        # A resumed training captures anew, and must draw the same noise.
        # A collection may free another graph, which a capture forbids.
        with torch.random.fork_rng(devices=[device]), torch.enable_grad(), PINNING, without_gc():
            before = torch.cuda.memory_allocated(device)
            graph.warm_up(self._weights)
            states = graph.most_allocated - before
            if _ROOM * states + _COPIES * self._size > free_memory(device):
                return None
            for name in graph.used:
                self._gradients.setdefault(name, torch.zeros_like(self._weights[name]))
            try:
                graph.capture(self._weights, self._gradients, self._pool)
            except RuntimeError as error:
                # Torch's generator stays in its capture, so this process is of no use any more.
                text = f"a CUDA graph could not be captured: {first_line(error)}"
                raise DeviceError(f"{text}. {_VARIABLE}=0 trains without graphs") from error
        return graph

    def release(self) -> None:
        """Free the graphs and their memory."""
        self._graphs.clear()
        self._gradients.clear()


@contextmanager
def graphed(method: AnyMethod) -> Iterator[None]:
    """Train from CUDA graphs inside this block, where method, encoder and device allow it.

    Graphs are not used with `method.chunk`, because it computes the passes twice and in another
    order, nor with deterministic algorithms, because the free memory decides what is captured and
    this changes the noise of dropout, nor with TUNE_SENTCL_GRAPHS=0.
    """
    encoder = method.encoder
    if (
        not isinstance(encoder, Encoder)
        or encoder.device.type != _GRAPHED_ON
        or not encoder.packs
        or _host_reads(encoder.transformer.config)
        or os.environ.get(_VARIABLE) == "0"
        or torch.are_deterministic_algorithms_enabled()
        or getattr(method.config, "chunk", None) is not None
    ):
        yield
        return
    encoder.runner = GraphedTransformer(encoder)
    try:
        yield
    finally:
        encoder.drop_runner()


def _host_reads(config: Any) -> bool:
    """Whether the host reads positions in a pass; these rotations follow the longest input."""
    rotations = str(getattr(config, "rope_parameters", None))
    return "dynamic" in rotations or "longrope" in rotations


class _Use:
    """Lives from a forward pass to the end of its backward pass, or of its autograd graph."""


@dataclass
class _Graph:
    """The forward and the backward pass of one size."""

    transformer_input: TransformerInput
    size: Size
    device: torch.device
    stream: Any = field(init=False)
    leaves: dict[str, Tensor] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    most_allocated: int = 0
    given: dict[str, Tensor] = field(default_factory=dict)
    bounds: Tensor = field(init=False)
    states: list[Tensor] = field(default_factory=list)
    state_gradients: list[Tensor] = field(default_factory=list)
    weights: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    forward: torch.cuda.CUDAGraph = field(init=False)
    backward: torch.cuda.CUDAGraph = field(init=False)

    def __post_init__(self) -> None:
        inputs = self.size.inputs + 1
        self.stream = torch.cuda.Stream(self.device)
        self.bounds = torch.zeros(inputs, dtype=torch.int32, device=self.device)

    def fill(self, given: Mapping[str, Tensor], packing: Packing) -> None:
        """Copy a batch to where the graph reads it."""
        for name, values in given.items():
            if name not in self.given:
                self.given[name] = values.new_zeros(1, self.size.tokens)
            self.given[name][:, : values.shape[1]] = values
        bounds = pinned(self.size.bounds(packing), self.device)
        self.bounds.copy_(bounds, non_blocking=True)

    def warm_up(self, weights: Mapping[str, Tensor]) -> None:
        """Launch both passes, in which libraries allocate; note the weights that are used."""
        # Other tensors with the weights' memory, whose nodes of autograd are of this stream.
        self.leaves = {name: w.detach().requires_grad_() for name, w in weights.items()}
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            for _ in range(_WARM_UPS):
                states = self._run()
                self.most_allocated = torch.cuda.memory_allocated(self.device)
                self.state_gradients = [torch.zeros_like(state) for state in states]
                leaves = list(self.leaves.values())
                found = torch.autograd.grad(
                    states, leaves, self.state_gradients, allow_unused=True
                )
                self.used = [
                    n for n, one in zip(self.leaves, found, strict=True) if one is not None
                ]
                del states, found
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def capture(
        self, weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor], pool: Any
    ) -> None:
        """Capture both passes; the backward pass adds to `gradients`, by a weight's name."""
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        mode = {"pool": pool, "stream": self.stream, "capture_error_mode": "thread_local"}
        with torch.cuda.graph(self.forward, **mode):
            captured = self._run()
        with torch.cuda.graph(self.backward, **mode):
            used = [self.leaves[name] for name in self.used]
            found = torch.autograd.grad(captured, used, self.state_gradients)
            torch._foreach_add_([gradients[name] for name in self.used], list(found))
        self.weights = [(weights[name], gradients[name]) for name in self.used]
        self.states = [state.detach() for state in captured]

    def _run(self) -> list[Tensor]:
        transformer, leaves = self.transformer_input.transformer, self.leaves

        def call(**given: Any) -> Any:
            return functional_call(transformer, leaves, (), given)

        reader = replace(self.transformer_input, transformer=call)
        bounds = Bounds(self.bounds, self.size.longest)
        # A cache of casts would outlive the passes that it was made in.
        enabled = torch.is_autocast_enabled("cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=enabled, cache_enabled=False):
            found = run_transformer(reader, self.given, bounds)
        return [state for state in found if state is not None]


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _: Tensor, graph: _Graph, use: _Use, tokens: int) -> tuple[Tensor, ...]:
        ctx.graph, ctx.use = graph, use
        graph.forward.replay()
        return tuple(state[:, :tokens].clone() for state in graph.states)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[None, ...]:
        graph: _Graph = ctx.graph
        for slot, value in zip(graph.state_gradients, upstream, strict=True):
            slot.zero_()
            if value is not None:
                slot[:, : value.shape[1]] = value
        # A gradient that lies elsewhere comes from a pass that was launched as usual.
        fresh = [(weight, total) for weight, total in graph.weights if weight.grad is not total]
        if fresh:
            torch._foreach_zero_([total for _, total in fresh])
        graph.backward.replay()
        for weight, total in fresh:
            weight.grad = total if weight.grad is None else total.add_(weight.grad)
        ctx.use = None
        return None, None, None, None
