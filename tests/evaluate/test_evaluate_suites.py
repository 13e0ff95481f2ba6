"""One pass of the encoder, every score that was asked for, and errors that stay where they are."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tune_sentcl.config import ProtocolName
from tune_sentcl.data.task import ClassifiedRows, StsSubset, StsTask, TransferTask
from tune_sentcl.data.tasks.evaluation_sets import EvaluationSets, RatedTask, Unread, load_sets
from tune_sentcl.errors import DataError, Fault, NonFiniteError
from tune_sentcl.evaluate import Evaluation, Measures, evaluate, score_sets
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.objective import OFFERS
from tune_sentcl.score import Measurement, merged
from tune_sentcl.seeding import stream
from tune_sentcl.shapes import EmbeddingMatrix

LOGREG = Measures(protocols=("cosine", "logreg-10fold"))


def encode(sentences: list[str]) -> EmbeddingMatrix:
    """Give each sentence a vector that depends on nothing but its text."""
    rows = [stream(0, sentence).standard_normal(4) for sentence in sentences]
    return np.array(rows, dtype=np.float32).reshape(len(sentences), 4)


def spoilt(*bad: str, value: float = math.nan) -> Callable[[list[str]], EmbeddingMatrix]:
    """An encoder that gives some sentences the same value everywhere."""

    def run(sentences: list[str]) -> EmbeddingMatrix:
        matrix = encode(sentences)
        for text in set(bad) & set(sentences):
            matrix[sentences.index(text)] = value
        return matrix

    return run


def task(name: str, labels: tuple[int, ...] = (0, 1) * 15) -> TransferTask:
    texts = tuple(f"{name} {row}" for row in range(len(labels)))
    rows = ClassifiedRows((*texts[:-1], "shared by all"), None, labels)
    return TransferTask(name, rows, data="toy")


def sts(name: str) -> StsTask:
    left = tuple(f"{name} left {row}" for row in range(12))
    right = tuple(f"{name} right {row}" for row in range(11))
    gold = tuple(float(row % 6) for row in range(12))
    subset = StsSubset("a", left, (*right, "shared by all"), gold)
    return StsTask(name, "test", (subset,), data="toy")


SETS = EvaluationSets("toy", (sts("STS-B"), sts("SICK-R")), (task("MR"), task("CR"), task("SUBJ")))


GONE = DataError(Fault("file", rule="the file does not exist", move="Copy it."))


def names(found: Evaluation) -> set[str]:
    """The tasks that have a number."""
    return {score.task for score in found.scores if score.value is not None}


def failed(found: Evaluation) -> list[tuple[str, str | None]]:
    """The tasks without a number, and why."""
    return [(score.task, score.reason) for score in found.scores if score.value is None]


@pytest.mark.parametrize("protocol", ["logreg-10fold", "senteval-5fold"])
@pytest.mark.parametrize(
    ("text", "name", "where"), [("CR 7", "CR", "CR"), ("SICK-R left 3", "SICK-R", "SICK-R a")]
)
def test_a_bad_embedding_fails_the_tasks_that_have_it(
    protocol: ProtocolName, text: str, name: str, where: str
) -> None:
    measures = Measures(protocols=("cosine", protocol))
    whole = score_sets(encode, SETS, measures)
    found = score_sets(spoilt(text), SETS, measures)
    (error,) = found.errors
    assert isinstance(error, NonFiniteError)
    assert str(error).startswith(f"{where}: 1 of ")
    assert str(error).endswith(f"embeddings are not finite; the first is that of '{text}'")
    others = [score for score in whole.scores if score.task != name]
    assert [score for score in found.scores if score.task != name] == others
    assert failed(found) == [(name, str(error))]


def test_errors_of_reading_are_handed_on() -> None:
    sets = EvaluationSets("toy", (sts("STS-B"),), unread=(Unread("transfer", "MR", GONE),))
    found = score_sets(encode, sets, LOGREG)
    assert found.errors == (GONE,)
    assert names(found) == {"STS-B"}
    assert failed(found) == [("MR", str(GONE))]
    # What could not be read is not asked of a trial.
    assert {m.task for m in expected_measurements(sets, LOGREG)} == {"STS-B"}


PROTOCOLS: tuple[ProtocolName, ...] = (
    *("cosine", "relatedness", "logreg-10fold", "senteval-10fold", "senteval-5fold"),
    "scl-paper-compat",
)
EVERYTHING = Measures(protocols=PROTOCOLS, classifier_seeds=2)


@pytest.fixture(scope="module")
def toy() -> EvaluationSets:
    """All toy sets, and as sets that were cut off the toy's own MR and SUBJ."""
    sets = load_sets("toy", None, ("sts", "transfer"), PROTOCOLS)
    cut = tuple(task for task in sets.transfer if task.name in ("MR", "SUBJ"))
    return replace(sets, truncated=cut)


