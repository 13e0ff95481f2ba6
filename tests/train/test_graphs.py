"""CUDA graphs: what fills a batch up changes nothing, and replays train as launches do."""

import copy
import itertools
import weakref
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from architecture_samples import save_architecture
from gpu_stand_in import replay_as_on_a_gpu
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tune_sentcl.config import Pooling, TrialConfig, parse_dotted
from tune_sentcl.errors import CaptureError
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.device import deterministic
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.packing import Packing
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.train import capture, graphs, loop, train
from tune_sentcl.train.graphs import GraphedTransformer, Size, _Graph
from tune_sentcl.train.optimizer import GraphedUpdate, update
from tune_sentcl.trial import InputLoader, assemble, run

CPU = torch.device("cpu")


def _tokens(lengths: list[int], seed: int = 3) -> Tokens:
    draws = np.random.default_rng(seed)
    return Tokens.of([draws.integers(5, 40, length).tolist() for length in lengths])


@given(st.lists(st.integers(1, 200), min_size=1, max_size=300))
def test_a_size_holds_its_inputs_and_little_more(lengths: list[int]) -> None:
    packing = Packing(_tokens(lengths), CPU)
    size, bounds = Size.of(packing), Size.of(packing).bounds(packing)
    held = sum(lengths)
    assert held <= size.tokens <= held * 9 / 8 + 1
    assert max(lengths) <= size.longest <= min(max(64, 2 * max(lengths)), size.tokens)
    assert bounds[: len(lengths) + 1].tolist() == packing.tokens.offsets.tolist()
    widths = np.diff(bounds)
    assert len(widths) == size.inputs <= len(lengths) * 9 / 8 + size.tokens / 8 / size.longest + 3
    assert widths.min() >= 0 and widths.max() <= size.longest
    assert bounds[-1] == size.tokens


def test_few_sizes_serve_the_batches_of_a_training() -> None:
    """Each is captured once, which takes as long as a few steps."""
    draws = np.random.default_rng(0)
    drawn = ([*map(int, draws.integers(4, 30, 90))] for _ in range(200))
    assert len({Size.of(Packing(_tokens(lengths), CPU)) for lengths in drawn}) <= 4


