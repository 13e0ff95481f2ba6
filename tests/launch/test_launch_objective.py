"""What may be maximized: a test split never by accident."""

from types import SimpleNamespace
from typing import Any

import pytest

from tune_sentcl.errors import ObjectiveError
from tune_sentcl.launch.objective import DEFAULT, Objective, parse_objectives

TEST_SPLITS = [
    "STS-B:spearman:test",
    "sts-b:spearman:test",
    "stsb:SPEARMAN:TEST",
    "STSB:pearson:Test",
    " STS-B : spearman : test ",
    "STS-B:spearman: tEsT",
    "SICK-R:spearman:test",
    "sickr:spearman:test",
    "SickR:pearson:test",
    "STS12:spearman",
    "sts12:spearman",
    "STS-12:spearman",
    "sts13:pearson:test",
    "STS14:spearman",
    "STS15:spearman:TEST",
    "sts16:spearman",
]


@pytest.mark.parametrize("text", TEST_SPLITS)
def test_a_test_split_is_refused_however_it_is_spelled(text: str) -> None:
    with pytest.raises(ObjectiveError, match="--allow-test-objective"):
        parse_objectives([text], allow_test=False)
    with pytest.raises(ObjectiveError, match="--allow-test-objective"):
        parse_objectives(["STS-B:spearman:dev", text], allow_test=False)


@pytest.mark.parametrize("text", TEST_SPLITS)
def test_a_test_split_is_taken_with_leave(text: str) -> None:
    (objective,) = parse_objectives([text], allow_test=True)
    assert objective.split == "test"


@pytest.mark.parametrize("allow_test", [True, False])
def test_tasks_with_a_dev_split_default_to_it(allow_test: bool) -> None:
    assert parse_objectives([], allow_test=allow_test) == (DEFAULT,)
    for text in ("STS-B:spearman", "stsb:Spearman", " STS-B :spearman ", "STS-B:spearman:dev"):
        assert parse_objectives([text], allow_test=allow_test) == (DEFAULT,)
    (sick,) = parse_objectives(["sick-r:pearson"], allow_test=allow_test)
    assert str(sick) == "SICK-R:pearson:dev"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("STS-B", "TASK:METRIC"),
        ("", "TASK:METRIC"),
        (":", "TASK:METRIC"),
        ("MR:accuracy:dev", "STS12, STS13"),
        ("STS17:spearman", "STS12, STS13"),
        ("STS-B:spearman:dev:all", "TASK:METRIC"),
        ("STS-B:kendall", "spearman or pearson"),
        ("STS-B:", "spearman or pearson"),
        ("STS-B:spearman:train", "only the split dev and test"),
        ("STS-B:spearman:", "only the split dev and test"),
        ("STS12:spearman:dev", "only the split test"),
        ("STS12:spearman:", "only the split test"),
    ],
)
@pytest.mark.parametrize("allow_test", [True, False])
def test_what_is_unknown_is_refused_by_name(text: str, names: str, allow_test: bool) -> None:
    with pytest.raises(ObjectiveError, match=names):
        parse_objectives([text], allow_test=allow_test)


@pytest.mark.parametrize("again", ["STS-B:spearman:dev", "stsb:spearman", "STS-B:Spearman: DEV"])
def test_an_objective_named_twice_is_refused_in_any_spelling(again: str) -> None:
    with pytest.raises(ObjectiveError, match="differ from each other"):
        parse_objectives(["STS-B:spearman", again], allow_test=False)


def score(value: float, **changes: Any) -> SimpleNamespace:
    facts = {"task": "STS-B", "metric": "spearman", "split": "dev", "subset": None}
    return SimpleNamespace(**{**facts, "aggregation": None, "value": value, **changes})


def test_the_value_is_the_score_of_the_whole_task_on_its_split() -> None:
    others = [
        score(1.0, split="test"),
        score(2.0, metric="pearson"),
        score(3.0, subset="headlines"),
        score(4.0, task="SICK-R"),
        score(5.0, aggregation="mean"),
    ]
    assert DEFAULT.value([*others, score(70.5)]) == 70.5
    assert DEFAULT.value(others) is None
    sts12 = Objective("STS12", "spearman", "test")
    joined = [
        score(float(i), task="STS12", split="test", aggregation=how)
        for i, how in enumerate(("mean", "wmean", "all"))
    ]
    assert sts12.value(joined) == 2.0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_trap_what_is_no_number_is_no_value_and_never_0(value: float) -> None:
    assert DEFAULT.value([score(value)]) is None
