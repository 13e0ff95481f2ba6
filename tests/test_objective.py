"""What may be maximized: a test split never by accident."""

from dataclasses import replace
from typing import Any

import pytest

from tune_sentcl.config import EvaluationConfig
from tune_sentcl.errors import ObjectiveError
from tune_sentcl.objective import (
    DEFAULT,
    OFFERS,
    Objective,
    objective_named,
    parse_objectives,
    unmeasured,
)
from tune_sentcl.score import Score


@pytest.mark.parametrize(
    "text",
    [
        "STS-B:spearman:test",
        "sts-b:spearman:test",
        " STS-B : spearman : test ",
        "SickR:pearson:test",
        "STS-12:spearman",
        "sts13:pearson:test",
    ],
)
def test_a_test_split_is_refused_however_it_is_spelled(text: str) -> None:
    for texts in ([text], ["STS-B:spearman:dev", text]):
        with pytest.raises(ObjectiveError, match="--allow-test-objective"):
            parse_objectives(texts, allow_test=False)
    (objective,) = parse_objectives([text], allow_test=True)
    assert objective.split == "test"


@pytest.mark.parametrize("allow_test", [True, False])
def test_tasks_with_a_dev_split_default_to_it(allow_test: bool) -> None:
    assert parse_objectives([], allow_test=allow_test) == (DEFAULT,)
    for text in ("STS-B:spearman", "stsb:Spearman", " STS-B :spearman ", "STS-B:spearman:dev"):
        assert parse_objectives([text], allow_test=allow_test) == (DEFAULT,)
    (objective,) = parse_objectives(["sick-r:pearson"], allow_test=allow_test)
    assert str(objective) == "SICK-R:pearson:dev"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("STS-B", "TASK:METRIC"),
        ("NLI:accuracy:train", "the splits dev and test"),
        ("STS17:spearman:dev:relatedness", "by cosine or logreg-10fold"),
        ("STS-B:spearman:dev:all", "the protocol of STS-B must be cosine or relatedness"),
        ("MR:accuracy:dev:cosine", "the protocol of MR must be logreg-10fold or senteval-10fold"),
        ("TREC:f1", "the metric of TREC by logreg-10fold must be accuracy"),
        ("STS-B:spearman:dev:relatedness", "only on the split test"),
        ("STS-B:kendall", "spearman or pearson"),
        ("STS-B:spearman:train", "only on the split dev and test"),
        ("STS12:spearman:dev", "only on the split test"),
    ],
)
@pytest.mark.parametrize("allow_test", [True, False])
def test_what_is_unknown_is_refused_by_name(text: str, names: str, allow_test: bool) -> None:
    with pytest.raises(ObjectiveError, match=names):
        parse_objectives([text], allow_test=allow_test)


def test_an_objective_named_twice_is_refused_in_any_spelling() -> None:
    for again in ("STS-B:spearman:dev", "stsb:spearman", "STS-B:Spearman: DEV"):
        with pytest.raises(ObjectiveError, match=r"differ from each other.*Remove one of the two"):
            parse_objectives(["STS-B:spearman", again], allow_test=False)


WHOLE = Score("sts", "STS-B", "dev", "spearman", "cosine", "toy", 70.5, 9)


def test_a_cost_comes_after_a_score_and_must_be_measured() -> None:
    first, cost = parse_objectives(["STS-B:spearman", "Cost:Megabytes"], allow_test=False)
    assert (first, str(cost), cost.is_cost) == (DEFAULT, "cost:megabytes:dev", True)
    assert objective_named("cost:megabytes:dev") == cost
    for texts in (["cost:megabytes"], ["cost:megabytes", "STS-B:spearman"]):
        with pytest.raises(
            ObjectiveError, match=r"must not be the first objective.*Name a score before the cost"
        ):
            parse_objectives(texts, allow_test=True)
    with pytest.raises(ObjectiveError, match="the metric of cost by cost must be milliseconds_1"):
        parse_objectives(["STS-B:spearman", "cost:price"], allow_test=True)
    costs = [EvaluationConfig(cost=asked) for asked in (True, False)]
    assert not list(unmeasured((first, cost), costs[:1]))
    (fault,) = unmeasured((first, cost), costs)
    assert "evaluation.cost=true" in str(fault)


