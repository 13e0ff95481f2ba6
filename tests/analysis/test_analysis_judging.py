"""Verdicts on studies that lie on disk, by the library and by the command."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis_samples import DEV, PEARSON, Trial, config, score, write_study
from scipy import stats
from typer.testing import CliRunner

from tune_sentcl.cli import app
from tune_sentcl.errors import StudyError
from tune_sentcl.judging.evidence import older_noise, shown
from tune_sentcl.judging.judgement import Judgement
from tune_sentcl.judging.judgement import judge as judged
from tune_sentcl.judging.statistics import critical_t
from tune_sentcl.store import Study
from tune_sentcl.store.manifest import Confirmation, SeedPlan


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


def lambdas(seeds: int, first: int = 0, stream: int = 0, **more: Any) -> list[Trial]:
    """Three lambdas; 0.3 is 2 points, or 4 sds, better than 0.5, and 0.1 hardly."""
    centres = {0.5: (70.0, 1), 0.1: (70.3, 4), 0.3: (72.0, 3)}
    return [
        trial
        for number, (centre, own) in centres.items()
        for trial in seeded(number, drawn(seeds, centre, stream + own), first, **more)
    ]


def judge(study: Study, a: Any, b: Any) -> Judgement:
    """The verdict on two configurations."""
    (judgement,) = judged(study, a, b)
    return judgement


def planned(
    path: Path, trials: Sequence[Trial], seeds: int, *fresh: int, halved: bool = False
) -> Study:
    """A study whose search was asked for the first seeds; then confirmations for fresh ones."""
    grid = dict.fromkeys(one.configuration for one in trials if one.origin != "confirm")
    ran = {one.configuration for one in trials if one.origin == "confirm"}
    names = tuple(name for name in ("lambda3", "lambda5", "lambda1") if name in ran)
    plan = SeedPlan(
        tuple(range(seeds)),
        None if halved else len(grid),
        tuple(sorted(grid, key="lambda5".__ne__)),
        tuple(
            Confirmation(tuple(range(1000 * place, 1000 * place + count)), names)
            for place, count in enumerate(fresh, 1)
        ),
    )
    return write_study(path, trials, ["STS-B:spearman"], plan=plan)


def unplanned(path: Path, trials: Sequence[Trial]) -> Study:
    """A study of which nothing but the first point of the grid is known."""
    plan = SeedPlan((), None, ("lambda5",))
    return write_study(path, trials, ["STS-B:spearman"], plan=plan)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Twelve planned seeds of each lambda; tests only read it."""
    return planned(tmp_path_factory.mktemp("many"), lambdas(12), 12)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Three seeds of each, which were not planned; likewise."""
    path = tmp_path_factory.mktemp("few")
    return unplanned(path, lambdas(3))


def run(*arguments: object) -> tuple[int, str, str]:
    """The command line in this process."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_seeds_in_different_precision_are_told(tmp_path: Path) -> None:
    """Of two configurations that are compared, and of the only one of a report."""
    alike = [*seeded(0.3, [72.0, 72.4], precision="bf16"), *seeded(0.5, [70.0, 70.2])]
    (found,) = judged(unplanned(tmp_path / "one", alike))
    assert not [note for note in found.notes if "precision" in note]  # the other's is unknown
    apart = [
        *seeded(0.3, [72.0, 72.4], precision="bf16"),
        *seeded(0.5, [70.0], precision="fp32"),
        *seeded(0.5, [70.2], 1, precision="tf32"),
        *seeded(0.1, [69.0], precision="fp32"),
        *seeded(0.1, [69.2], 1, precision="bf16"),
    ]
    study = unplanned(tmp_path / "two", apart)
    (first,) = judged(study)
    said = [note for note in first.notes if "(seeds " in note]
    assert said == [
        "Not all seeds were trained in one precision, which may be the difference. "
        "lambda=0.3 (lambda3): bf16 (seeds 0,1); "
        "lambda=0.5 (lambda5): fp32 (seeds 0), tf32 (seeds 1).",
    ]
    code, _, told = run("judge", tmp_path / "two")
    assert code == 3 and "trained in one precision" in " ".join(told.split())
    assert run("report", tmp_path / "two", "--out", tmp_path / "page.html")[0] == 0
    assert "trained in one precision" in (tmp_path / "page.html").read_text()
    unplanned(tmp_path / "single", apart[4:])
    assert run("report", tmp_path / "single", "--out", tmp_path / "page.html")[0] == 0
    assert "trained in one precision" in (tmp_path / "page.html").read_text()


