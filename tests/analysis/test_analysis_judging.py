"""Verdicts on studies that lie on disk, by the library and by the command."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis_samples import DEV, PEARSON, Trial, config, score, write_study
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.errors import StudyError
from tune_sentcl.judging.comparing import ComparisonRules
from tune_sentcl.judging.judgement import judge, judge_winner
from tune_sentcl.store import Study

TEXT = """
name = "tiny"
trials = 3
[[block]]
fixed.method.name = "scl"
grid.method.lambda = [0.5, 0.1, 0.3]
"""


def seeded(
    number: float,
    values: Sequence[float | None],
    first: int = 0,
    evaluation: Mapping[str, Any] | None = None,
    **more: Any,
) -> list[Trial]:
    """One configuration of SCL with this lambda, one seed a value; None: the seed failed."""
    measured = evaluation or {}
    name = f"lambda{round(10 * number)}"
    return [
        Trial(
            f"{name}seed{seed}",
            config(seed, method={"name": "scl", "lambda": number}, evaluation=measured),
            [score(DEV, value), score(PEARSON, None if value is None else -value)],
            "failed" if value is None else "finished",
            name,
            **more,
        )
        for seed, value in enumerate(values, first)
    ]


def drawn(count: int, centre: float, stream: int) -> list[float]:
    rng = np.random.default_rng(stream)
    return [rng.normal() * 0.5 + centre for _ in range(count)]


def three(path: Path, seeds: int, text: str = TEXT) -> Study:
    """Three lambdas; 0.3 is 2 points, or 4 sds, better than 0.5, and 0.1 hardly."""
    trials = [
        *seeded(0.5, drawn(seeds, 70.0, 1)),
        *seeded(0.1, drawn(seeds, 70.3, 4)),
        *seeded(0.3, drawn(seeds, 72.0, 3)),
    ]
    return write_study(path, trials, ["STS-B:spearman"], text=text)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Twelve seeds of each lambda; tests only read it."""
    return three(tmp_path_factory.mktemp("many"), 12)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Three seeds of each; likewise."""
    return three(tmp_path_factory.mktemp("few"), 3)


def run(*arguments: object) -> tuple[int, str, str]:
    """The command line in this process."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_the_winner_is_judged_against_baseline_and_runner_up(many: Study) -> None:
    found = judge_winner(many)
    assert [one.asked for one in found] == ["baseline", "runner-up"]
    assert [(one.a.name, one.b.name) for one in found] == [
        ("lambda3", "lambda5"),  # the first point of the grid
        ("lambda3", "lambda1"),
    ]
    assert [one.verdict for one in found] == ["ESTABLISHED"] * 2
    row = found[0].row()
    assert row["comparisons"] == 3
    assert row["p"] < row["p_corrected"] <= 0.05
    assert 0 < row["low"] < row["difference"] < row["high"]
    assert row["low"] < row["bootstrap_low"] < row["bootstrap_high"] < row["high"]
    assert (row["n"], row["paired"], row["data"]) == (12, True, "root")
    expected = np.subtract(drawn(12, 72.0, 3), drawn(12, 70.0, 1))
    assert row["difference"] == pytest.approx(expected.mean())
    assert row["sd"] == pytest.approx(expected.std(ddof=1))
    assert "lambda=0.3 (lambda3) scores higher than" in row["sentence"]


def test_three_seeds_ask_for_more_and_those_establish_it(tmp_path: Path, few: Study) -> None:
    asked = judge(few, "lambda3", "lambda5")
    assert asked.verdict == "NEEDS MORE SEEDS"
    assert asked.row()["low"] is None
    more = asked.found.more_seeds
    assert more is not None
    assert judge(three(tmp_path, 3 + more), "lambda3", "lambda5").verdict == "ESTABLISHED"


def test_what_is_no_better_is_not_established(many: Study) -> None:
    for a, b in (("lambda1", "lambda5"), ("lambda5", "lambda1")):
        found = judge(many, a, b, rules=ComparisonRules(max_seeds=20))
        assert (found.verdict, found.found.reverse) == ("NOT ESTABLISHED", False)


