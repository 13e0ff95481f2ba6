"""No score is lost when others come to it."""

from dataclasses import fields, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tune_sentcl.score import Measurement, Score, merged

SCORES = st.builds(
    Score,
    suite=st.just("sts"),
    task=st.sampled_from(["STS12", "STS-B"]),
    split=st.sampled_from(["dev", "test"]),
    metric=st.just("spearman"),
    protocol=st.just("cosine"),
    data=st.just("toy"),
    value=st.none() | st.integers(0, 3).map(float),
    n=st.integers(0, 2),
    reason=st.none() | st.sampled_from(["a", "b"]),
)
LISTS = st.lists(SCORES, max_size=5)


@given(LISTS, LISTS)
def test_each_key_has_its_newest_number_else_its_newest_failure(
    old: list[Score], new: list[Score]
) -> None:
    both = old + new
    expected = {}
    for key in {score.key for score in both}:
        tries = [score for score in both if score.key == key]
        numbers = [score for score in tries if score.value is not None]
        expected[key] = (numbers or tries)[-1]
    once = merged(old, new)
    assert {score.key: score for score in once} == expected
    assert len(once) == len(expected)
    assert merged(once, once) == once


def test_a_key_tells_all_but_the_value_apart() -> None:
    score = Score("sts", "STS12", "test", "spearman", "cosine", "toy", 70.0, 9)
    assert score.measurement == Measurement("toy", "STS12", "test", "cosine", None)
    for field in fields(Score):
        changes: dict[str, Any] = {field.name: "other"}
        other = replace(score, **changes)
        assert (other.key == score.key) is (field.name in ("value", "n", "reason", "version"))
