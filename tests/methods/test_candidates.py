"""Which rows are positives and negatives, against the definition row by row."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.methods.candidates import Count, draw_candidates

COUNTS = st.one_of(st.integers(1, 6), st.just("all"))


@st.composite
def rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    size = draw(st.integers(1, 24))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    premises = generator.integers(0, draw(st.integers(1, 8)), size)
    labels = generator.integers(draw(st.integers(0, 2)), 3, size)  # some have no entailment
    return premises, labels


@given(rows(), COUNTS, COUNTS, st.integers(0, 99))
def test_draws_obey_the_definition(
    batch: tuple[np.ndarray, np.ndarray], p: Count, n: Count, seed: int
) -> None:
    premises, labels = batch
    drawn = draw_candidates(
        premises, labels, np.random.default_rng(seed), num_positives=p, num_negatives=n
    )
    assert drawn.anchors.tolist() == [i for i, label in enumerate(labels) if label == 0]
    for anchor, i in enumerate(drawn.anchors):
        full = {j for j in range(len(labels)) if labels[j] == 0 and premises[j] == premises[i]}
        others = set(range(len(labels))) - full
        positives = set(np.flatnonzero(drawn.positives[anchor]))
        negatives = set(np.flatnonzero(drawn.negatives[anchor]))
        assert i in positives and positives <= full
        assert len(positives) == (len(full) if p == "all" else min(p, len(full)))
        assert negatives <= others  # a positive that was not drawn is never a negative
        assert len(negatives) == (len(others) if n == "all" else min(n, len(others)))


@given(rows())
def test_premise_anchors_are_the_first_entailed_row_of_each_premise(
    batch: tuple[np.ndarray, np.ndarray],
) -> None:
    premises, labels = batch
    drawn = draw_candidates(
        premises,
        labels,
        np.random.default_rng(0),
        num_positives="all",
        num_negatives="all",
        anchors="premise",
    )
    first: dict[int, int] = {}
    for row, (premise, label) in enumerate(zip(premises, labels, strict=True)):
        if label == 0:
            first.setdefault(premise, row)
    assert drawn.anchors.tolist() == sorted(first.values())


def test_draws_are_uniform() -> None:
    premises, labels = np.zeros(9, int), np.array([0, 0, 0, 0, 0, 1, 1, 2, 2])
    generator = np.random.default_rng(0)
    positives: Counter[int] = Counter()
    negatives: Counter[int] = Counter()
    for _ in range(1000):
        drawn = draw_candidates(premises, labels, generator, num_positives=3, num_negatives=2)
        positives.update(np.flatnonzero(drawn.positives[0]).tolist())
        negatives.update(np.flatnonzero(drawn.negatives[0]).tolist())
    assert positives.pop(0) == 1000  # the anchor's own hypothesis
    for counts, expected in ((positives, 500), (negatives, 500)):
        assert len(counts) == 4
        # Four standard deviations of a binomial with 1000 draws and probability one half.
        assert all(abs(count - expected) < 4 * 16 for count in counts.values())
