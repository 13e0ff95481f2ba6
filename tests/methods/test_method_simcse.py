"""Method `simcse` against a restatement sentence by sentence."""

import numpy as np
import pytest
import torch
from method_samples import SENTENCES, batch_of_sentences, built, slow_info_nce, toy_encoder
from method_samples import trial_config as config
from torch import Tensor

from tune_sentcl.config import Pooling
from tune_sentcl.model.encoder import Encoder


def one_by_one(model: Encoder, pooling: Pooling) -> Tensor:
    rows = []
    for ids in model.tokenize(SENTENCES):
        states = model.transformer(input_ids=torch.tensor([ids])).last_hidden_state[0]
        rows.append(states[0] if pooling == "cls" else states.mean(dim=0))
    return torch.stack(rows)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_without_dropout_the_twins_are_equal_and_the_loss_is_known(pooling: Pooling) -> None:
    model = toy_encoder(pooling)
    method = built(config(name="simcse", temperature=0.5), model)
    loss = method.loss(batch_of_sentences(), np.random.default_rng(0))
    layer = method.heads.layer
    assert isinstance(layer, torch.nn.Linear)
    hidden = torch.tanh(one_by_one(model, pooling) @ layer.weight.T + layer.bias)
    torch.testing.assert_close(loss.total, slow_info_nce(hidden, hidden, 0.5))
    assert loss.parts == {"contrastive": loss.total} and loss.rates == {}


def test_both_twins_go_through_one_pass_under_dropout_of_their_own() -> None:
    model = toy_encoder("cls", dropout=0.1)
    seen: list[Tensor] = []
    model.register_forward_hook(lambda _module, _args, output: seen.append(output))
    method = built(config(name="simcse"), model)
    torch.manual_seed(0)
    loss = method.loss(batch_of_sentences(), np.random.default_rng(0))
    (states,) = seen
    first, second = states.chunk(2)
    assert len(first) == len(SENTENCES)
    assert not torch.isclose(first, second).all(dim=1).any()
    anchors, candidates = method.heads(states).chunk(2)
    expected = slow_info_nce(anchors, candidates, 0.05)
    torch.testing.assert_close(loss.total, expected, rtol=1e-4, atol=1e-5)


def test_long_sentences_are_cut_to_the_training_length() -> None:
    model = toy_encoder("cls", train_length=5)
    seen: list[list[int]] = []
    model.register_forward_pre_hook(lambda _module, args: seen.extend(args[0].lists()))
    built(config(name="simcse"), model).loss(batch_of_sentences(), np.random.default_rng(0))
    assert max(map(len, seen)) == 5
    assert seen == 2 * model.tokenize(SENTENCES)


def test_the_head_starts_from_simcses_draws_and_is_dropped_at_test() -> None:
    model = toy_encoder("cls")
    before = model.encode(SENTENCES)
    method = built(config(name="simcse"), model)
    layer = method.heads.layer
    assert isinstance(layer, torch.nn.Linear)
    assert layer.weight.shape == (32, 32) and not layer.bias.any()
    # Of 1024 draws: the mean within four standard errors, the deviation too.
    assert abs(float(layer.weight.detach().mean())) < 4 * 0.02 / 32
    assert float(layer.weight.detach().std()) == pytest.approx(0.02, rel=4 / 45)
    with torch.no_grad():
        layer.weight.mul_(100)
    np.testing.assert_array_equal(model.encode(SENTENCES), before)
    heads = set(method.heads.parameters())
    assert not heads & set(model.parameters())