def test_only_the_direction_that_was_claimed_is_established(many: Study) -> None:
    found = judge(many, "lambda5", "lambda3")
    assert found.verdict == "NOT ESTABLISHED"
    assert found.found.reverse
    assert found.sentence.startswith("method=scl, lambda=0.3 (lambda3) scores higher than")


@pytest.mark.parametrize(
    ("plain", "baseline"),
    [
        ({"method": {"name": "none"}}, "plain"),
        ({"method": {"name": "scl", "lambda": 0.0}}, "plain"),
        ({"method": {"name": "sbert"}}, "lambda5"),
    ],
)
def test_the_baseline(tmp_path: Path, plain: dict[str, Any], baseline: str) -> None:
    other = [
        Trial(f"plain{seed}", config(seed, **plain), [score(DEV, 60.0)], configuration="plain")
        for seed in range(3)
    ]
    trials = [*seeded(0.3, [72.0] * 3), *other, *seeded(0.5, [71.0, 71.1, 71.3])]
    study = write_study(tmp_path, trials, text=TEXT)
    found = judge_winner(study)
    assert found[0].b.name == baseline
    assert found[-1].b.name == "lambda5"
    named = judge_winner(study, {"lambda": 0.5})
    assert [(one.asked, one.b.name) for one in named] == [("baseline and runner-up", "lambda5")]


def test_a_baseline_that_wins_is_beaten_by_nobody(tmp_path: Path) -> None:
    trials = [*seeded(0.5, drawn(9, 72.0, 1)), *seeded(0.1, drawn(9, 70.0, 2))]
    (found,) = judge_winner(write_study(tmp_path, trials, text=TEXT))
    assert (found.a.name, found.b.name) == ("lambda1", "lambda5")
    assert found.verdict == "NOT ESTABLISHED"
    assert "is the baseline and the winner" in found.notes[0]


def test_no_baseline_has_to_be_named(tmp_path: Path) -> None:
    study = write_study(tmp_path, [*seeded(0.1, [1.0, 2.0]), *seeded(0.3, [2.0, 3.0])])
    with pytest.raises(StudyError, match="--baseline"):
        judge_winner(study)
    assert judge_winner(study, "lambda1")[0].asked == "baseline and runner-up"


def test_a_configuration_that_lost_a_seed_wins_only_where_all_did(tmp_path: Path) -> None:
    trials = [
        *seeded(0.1, [70.0, 70.2, 70.1]),
        *seeded(0.3, [99.0, None, None]),
        *seeded(0.5, [60.0, 61.0, 60.2]),
    ]
    found = judge_winner(write_study(tmp_path, trials, text=TEXT))
    assert found[0].a.name == "lambda1"
    assert found[0].found.comparisons == 3


def test_fresh_seeds_choose_nobody_and_are_quoted(tmp_path: Path) -> None:
    trials = [
        *seeded(0.5, [70.0, 70.2, 70.1]),
        *seeded(0.1, [71.0, 71.3, 71.1]),
        *seeded(0.1, [10.0, 11.0], 1000, origin="confirm"),
        *seeded(0.3, [71.2, 70.8, 71.2]),
        *seeded(0.3, [99.0], 1000, origin="confirm"),
    ]
    found = judge_winner(write_study(tmp_path, trials, text=TEXT))
    assert found[0].a.name == "lambda1"
    row = found[0].row()
    assert (row["a_fresh_mean"], row["a_fresh_n"], row["a_n"]) == (10.5, 2, 5)
    assert (row["n"], row["paired"]) == (3, True)
    assert any("2 fresh seeds" in note and "10.50 +- 0.71" in note for note in found[0].notes)
    assert any("lacks seeds that the other has: 1000,1001" in note for note in found[0].notes)


MEASURING = (
    {"own": ["mine=here"], "suites": []},
    {"own": ["mine=here", "more=there"], "protocols": ["cosine"], "classifier_seeds": 2},
)


