"""Trials that are scored on the transfer tasks too."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trial_samples import LOADER, TRANSFER, Kept, finish, measured

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.tasks.evaluation_sets import EvaluationSets
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate import Evaluation, Measures
from tune_sentcl.evaluate.suites import score_sets
from tune_sentcl.score import Score
from tune_sentcl.shapes import EmbeddingMatrix

BOTH = {"evaluation.suites": ["sts", "transfer"]}


def untrained(**values: Any) -> TrialConfig:
    common = {"method.name": "none", "encoder.checkpoint": "toy", "data.source": "toy"}
    return parse_dotted({**common, **values}, "test")


def test_rows_of_every_protocol_are_reported() -> None:
    protocols = ["cosine", "relatedness", "logreg-10fold", "senteval-5fold"]
    changes = {"evaluation.protocols": protocols, "evaluation.classifier_seeds": 2}
    config = untrained(**BOTH, **changes)
    (*_, last), end = finish(config)
    scores = last.scores
    assert {row.data for row in scores} == {"toy"}
    assert {(row.suite, row.protocol, row.classifier_seed) for row in scores} == {
        ("sts", "cosine", None),
        ("sts", "relatedness", 1111),
        ("sts", "relatedness", 1112),
        ("transfer", "logreg-10fold", None),
        ("transfer", "senteval-5fold", 1111),
        ("transfer", "senteval-5fold", 1112),
    }
    assert {row.task for row in scores if row.suite == "transfer"} == set(TRANSFER)
    assert last.run_columns["notes"] is None
    # The scores that anyone can take of the encoder.
    measures = Measures(protocols=("cosine", "relatedness", "logreg-10fold"))
    expected = score_sets(end.encoder.encode, LOADER.load(config).sets, measures).scores
    by_measure = {
        (row.task, row.split, row.metric, row.subset, row.aggregation, row.protocol): row.value
        for row in scores
        if row.classifier_seed in (None, 1111) and row.protocol != "senteval-5fold"
    }
    assert by_measure == {
        (s.task, s.split, s.metric, s.subset, s.aggregation, s.protocol): s.value for s in expected
    }


def test_what_is_measured_does_not_name_a_trial() -> None:
    protocols = {"evaluation.protocols": ["relatedness"], "evaluation.classifier_seeds": 5}
    select = {"evaluation.select": "best", "evaluation.every": 5}
    trained = {"method.name": "scl", "data.limit": 32, **select}
    configs = untrained(**trained), untrained(**trained, **BOTH, **protocols)
    assert len({LOADER.load(config).trial_id(config) for config in configs}) == 1


def test_sets_are_loaded_once() -> None:
    one = LOADER.load(untrained(**BOTH))
    assert LOADER.load(untrained(**BOTH, seed=3)).sets is one.sets
    later = untrained(**BOTH, **{"evaluation.classifier_seeds": 4})
    assert LOADER.load(later).sets is one.sets
    assert LOADER.load(untrained()).sets.transfer == ()
    assert set(one.sentences()) >= set(one.sets.transfer[0].train.first)


def spoil(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let the encoder give NaN for one sentence at the end of a trial."""

    def scored(
        encode: Callable[[list[str]], EmbeddingMatrix], sets: EvaluationSets, measures: Measures
    ) -> Evaluation:
        def bad(sentences: list[str]) -> EmbeddingMatrix:
            matrix = np.array(encode(sentences))
            matrix[sentences.index(text)] = np.nan
            return matrix

        return score_sets(bad, sets, measures)

    # The package's `run` is the function, which hides its module from a dotted name.
    monkeypatch.setattr(sys.modules["tune_sentcl.trial.running"], "score_sets", scored)


def cr_sentence(config: TrialConfig) -> str:
    (task,) = [t for t in LOADER.load(config).sets.transfer if t.name == "CR"]
    return task.train.first[0]


def test_a_transfer_task_that_cannot_be_scored_is_kept_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = untrained(**BOTH)
    spoil(monkeypatch, cr_sentence(config))
    (*_, last), _ = finish(config)
    assert "CR: 1 of " in last.run_columns["notes"]
    failed = failures(last.scores)
    assert "CR" in failed
    assert all("is that of" in (s.reason or "") for s in last.scores if s.value is None)
    numbers = {s.task for s in last.scores if s.suite == "transfer" and s.value is not None}
    assert numbers and not numbers & failed


def test_sts_that_cannot_be_scored_fails_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = untrained(**{"method.whitening": True}, **BOTH)
    first = LOADER.load(config).sets.sts[0].subsets[0]
    spoil(monkeypatch, first.sentences1[0])
    with pytest.raises(NonFiniteError, match="STS12"):
        finish(config, tmp_path)
    assert not Kept(tmp_path, config).weights.exists()


def failures(scores: Sequence[Score]) -> set[str]:
    return {score.task for score in scores if score.value is None}


def test_a_measurement_scores_the_weights_that_were_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = untrained(**{"method.whitening": True})
    more = untrained(**{"method.whitening": True}, **BOTH)
    _, end = finish(plain, tmp_path)
    kept = Kept(tmp_path, plain)
    assert LOADER.load(more).trial_id(more) == kept.trial_id
    with monkeypatch.context() as patch:
        spoil(patch, cr_sentence(more))
        ((point,), _) = measured(kept, more)
    assert point.final and (point.step, point.total) == (0, 0)
    assert "CR" in failures(point.scores)
    ((whole,), _) = measured(kept, more)
    assert failures(whole.scores) == set()
    assert {s.task for s in whole.scores if s.suite == "transfer"} == set(TRANSFER)
    # What was scored before it was saved is what is scored now.
    before = {score.key: score.value for score in end.scores}
    again = {score.key: score.value for score in whole.scores if score.key in before}
    assert again == pytest.approx(before, abs=0.05)
