"""Methods simcse, clsr and none against restatements sentence by sentence."""

from typing import Any

import numpy as np
import pytest
import torch
from method_samples import (
    SENTENCES,
    batch_of_sentences,
    built,
    corpus_of_sentences,
    cosine,
    frozen_encoder,
    slow_info_nce,
    toy_encoder,
    toy_pairs,
    whole,
)
from method_samples import trial_config as config
from sklearn.decomposition import PCA
from torch import Tensor

from tune_sentcl.config import Pooling
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.toy import toy_nli
from tune_sentcl.errors import ConfigError, DataError
from tune_sentcl.methods import AnyMethod
from tune_sentcl.methods.none import moments
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.train import count_steps, train


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


PAIRS = toy_pairs(6)


def clsr(**method: Any) -> AnyMethod:
    return built(config(name="clsr", **method), frozen_encoder(PAIRS.sentences()))


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
def test_equals_the_equations_and_keeps_the_tail_alone(output_relu: bool) -> None:
    method = clsr(temperature=0.2, hidden=20, width=24, output_relu=output_relu)
    projection: Any = method.heads
    assert (method.encoder.dim, method.encoder.width) == (32, 24)
    tails, vectors = [], []
    for side in ("sentence1", "sentence2"):
        e = tail_by_hand(method, base_of(PAIRS.texts(side)), output_relu)
        tails.append(e.detach())
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
    with torch.no_grad():
        projection.weight.zero_()
    texts = [*PAIRS.texts("sentence1"), *PAIRS.texts("sentence2")]
    encoded = method.encoder.encode(texts)
    np.testing.assert_allclose(encoded, torch.cat(tails), rtol=1e-4, atol=1e-5)


CORPUS = corpus_of_sentences(sorted({row["premise"] for row in toy_nli().to_pylist()}))
DIRECTIONS = 31  # of 32: a fresh LayerNorm makes the numbers of an embedding sum to 0


def whitened(dim: int | None = None, corpus: Corpus = CORPUS) -> AnyMethod:
    trial = config(name="none", whitening=True, whitening_dim=dim)
    method = built(trial, frozen_encoder(corpus.texts("text")))
    assert list(train(method, corpus, trial)) == []  # it has no steps
    assert count_steps(corpus, trial) == 0
    return method


@pytest.mark.parametrize("dim", [None, 1, 8])
def test_equals_the_widest_directions_of_scikit_learn_up_to_signs(dim: int | None) -> None:
    texts = CORPUS.texts("text")
    base = frozen_encoder(texts).base(texts).astype(np.float64)
    pca = PCA(n_components=dim or DIRECTIONS, whiten=True, svd_solver="full")
    # scikit-learn divides the covariance by n - 1, the paper by n.
    theirs = pca.fit_transform(base) * np.sqrt(len(base) / (len(base) - 1))
    ours = whitened(dim).encoder.encode(texts)
    signs = np.sign((ours * theirs).sum(axis=0))
    np.testing.assert_allclose(ours * signs, theirs, atol=2e-3)


@pytest.mark.parametrize("size", [1, 7, 500, 900])
def test_moments_in_chunks_are_those_of_the_whole(size: int) -> None:
    """A mean far from 0 is where sums in chunks would lose digits."""
    draws = np.random.default_rng(0)
    rows = (draws.standard_normal((900, 12)) * np.arange(1, 13) + 1000).astype(np.float32)
    mean, covariance = moments(rows[n : n + size] for n in range(0, len(rows), size))
    exact = rows.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(covariance, np.cov(exact, rowvar=False, ddof=0), rtol=0, atol=1e-8)


def test_sentences_that_do_not_vary_cannot_be_whitened() -> None:
    one = corpus_of_sentences(["There is one sentence."])
    with pytest.raises(DataError, match="the training sentences must vary"):
        whitened(corpus=one)


@pytest.mark.parametrize(("rows", "directions"), [(len(CORPUS), DIRECTIONS), (5, 4)])
def test_more_directions_than_there_are_cannot_be_kept(rows: int, directions: int) -> None:
    corpus = corpus_of_sentences(CORPUS.texts("text")[:rows])
    assert whitened(None, corpus).encoder.width == directions
    with pytest.raises(ConfigError) as caught:
        whitened(directions + 1, corpus)
    (fault,) = caught.value.faults
    assert (fault.where, fault.value) == ("method.whitening_dim", str(directions + 1))
    assert (
        fault.rule
        == f"the embeddings of the training sentences vary in only {directions} directions"
    )