def test_the_winner_is_judged_against_baseline_and_runner_up(many: Study) -> None:
    found = judged(many)
    assert [one.asked for one in found] == ["baseline", "runner-up"]
    assert [(one.a.name, one.b.name) for one in found] == [
        ("lambda3", "lambda5"),  # the first point of the grid
        ("lambda3", "lambda1"),
    ]
    assert [one.verdict for one in found] == ["ESTABLISHED"] * 2
    rows = [one.row() for one in found]
    assert [row["procedure"] for row in rows] == ["Dunnett", "Tukey"]
    row = rows[0]
    assert (row["configurations"], row["level"]) == (3, pytest.approx(0.96))
    assert row["p"] <= 0.04
    assert 0 < row["low"] < row["difference"] < row["high"]
    assert (row["n"], row["seeds"], row["data"]) == (pytest.approx(12), "planned", "root")
    expected = np.mean(drawn(12, 72.0, 3)) - np.mean(drawn(12, 70.0, 1))
    assert row["difference"] == pytest.approx(expected)
    assert "lambda=0.3 (lambda3) scores 1.83 points higher than" in row["sentence"]


def test_what_is_no_better_is_not_established(many: Study) -> None:
    for a, b in (("lambda1", "lambda5"), ("lambda5", "lambda1")):
        found = judge(many, a, b)
        assert (found.verdict, found.seeds_needed) == ("UNDECIDED", None)
        assert any("100 fresh seeds of each would probably not" in note for note in found.notes)


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
    study = unplanned(tmp_path, trials)
    found = judged(study)
    assert found[0].b.name == baseline
    assert found[-1].b.name == "lambda5"
    named = judged(study, baseline={"lambda": 0.5})
    assert [(one.asked, one.b.name) for one in named] == [("baseline and runner-up", "lambda5")]


def test_a_baseline_that_wins_is_beaten_by_nobody(tmp_path: Path) -> None:
    trials = [*seeded(0.5, drawn(9, 72.0, 1)), *seeded(0.1, drawn(9, 70.0, 2))]
    (found,) = judged(planned(tmp_path, trials, 9))
    assert (found.a.name, found.b.name) == ("lambda1", "lambda5")
    assert found.verdict == "REVERSED"
    assert "The winner is the baseline" in found.notes[0]


def test_no_baseline_has_to_be_named(tmp_path: Path) -> None:
    study = unplanned(tmp_path, [*seeded(0.1, [1.0, 2.0]), *seeded(0.3, [2.0, 3.0])])
    with pytest.raises(StudyError, match="--baseline"):
        judged(study)
    assert judged(study, baseline="lambda1")[0].asked == "baseline and runner-up"


def test_a_configuration_that_lost_a_seed_wins_only_where_all_did(tmp_path: Path) -> None:
    trials = [
        *seeded(0.1, [70.0, 70.2, 70.1]),
        *seeded(0.3, [99.0, None, None]),
        *seeded(0.5, [60.0, 61.0, 60.2]),
    ]
    found = judged(planned(tmp_path, trials, 3))
    assert found[0].a.name == "lambda1"
    assert found[0].row()["configurations"] == 3


