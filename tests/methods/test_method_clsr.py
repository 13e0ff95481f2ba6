"""Method `clsr` against a restatement on the frozen embeddings, and what stays frozen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from method_samples import built, corpus_of_pairs, cosine, frozen_encoder, toy_pairs, whole
from method_samples import trial_config as config
from torch import Tensor

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.rows.corpus import Batch
from tune_sentcl.methods import AnyMethod
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.train import count_steps, train

PAIRS = toy_pairs(6)


def clsr(**method: Any) -> AnyMethod:
    return built(config(name="clsr", **method), frozen_encoder(PAIRS.sentences()))


def activations(method: Any) -> list[str]:
    return [type(layer.activation_function).__name__ for layer in method.encoder.tail]


def base_of(sentences: list[str]) -> Tensor:
    """The frozen embeddings by another way than the cache: the encoder itself."""
    return torch.from_numpy(load_encoder(resolve_checkpoint("toy"), "mean", 64).encode(sentences))


def tail_by_hand(method: AnyMethod, base: Tensor, output_relu: bool = True) -> Tensor:
    """e: Linear, ReLU, Linear, and a second ReLU where the paper's text is taken."""
    first, second = (layer.linear for layer in method.encoder.tail)
    hidden = (base @ first.weight.T + first.bias).clamp(min=0)
    found = hidden @ second.weight.T + second.bias
    return torch.relu(found) if output_relu else torch.as_tensor(found)


@pytest.mark.parametrize("output_relu", [True, False])
def test_equals_the_equations(output_relu: bool) -> None:
    method = clsr(temperature=0.2, hidden=20, width=24, output_relu=output_relu)
    projection: Any = method.heads
    vectors = []
    for side in ("sentence1", "sentence2"):
        e = tail_by_hand(method, base_of(PAIRS.texts(side)), output_relu)
        vectors += list(e @ projection.weight.T + projection.bias)
    losses = []
    for a, vector in enumerate(vectors):
        others = [i for i in range(len(vectors)) if i != a]
        shares = {i: torch.exp(cosine(vector, vectors[i]) / 0.2) for i in others}
        partner = (a + len(PAIRS)) % len(vectors)
        losses.append(-torch.log(shares[partner] / torch.stack(list(shares.values())).sum()))
    loss = method.loss(whole(PAIRS), np.random.default_rng(0))
    torch.testing.assert_close(loss.total, torch.stack(losses).mean(), rtol=1e-4, atol=1e-5)
    assert loss.parts == {"contrastive": loss.total}


def test_a_batch_is_its_own_rows() -> None:
    method = clsr()
    some = Batch(PAIRS, np.array([4, 1]))
    rows = [(PAIRS.texts("sentence1")[i], PAIRS.texts("sentence2")[i]) for i in some.rows]
    found = method.loss(some, np.random.default_rng(0)).total
    again = method.loss(whole(corpus_of_pairs(rows)), np.random.default_rng(1)).total
    torch.testing.assert_close(found, again)


@pytest.mark.parametrize(("output_relu", "last"), [(True, "ReLU"), (False, "Identity")])
def test_widths_and_activations_are_those_of_the_config(output_relu: bool, last: str) -> None:
    method = clsr(hidden=20, width=24, output_relu=output_relu)
    projection: Any = method.heads
    assert (method.encoder.dim, method.encoder.width) == (32, 24)
    assert projection.weight.shape == (24, 24)
    assert activations(method) == ["ReLU", last]


def test_the_tail_stays_at_test_and_the_projection_goes() -> None:
    method = clsr()
    sentences = PAIRS.sentences()
    expected = tail_by_hand(method, base_of(sentences)).detach()
    np.testing.assert_allclose(method.encoder.encode(sentences), expected, rtol=1e-4, atol=1e-5)
    projection: Any = method.heads
    with torch.no_grad():
        projection.weight.zero_()
    np.testing.assert_allclose(method.encoder.encode(sentences), expected, rtol=1e-4, atol=1e-5)


def training(**values: Any) -> TrialConfig:
    return parse_dotted(
        {
            "method.name": "clsr",
            "encoder.checkpoint": "toy",
            "encoder.pooling": "mean",
            "data.source": "toy",
            "data.order": "shuffled",
            "optimizer.name": "lars",
            "optimizer.lr": 0.5,
            "optimizer.batch_size": 32,
            "optimizer.epochs": 30,
            "optimizer.schedule": "cosine",
            **values,
        },
        "test",
    )


def test_lars_learns_while_the_transformer_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path))
    pairs = toy_pairs(96)
    encoder = frozen_encoder(pairs.sentences())
    assert encoder.cache.encoded == len(pairs.sentences())
    method = built(training(), encoder)
    assert {name.split(".")[0] for name, _ in encoder.named_parameters()} == {"tail"}
    base = encoder.base(pairs.sentences())
    draws = np.random.default_rng(0)
    before = method.loss(whole(pairs), draws).total.item()
    steps = list(train(method, pairs, training()))
    assert len(steps) == 90 and steps[-1].losses["loss.contrastive"] > 0
    # A loss of ln 191 = 5.25 knows nothing.
    assert before > 5.0 and method.loss(whole(pairs), draws).total.item() < 4.2
    assert encoder.cache.encoded == len(pairs.sentences())
    np.testing.assert_array_equal(encoder.base(pairs.sentences()), base)
    np.testing.assert_allclose(base, base_of(pairs.sentences()), rtol=1e-5, atol=1e-6)
    assert frozen_encoder(pairs.sentences()).cache.encoded == 0


def test_a_batch_larger_than_the_data_is_one_batch() -> None:
    pairs = toy_pairs(10)
    options = {"optimizer.batch_size": 512, "optimizer.epochs": 3, "data.drop_last": True}
    steps = list(train(clsr_on(pairs), pairs, training(**options)))
    assert [step.samples for step in steps] == [10, 20, 30]


def test_a_lone_pair_has_nothing_to_contrast_with() -> None:
    pairs = toy_pairs(33)
    assert count_steps(pairs, training(**{"data.drop_last": True})) == 30
    with pytest.raises(Exception, match=r"method clsr needs 2 rows or more in every batch"):
        count_steps(pairs, training())


def clsr_on(pairs: Any) -> AnyMethod:
    return built(training(), frozen_encoder(pairs.sentences()))
