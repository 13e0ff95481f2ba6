"""Method `none`: the encoder as it is, and whitening against its definition and scikit-learn."""

import numpy as np
import pytest
from method_samples import built, corpus_of_sentences, frozen_encoder, whole
from method_samples import trial_config as config
from sklearn.decomposition import PCA

from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.toy import toy_nli
from tune_sentcl.errors import ConfigError, DataError
from tune_sentcl.methods import AnyMethod
from tune_sentcl.methods.none import moments
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.train import count_steps, train

CORPUS = corpus_of_sentences(sorted({row["premise"] for row in toy_nli().to_pylist()}))
DIRECTIONS = 31  # of 32: a fresh LayerNorm makes the numbers of an embedding sum to 0


def whitened(dim: int | None = None, corpus: Corpus = CORPUS) -> AnyMethod:
    trial = config(name="none", whitening=True, whitening_dim=dim)
    method = built(trial, frozen_encoder(corpus.texts("text")))
    assert list(train(method, corpus, trial)) == []  # it has no steps
    assert count_steps(corpus, trial) == 0
    return method


def test_without_whitening_the_encoder_stays_as_it_is() -> None:
    trial = config(name="none")
    texts = CORPUS.texts("text")
    encoder = frozen_encoder(texts)
    method = built(trial, encoder)
    method.fit(CORPUS)
    assert len(encoder.tail) == 0 and list(encoder.parameters()) == []
    plain = load_encoder(resolve_checkpoint("toy"), "mean", 64).encode(texts)
    np.testing.assert_allclose(encoder.encode(texts), plain, rtol=1e-5, atol=1e-6)


def test_equals_scikit_learns_whitening_up_to_signs() -> None:
    base = frozen_encoder(CORPUS.texts("text")).base(CORPUS.texts("text")).astype(np.float64)
    count = len(base)
    pca = PCA(n_components=DIRECTIONS, whiten=True, svd_solver="full")
    # scikit-learn divides the covariance by n - 1, the paper by n.
    theirs = pca.fit_transform(base) * np.sqrt(count / (count - 1))
    ours = whitened().encoder.encode(CORPUS.texts("text"))
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


@pytest.mark.parametrize("dim", [1, 8, DIRECTIONS])
def test_the_widest_directions_are_kept(dim: int) -> None:
    texts = CORPUS.texts("text")
    method = whitened(dim)
    assert method.encoder.width == dim
    all_directions = whitened().encoder.encode(texts)
    np.testing.assert_allclose(method.encoder.encode(texts), all_directions[:, :dim], atol=1e-5)
    # A direction's weights have the length 1 / its deviation.
    lengths = method.encoder.tail[0].linear.weight.detach().norm(dim=1)
    assert bool((lengths.diff() >= -1e-6).all())


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
    assert fault.rule == f"the training sentences vary in only {directions} directions"


def test_there_is_no_loss() -> None:
    method = built(config(name="none"), frozen_encoder(["a"]))
    with pytest.raises(NotImplementedError, match="method none has no loss"):
        method.loss(whole(CORPUS), np.random.default_rng(0))
