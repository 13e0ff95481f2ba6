"""Trials that are scored on the transfer tasks too."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tune_sentcl.config import TrialConfig, parse_dotted
from tune_sentcl.data.tasks.sets import EvaluationSets
from tune_sentcl.errors import ConfigError, NonFiniteError
from tune_sentcl.evaluate import Evaluation, Measures, evaluate
from tune_sentcl.evaluate.suites import score_sets
from tune_sentcl.shapes import EmbeddingMatrix
from tune_sentcl.store import Score
from tune_sentcl.trial import Ended, InputLoader, Progress, run

LOADER = InputLoader(None)
BOTH = {"evaluation.suites": ["sts", "transfer"]}


class Memory:
    """Keeps the scores that a trial writes."""

    def __init__(self) -> None:
        self.scores: list[Score] = []

    def write_curves(self, trial_id: str, points: Any) -> None:
        """Curves are of no interest here."""

    def write_scores(self, trial_id: str, scores: Any) -> None:
        self.scores = list(scores)

    def add_scores(self, trial_id: str, scores: Any) -> None:
        raise AssertionError("a trial that is trained writes all of its scores")

    def write_checkpoint(self, trial_id: str, encoder: Any, facts: Any) -> None:
        """Neither are weights."""


def untrained(**values: Any) -> TrialConfig:
    common = {"method.name": "none", "encoder.checkpoint": "toy", "data.source": "toy"}
    return parse_dotted({**common, **values}, "test")


def finish(config: TrialConfig, output: Memory) -> tuple[Progress, Ended]:
    points: list[Progress] = []
    trial = run(config, LOADER.load(config), output=output)
    while True:
        try:
            points.append(next(trial))
        except StopIteration as stop:
            return points[-1], stop.value


@pytest.mark.slow
def test_rows_of_every_protocol_are_written() -> None:
    output = Memory()
    protocols = ["cosine", "relatedness", "logreg-10fold", "senteval-5fold"]
    changes = {"evaluation.protocols": protocols, "evaluation.classifier_seeds": 2}
    last, end = finish(untrained(**BOTH, **changes), output)
    assert {row.data for row in output.scores} == {"toy"}
    assert {(row.suite, row.protocol, row.classifier_seed) for row in output.scores} == {
        ("sts", "cosine", None),
        ("sts", "relatedness", 1111),
        ("sts", "relatedness", 1112),
        ("transfer", "logreg-10fold", None),
        ("transfer", "senteval-5fold", 1111),
        ("transfer", "senteval-5fold", 1112),
    }
    assert len({row.task for row in output.scores if row.suite == "transfer"}) == 9
    assert last.facts["notes"] is None
    # The scores that anyone can take of the encoder.
    measures = Measures(protocols=("cosine", "relatedness", "logreg-10fold"))
    expected = evaluate(end.encoder.encode, "toy", measures).scores
    by_measure = {
        (row.task, row.split, row.metric, row.subset, row.aggregation, row.protocol): row.value
        for row in output.scores
        if row.classifier_seed in (None, 1111) and row.protocol != "senteval-5fold"
    }
    assert by_measure == {
        (s.task, s.split, s.metric, s.subset, s.aggregation, s.protocol): s.value for s in expected
    }


def test_cosine_is_always_measured() -> None:
    output = Memory()
    finish(untrained(**{"evaluation.protocols": ["logreg-10fold"]}), output)
    assert {(row.suite, row.protocol) for row in output.scores} == {("sts", "cosine")}


@pytest.mark.parametrize(
    "changes",
    [
        BOTH,
        {"evaluation.protocols": ["cosine", "senteval-10fold"]},
        {**BOTH, "evaluation.protocols": ["relatedness"], "evaluation.classifier_seeds": 5},
    ],
)
@pytest.mark.parametrize("select", [{}, {"evaluation.select": "best", "evaluation.every": 5}])
def test_what_is_measured_does_not_name_a_trial(
    changes: dict[str, Any], select: dict[str, Any]
) -> None:
    trained = {"method.name": "scl", "data.limit": 32, **select}
    plain, other = untrained(**trained), untrained(**trained, **changes)
    first, second = LOADER.load(plain), LOADER.load(other)
    assert first.trial_id(plain) == second.trial_id(other)
    assert first.configuration_id(plain) == second.configuration_id(other)


def test_sets_are_loaded_once() -> None:
    one = LOADER.load(untrained(**BOTH))
    assert LOADER.load(untrained(**BOTH, seed=3)).sets is one.sets
    later = untrained(**BOTH, **{"evaluation.classifier_seeds": 4})
    assert LOADER.load(later).sets is one.sets
    assert LOADER.load(untrained()).sets.transfer == ()
    assert set(one.sentences()) >= set(one.sets.transfer[0].train.first)


@pytest.mark.parametrize("suites", [["transfer"], [], ["sts", "sts"], ["sts", "glue"]])
def test_suites_that_cannot_be(suites: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.suites"):
        untrained(**{"evaluation.suites": suites})


def test_suites_without_sts_say_why() -> None:
    with pytest.raises(
        ConfigError, match="must be a list with sts, for searches are steered by STS-B dev"
    ):
        untrained(**{"evaluation.suites": ["transfer"]})


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
    monkeypatch.setattr(sys.modules["tune_sentcl.trial.run"], "score_sets", scored)


def test_a_transfer_task_that_cannot_be_scored_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    config = untrained(**BOTH)
    (task,) = [t for t in LOADER.load(config).sets.transfer if t.name == "CR"]
    spoil(monkeypatch, task.train.first[0])
    output = Memory()
    last, _ = finish(config, output)
    assert "CR: the embedding of" in last.facts["notes"]
    scored = {row.task for row in output.scores if row.suite == "transfer"}
    assert "CR" not in scored and len(scored) >= 7


def test_sts_that_cannot_be_scored_fails_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    config = untrained(**BOTH)
    first = LOADER.load(config).sets.sts[0].subsets[0]
    spoil(monkeypatch, first.sentences1[0])
    output = Memory()
    with pytest.raises(NonFiniteError, match="STS12"):
        finish(config, output)
    assert output.scores == []