def test_the_value_is_the_score_of_the_whole_task_on_its_split() -> None:
    others: list[dict[str, Any]] = [
        {"split": "test"},
        {"metric": "pearson"},
        {"subset": "headlines"},
        {"task": "SICK-R"},
        {"aggregation": "mean"},
        {"protocol": "relatedness"},
        {"data": "root"},
        {"value": None, "reason": "it broke"},
        *({"value": float(value)} for value in ("nan", "inf", "-inf")),
    ]
    scores = [replace(WHOLE, **{"value": 1.0, **changes}) for changes in others]
    assert DEFAULT.value([*scores, WHOLE], "toy") == 70.5
    assert DEFAULT.value(scores, "toy") is None
    assert DEFAULT.value(scores, "root") == 1.0


def test_of_sts12_the_joined_pairs_count() -> None:
    (sts12,) = parse_objectives(["STS12:spearman:test"], allow_test=True)
    joined = replace(WHOLE, task="STS12", split="test", value=2.0, aggregation="all")
    others = [replace(joined, value=1.0, aggregation=way) for way in ("mean", "wmean")]
    assert sts12.value([*others, joined], "toy") == 2.0


def test_over_the_seeds_of_a_classifier_the_mean_counts() -> None:
    (fold,) = parse_objectives(["MR:accuracy:dev:senteval-5fold"], allow_test=False)
    score = Score("transfer", "MR", "dev", "accuracy", "senteval-5fold", "toy", 1.0, 9)
    seeds = [
        replace(score, value=value, classifier_seed=seed)
        for seed, value in ((1111, 60.0), (1112, 70.0), (1113, None))
    ]
    assert fold.value([replace(score, protocol="logreg-10fold"), *seeds], "toy") == 65.0


def test_every_offer_is_read_again_as_it_is_written() -> None:
    for task, ways in OFFERS.items():
        for protocol, offers in ways.items():
            for metric, split in offers:
                objective = Objective(task, metric, split, protocol)
                first = ["STS-B:spearman"] * objective.is_cost
                texts = [*first, str(objective)]
                assert parse_objectives(texts, allow_test=True)[-1] == objective


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("support:ndcg@10", "support:ndcg@10:dev"),
        ("support:recall@100:test", "support:recall@100:test"),
        ("Intent:macro_f1:dev:logreg-10fold", "Intent:macro_f1:dev"),
        ("pairs:pearson", "pairs:pearson:dev"),
        ("Banking:accuracy:test:mteb", "Banking:accuracy:test:mteb"),
        ("Quora:ndcg_at_10", "Quora:ndcg_at_10:dev"),
        ("tickets:recall@p90", "tickets:recall@p90:dev"),
        ("tickets:f1:dev:plugin", "tickets:f1:dev:plugin"),
    ],
)
def test_a_name_of_ones_own_has_the_protocol_of_its_metric(text: str, whole: str) -> None:
    (found,) = parse_objectives([text], allow_test=True)
    assert found.is_own and str(found) == whole
    assert parse_objectives([whole], allow_test=True) == (found,)
    assert found.suite == ("mteb" if found.protocol == "mteb" else "own")


def test_every_score_of_a_table_has_a_name_that_is_read_back() -> None:
    for name in (
        "STS-B:spearman:dev",
        "STS12:pearson:test:cosine@32",
        "TREC:accuracy:test:senteval-5fold-folds-1111",
        "support:ndcg@10:dev",
        "support:ndcg@10:dev:retrieval@8",
    ):
        assert str(objective_named(name)) == name
