"""Trials of every method on the toy: repeatable, restored at their best, counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trial_samples import LOADER, Kept, chosen, devs, finish

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.evaluate.suites import score_by_cosine
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.model.frozen import FrozenEncoder
from tune_sentcl.objective import DEFAULT
from tune_sentcl.trial import FinishedTrial, assemble
from tune_sentcl.trial.run import of_length_1

METHODS: dict[str, dict[str, Any]] = {
    "scl": {"method.name": "scl", "data.order": "groups"},
    "simcse": {"method.name": "simcse", "encoder.pooling": "cls"},
    "conisi-s": {"method.name": "conisi", "encoder.pooling": "cls"},
    "conisi-o1": {"method.name": "conisi", "method.strategy": "o1", "encoder.pooling": "cls"},
    "clsr": {"method.name": "clsr", "optimizer.name": "lars", "optimizer.lr": 0.5},
    "none": {"method.name": "none"},
    "whitened": {"method.name": "none", "method.whitening": True},
}


def trial(name: str, **values: Any) -> TrialConfig:
    common = {
        "encoder.checkpoint": "toy",
        "encoder.pooling": "mean",
        "encoder.train_length": 32,
        "data.source": "toy",
        "data.order": "shuffled",
        "data.limit": 64,
        "optimizer.batch_size": 16,
        "optimizer.lr": 1e-3,
        "evaluation.every": 2,
    }
    return parse_dotted({**common, **METHODS[name], **values}, "test")


@pytest.mark.parametrize("name", METHODS)
def test_a_trial_repeats_to_the_bit(name: str) -> None:
    config = trial(name, **{"data.limit": 32})
    before = torch.get_rng_state()
    (points, one), (again, other) = finish(config), finish(config)
    assert torch.equal(before, torch.get_rng_state())
    assert points[-1].curves == again[-1].curves
    assert bool(points[-1].curves) == (name not in ("none", "whitened"))
    assert points[-1].scores == again[-1].scores == one.scores and one.scores
    second = other.encoder.state_dict()
    assert all(torch.equal(w, second[key]) for key, w in one.encoder.state_dict().items())
    frozen = name in ("clsr", "none", "whitened")
    assert ("encoded_sentences" in points[-1].run_columns) == frozen


@pytest.mark.parametrize("name", ["simcse", "clsr"])
def test_another_seed_gives_another_trial(name: str) -> None:
    config = trial(name, **{"data.limit": 32, "evaluation.every": 0})
    scores = [finish(config.model_copy(update={"seed": seed}))[1].scores for seed in (0, 1)]
    assert scores[0] != scores[1]


def test_no_training_scores_the_encoder_as_it_is() -> None:
    points, end = finish(trial("none"))
    encoder = load_encoder(resolve_checkpoint("toy"), "mean", 512)
    expected = score_by_cosine(encoder.encode, LOADER.load(trial("none")).sets.sts)
    # The batches are others, which moves percentages by 1e-5.
    values = [score.value for score in expected]
    assert [score.value for score in end.scores] == pytest.approx(values, abs=1e-3)
    (last,) = points
    assert last.final and (last.step, last.total) == (0, 0) and last.run_columns["steps"] == 0
    # No rows are read, so it is the same trial whatever the source.
    other = trial("none", **{"data.source": "snli", "evaluation.data": "toy"})
    assert LOADER.load(other).trial_id(other) == LOADER.load(trial("none")).trial_id(trial("none"))


def test_normalized_the_zero_vector_stays_what_it_is() -> None:
    rows = np.array([[3, 4], [0, 0]], np.float32)
    np.testing.assert_array_equal(of_length_1(rows), np.array([[0.6, 0.8], [0, 0]], np.float32))


def test_whitening_scores_whitened_embeddings() -> None:
    config = trial("whitened", **{"data.limit": None})
    inputs = LOADER.load(config)
    _, end = finish(config)
    encoder = load_encoder(resolve_checkpoint("toy"), "mean", 512)
    base = encoder.encode(inputs.corpus.texts("text")).astype(np.float64)
    values, vectors = np.linalg.eigh(np.cov(base, rowvar=False, ddof=0))
    kept = values > 1e-9 * values.max()
    whitener = vectors[:, kept] / np.sqrt(values[kept])

    def whitened(sentences: Any) -> Any:
        return ((encoder.encode(sentences) - base.mean(axis=0)) @ whitener).astype(np.float32)

    expected = score_by_cosine(whitened, inputs.sets.sts)
    assert [s.value for s in end.scores] == pytest.approx([s.value for s in expected], abs=0.05)
    plain = finish(trial("none"))[1].scores
    assert plain[0].value != pytest.approx(end.scores[0].value, abs=0.5)


def saved_as_scored(kept: Kept, end: FinishedTrial) -> None:
    sentences = ["a happy lawyer is jogging", "a truck"]
    np.testing.assert_allclose(
        kept.encoder().encode(sentences), end.encoder.encode(sentences), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("name", ["clsr", "simcse"])
def test_selecting_the_best_restores_the_best_weights(name: str, tmp_path: Path) -> None:
    changes = {
        "clsr": {"optimizer.lr": 20.0, "optimizer.warmup": 0.0, "optimizer.epochs": 2},
        "simcse": {"optimizer.lr": 0.1},
    }[name]
    config = trial(name, **changes, **{"evaluation.every": 1})
    selected = config.evaluation.model_copy(update={"select": "best"})
    last, ruined = finish(config)
    config = config.model_copy(update={"evaluation": selected})
    points, end = finish(config, tmp_path)
    kept = Kept(tmp_path, config)
    curve = [point.value for point in points[-1].curves if point.metric == DEFAULT.curve]
    assert chosen(end) == max(curve) == max(devs(last))
    assert chosen(end) > chosen(ruined)  # so that the test tells something
    dev = [t for t in LOADER.load(config).sets.sts if (t.name, t.split) == ("STS-B", "dev")]
    again = {s.value for s in score_by_cosine(end.encoder.encode, dev) if s.metric == "spearman"}
    assert chosen(end) in again
    saved_as_scored(kept, end)


@pytest.mark.parametrize("name", ["clsr", "whitened"])
def test_a_frozen_encoder_runs_once_a_machine(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_SENTCL_CACHE", str(tmp_path))
    config = trial(name)
    ((*_, first), end), ((*_, again), _) = finish(config), finish(config)
    assert first.run_columns["encoded_sentences"] == len(LOADER.load(config).sentences()) > 0
    assert first.run_columns["encoding_seconds"] > 0
    assert again.run_columns["encoded_sentences"] == again.run_columns["encoding_seconds"] == 0
    assert again.scores == first.scores and isinstance(end.encoder, FrozenEncoder)


@pytest.mark.parametrize(("name", "layers"), [("none", None), ("whitened", 1), ("clsr", 2)])
def test_an_encoder_that_is_simply_its_checkpoint_is_not_saved(
    name: str, layers: int | None, tmp_path: Path
) -> None:
    config = trial(name, **{"evaluation.every": 0})
    _, end = finish(config, tmp_path)
    kept = Kept(tmp_path, config)
    assert kept.weights.exists() == (layers is not None)
    if layers is not None:
        assert len(kept.encoder().tail) == layers
        saved_as_scored(kept, end)
        before = load_encoder(resolve_checkpoint("toy"), "mean", 64).transformer.state_dict()
        after = kept.encoder().transformer.state_dict()
        assert before.keys() == after.keys()
        assert all(torch.equal(value, after[key]) for key, value in before.items())


def test_chance_that_one_method_takes_leaves_another_alone() -> None:
    # Heads draw from their own stream: the encoder of a trial starts from the same weights.
    configs = [trial("simcse"), trial("conisi-s")]
    states = [assemble(c, LOADER.load(c), "cpu").encoder.state_dict() for c in configs]
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())
