"""Method `conisi` against a restatement of the paper's equations, sentence by sentence."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from method_samples import (
    CLS,
    SENTENCES,
    SEP,
    Seen,
    batch_of_sentences,
    built,
    slow_info_nce,
    toy_encoder,
)
from method_samples import trial_config as config
from torch import Tensor

from tune_sentcl.methods import AnyMethod, StepLoss
from tune_sentcl.methods.conisi import other_rows, replace_subwords
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.model.tokenizing import plain_vocabulary

Ids = list[list[int]]


def conisi(model: Encoder, **method: Any) -> AnyMethod:
    made = built(config(name="conisi", **method), model)
    norm = heads_of(made).predictor[1]
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():  # a fresh norm has scale 1 and shift 0, and would hide their place
        norm.weight.copy_(1 + torch.rand(32, generator=generator))
        norm.bias.copy_(torch.randn(32, generator=generator))
    return made


def heads_of(method: AnyMethod) -> Any:
    """An `InteractionHead`, whose parts the type checker does not know."""
    return method.heads


def step(method: AnyMethod) -> StepLoss:
    return method.loss(batch_of_sentences(), np.random.default_rng(7))


def content_of(model: Encoder) -> Ids:
    return [ids[1:-1] for ids in model.tokenizer(list(SENTENCES))["input_ids"]]


def states(model: Encoder, inputs: list[tuple[list[int], list[int]]]) -> Tensor:
    """[CLS] of the last layer, each input by itself."""
    found = []
    for ids, types in inputs:
        output = model.transformer(
            input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])
        )
        found.append(output.last_hidden_state[0, 0])
    return torch.stack(found)


def single_inputs(contents: Ids) -> list[tuple[list[int], list[int]]]:
    return [([CLS, *x, SEP], [0] * (len(x) + 2)) for x in contents]


def pair_inputs(contents: Ids, others: Ids) -> list[tuple[list[int], list[int]]]:
    return [
        ([CLS, *x, SEP, *c, SEP], [0] * (len(x) + 2) + [1] * (len(c) + 1))
        for x, c in zip(contents, others, strict=True)
    ]


def restated(method: AnyMethod, composed: Ids) -> tuple[Tensor, Tensor]:
    """Both terms for given sentences c."""
    model, options = method.encoder, method.config
    contents = content_of(model)
    groups = [
        states(model, single_inputs(contents)),
        states(model, pair_inputs(contents, contents)),
        states(model, pair_inputs(contents, composed)),
    ]
    heads = heads_of(method)
    linear, norm, _ = heads.predictor
    lines = [group @ linear.weight.T + linear.bias for group in groups]
    together = {
        "separate": lines,
        "joint": 3 * [torch.cat(lines)],
        "pairs": [lines[0], *2 * [torch.cat(lines[1:])]],
    }
    hidden = []
    for line, known in zip(lines, together[options.batch_norm], strict=True):
        mean = known.sum(dim=0) / len(known)
        variance = ((known - mean) ** 2).sum(dim=0) / len(known)  # biased
        scaled = (line - mean) / torch.sqrt(variance + 1e-5) * norm.weight + norm.bias
        hidden.append(torch.where(scaled > 0, scaled, torch.exp(scaled) - 1))
    contrast = slow_info_nce(hidden[0], hidden[1], options.temperature)
    doubled, other = (h @ heads.score.weight.T + heads.score.bias for h in hidden[1:])
    shares = torch.exp(doubled) / (torch.exp(doubled) + torch.exp(other))
    return contrast, -torch.log(shares).mean()


@pytest.mark.parametrize("batch_norm", ["pairs", "joint", "separate"])
@pytest.mark.parametrize("interaction", ["scalar", "elementwise"])
def test_equals_the_equations(interaction: str, batch_norm: str) -> None:
    model = toy_encoder("cls", train_length=32)
    method = conisi(
        model, temperature=0.3, lambda_=0.3, interaction=interaction, batch_norm=batch_norm
    )
    with torch.no_grad():
        heads_of(method).score.weight.mul_(
            20
        )  # as drawn, the scores are near 0 and the loss near ln2
    loss = step(method)
    contents = content_of(model)
    others = other_rows(len(contents), np.random.default_rng(7))
    contrast, interactive = restated(method, [contents[row] for row in others])
    torch.testing.assert_close(loss.parts["contrastive"], contrast, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss.parts["interactive"], interactive, rtol=1e-4, atol=1e-5)
    assert abs(float(interactive.detach()) - math.log(2)) > 0.01
    total = 0.7 * contrast + 0.3 * interactive
    torch.testing.assert_close(loss.total, total, rtol=1e-4, atol=1e-5)
    assert loss.rates == {}
    assert heads_of(method).score.out_features == {"scalar": 1, "elementwise": 32}[interaction]


@pytest.mark.parametrize(("weight", "batch_norm"), [(0.0, "separate"), (1.0, "pairs")])
def test_a_weight_of_0_leaves_the_term_out_and_is_the_limit(
    weight: float, batch_norm: str
) -> None:
    """But for what shares its pass through the head with what is left out."""
    model = toy_encoder("cls", train_length=32)
    both = step(conisi(model, lambda_=0.5, batch_norm=batch_norm))
    seen = Seen(model)
    alone = step(conisi(model, lambda_=weight, batch_norm=batch_norm))
    assert list(alone.parts) == [["contrastive", "interactive"][int(weight)]]
    (kept,) = alone.parts
    assert len(seen.passes) == 2  # of the three kinds of input
    torch.testing.assert_close(alone.total, both.parts[kept], rtol=1e-6, atol=1e-6)


def test_sentences_go_in_alone_doubled_and_composed() -> None:
    model = toy_encoder("cls", train_length=32)
    seen = Seen(model)
    step(conisi(model))
    contents = content_of(model)
    others = other_rows(len(contents), np.random.default_rng(7))
    composed = [contents[row] for row in others]
    expected = [
        pair_inputs(contents, contents),
        single_inputs(contents),
        pair_inputs(contents, composed),
    ]
    assert seen.passes == expected
    # What the tokenizer itself makes of a doubled sentence.
    made = model.tokenizer(list(SENTENCES), list(SENTENCES))
    assert seen.passes[0] == list(zip(made["input_ids"], made["token_type_ids"], strict=True))


@pytest.mark.parametrize(("share", "expected"), [(None, 0.15), (0.5, 0.5)])
def test_o1_composes_a_sentence_with_itself_under_replaced_subwords(
    share: float | None, expected: float
) -> None:
    model = toy_encoder("cls", train_length=32)
    seen = Seen(model)
    step(conisi(model, strategy="o1", share=share))
    draws, vocabulary = np.random.default_rng(7), plain_vocabulary(model.tokenizer)
    other_rows(len(SENTENCES), draws)  # drawn for every strategy
    contents = content_of(model)
    composed = [replace_subwords(x, expected, vocabulary, draws) for x in contents]
    assert seen.passes[2] == pair_inputs(contents, composed)


def test_the_heads_start_from_simcses_draws_and_are_dropped_at_test() -> None:
    model = toy_encoder("cls", train_length=32)
    before = model.encode(SENTENCES)
    method = built(config(name="conisi", interaction="elementwise"), model)
    for layer in (heads_of(method).predictor[0], heads_of(method).score):
        assert not layer.bias.any()
        assert float(layer.weight.detach().std()) == pytest.approx(0.02, rel=4 / 45)
    step(method).total.backward()
    with torch.no_grad():
        for weight in method.heads.parameters():
            weight.add_(1.0)
    np.testing.assert_array_equal(model.encode(SENTENCES), before)
    assert not set(method.heads.parameters()) & set(model.parameters())