def test_fresh_seeds_choose_no_winner_and_are_quoted(tmp_path: Path) -> None:
    trials = [
        *seeded(0.5, [70.0, 70.2, 70.1]),
        *seeded(0.1, [71.0, 71.3, 71.1]),
        *seeded(0.1, [10.0, 11.0], 1000, origin="confirm"),
        *seeded(0.3, [71.2, 70.8, 71.2]),
        *seeded(0.3, [99.0], 1000, origin="confirm"),
    ]
    found = judged(planned(tmp_path, trials, 3, 2))
    assert found[0].a.name == "lambda1"
    row = found[0].row()
    assert (row["n"], row["seeds"], row["b"]) == (3, "planned", "lambda5")
    assert any("10.50 +- 0.71 on 2 fresh seeds: quote this" in note for note in found[0].notes)


@pytest.mark.parametrize("spread", [0.0, 1e-14, 0.3])
def test_what_seeds_can_show_is_not_told_of_configurations_that_scored_alike(
    tmp_path: Path, spread: float
) -> None:
    trials = [
        *seeded(0.1, [71.0, 71.0 + spread, 71.0 - spread]),
        *seeded(0.5, [71.0 + spread, 71.0, 71.0]),
    ]
    noise = older_noise([unplanned(tmp_path, trials)], DEV)
    text = shown(SeedPlan((0, 1, 2), 2), 0, noise)
    assert ("points" in text) == (spread == 0.3) and "e-" not in text


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
    study = unplanned(tmp_path, trials)
    first, *_ = judged(study)
    assert (first.a.name, first.b.name) == ("lambda3", "lambda5"), "the grid's first point"
    assert "Whether lambda=0.3 (lambda3) scores higher than" in first.sentence
    assert "than lambda=0.5 (lambda5) on" in first.sentence
    shaped = seeded(0.1, [71.0, 71.2, 71.1], evaluation={"every": 5, "select": "best"})
    found = judged(unplanned(tmp_path / "more", [*trials, *shaped]))
    assert any("every=5 (lambda1)" in one.sentence for one in found), "which does more"


def losing(values: Sequence[float], lost: Mapping[int, Any], number: float = 0.3) -> list[Trial]:
    """A configuration of which some seeds were lost, by how their trials ended."""
    kept = seeded(number, values)
    return [
        replace(one, scores=[], status=lost[seed]) if seed in lost else one
        for seed, one in enumerate(kept)
    ]


LOST = {0: "failed", 4: "failed", 6: "failed", 8: "failed"}


def best_of(trials: Sequence[Trial]) -> list[Trial]:
    """The same, with a configuration that got two seeds only."""
    return [*trials, *seeded(0.7, [69.0, 69.5])]


@pytest.mark.parametrize(
    ("seeds", "change", "halved", "reason"),
    [
        (12, best_of, True, "the search gave all seeds only to the best configurations"),
        (0, list, True, "no common plan of seeds is recorded"),
        (12, best_of, False, "not all planned trials have finished"),
        (13, list, False, "not all planned trials have finished"),
    ],
)
def test_seeds_that_were_not_planned_or_not_run_support_no_claim(
    tmp_path: Path, seeds: int, change: Any, halved: bool, reason: str
) -> None:
    # Finds survivors' lucky scores, and seeds that were added after a look, as evidence.
    trials = change(lambdas(12))
    found = judge(planned(tmp_path / "a", trials, seeds, halved=halved), "lambda3", "lambda5")
    assert (found.verdict, found.source, found.comparison) == ("UNDECIDED", "planned", None)
    needed = found.seeds_needed
    told = f"{reason}; only fresh seeds can support a claim: --confirm {needed}."
    assert found.sentence.endswith(told) and found.next_step.endswith(f"--confirm {needed}")
    fresh = [t for t in lambdas(6, 1000, 50, origin="confirm") if "lambda1" not in t.trial_id]
    study = planned(tmp_path / "b", [*trials, *fresh], seeds, 6, halved=halved)
    found = judge(study, "lambda3", "lambda5")
    assert (found.verdict, found.source) == ("ESTABLISHED", "fresh")
    assert judge(study, "lambda3", "lambda1").verdict == "UNDECIDED"