@pytest.fixture(scope="module")
def whole(toy: EvaluationSets) -> Evaluation:
    """Everything that there is to measure on the toy, measured."""
    calls: list[list[str]] = []

    def counted(sentences: list[str]) -> EmbeddingMatrix:
        calls.append(sentences)
        return encode(sentences)

    found = score_sets(counted, toy, EVERYTHING)
    (sentences,) = calls
    assert len(sentences) == len(set(sentences))
    assert set(sentences) == set(toy.sentences())
    return found


def test_each_protocol_scores_its_own_suite(toy: EvaluationSets, whole: Evaluation) -> None:
    assert whole.errors == ()
    by_protocol = {
        p: {(s.suite, s.classifier_seed) for s in whole.scores if s.protocol == p}
        for p in PROTOCOLS
    }
    seeds = {("transfer", 1111), ("transfer", 1112)}
    assert by_protocol == {
        "cosine": {("sts", None)},
        "relatedness": {("sts", 1111), ("sts", 1112)},
        "logreg-10fold": {("transfer", None)},
        "senteval-5fold": seeds,
        "senteval-10fold": seeds,
        "scl-paper-compat": seeds,
    }
    # A score has an identity of its own, and what is expected is what comes.
    assert len({score.key for score in whole.scores}) == len(whole.scores)
    measured = {score.measurement for score in whole.scores}
    expected = list(expected_measurements(toy, EVERYTHING))
    tasks, cut = len(toy.transfer), len(toy.truncated)
    assert len(set(expected)) == len(expected) == 9 + 2 * 2 + tasks + 2 * 2 * tasks + 2 * cut
    assert set(expected) <= measured
    assert {m for m in measured if m.split == "test"} == {m for m in expected if m.split == "test"}
    assert Measurement("toy", "STS-B", "dev", "cosine", None) in expected


def test_evaluate_loads_the_sets_that_it_is_asked_for(whole: Evaluation) -> None:
    measures = Measures(protocols=("cosine", "relatedness", "logreg-10fold"))
    found = evaluate(encode, "toy", measures)
    asked = [s for s in whole.scores if s.protocol in measures.protocols]
    # A seed gives the same scores as beside others.
    assert list(found.scores) == [s for s in asked if s.classifier_seed in (None, 1111)]
    assert found.errors == ()
    only = evaluate(encode, "toy", Measures(("sts",)))
    assert list(only.scores) == [s for s in found.scores if s.protocol == "cosine"]


def test_the_objectives_on_offer_are_what_is_measured(whole: Evaluation) -> None:
    measured = {
        (score.task, score.protocol, score.metric, score.split)
        for score in whole.scores
        if score.subset is None and score.aggregation in (None, "all")
    }
    offered = [
        (task, protocol, metric, split)
        for task, ways in OFFERS.items()
        for protocol, offers in ways.items()
        for metric, split in offers
        if task != "cost"  # which a trial measures
    ]
    assert sorted(measured) == sorted(offered)


def test_every_failure_gives_way_to_a_number(toy: EvaluationSets, whole: Evaluation) -> None:
    broken = score_sets(lambda sentences: np.full_like(encode(sentences), np.nan), toy, EVERYTHING)
    assert {score.value for score in broken.scores} == {None}
    measurements = [score.measurement for score in broken.scores]
    assert measurements == list(expected_measurements(toy, EVERYTHING))
    assert len(broken.errors) == len(measurements) == len(set(measurements))
    assert {score.key for score in broken.scores} <= {score.key for score in whole.scores}
    both = merged(broken.scores, whole.scores)
    assert {score.key: score for score in both} == {score.key: score for score in whole.scores}
    assert merged(whole.scores, broken.scores) == list(whole.scores)


def test_scores_are_of_the_data_that_their_task_is_of(whole: Evaluation) -> None:
    assert {score.data for score in whole.scores} == {"toy"}
    real = replace(SETS.sts[0], data="root")
    transfer = replace(SETS.transfer[0], data="root")
    rated = RatedTask(real, real, real)
    sets = EvaluationSets("root", (real,), (transfer,), (rated,), (transfer,))
    found = score_sets(encode, sets, Measures(protocols=PROTOCOLS))
    assert {score.data for score in found.scores} == {"root"}
    assert {score.protocol for score in found.scores} == set(PROTOCOLS)
