"""Checks of a GPU: its operations, CUDA graphs and memory. All together take about a minute."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, scaled_dot_product_attention

from tune_sentcl.arithmetic import Arithmetic, tensor_cores
from tune_sentcl.config import DataConfig, Pooling, TrialConfig, parse_dotted
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.errors import CaptureError, DeviceError, first_line
from tune_sentcl.methods import MethodInputs, build_method
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.device import free_memory, has_bf16, limit_memory
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.packing import Bounds, attend_by_bounds, packs_on
from tune_sentcl.model.tokens import Tokens
from tune_sentcl.train import capture, train
from tune_sentcl.train.graphs import GraphedTransformer
from tune_sentcl.train.optimizer import GraphedUpdate, update
from tune_sentcl.train.precision import computing_in
from tune_sentcl.tuning.mps import VARIABLE as MPS_VARIABLE
from tune_sentcl.tuning.mps import join

_SIZES = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4}
_SIZES |= {"intermediate_size": 256, "max_position_embeddings": 512, "vocab_size": 1000}
_DECODER = {"num_key_value_heads": 2, "head_dim": 32, "pad_token_id": 0, "bos_token_id": 1}
_DECODER |= {"eos_token_id": 2}
_WINDOWS = {"sliding_window": 32}
_MODERN: dict[str, Any] = {
    "local_attention": 32,
    "global_attn_every_n_layers": 2,
    "pad_token_id": 1,
}
_MODERN |= {"bos_token_id": None, "eos_token_id": None, "cls_token_id": 2, "sep_token_id": 3}
_KINDS: tuple[tuple[str, Pooling, dict[str, Any]], ...] = (
    ("bert", "mean", {}),
    ("bert", "first_last", {}),
    ("roberta", "cls", {}),
    ("modernbert", "mean", _MODERN),
    ("qwen3", "last", _DECODER),
    ("mistral", "last", _DECODER | _WINDOWS),
    ("gemma3_text", "mean", _DECODER | _WINDOWS),
)
_LENGTHS = ([3, 9, 17, 9, 2], [5] * 40, [60, 2], [30] * 90)
_ROUNDING: dict[Arithmetic, float] = {"fp32": 1e-4, "tf32": 1e-2, "bf16": 8e-2}
_MEDIUM = {"hidden_size": 512, "num_hidden_layers": 8, "intermediate_size": 2048}
_EPOCHS = 8  # an epoch has eight steps
_SHARE = 0.25  # of the GPU's memory, for each of two processes
_CLIENT_S = 120  # seconds after which a process that shares the GPU counts as failed


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check: The name of the check.
        passed: Whether the check passed; None if the finding is a fact.
        found: The measured value, or the error.
        means: What the user should do or expect if the check fails.
    """

    check: str
    passed: bool | None
    found: str
    means: str = ""

    def row(self) -> dict[str, str]:
        """The finding as a row of the printed table."""
        result = {True: "PASS", False: "FAIL", None: "INFO"}[self.passed]
        means = self.means if self.passed is False else ""
        return {"result": result, "check": self.check, "found": self.found, "means": means}


Findings = Iterator[Finding]
_OFF = f"set {CaptureError.variable}=0, which trains without CUDA graphs, and report the failure"


def check_gpu(device: torch.device) -> Findings:
    """Check a GPU; an error of a check becomes its finding, and a lost GPU ends the checks."""
    for part, means in _PARTS.items():
        try:
            with tensor_cores(device, allowed=False):
                yield from part(device)
        except Exception as error:  # noqa: BLE001 - an error of a check is its finding
            found = f"{type(error).__name__}: {first_line(error)}"
            yield Finding(part.__name__.strip("_"), False, found, means)
            if isinstance(error, DeviceError | getattr(torch, "AcceleratorError", DeviceError)):
                yield Finding("all further checks", False, "not run", "the GPU is lost")
                return