def test_a_configuration_that_was_added_supports_no_claim(tmp_path: Path) -> None:
    plan = SeedPlan(tuple(range(12)), 2, ("lambda3", "lambda5"))
    study = write_study(tmp_path, lambdas(12), ["STS-B:spearman"], plan=plan)
    assert judge(study, "lambda3", "lambda5").row()["configurations"] == 2
    found = judge(study, "lambda3", "lambda1")
    assert "lambda=0.1 (lambda1) was added after the planned seeds; only fresh" in found.sentence


@pytest.mark.parametrize("first", [0, 100])
def test_seeds_that_a_failure_has_chosen_establish_nothing(tmp_path: Path, first: int) -> None:
    better = losing(drawn(12, 76.0, 3), LOST)
    study = planned(tmp_path, [*better, *seeded(0.5, drawn(12, 70.0, 1), first)], 12)
    for a, b in (("lambda3", "lambda5"), ("lambda5", "lambda3")):
        found = judge(study, a, b)
        assert (found.verdict, found.source, found.comparison) == ("UNDECIDED", "planned", None)
        assert "is undecided: lambda=0.3 (lambda3) lost 4 seeds; only fresh" in found.sentence
        assert any("lost 4 of 12 seeds: 0,4,6,8 failed" in note for note in found.notes)
        assert found.seeds_needed
    code, _, err = run("judge", tmp_path, "lambda3", "lambda5")
    assert code == 3
    assert "lost 4 of 12 seeds" in err


def test_a_lost_seed_of_a_third_configuration_blocks_no_verdict(tmp_path: Path) -> None:
    # Finds a loss that weighs on all claims, and a lost configuration that is not counted.
    trials = [*seeded(0.5, drawn(12, 70.0, 1)), *seeded(0.3, drawn(12, 72.0, 3))]
    lost = losing(drawn(12, 60.0, 4), {3: "failed"}, 0.1)
    whole = planned(tmp_path / "a", [*trials, *seeded(0.1, drawn(12, 60.0, 4))], 12)
    some = planned(tmp_path / "b", [*trials, *lost], 12)
    found = [judge(study, "lambda3", "lambda5") for study in (whole, some)]
    assert [(one.verdict, one.source) for one in found] == [("ESTABLISHED", "planned")] * 2
    assert [one.row()["configurations"] for one in found] == [3, 3]
    assert [one.row()["df"] for one in found] == [22, 11]


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
    study = unplanned(tmp_path, [*trials, *plain([20.29], "first_last")])
    found = judge(study, "mean", "cls")
    assert found.verdict == "ESTABLISHED"
    assert "scores 27.00 points higher than" in found.sentence
    assert found.sentence.endswith("(no seed changes either score).")
    row = found.row()
    assert (row["n"], row["procedure"], row["p"]) == (1, "exact", 0.0)
    against = judge(study, "cls", "mean")
    assert against.verdict == "REVERSED"
    assert against.sentence == found.sentence
    same = judge(study, "cls", "first_last")
    assert (same.verdict, same.seeds_needed) == ("NO DIFFERENCE", None)
    assert "differ by at most 0.005 points" in same.sentence


def test_a_number_that_nothing_draws_is_held_against_every_seed(tmp_path: Path) -> None:
    values = drawn(12, 76.0, 3)
    lost = Trial("lost", config(9, "none", encoder={"pooling": "mean"}), [], "failed", "mean")
    study = planned(tmp_path, [*plain([70.0]), lost, *seeded(0.3, values)], 12)
    found = judge(study, "lambda3", "mean")
    assert found.row()["difference"] == pytest.approx(np.mean(values) - 70.0)
    assert (found.verdict, found.row()["n"]) == ("ESTABLISHED", 12)
    assert any("scores the same with every seed" in note for note in found.notes)
    assert not any("lost" in note for note in found.notes)
    chosen = planned(tmp_path / "b", [*plain([70.0]), *losing(values, LOST)], 12)
    assert judge(chosen, "lambda3", "mean").verdict == "UNDECIDED"