@pytest.mark.parametrize("pooling", get_args(Pooling)[:-1])
@pytest.mark.parametrize("divisor", [None, 20, np.arange(20, 26)])
def test_replays_pool_as_launches_do(
    pooling: Pooling, divisor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own tokens alone, in the given order, also where nothing or much fills the batch up."""
    replayed = replay_as_on_a_gpu(monkeypatch)
    encoder = _no_dropout(Encoder(*build_toy(), pooling, 64).train())
    runner = GraphedTransformer(encoder)
    for lengths in ([3, 9, 17, 9, 2, 1], [1] * 6, [19, 9, 9, 9, 9, 9]):  # the last: 64 tokens
        tokens, found = _tokens(lengths), []
        for encoder.runner in (None, runner):
            encoder.zero_grad()
            embeddings = encoder(tokens, divisor)
            (
                embeddings * torch.linspace(-1, 1, embeddings.numel()).view_as(embeddings)
            ).sum().backward()
            weights = list(encoder.parameters())
            found.append(
                [embeddings.detach(), *(w.grad.clone() for w in weights if w.grad is not None)]
            )
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert replayed == 3 * ["_forward", "_backward"]


def _trial(**values: Any) -> TrialConfig:
    base = {
        "method.name": "scl",
        "encoder.checkpoint": "toy",
        "encoder.pooling": "mean",
        "encoder.max_length": 64,
        "data.source": "toy",
        "data.limit": 96,
        "optimizer.lr": 1e-3,
        "optimizer.batch_size": 16,
        "optimizer.epochs": 2,
    }
    return parse_dotted({**base, **values}, "test")


def _no_dropout(encoder: Encoder) -> Encoder:
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return encoder


def _grads(encoder: Encoder) -> list[Tensor]:
    return [w.grad.clone() for w in encoder.parameters() if w.grad is not None]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_parts_add_up_in_replays(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay overwrites what an earlier replay, or a launched pass, has left."""
    if device == "cpu":
        replay_as_on_a_gpu(monkeypatch)
    encoder = _no_dropout(Encoder(*build_toy(), "mean", 64).to(device).train())
    parts, sums = [_tokens([4, 7, 3], seed) for seed in range(4)], []
    for runner in (None, GraphedTransformer(encoder)):
        encoder.runner = runner
        encoder.zero_grad()
        for pair in (parts[:2], parts[2:]):  # the second of a pair is launched
            sum(encoder(part).square().sum() for part in pair).backward()
        sums.append(_grads(encoder))
    for left, right in zip(*sums, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


ROPE = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}


def _saved(more: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The knobs, with a checkpoint that is named by its architecture and sizes saved first."""
    made = more.get("encoder.checkpoint")
    if made is None:
        return more
    return {**more, "encoder.checkpoint": str(save_architecture(made[0], folder, **made[1]))}


def _losses(config: TrialConfig, until: int | None = None, state: Any = None) -> tuple[Any, Any]:
    inputs = InputLoader(None).load(config)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.random.fork_rng(devices=[] if device == "cpu" else [device]):
        method = assemble(config, inputs, device)
        if device == "cpu":  # whose noise a filled batch draws in another order
            _no_dropout(method.encoder)
        torch.manual_seed(5)
        losses, kept = [], None
        with closing(train(method, inputs.corpus, config, state)) as steps:
            for step in steps:
                losses.append(step.losses["loss"])
                if step.number == until:
                    kept = step.state()
                    break
    return losses, kept


# Rates that 32 bits hold, as the graphs do, so that an update is the same to the bit.
EXACT = {"optimizer.lr": 2**-10, "optimizer.warmup": 0.5, "optimizer.schedule": "linear"}
EXACT |= {"data.limit": 64, "optimizer.batch_size": 8, "optimizer.epochs": 4}


QUICK = [
    {},
    {"method.name": "conisi", "encoder.train_length": 24, "method.strategy": "o1"},
    {"encoder.checkpoint": ("ModernBert", {"local_attention": 16})},
    {"optimizer.name": "lars"},
]
LONG = [
    *({"method.name": name} for name in ("augment", "simcse", "cosent", "angle", "triplet")),
    {"method.name": "mnr", "method.head": "kept", "method.dims": [32, 8]},
    {"method.name": "gist", "method.guide": "toy"},
    {"method.name": "sbert", "method.divisor": "tokens", "encoder.lora_rank": 4},
    {"encoder.checkpoint": ("Qwen3", {}), "encoder.pooling": "last"},
    {"optimizer.max_grad_norm": 0.05, "encoder.pooling": "first_last"},
    {"encoder.freeze_layers": 1, "optimizer.name": "sgd"},
    {"optimizer.eps_added": "raw"},
]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU's own graphs are tested below")
@pytest.mark.parametrize(
    "more", [*QUICK, *(pytest.param(more, marks=pytest.mark.long) for more in LONG)], ids=str
)
def test_trainings_from_graphs_are_those_from_launches(
    more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all but the capture: what a graph reads, what it writes, and whose gradients they are."""
    config = _trial(**EXACT, **_saved(more, tmp_path))
    launches = config.optimizer.name == "lars" or "optimizer.eps_added" in more
    launched, _ = _losses(config, until=8)
    replayed = replay_as_on_a_gpu(monkeypatch)
    found, first = _losses(config, until=16)
    assert found[:8] == pytest.approx(launched, rel=1e-4)
    assert replayed.count("_backward") == 16
    assert replayed.count("<lambda>") == (0 if launches else 15)
    ends = [_losses(config, until=20, state=copy.deepcopy(first))[1]]
    with monkeypatch.context() as patch:
        patch.setattr(loop, "GraphedTransformer", int)  # updates are launched
        _, other = _losses(config, until=16)
        ends += [_losses(config, until=20, state=state)[1] for state in (first, None)]
    ends.append(_losses(config, until=20, state=other)[1])
    for one, same in itertools.pairwise(ends):
        assert one.plain == same.plain and one.tensors.keys() == same.tensors.keys()
        assert all(torch.equal(value, same.tensors[name]) for name, value in one.tensors.items())


@pytest.mark.parametrize("kind", [torch.optim.AdamW, partial(torch.optim.SGD, momentum=0.5)])
def test_weights_without_a_gradient_stay(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph updates what had a gradient when it was captured, so each such set has its own."""
    replayed = replay_as_on_a_gpu(monkeypatch)
    ends, graphed = [], GraphedUpdate(CPU)
    for by in (update, graphed):
        weights = [nn.Parameter(torch.ones(size, size)) for size in (2, 3)]
        optimizer = kind(weights, lr=2**-5, fused=True)
        draws = torch.Generator().manual_seed(0)
        for step, present in enumerate([(0, 1), (0,), (1,)] * 3):
            for index, weight in enumerate(weights):
                drawn = torch.randn(weight.shape, generator=draws)
                weight.grad = drawn if index in present else None
            optimizer.param_groups[0]["lr"] = 2.0**-step
            by(optimizer, weights, 0.5)
        moments = [value for state in optimizer.state.values() for value in state.values()]
        ends.append([*weights, *moments])
    assert len(replayed) == 6  # each of three sets is captured when it comes the second time
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU's own graphs are tested below")
@pytest.mark.parametrize(
    ("off", "note"),
    [
        *((why, "") for why in ("", "packed", "chunk", "variable", "deterministic", "rotations")),
        ("failed", "trained without CUDA graphs, because a capture had failed"),
        (
            "old",
            f"trained without CUDA graphs, because torch {torch.__version__} is older than 99",
        ),
    ],
)
def test_what_turns_graphs_off(
    off: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed = replay_as_on_a_gpu(monkeypatch)
    knobs: dict[str, dict[str, Any]] = {
        "packed": {"encoder.packed": False},
        "chunk": {"method.name": "cosent", "method.chunk": 4},
        "rotations": {"encoder.checkpoint": ("Llama", {"rope_parameters": ROPE})},
    }
    if off in ("variable", "failed"):
        monkeypatch.setenv("TUNE_SENTCL_GRAPHS", "0" if off == "variable" else off)
    if off == "old":
        monkeypatch.setattr(graphs, "_FIRST_TORCH", "99")
    config = _trial(**_saved(knobs.get(off, {}), tmp_path))
    inputs = InputLoader(None).load(config)
    method = assemble(config, inputs, "cpu")
    with deterministic(wanted=off == "deterministic"):
        step = next(train(method, inputs.corpus, config))
    assert bool(replayed) == (not off)
    assert step.notes == ((note,) if note else ())


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU's own memory is not so full")
def test_without_room_for_graphs_a_trial_launches_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replayed = replay_as_on_a_gpu(monkeypatch)
    monkeypatch.setattr(graphs, "free_memory", lambda _: 0)
    config = _trial()
    *_, last = run(config, InputLoader(None).load(config))
    assert last.final and "_forward" not in replayed
    assert last.run_columns["notes"].count("without CUDA graphs, because memory was short") == 1


def _spoil(
    monkeypatch: pytest.MonkeyPatch, pass_name: str, spoil: Callable[[_Graph, int], None]
) -> None:
    """Have replays of a pass do something more, given the graph and its number."""
    captured, numbers = capture.captured, itertools.count()

    def spoiled(call: Any, **mode: Any) -> Any:
        graph: Any = captured(call, **mode)
        if call.__name__ == pass_name:
            replay, owner, number = graph.replay, weakref.ref(call.__self__), next(numbers)

            def more() -> None:
                replay()
                spoil(owner(), number)  # type: ignore[arg-type]

            graph.replay = more
        return graph

    monkeypatch.setattr(capture, "captured", spoiled)


def _scale(graph: _Graph, by: float) -> None:
    graph.embeddings.mul_(by)


def _scale_a_gradient(graph: _Graph, by: float) -> None:
    graph.weights[-1][1].mul_(by)


@pytest.mark.skipif(torch.cuda.is_available(), reason="it replaces a GPU's own graphs")
@pytest.mark.parametrize(
    ("arithmetic", "by", "is_right"),
    [
        ("fp32", 1.0005, True),
        ("fp32", 1.01, False),
        ("fp32", float("nan"), False),
        ("tf32", 1.005, True),
        ("bf16", 1.03, True),
        ("bf16", 1.1, False),
    ],
)
@pytest.mark.parametrize(
    ("pass_name", "change"), [("_forward", _scale), ("_backward", _scale_a_gradient)]
)
def test_a_graph_that_computes_something_else_is_not_used(
    pass_name: str,
    change: Callable[[_Graph, float], None],
    arithmetic: Any,
    by: float,
    is_right: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With dropout, whose noise must not count as a difference."""
    replayed = replay_as_on_a_gpu(monkeypatch)
    _spoil(monkeypatch, pass_name, lambda graph, _: change(graph, by))
    encoder = Encoder(*build_toy(), "mean", 64).train()
    encoder.runner = runner = GraphedTransformer(encoder)
    encoder.arithmetic = arithmetic
    noise = torch.get_rng_state()
    for _ in range(2):
        encoder(_tokens([9, 4])).sum().backward()
    assert runner.notes == ([] if is_right else [graphs.DIFFERS])
    assert replayed == (2 * ["_forward", "_backward"] if is_right else [])
    spent = torch.get_rng_state()
    encoder.runner = None
    torch.set_rng_state(noise)
    if not is_right:
        for _ in range(2):
            encoder(_tokens([9, 4])).sum().backward()
        assert torch.equal(torch.get_rng_state(), spent), "a comparison takes no noise"


@pytest.mark.skipif(torch.cuda.is_available(), reason="it would spoil this process's generator")
def test_a_capture_without_memory_is_no_batch_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the training would go on without graphs, in a process that has lost its GPU."""
    captured = capture.captured
    replay_as_on_a_gpu(monkeypatch)
    full = Mock(side_effect=torch.OutOfMemoryError("CUDA error: out of memory"))
    for name, value in (("CUDAGraph", SimpleNamespace), ("graph", full)):
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(capture, "captured", captured)
    touched = Mock()
    monkeypatch.setattr(torch.cuda, "set_rng_state", touched)
    monkeypatch.setattr(Encoder, "drop_runner", touched)
    with pytest.raises(CaptureError, match="could not be captured: CUDA error: out of memory"):
        _losses(_trial())
    touched.assert_not_called()  # a further call could hide the error


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("simcse", {}),
        ("conisi", {"encoder.train_length": 24, "method.lambda": 1.0, "method.strategy": "o1"}),
        ("sbert", {"optimizer.name": "sgd"}),
        ("scl", {"optimizer.precision": "auto"}),
        ("scl", {"optimizer.max_grad_norm": 1.0, "encoder.pooling": "static_last"}),
    ],
)
def test_methods_train_from_graphs(method: str, more: dict[str, Any]) -> None:
    losses, _ = _losses(_trial(**{"method.name": method, "optimizer.epochs": 1, **more}))
    assert all(np.isfinite(losses))