def test_what_only_measures_is_no_difference(tmp_path: Path) -> None:
    """As where seeds of one configuration were asked for more scores than another's."""
    trials = [
        *seeded(0.5, [70.0, 70.2, 70.1], evaluation=MEASURING[1]),
        *seeded(0.3, [72.0, 72.1, 72.3], evaluation=MEASURING[0]),
    ]
    text = f"{TEXT}fixed.evaluation.own = 'mine=elsewhere'\n"
    study = write_study(tmp_path, trials, text=text)
    first, *_ = judge_winner(study)
    assert (first.a.name, first.b.name) == ("lambda3", "lambda5"), "the grid's first point"
    assert "method=scl, lambda=0.3 (lambda3) scores higher than" in first.sentence
    assert "than method=scl, lambda=0.5 (lambda5) on" in first.sentence
    shaped = seeded(0.1, [71.0], evaluation={"every": 5, "select": "best"})
    found = judge_winner(write_study(tmp_path / "more", [*trials, *shaped], text=text))
    assert any("every=5, select=best" in one.sentence for one in found), "which do more"


def losing(values: Sequence[float], lost: Mapping[int, Any], number: float = 0.3) -> list[Trial]:
    """A configuration of which some seeds were lost, by how their trials ended."""
    kept = seeded(number, values)
    return [
        replace(one, scores=[], status=lost[seed]) if seed in lost else one
        for seed, one in enumerate(kept)
    ]


LOST = {0: "pruned", 4: "failed", 6: "pruned", 8: "failed"}


def test_seeds_that_a_failure_or_a_rung_has_chosen_establish_nothing(tmp_path: Path) -> None:
    better = losing(drawn(12, 76.0, 3), LOST)
    study = write_study(tmp_path, [*better, *seeded(0.5, drawn(12, 70.0, 1))])
    for a, b in (("lambda3", "lambda5"), ("lambda5", "lambda3")):
        found = judge(study, a, b)
        assert (found.verdict, found.found.more_seeds) == ("NOT ESTABLISHED", None)
        assert not found.found.reverse
        assert "is not established" in found.sentence
        assert "may be the lucky ones" in found.sentence
        assert any("lost 4 of 12 seeds: 4,8 failed; 0,6 stopped" in note for note in found.notes)
        assert any("lacks seeds that the other has: 0,4,6,8" in note for note in found.notes)
    code, _, err = run("judge", tmp_path, "lambda3", "lambda5")
    assert code == 1
    assert "lost 4 of 12 seeds" in err


def test_a_loss_counts_among_configurations_without_common_seeds(tmp_path: Path) -> None:
    better, other = losing(drawn(12, 76.0, 3), LOST), seeded(0.5, drawn(12, 70.0, 1), 100)
    found = judge(write_study(tmp_path, [*better, *other]), "lambda3", "lambda5")
    assert not found.found.paired
    assert (found.verdict, found.found.more_seeds) == ("NOT ESTABLISHED", None)


def test_seeds_that_both_have_lost_are_said_and_count_for_neither(tmp_path: Path) -> None:
    sides = (losing(drawn(12, 76.0, 3), LOST), losing(drawn(12, 70.0, 1), LOST, 0.5))
    study = write_study(tmp_path, [one for side in sides for one in side])
    found = judge(study, "lambda3", "lambda5")
    assert found.verdict == "ESTABLISHED"
    assert sum("lost 4 of 12 seeds" in note for note in found.notes) == 2


def test_seeds_that_one_lacks_are_said_of_what_is_established_too(tmp_path: Path) -> None:
    trials = [*seeded(0.5, drawn(12, 70.0, 1)), *seeded(0.3, drawn(10, 76.0, 3))]
    found = judge(write_study(tmp_path, trials), "lambda3", "lambda5")
    assert found.verdict == "ESTABLISHED"
    assert any("lacks seeds that the other has: 10,11" in note for note in found.notes)


