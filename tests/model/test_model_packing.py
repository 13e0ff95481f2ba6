"""Packed inputs against padded ones: the same embeddings, gradients and noise."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from gpu_stand_in import attend_as_on_a_gpu
from hypothesis import given
from hypothesis import strategies as st
from model_samples import byte_level_tokenizer
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from tune_sentcl.arithmetic import Arithmetic
from tune_sentcl.config import Pooling
from tune_sentcl.model.checkpoints.checkpoint_files import (
    PACKED_KINDS,
    padding_position,
    read_description,
)
from tune_sentcl.model.checkpoints.toy_encoder import build_toy
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.packing import (
    Bounds,
    Packing,
    attend_in_groups,
    attend_in_windows,
    packs_on,
)
from tune_sentcl.model.token_states import run_transformer
from tune_sentcl.model.tokens import Tokens

POOLINGS: tuple[Pooling, ...] = get_args(Pooling)[:-1]  # without `modules`
CPU = torch.device("cpu")
LENGTHS = (3, 9, 17, 9, 2, 12, 16, 8)  # several groups, some of which are padded
EQUAL = (7,) * 6


def _tokens(lengths: tuple[int, ...], *, types: bool = False, pad: int | None = None) -> Tokens:
    draws = np.random.default_rng(3)
    inputs = [draws.integers(5, 40, length).tolist() for length in lengths]
    if pad is not None:
        inputs[1][4] = pad
    kinds = [[int(2 * place >= size) for place in range(size)] for size in lengths]
    return Tokens.of(inputs, kinds if types else None)


SIZES: dict[str, Any] = {
    **{"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "head_dim": 8},
    **{"intermediate_size": 32, "max_position_embeddings": 40, "num_key_value_heads": 1},
    **{"attention_dropout": 0.0, "attention_probs_dropout_prob": 0.0},
}
WINDOW = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
GEMMA = {"sliding_window": 5, "sliding_window_pattern": 2, "query_pre_attn_scalar": 8}
KINDS: dict[str, dict[str, Any]] = {kind: {} for kind in sorted(PACKED_KINDS)} | {
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "electra": {"embedding_size": 8},
    "gemma3_text": GEMMA,
    "gemma3_text of EmbeddingGemma": {**GEMMA, "use_bidirectional_attention": True},
    "bert as a decoder": {"is_decoder": True},
    "mistral": {"sliding_window": max(LENGTHS) - 1},
    "modernbert": {"local_attention": 8, "global_attn_every_n_layers": 2},
    "qwen2": WINDOW,
    "qwen3": WINDOW,
    "qwen3 without windows": {},
}


def _kind(name: str, pad: int = 1) -> Encoder:
    """A small model of some kind, with random weights and a tokenizer that goes with it."""
    import transformers

    if name == "toy":
        return Encoder(*build_toy(), "mean", 64).eval()
    library: Any = transformers
    tokenizer = byte_level_tokenizer()
    sizes = {**SIZES, "vocab_size": len(tokenizer), "pad_token_id": pad, **KINDS.get(name, {})}
    tokens = {f"{token}_token_id": 2 for token in ("bos", "eos", "cls", "sep")}
    config = library.AutoConfig.for_model(name.split()[0], **sizes, **tokens, use_cache=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        transformer = library.AutoModel.from_config(config, dtype=torch.float32)
        for weight in transformer.parameters():  # the library's own are too small to tell apart
            weight.data = torch.randn_like(weight) * 0.3
    return Encoder(transformer, tokenizer, "mean", 32).eval()


def _both(
    encoder: Encoder, tokens: Tokens, divisor: int | np.ndarray | None = None
) -> Iterator[list[Tensor]]:
    """Embeddings and gradients, packed and then padded."""
    for packed in (True, False):
        encoder.packed = packed
        encoder.zero_grad()
        torch.manual_seed(5)
        found = encoder(tokens, divisor)
        weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(11))
        (found * weights.to(found.device)).sum().backward()
        grads = [w.grad.clone() for w in encoder.parameters() if w.grad is not None]
        assert grads
        yield [found.detach(), *grads]


def _assert_same(left: list[Tensor], right: list[Tensor]) -> None:
    for one, other in zip(left, right, strict=True):
        largest = max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * largest)


@pytest.mark.parametrize("types", [False, True])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_is_the_same(pooling: Pooling, types: bool) -> None:
    encoder = Encoder(*build_toy(), pooling, 64).double().eval()
    tokens = _tokens(LENGTHS, types=types)
    _assert_same(*_both(encoder, tokens))
    _assert_same(*_both(encoder, tokens, 20))
    _assert_same(*_both(encoder, tokens, np.arange(20, 28)))


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_the_same(name: str, gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As padded, and as the library's own plain attention, which takes one input after another.

    Some inputs are longer than the windows of kinds that have any.
    """
    if gpu:
        attend_as_on_a_gpu(monkeypatch)
    encoder, tokens = _kind(name).double(), _tokens(LENGTHS)
    assert encoder.packs
    for encoder.pooling in ("mean", "last"):
        _assert_same(*_both(encoder, tokens))
    plain = copy.deepcopy(encoder.transformer)
    plain.set_attn_implementation("eager")
    last = encoder(tokens)
    for row, ids in zip(last, tokens.lists(), strict=True):
        alone = plain(torch.tensor([ids])).last_hidden_state
        torch.testing.assert_close(row, alone[0, -1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_a_gpus_pass_of_every_kind_waits_for_no_copy(name: str) -> None:
    """On the device without data a wait for a number fails, and the kernel checks its arguments.

    What a CUDA graph records must neither wait nor read the host's memory.
    """
    encoder = _kind(name)
    encoder.transformer.to("meta")
    packing = Packing(_tokens(LENGTHS), torch.device("meta"))
    reader, bounds = encoder._transformer_input, Bounds(packing.bounds, 64)
    inputs = packing.inputs(padding_position(encoder.transformer))
    with Calls() as calls:
        states, _ = run_transformer(reader, inputs, bounds)
    assert states.shape == (1, sum(LENGTHS), 16)
    assert calls.seen and not calls.on_host


@pytest.mark.parametrize("pad", [0, 1, 6])
def test_roberta_s_padding_is_its_config_s_also_inside_a_sentence(pad: int) -> None:
    encoder = _kind("roberta", pad).double()
    for token in {pad, encoder.tokenizer.pad_token_id}:
        _assert_same(*_both(encoder, _tokens(LENGTHS, pad=token)))


def test_other_kinds_are_padded_and_the_search_says_so(tmp_path: Path) -> None:
    encoder, tokens = _kind("mpnet"), _tokens(LENGTHS)
    encoder.transformer.config.save_pretrained(tmp_path)
    (note,) = read_description("mine", tmp_path).notes
    assert note.startswith("its inputs are padded, because inputs of the model type mpnet")
    assert encoder.packed and not encoder.packs
    for row, ids in zip(encoder(tokens), tokens.lists(), strict=True):
        torch.testing.assert_close(encoder([ids])[0], row, rtol=1e-4, atol=1e-5)


def test_dropout_draws_the_same_where_nothing_is_padded() -> None:
    """Then the tokens are the same in the same order, so that one seed gives one noise."""
    encoder = _kind("toy").train()
    packed, padded = _both(encoder, _tokens(EQUAL))
    _assert_same(packed, padded)
    torch.manual_seed(6)
    assert not torch.allclose(encoder(_tokens(EQUAL)), padded[0], atol=1e-3)


def _parts(lengths: tuple[int, ...], heads: int = 2, width: int = 4) -> list[Tensor]:
    draws = torch.Generator().manual_seed(4)
    shape = (1, heads, sum(lengths), width)
    dtype = torch.float64
    return [torch.randn(shape, generator=draws, dtype=dtype).requires_grad_() for _ in range(3)]


def _with_gradients(attended: Tensor, parts: list[Tensor]) -> list[Tensor]:
    return [attended, *torch.autograd.grad(attended.square().sum(), parts)]


@pytest.mark.parametrize("lengths", [(5, 5, 5), (6, 5, 4)])
def test_attention_drops_as_the_padded_call_does(lengths: tuple[int, ...]) -> None:
    """One group is laid out as a padded batch is, so that one seed gives one noise."""
    packing = Packing(Tokens.of([[5] * length for length in lengths]), CPU)
    (group,) = packing.groups
    parts = _parts(lengths)
    torch.manual_seed(8)
    found = attend_in_groups(parts, packing, 0.3, 0.5, causal=False)[0]
    held = torch.arange(group.width) < torch.tensor(lengths)[:, None]
    padded = []
    for part in parts:
        rows = part.new_zeros(len(lengths), group.width, 2, 4)
        rows[held] = part[0].transpose(0, 1)
        padded.append(rows.transpose(1, 2))
    torch.manual_seed(8)
    query, key, value = padded
    expected = scaled_dot_product_attention(
        query, key, value, held[:, None, None], 0.3, scale=0.5
    ).transpose(1, 2)[held]
    _assert_same(_with_gradients(found, parts), _with_gradients(expected, parts))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(1, 20), st.booleans())
def test_windows_end_where_their_input_does(lengths: list[int], window: int, causal: bool) -> None:
    packing = Packing(Tokens.of([[5] * length for length in lengths]), CPU)
    parts = _parts(tuple(lengths))
    found = attend_in_windows(parts, packing, 0.0, 0.5, causal, window)
    places = torch.arange(sum(lengths))
    inputs = torch.bucketize(places, packing.bounds[1:].long(), right=True)
    distance = places[:, None] - places
    seen = (inputs[:, None] == inputs) & (distance.abs() < window)
    query, key, value = parts
    expected = scaled_dot_product_attention(
        query, key, value, seen & (distance >= 0) if causal else seen, scale=0.5
    ).transpose(1, 2)
    _assert_same(_with_gradients(found, parts), _with_gradients(expected, parts))


def test_torch_has_the_kernel_that_packing_calls_on_a_gpu() -> None:
    """Its name is private; where a release of torch changes its arguments, a GPU pads."""
    assert packs_on(torch.device("cuda"))
    assert packs_on(CPU)
    assert not packs_on(torch.device("mps"))


class Calls(TorchDispatchMode):
    """The calls of a block, by name, and those that read the host's memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []
        self.on_host: list[str] = []

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(call))
        tensors = [one for one in args if isinstance(one, Tensor)]
        self.on_host += [str(call) for one in tensors if one.device.type == "cpu"]
        return call(*args, **(kwargs or {}))


def test_a_batch_is_laid_out_without_a_wait_for_the_device() -> None:
    """Where a number is put at indices, torch copies it from the host's pageable memory."""
    packing = Packing(_tokens(LENGTHS), torch.device("meta"))
    states = torch.empty(1, sum(LENGTHS), 4, device="meta")
    with Calls() as calls:
        laid, mask = packing.padded_states(states)
    assert (laid.shape, mask.shape) == ((len(LENGTHS), max(LENGTHS), 4), laid.shape[:2])
    assert calls.seen and not [call for call in calls.seen if "index_put" in call]


@pytest.mark.parametrize("divisors", [(None, None), (17, 20)])
def test_parts_encoded_together_are_as_by_themselves(divisors: tuple[int | None, ...]) -> None:
    encoder = _kind("toy")
    parts = (_tokens(LENGTHS), _tokens((4, 6), types=True))
    apart = [encoder(part, divisor) for part, divisor in zip(parts, divisors, strict=True)]
    for encoder.packed in (True, False):
        _assert_same(list(encoder.together(parts, divisors)), apart)


def _trains_in(encoder: Encoder, arithmetic: Arithmetic) -> Encoder:
    encoder.train().arithmetic = arithmetic
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return encoder


def _distance(found: list[Tensor], expected: list[Tensor]) -> float:
    one, other = (torch.cat([part.flatten() for part in parts]) for parts in (found, expected))
    return float((one - other).norm() / other.norm())


TODAY = ("modernbert", "qwen3", "gemma3_text of EmbeddingGemma")


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("name", ["toy", *TODAY])
def test_bf16_packs_too(name: str, gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's kernel takes queries, keys and values of one type alone."""
    encoder, tokens = _kind(name), _tokens(LENGTHS)
    full, _ = _both(encoder, tokens)
    if gpu:
        attend_as_on_a_gpu(monkeypatch)
    packed, padded = _both(_trains_in(encoder, "bf16"), tokens)
    assert packed[0].dtype == torch.float32
    assert _distance(packed[:1], full[:1]) < 0.05
    # Of all gradients together: how far a single number is off depends on the processor.
    assert _distance(packed[1:], padded[1:]) < 0.05
    assert _distance(packed[1:], full[1:]) < 0.1


def test_an_input_without_a_token_is_padded() -> None:
    encoder = _kind("toy")
    found = encoder(Tokens.of([[5, 6], []]))
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found[0], encoder(Tokens.of([[5, 6]]))[0], rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "arithmetic"),
    [*((name, "fp32") for name in ("toy", *KINDS)), *((name, "bf16") for name in ("toy", *TODAY))],
)
def test_a_gpu_packs_as_the_cpu_does(name: str, arithmetic: Arithmetic) -> None:
    encoder, tokens = _trains_in(_kind(name), "fp32"), _tokens(LENGTHS)
    expected, _ = _both(encoder, tokens)
    packed, padded = _both(_trains_in(encoder.to("cuda"), arithmetic), tokens)
    scale = max(float(exact.abs().max()) for exact in expected)
    bound = 0.1 * scale if arithmetic == "bf16" else 1e-4 * scale
    for one, other, exact in zip(packed, padded, expected, strict=True):
        torch.testing.assert_close(one.cpu(), exact, rtol=0, atol=bound)
        torch.testing.assert_close(one, other, rtol=0, atol=bound)
