"""The training loop against a plain restatement, and what it refuses."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from model_samples import toy_rows
from torch.nn.functional import cross_entropy

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.methods import AnyMethod, MethodInputs, build_method
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.train import train


def trial(**values: Any) -> TrialConfig:
    base = {
        "method.name": "scl",
        "method.lambda": 0.4,
        "method.temperature": 0.5,
        "encoder.checkpoint": "toy",
        "encoder.max_length": 64,
        "data.source": "toy",
        "optimizer.lr": 1e-3,
        "optimizer.batch_size": 16,
    }
    return parse_dotted({**base, **values}, "test")


def undropped() -> Encoder:
    encoder = load_encoder(resolve_checkpoint("toy"), "mean_without_cls", 64)
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return encoder


def built(config: TrialConfig, encoder: Encoder) -> AnyMethod:
    generator = torch.Generator().manual_seed(3)
    return build_method(config, encoder, MethodInputs(config.encoder, generator))


def restated(encoder: Encoder, head: torch.nn.Module, config: TrialConfig) -> None:
    """One epoch of SCL as its authors' code does it: slices, two passes, loops, AdamW by hand."""
    corpus = toy_rows(80)
    columns = (corpus.texts("premise"), corpus.texts("hypothesis"))
    rows = list(zip(*columns, corpus.numbers("label").tolist(), strict=True))
    weights = [*encoder.parameters(), *head.parameters()]
    first = [torch.zeros_like(w) for w in weights]
    second = [torch.zeros_like(w) for w in weights]
    total = math.ceil(len(rows) / 16)
    warmup = int(0.4 * total)
    for number, start in enumerate(range(0, len(rows), 16)):
        batch = rows[start : start + 16]
        sides = []
        for side in (0, 1):
            ids = encoder.tokenize([row[side] for row in batch])
            longest = max(map(len, ids))
            tokens = torch.tensor([[*i, *[0] * (longest - len(i))] for i in ids])
            mask = torch.tensor([[1] * len(i) + [0] * (longest - len(i)) for i in ids])
            states = encoder.transformer(input_ids=tokens, attention_mask=mask).last_hidden_state
            sides.append((states * mask[..., None])[:, 1:].sum(dim=1) / (longest - 1))
        u, v = sides
        labels = torch.tensor([row[2] for row in batch])
        entropy = cross_entropy(head(u, v), labels)
        losses = []
        for i, (premise, _, label) in enumerate(batch):
            if label != 0:
                continue
            similar = [torch.dot(u[i], v[j]) / 0.5 for j in range(len(batch))]
            log_sum = torch.logsumexp(torch.stack(similar), dim=0)
            own = [j for j, row in enumerate(batch) if row[0] == premise and row[2] == 0]
            losses.append(-torch.stack([similar[j] - log_sum for j in own]).mean())
        contrast = torch.stack(losses).mean() if losses else torch.zeros(())
        loss = 0.6 * entropy + 0.4 * contrast
        # None where a weight plays no part (the last token type, positions beyond the longest).
        gradients: list[torch.Tensor | None] = list(
            torch.autograd.grad(loss, weights, allow_unused=True)
        )
        rate = 1e-3 * (number / warmup if number < warmup else 1.0)
        with torch.no_grad():
            for w, g, m, s in zip(weights, gradients, first, second, strict=True):
                if g is None:
                    continue
                m.mul_(0.9).add_(0.1 * g)
                s.mul_(0.999).add_(0.001 * g * g)
                corrected = m / (1 - 0.9 ** (number + 1))
                scale = (s / (1 - 0.999 ** (number + 1))).sqrt() + 1e-6
                w.sub_(rate * corrected / scale)


def test_a_whole_trial_equals_the_plain_restatement() -> None:
    separate = {"encoder.share_duplicates": False}
    config = trial(**separate, **{"data.limit": 80, "optimizer.warmup": 0.4})
    ours, theirs = undropped(), undropped()
    methods = [built(config, encoder) for encoder in (ours, theirs)]
    # AdamW divides by the size of a gradient, also of one that is nothing but rounding.
    for method in methods:
        method.encoder.double()
        method.heads.double()
    steps = list(train(methods[0], toy_rows(80), config))
    assert [step.number for step in steps] == [1, 2, 3, 4, 5]
    theirs.train()
    restated(theirs, methods[1].heads, config)
    before = undropped().state_dict()
    moved = 0.0
    for name, weight in ours.state_dict().items():
        np.testing.assert_allclose(weight, theirs.state_dict()[name], rtol=0, atol=1e-5)
        moved = max(moved, float((weight - before[name]).abs().max()))
    assert moved > 1e-3  # the comparison is of trained weights
    for ours_head, theirs_head in zip(
        methods[0].heads.parameters(), methods[1].heads.parameters(), strict=True
    ):
        np.testing.assert_allclose(ours_head.detach(), theirs_head.detach(), rtol=0, atol=1e-5)


def test_clipping_bounds_the_gradient() -> None:
    moved = []
    for clip in ({}, {"optimizer.max_grad_norm": 1e-8}):
        config = trial(**{"data.limit": 16, "optimizer.warmup": 0.0, "optimizer.eps": 1.0}, **clip)
        encoder = undropped()
        weight = encoder.get_parameter("transformer.embeddings.LayerNorm.weight")
        before = weight.detach().clone()
        list(train(built(config, encoder), toy_rows(16), config))
        moved.append(float((weight.detach() - before).abs().max()))
    assert moved[1] < 1e-6 < moved[0]


def test_bf16_runs_the_forward_pass_in_bf16_and_keeps_weights_in_fp32() -> None:
    config = trial(**{"data.limit": 32, "optimizer.precision": "bf16"})
    encoder = undropped()
    seen: set[torch.dtype] = set()
    layer = next(m for m in encoder.modules() if isinstance(m, torch.nn.Linear))
    layer.register_forward_hook(lambda _module, _args, output: seen.add(output.dtype))
    method = built(config, encoder)
    steps = list(train(method, toy_rows(32), config))
    assert seen == {torch.bfloat16}
    assert {weight.dtype for weight in encoder.parameters()} == {torch.float32}
    assert math.isfinite(steps[-1].losses["loss"])


def test_a_loss_that_is_no_number_is_named() -> None:
    config = trial(**{"data.limit": 48, "optimizer.lr": 1e30, "optimizer.warmup": 0.0})
    with pytest.raises(NonFiniteError, match=r"loss must be finite, but is nan at step"):
        list(train(built(config, undropped()), toy_rows(48), config))