def test_trap_what_varies_is_drawn_whatever_its_method_is(tmp_path: Path) -> None:
    study = planned(tmp_path, [*plain([70.0, 70.5, 71.0]), *plain([60.0] * 3, "cls")], 3)
    found = judge(study, "mean", "cls")
    assert (found.row()["procedure"], found.row()["n"]) == ("Bonferroni t", 3)


def test_another_score_is_judged_and_the_winner_stays(many: Study) -> None:
    found = judged(many, objective=PEARSON)
    assert {one.a.name for one in found} == {"lambda3"}
    assert found[0].objective == "STS-B:pearson:dev"
    assert {one.verdict for one in found} == {"REVERSED"}  # the samples' Pearson is -Spearman


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
    study = unplanned(tmp_path, [])
    with pytest.raises(StudyError, match="Run its space first"):
        judge(study, "a", "b")
    with pytest.raises(StudyError, match="two configurations"):
        judged(study)
    failed = unplanned(tmp_path / "failed", [*seeded(0.1, [None]), *seeded(0.3, [1.0])])
    with pytest.raises(StudyError, match="no finished trial"):
        judge(failed, "lambda1", "lambda3")


@pytest.mark.parametrize(
    ("study", "names", "code", "word"),
    [
        ("many", ("lambda=0.3", "lambda=0.5"), 0, "ESTABLISHED: "),
        ("many", ("lambda=0.1,method=scl", "lambda3seed0"), 1, "REVERSED: "),
        ("few", ("lambda3", "lambda5"), 3, "UNDECIDED: "),
        ("many", (), 0, "ESTABLISHED: "),
        ("many", ("--baseline", "lambda=0.1"), 0, "ESTABLISHED: "),
        ("many", ("--objective", "STS-B:pearson"), 1, "REVERSED: "),
        ("many", ("--smallest", "5"), 1, "NO DIFFERENCE: "),
        ("many", ("--smallest", "5", "--expect-equal"), 0, "NO DIFFERENCE: "),
        ("many", ("--expect-equal",), 1, "ESTABLISHED: "),
        ("few", ("--expect-equal",), 3, "UNDECIDED: "),
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
        assert row["verdict"] in ("ESTABLISHED", "NO DIFFERENCE", "REVERSED", "UNDECIDED")
        assert row["sentence"] in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("lambda3",), "Name B too"),
        (("lambda3", "lambda5", "--baseline", "lambda1"), "cannot be combined with A and B"),
        (("--alpha", "0"), "between 0 and 1"),
        (("--smallest", "-1"), "0 or more"),
        (("lambda3", "lambda="), "KNOB=VALUE"),
        (("lambda3", "lambda5", "--objective", "STS-C:spearman"), "STS-C"),
    ],
)
def test_bad_options_are_refused(few: Study, arguments: tuple[str, ...], word: str) -> None:
    code, out, err = run("judge", few.files.where, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert word in err


@pytest.mark.parametrize(
    ("a", "b", "sign"), [("lambda3", "lambda5", 1), ("lambda5", "lambda3", -1)]
)
def test_the_printed_interval_is_that_of_the_printed_claim(
    many: Study, a: str, b: str, sign: int
) -> None:
    # Finds an interval of A - B beside "B scores higher".
    found = judge(many, a, b)
    assert found.verdict == ("ESTABLISHED" if sign > 0 else "REVERSED")
    assert found.sentence.startswith("lambda=0.3 (lambda3) scores 1.83 points higher")
    row, printed = found.row(), re.search(r"96% interval (\S+) to (\S+),", found.sentence)
    assert printed is not None
    ends = sorted((sign * row["low"], sign * row["high"]))
    assert [float(end) for end in printed.groups()] == pytest.approx(ends, abs=0.005)
    assert ends[0] > 0


@pytest.mark.parametrize("seeds", [1, 3])
def test_few_seeds_ask_for_as_many_fresh_ones_as_suffice(tmp_path: Path, seeds: int) -> None:
    # Finds a number that another procedure than that of the fresh seeds needs.
    before = planned(tmp_path / "a", lambdas(seeds), seeds)
    asked = judged(before)[0]
    assert asked.verdict == "UNDECIDED"
    assert seeds > 1 or "one seed does not show the noise" in asked.sentence
    more = asked.seeds_needed
    assert more is not None and asked.next_step.endswith(f"--confirm {more}")
    trials = [*lambdas(seeds), *lambdas(more, 1000, 50, origin="confirm")]
    after = judged(planned(tmp_path / "b", trials, seeds, more))[0]
    assert (after.verdict, after.source, after.next_step) == ("ESTABLISHED", "fresh", "")
    found, needed = after.comparison, critical_t(2 * (more - 1), 3, 0.04, with_control=True)
    assert found is not None
    assert (found.procedure, found.configurations, found.df) == ("Dunnett", 3, 2 * (more - 1))
    assert found.high - found.difference == pytest.approx(needed * found.error)
    assert stats.nct.sf(needed, found.df, 2.0 / np.sqrt(2 / more)) >= 0.8


def test_differences_that_no_table_shows_are_no_difference(tmp_path: Path) -> None:
    # Finds a test that calls "0.00 points higher" established.
    values = drawn(6, 70.0, 1)
    tiny = [value + 1e-5 + 1e-7 * seed for seed, value in enumerate(values)]
    study = planned(tmp_path, [*seeded(0.5, values), *seeded(0.3, tiny)], 6)
    for a, b in (("lambda3", "lambda5"), ("lambda5", "lambda3")):
        found = judge(study, a, b)
        assert found.verdict == "NO DIFFERENCE"
        assert "differ by at most 0.005 points" in found.sentence
        assert "higher" not in found.sentence


def test_a_collapsed_seed_is_named_and_counts(tmp_path: Path) -> None:
    # Finds a mean that hides a collapse: without seed 5 lambda 0.3 is 3 points better.
    values = drawn(12, 73.0, 3)
    values[5] = 40.0
    trials = [*seeded(0.5, drawn(12, 70.0, 1)), *seeded(0.1, drawn(12, 70.3, 4))]
    study = planned(tmp_path, [*trials, *seeded(0.3, values)], 12)
    for pair in (("lambda3", "lambda5"), ("lambda5", "lambda3")):
        found = judge(study, *pair)
        assert found.verdict == "UNDECIDED"
        assert any(
            "lambda3): 1 of 12 seeds scores far below the others (seed 5: " in note
            for note in found.notes
        )
    assert judge(study, "lambda1", "lambda5").row()["df"] == 11, "the others lose nothing"


def test_fresh_seeds_of_both_decide_alone(tmp_path: Path) -> None:
    # Finds means and a verdict of chosen and fresh seeds together.
    kept = [one for one in lambdas(6, 1000, 50, origin="confirm") if "lambda3" not in one.trial_id]
    fresh = [*kept, *seeded(0.3, drawn(6, 68.0, 53), 1000, origin="confirm")]
    found = judge(planned(tmp_path, [*lambdas(12), *fresh], 12, 6), "lambda3", "lambda5")
    row = found.row()
    assert (row["verdict"], row["seeds"], row["n"]) == ("REVERSED", "fresh", pytest.approx(6))
    assert "6 fresh seeds as blocks" in found.sentence


def test_a_tie_with_the_runner_up_leaves_the_exit_code(tmp_path: Path) -> None:
    # Finds an exit code of the worst verdict, and a runner-up where one baseline was named.
    tie = [*seeded(0.3, drawn(8, 72.0, 3)), *seeded(0.1, drawn(8, 72.0, 4))]
    study = planned(tmp_path, [*seeded(0.5, drawn(8, 70.0, 1)), *tie], 8)
    code, out, _ = run("judge", tmp_path)
    assert (code, "UNDECIDED: " in out) == (0, True)
    assert [one.verdict for one in judged(study)] == ["ESTABLISHED", "UNDECIDED"]
    code, out, _ = run("judge", tmp_path, "--baseline", "lambda=0.5", "--json")
    assert (code, len(json.loads(out))) == (0, 1)


def test_another_confirmation_decides_at_a_fifth_of_the_level(tmp_path: Path) -> None:
    # Finds seeds that are added to a judged confirmation, and one that blocks all later ones.
    tie = [*seeded(0.3, drawn(3, 70.0, 3), 1000), *seeded(0.5, drawn(3, 70.0, 1), 1000)]
    fresh = [replace(one, origin="confirm") for one in tie]
    first = judge(planned(tmp_path / "a", [*lambdas(3), *fresh], 3, 3), "lambda3", "lambda5")
    assert (first.verdict, first.source) == ("UNDECIDED", "fresh")
    again = [
        one for one in lambdas(8, 2000, 50, origin="confirm") if "lambda1" not in one.trial_id
    ]
    study = planned(tmp_path / "b", [*lambdas(3), *fresh, *again], 3, 3, 8)
    second = judge(study, "lambda3", "lambda5")
    assert (second.verdict, second.row()["n"]) == ("ESTABLISHED", 8)
    assert second.row()["level"] == pytest.approx(1 - 0.04 / 5)
    assert "99.2% interval" in second.sentence
    # The one that decides is kept, whatever follows it.
    study = planned(tmp_path / "c", [*lambdas(3), *again, *fresh], 3, 0, 8)
    plan = study.manifest.search
    assert plan is not None and judge(study, "lambda3", "lambda5").verdict == "ESTABLISHED"


def test_the_planned_verdict_stays_whatever_later_seeds_say(tmp_path: Path, many: Study) -> None:
    # Finds a fixed-sample test that is repeated on more seeds.
    later = [*seeded(0.5, drawn(9, 70.0, 61), 12), *seeded(0.3, drawn(9, 70.0, 62), 12)]
    found = judge(planned(tmp_path, [*lambdas(12), *later], 12), "lambda3", "lambda5")
    assert (found.source, found.comparison) == (
        "planned",
        judge(many, "lambda3", "lambda5").comparison,
    )


def test_a_lost_fresh_seed_is_no_way_back_to_the_chosen_ones(tmp_path: Path) -> None:
    # Finds a winner that fails on its fresh seeds and is established by those that chose it.
    fresh = lambdas(3, 1000, 50, origin="confirm")
    fresh[-1] = replace(fresh[-1], scores=[], status="failed")
    found = judge(planned(tmp_path, [*lambdas(6), *fresh], 6, 3), "lambda3", "lambda5")
    assert (found.verdict, found.comparison) == ("UNDECIDED", None)
    assert found.sentence.endswith("lost 1 fresh seed.") and "--confirm" in found.next_step


def test_a_pair_that_confirmation_does_not_run_has_no_such_command(tmp_path: Path) -> None:
    # Finds `--confirm` where neither winner, baseline nor runner-up is asked about.
    others = [t for number in (0.7, 0.8) for t in seeded(number, drawn(3, 60.0 + number, 7))]
    found = judge(planned(tmp_path, [*lambdas(3), *others], 3), "lambda8", "lambda7")
    assert (found.verdict, found.next_step) == ("UNDECIDED", "")