def _mps(device: torch.device) -> Findings:
    """Share the GPU between two processes; this check runs before this process begins CUDA."""
    if os.environ.get(MPS_VARIABLE) == "0":
        yield Finding("a shared GPU", None, f"trials take turns: {MPS_VARIABLE}=0 forbids MPS")
        return
    command = [sys.executable, "-c", "from tune_sentcl.gpu_check import mps_client; mps_client()"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    try:
        ends = [process.communicate(timeout=_CLIENT_S) for process in processes]
    finally:
        for process in processes:
            # A process that still runs would hold the GPU during all further checks.
            process.kill()
    for process, (out, error) in zip(processes, ends, strict=True):
        if process.returncode:
            # The process that checks may still be able to use the GPU, so the other checks run.
            lines = error.strip().splitlines() or [f"exit {process.returncode}"]
            found = f"a process that shares the GPU failed: {lines[-1]}"
            yield Finding("a shared GPU by MPS", False, found, _PARTS[_mps])
            return
        facts = json.loads(out.splitlines()[-1])
        if facts["without"]:
            yield Finding("a shared GPU", None, f"trials take turns: {facts['without']}")
            return
        share = facts["free"] / torch.cuda.get_device_properties(device).total_memory
        found = f"{facts['free'] / 2**30:.1f} GiB free for a quarter of the GPU"
        yield Finding("a shared GPU by MPS", 0.1 < share < 0.3, found, _PARTS[_mps])


def mps_client() -> None:
    """Share the GPU by MPS, compute with a CUDA graph, and print facts as JSON."""
    without = join(_SHARE, cuda_begun=False)
    limit_memory(_SHARE)
    device = torch.device("cuda")
    ones = torch.ones(64, 64, device=device)
    (product,) = _replayed(device, lambda: [ones @ ones])
    if float(product.sum()) != 64**3:
        raise DeviceError("a product from a graph is wrong")
    time.sleep(4)  # both processes use the GPU at the same time during this pause
    sys.stdout.write(f"{json.dumps({'without': without, 'free': free_memory(device)})}\n")


def _versions(device: torch.device) -> Findings:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
    yield Finding("device", None, f"{name}, torch {torch.__version__}")
    fast = "bf16" if has_bf16(device) else "fp32"
    yield Finding("precision", None, f"optimizer.precision = auto means {fast}")
    yield Finding("packed attention", packs_on(device), "torch's kernel", _PARTS[_versions])


def _operations(device: torch.device) -> Findings:
    """Compare each operation, run from a CUDA graph, with double precision on the CPU."""
    means, draws = _PARTS[_operations], torch.Generator().manual_seed(0)
    rows, upstream = torch.randn(512, 64, generator=draws), torch.randn(40, 64, generator=draws)
    ends = torch.arange(1, 41) * 12
    offsets = torch.stack([ends - 12, ends], 1).flatten()

    def sums(rows: Tensor, offsets: Tensor, upstream: Tensor) -> list[Tensor]:
        rows = rows.detach().requires_grad_()
        found = torch.segment_reduce(rows, "sum", offsets=offsets, unsafe=True)[::2]
        return [found.detach(), *torch.autograd.grad(found, rows, upstream)]

    yield _compared("sums of segments", device, sums, [rows, offsets, upstream], means)
    # torch's embedding gradient has one kernel for few tokens and another for many.
    for tokens in (2000, 8192):
        ids = torch.randint(0, 3000, (tokens,), generator=draws)
        slopes = torch.randn(tokens, 64, generator=draws)

        def vectors(ids: Tensor, slopes: Tensor) -> list[Tensor]:
            table = slopes.new_zeros(3000, 64).requires_grad_()
            return [*torch.autograd.grad(embedding(ids, table, 0), table, slopes)]

        name = f"gradients of {tokens} token vectors"
        yield _compared(name, device, vectors, [ids, slopes], means)
    given = [torch.randn(1, 4, 96, 32, generator=draws) for _ in range(3)]
    bounds = [0, 50, 51, 80, 96]

    def attended(*given: Tensor) -> list[Tensor]:
        parts = [part.detach().requires_grad_() for part in given]
        if parts[0].dtype == torch.float64:
            lengths = np.diff(bounds).tolist()
            split = zip(*(part.split(lengths, dim=2) for part in parts), strict=True)
            pieces = [scaled_dot_product_attention(*one).transpose(1, 2) for one in split]
            found = torch.cat(pieces, dim=1)
        else:
            layout = Bounds(places, 64)
            found = attend_by_bounds(parts, layout, 0.0, None, causal=False)
        return [found.detach(), *torch.autograd.grad(found, parts, torch.ones_like(found).cos())]

    places = torch.tensor(bounds, dtype=torch.int32, device=device)
    yield _compared("attention of packed inputs", device, attended, given, means)


def _compared(
    name: str,
    device: torch.device,
    compute: Callable[..., list[Tensor]],
    given: list[Tensor],
    means: str,
) -> Finding:
    sent = [part.to(device) for part in given]
    found = _replayed(device, lambda: compute(*sent))
    exact = compute(*(part.double() if part.is_floating_point() else part for part in given))
    error = _error(found, exact)
    return Finding(name, error < 1e-4, f"relative error {error:.1e}", means)


def _replayed(device: torch.device, call: Callable[[], list[Tensor]]) -> list[Tensor]:
    """Capture a call in a graph, replay the graph, and return the results."""
    results: list[Tensor] = []
    stream: Any = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream(device).wait_stream(stream)

    def kept() -> None:
        results[:] = call()

    with capture.undisturbed(device):
        graph = capture.captured(kept, stream=stream)
    graph.replay()
    return results


def _error(found: list[Tensor], expected: list[Tensor]) -> float:
    """The norm of the difference, relative to the norm of `expected`."""
    left, right = (
        torch.cat([one.detach().double().cpu().flatten() for one in side])
        for side in (found, expected)
    )
    return float((left - right).norm() / right.norm())


def _encoders(device: torch.device) -> Findings:
    """Compare gradients with and without CUDA graphs, for batches of several sizes, each twice."""
    kinds: list[Arithmetic] = ["fp32", "tf32", "bf16"] if has_bf16(device) else ["fp32"]
    for model, pooling, sizes in _KINDS:
        for kind in kinds:
            encoder = _encoder(device, model, pooling, **sizes)
            method = build_method(_config(), encoder, _inputs())
            batches = [_tokens(lengths, seed) for seed, lengths in enumerate(_LENGTHS)] * 2
            with computing_in(method, kind):
                launched = [_gradients(encoder, batch) for batch in batches]
                encoder.runner = runner = GraphedTransformer(encoder)
                replayed = [_gradients(encoder, batch) for batch in batches]
            error = max(map(_error, replayed, launched))
            made = sum(graph is not None for graph in runner._graphs.values())
            passed = error < _ROUNDING[kind] and made == len(_LENGTHS)
            found = f"relative error {error:.1e}, {made} of {len(_LENGTHS)} graphs"
            yield Finding(f"{model}, {pooling}, {kind}", passed, found, _PARTS[_encoders])
            encoder.drop_runner()


def _encoder(
    device: torch.device, kind: str, pooling: Pooling = "mean", dropout: float = 0.0, **more: Any
) -> Encoder:
    import transformers

    library: Any = transformers
    config = library.AutoConfig.for_model(kind, use_cache=False, **{**_SIZES, **more})
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout"):
        if hasattr(config, name):
            setattr(config, name, dropout)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        model = library.AutoModel.from_config(config, dtype=torch.float32)
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    return Encoder(model, build_toy()[1], pooling, 512).to(device).train()


def _tokens(lengths: list[int], seed: int = 0) -> Tokens:
    draws = np.random.default_rng(seed)
    return Tokens.of([draws.integers(5, 900, length).tolist() for length in lengths])


def _gradients(encoder: Encoder, batch: Tokens) -> list[Tensor]:
    encoder.zero_grad()
    embeddings = encoder(batch)
    slopes = torch.linspace(-1, 1, embeddings.shape[1], device=embeddings.device)
    (embeddings * slopes).square().sum().backward()
    weights = (weight.grad for weight in encoder.parameters() if weight.grad is not None)
    return [embeddings.detach(), *(gradient.clone() for gradient in weights)]


def _updates(device: torch.device) -> Findings:
    """Compare weights that optimizers update with and without CUDA graphs.

    In each third step, one weight has no gradient.
    """
    sgd = partial(torch.optim.SGD, momentum=0.9, nesterov=True)
    for name, kind in (("AdamW", torch.optim.AdamW), ("SGD", sgd)):
        ends = []
        for by in (update, GraphedUpdate(device)):
            draws = torch.Generator().manual_seed(1)
            weights = [nn.Parameter(torch.ones(size, size, device=device)) for size in (64, 3)]
            optimizer = kind(weights, lr=2**-7, fused=True)
            for step in range(9):
                for number, weight in enumerate(weights):
                    drawn = torch.randn(weight.shape, generator=draws).to(device)
                    weight.grad = drawn if number or step % 3 < 2 else None
                optimizer.param_groups[0]["lr"] = 2.0**-7 / (1 + step)
                by(optimizer, weights, 0.3)
            ends.append([weight.detach() for weight in weights])
        error = _error(*ends)
        found = f"relative error {error:.1e}"
        yield Finding(f"updates by {name}", error < 1e-5, found, _PARTS[_updates])


def _noise(device: torch.device) -> Findings:
    means, encoder = _PARTS[_noise], _encoder(device, "bert", dropout=0.1)
    encoder.runner = GraphedTransformer(encoder)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        noise, found = torch.cuda.get_rng_state(device), []
        for again in (True, False, True):
            if again:
                torch.cuda.set_rng_state(noise, device)
            found.append(_gradients(encoder, _tokens([20] * 30)))
    first, other, same = found
    error, repeats = _error(other, first), _error(same, first)
    yield Finding("each replay draws new dropout", error > 1e-3, f"{error:.1e} apart", means)
    yield Finding(
        "a restored state repeats its dropout", repeats < 1e-5, f"{repeats:.1e} apart", means
    )
    encoder.drop_runner()


def _memory(device: torch.device) -> Findings:
    means, encoder = _PARTS[_memory], _encoder(device, "bert", "mean", **_MEDIUM)
    torch.cuda.empty_cache()
    base, grown = torch.cuda.memory_reserved(device), []
    encoder.runner = GraphedTransformer(encoder)
    for inputs in (200, 150, 100, 60):
        loss = encoder(_tokens([24] * inputs)).sum()
        loss.backward()
        grown.append((torch.cuda.memory_reserved(device) - base) / 2**20)
    found = f"{grown[0]:.0f} MiB with the largest graph, {grown[-1]:.0f} with all graphs"
    yield Finding("graphs share memory", grown[-1] <= 1.3 * grown[0], found, means)
    encoder.drop_runner()  # this must free the memory even while the last loss exists
    kept = (torch.cuda.memory_reserved(device) - base) / 2**20
    found = f"{kept:.0f} of {grown[-1]:.0f} MiB stay in use"
    yield Finding("graphs give memory back", kept <= 0.3 * grown[-1], found, means)


def _training(device: torch.device) -> Findings:
    """Compare short trainings with CUDA graphs, without graphs, and resumed."""
    means, kinds = _PARTS[_training], ["fp32", "bf16"] if has_bf16(device) else ["fp32"]
    for kind in kinds:
        run = partial(_losses, device, _config(**{"optimizer.precision": kind}))
        replayed, fast, _ = run()
        launched, slow, _ = run(graphs=False)
        error = float(np.abs(np.subtract(replayed, launched) / launched).max())
        found = f"losses {error:.1e} apart; {fast:.2f} and {slow:.2f} ms a step"
        passed = error < (2e-3 if kind == "fp32" else 5e-2)
        yield Finding(f"a training from graphs and by launches, {kind}", passed, found, means)
    run = partial(_losses, device, _config(), dropout=0.1)
    whole, (first, _, state) = run()[0], run(until=5)
    rest = run(state=state)[0]
    error = float(np.abs(np.subtract([*first, *rest], whole) / whole).max())
    found = f"losses {error:.1e} apart"
    yield Finding("a resumed training", error < 1e-2, found, means)


def _config(**values: Any) -> TrialConfig:
    base = {"method.name": "scl", "encoder.checkpoint": "toy", "encoder.max_length": 64}
    base |= {"data.source": "toy", "data.limit": 512, "optimizer.epochs": _EPOCHS}
    return parse_dotted({**base, "optimizer.lr": 1e-4, **values}, "check --gpu")


def _inputs() -> MethodInputs:
    return MethodInputs(_config().encoder, torch.Generator().manual_seed(0))


def _losses(
    device: torch.device,
    config: TrialConfig,
    *,
    dropout: float = 0.0,
    graphs: bool = True,
    until: int | None = None,
    state: Any = None,
) -> tuple[list[float], float, Any]:
    """The losses of a training, its milliseconds a step, and its state after `until` steps."""
    rows = load_rows("labeled_pairs", DataConfig(source="toy", limit=512), None)
    method = build_method(config, _encoder(device, "bert", dropout=dropout), _inputs())
    method.heads.to(device)
    losses, start = [], time.perf_counter()
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        _graphs(allowed=graphs),
        closing(train(method, rows, config, state)) as steps,
    ):
        torch.manual_seed(5)
        for step in steps:
            losses.append(step.losses["loss"])
            if step.number == step.total // 3:
                # By this step, every batch size has been captured, so the time excludes captures.
                start = time.perf_counter()
            if step.number == until:
                return losses, 0.0, step.state()
    each = (time.perf_counter() - start) / max(1, len(losses) - len(losses) // 3)
    return losses, 1000 * each, None


@contextmanager
def _graphs(*, allowed: bool) -> Iterator[None]:
    before = os.environ.pop(CaptureError.variable, None)
    if not allowed:
        os.environ[CaptureError.variable] = "0"
    try:
        yield
    finally:
        os.environ.pop(CaptureError.variable, None)
        if before is not None:
            os.environ[CaptureError.variable] = before


_PARTS: dict[Callable[[torch.device], Findings], str] = {
    _mps: "set TUNE_SENTCL_MPS=0, or give each trial a whole GPU",
    _versions: (
        "inputs are padded, so that training takes longer; install the version of torch that "
        "constraints.txt names"
    ),
    _operations: f"{_OFF}; if the check fails then too, the GPU is not usable",
    _encoders: _OFF,
    _updates: _OFF,
    _noise: _OFF,
    _memory: f"trials may run out of memory; {_OFF}",
    _training: _OFF,
}