def test_pairs_that_lost_seeds_help_no_other_claim(tmp_path: Path) -> None:
    trials = [*seeded(0.5, drawn(12, 70.0, 1)), *seeded(0.3, drawn(12, 72.0, 3))]
    lost = losing(drawn(12, 60.0, 2), {3: "failed"}, 0.1)
    whole = write_study(tmp_path / "a", [*trials, *seeded(0.1, drawn(12, 60.0, 2))])
    some = write_study(tmp_path / "b", [*trials, *lost])
    found = [judge(study, "lambda3", "lambda5").found for study in (whole, some)]
    assert [one.comparisons for one in found] == [3, 3]
    assert found[0].p == found[1].p
    assert found[0].p_corrected < found[1].p_corrected == pytest.approx(3 * found[1].p)


def plain(values: Sequence[float], pooling: str = "mean") -> list[Trial]:
    """The encoder as it is, with some seeds; nothing is drawn."""
    return [
        Trial(
            f"{pooling}{seed}",
            config(seed, "none", encoder={"pooling": pooling}),
            [score(DEV, value)],
            configuration=pooling,
        )
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize("seeds", [1, 3])
def test_where_nothing_is_drawn_the_sign_is_the_verdict(tmp_path: Path, seeds: int) -> None:
    trials = [*plain([47.29] * seeds), *plain([20.29] * 2, "cls")]
    study = write_study(tmp_path, [*trials, *plain([20.29], "first_last")])
    found = judge(study, "mean", "cls")
    assert found.verdict == "ESTABLISHED"
    assert "by 27.00 points (no seed changes either score" in found.sentence
    row = found.row()
    assert (row["n"], row["drawn"], row["p_corrected"]) == (1, False, 0.0)
    assert not any("lacks seeds" in note for note in found.notes)
    against = judge(study, "cls", "mean")
    assert (against.verdict, against.found.reverse) == ("NOT ESTABLISHED", True)
    assert against.sentence == found.sentence
    same = judge(study, "cls", "first_last")
    assert (same.verdict, same.found.more_seeds) == ("NOT ESTABLISHED", None)
    assert "score the same" in same.sentence


def test_a_number_that_nothing_draws_is_held_against_every_seed(tmp_path: Path) -> None:
    values = drawn(12, 76.0, 3)
    lost = Trial("lost", config(9, "none", encoder={"pooling": "mean"}), [], "failed", "mean")
    study = write_study(tmp_path, [*plain([70.0]), lost, *seeded(0.3, values)])
    found = judge(study, "lambda3", "mean")
    assert found.found.values == pytest.approx([value - 70.0 for value in values])
    assert (found.verdict, found.found.paired) == ("ESTABLISHED", True)
    assert any("scores the same with every seed" in note for note in found.notes)
    assert not any("lacks" in note or "lost" in note for note in found.notes)
    chosen = write_study(tmp_path / "b", [*plain([70.0]), *losing(values, LOST)])
    assert judge(chosen, "lambda3", "mean").verdict == "NOT ESTABLISHED"


def test_trap_what_varies_is_drawn_whatever_its_method_is(tmp_path: Path) -> None:
    study = write_study(tmp_path, [*plain([70.0, 70.5, 71.0]), *plain([60.0] * 3, "cls")])
    found = judge(study, "mean", "cls")
    assert found.found.drawn
    assert found.row()["n"] == 3


def test_seeds_are_matched_where_too_few_are_common(tmp_path: Path) -> None:
    trials = [*seeded(0.5, [70.0, 70.2, 70.1, 70.0]), *seeded(0.1, [71.0, 71.3, 71.1, 72.0], 50)]
    found = judge(write_study(tmp_path, trials), "lambda1", "lambda5")
    assert not found.found.paired
    assert found.found.values == pytest.approx([1.0, 1.1, 1.0, 2.0])
    assert any("matched" in note for note in found.notes)


def test_stopped_configurations_count_as_comparisons(tmp_path: Path) -> None:
    trials = [
        *seeded(0.1, [70.0, 70.2, 70.1]),
        *seeded(0.5, [60.0, 61.0, 60.2]),
        Trial("p", config(0, "sbert"), [], "pruned", "p"),
    ]
    study = write_study(tmp_path, trials)
    assert judge(study, "lambda1", "lambda5").found.comparisons == 3


def test_another_score_is_judged_and_the_winner_stays(many: Study) -> None:
    found = judge_winner(many, objective=PEARSON)
    assert {one.a.name for one in found} == {"lambda3"}
    assert found[0].objective == "STS-B:pearson:dev"
    assert all(one.found.reverse for one in found)  # the samples' Pearson is -Spearman


def test_toy_and_real_numbers_never_meet(tmp_path: Path) -> None:
    toy = [
        Trial(f"toy{s}", config(s, "sbert", evaluation={"data": "toy"}), [score(DEV, 99.0, "toy")])
        for s in range(3)
    ]
    study = write_study(tmp_path, [*seeded(0.5, [70.0] * 3), *seeded(0.1, [71.0] * 3), *toy])
    assert judge_winner(study, "lambda5")[0].a.name == "lambda1"
    with pytest.raises(StudyError, match="fits no configuration"):
        judge(study, "sbert", "lambda1")


@pytest.mark.parametrize(
    "name", ["lambda3", "lambda3seed1", "lambda3s", {"lambda": 0.3}, {"method.lambda": 0.3}]
)
def test_a_configuration_has_many_names(few: Study, name: Any) -> None:
    assert judge(few, name, "lambda5").a.name == "lambda3"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lambda", "fits several configurations"),
        ("nobody", "fits no configuration"),
        ("", "fits no configuration"),
        ({"lambda": 0.9}, "fits no configuration"),
        ({"method": "scl"}, "fits several configurations"),
        ({"lamda": 0.3}, "is no knob"),
        ({"lambda": 0.5}, "compared with itself"),
    ],
)
def test_a_name_that_fits_not_one_is_refused(few: Study, name: Any, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        judge(few, name, "lambda5")


def test_an_empty_study_is_refused(tmp_path: Path) -> None:
    study = write_study(tmp_path, [])
    with pytest.raises(StudyError, match="Run its space first"):
        judge(study, "a", "b")
    with pytest.raises(StudyError, match="two configurations"):
        judge_winner(study)
    failed = write_study(tmp_path / "failed", [*seeded(0.1, [None]), *seeded(0.3, [1.0])])
    with pytest.raises(StudyError, match="no finished trial"):
        judge(failed, "lambda1", "lambda3")


@pytest.mark.parametrize(
    ("study", "names", "code", "word"),
    [
        ("many", ("lambda=0.3", "lambda=0.5"), 0, "ESTABLISHED: "),
        ("many", ("lambda=0.1,method=scl", "lambda3seed0"), 1, "NOT ESTABLISHED: "),
        ("few", ("lambda3", "lambda5"), 3, "MORE SEEDS: "),
        ("many", (), 0, "ESTABLISHED: "),
        ("many", ("--baseline", "lambda=0.1"), 0, "ESTABLISHED: "),
        ("many", ("--objective", "STS-B:pearson"), 1, "NOT ESTABLISHED: "),
        ("few", (), 3, "MORE SEEDS: "),
    ],
)
def test_the_exit_code_is_the_verdict(
    request: pytest.FixtureRequest, study: str, names: tuple[Any, ...], code: int, word: str
) -> None:
    path = request.getfixturevalue(study).files.where
    shown, out, _ = run("judge", path, *names)
    assert shown == code
    assert word in out
    told, text, _ = run("judge", path, *names, "--json")
    assert told == code
    for row in json.loads(text):
        assert row["verdict"] in ("ESTABLISHED", "NOT ESTABLISHED", "NEEDS MORE SEEDS")
        assert row["sentence"] in out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("lambda3",), "Name B too"),
        (("lambda3", "lambda5", "--baseline", "lambda1"), "cannot be combined with A and B"),
        (("--alpha", "0"), "between 0 and 1"),
        (("--most-seeds", "2"), "3 or more"),
        (("lambda3", "lambda="), "KNOB=VALUE"),
        (("lambda3", "lambda5", "--objective", "STS-C:spearman"), "STS-C"),
    ],
)
def test_bad_options_are_refused(few: Study, arguments: tuple[str, ...], word: str) -> None:
    code, out, err = run("judge", few.files.where, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert word in err
