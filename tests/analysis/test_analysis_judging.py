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
from tune_sentcl.judging.evidence import shown
from tune_sentcl.judging.statistics import critical_t, smallest_shown
from tune_sentcl.results.confirming import confirming_seeds
from tune_sentcl.results.judgement import Judgement
from tune_sentcl.results.judgement import judge as judged
from tune_sentcl.results.standings import Standings, older_noise
from tune_sentcl.store import Study
from tune_sentcl.store.manifest import Confirmation, SeedPlan


def seeded(
    number: float,
    values: Sequence[float | None],
    first: int = 0,
    evaluation: dict[str, Any] | None = None,
    **more: Any,
) -> list[Trial]:
    """One configuration of SCL with this lambda, one seed a value; None: the seed failed."""
    name = f"lambda{round(10 * number)}"
    return [
        Trial(
            f"{name}seed{seed}",
            config(seed, method={"name": "scl", "lambda": number}, evaluation=evaluation or {}),
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


def without_lambda1(trials: Sequence[Trial]) -> list[Trial]:
    return [one for one in trials if one.configuration != "lambda1"]


def losing(values: Sequence[float], lost: Mapping[int, Any], number: float = 0.3) -> list[Trial]:
    """A configuration of which some seeds were lost, by how their trials ended."""
    return [
        replace(one, scores=[], status=lost[seed]) if seed in lost else one
        for seed, one in enumerate(seeded(number, values))
    ]


LOST = {0: "failed", 4: "failed", 6: "failed", 8: "failed"}


def judge(study: Study, a: Any = "lambda3", b: Any = "lambda5") -> Judgement:
    """The verdict on two configurations."""
    (judgement,) = judged(study, a, b)
    return judgement


def planned(
    path: Path, trials: Sequence[Trial], seeds: int, *confirmed: int, halved: bool = False
) -> Study:
    """A study whose search was asked for the first seeds; then confirmations."""
    grid = dict.fromkeys(one.configuration for one in trials if one.origin != "confirm")
    ran = {one.configuration for one in trials if one.origin == "confirm"}
    names = tuple(name for name in ("lambda3", "lambda5", "lambda1") if name in ran)
    plan = SeedPlan(
        tuple(range(seeds)),
        None if halved else len(grid),
        tuple(sorted(grid, key="lambda5".__ne__)),
        tuple(
            Confirmation(tuple(range(1000 * place, 1000 * place + count)), names)
            for place, count in enumerate(confirmed, 1)
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
    (judgement,) = judged(unplanned(tmp_path / "one", alike))
    assert not [note for note in judgement.notes if "precision" in note]  # one is unknown
    apart = [
        *seeded(0.3, [72.0, 72.4], precision="bf16"),
        *seeded(0.5, [70.0], precision="fp32"),
        *seeded(0.5, [70.2], 1, precision="tf32"),
        *seeded(0.1, [69.0], precision="fp32"),
        *seeded(0.1, [69.2], 1, precision="bf16"),
    ]
    (judgement,) = judged(unplanned(tmp_path / "two", apart))
    assert [note for note in judgement.notes if "(seeds " in note] == [
        "Not all seeds were trained in the same precision, which may explain the difference. "
        "lambda=0.3 (lambda3): bf16 (seeds 0,1); "
        "lambda=0.5 (lambda5): fp32 (seeds 0), tf32 (seeds 1).",
    ]
    unplanned(tmp_path / "single", apart[4:])
    for study in ("two", "single"):
        page = tmp_path / f"{study}.html"
        code, _, _ = run("report", tmp_path / study, "--out", page)
        assert code == 0 and "trained in the same precision" in page.read_text()


def test_the_winner_is_judged_against_baseline_and_runner_up(many: Study) -> None:
    judgements = judged(many)
    assert [(one.asked, one.a.name, one.b.name, one.verdict) for one in judgements] == [
        ("baseline", "lambda3", "lambda5", "ESTABLISHED"),  # the first point of the grid
        ("runner-up", "lambda3", "lambda1", "ESTABLISHED"),
    ]
    row, other = (one.row() for one in judgements)
    assert (row["procedure"], other["procedure"]) == ("Dunnett", "Tukey")
    assert (row["configurations"], row["level"]) == (3, pytest.approx(0.96))
    assert row["p"] <= 0.04 and 0 < row["low"] < row["difference"] < row["high"]
    assert (row["n"], row["seeds"], row["data"]) == (12, "planned", "root")
    expected = np.mean(drawn(12, 72.0, 3)) - np.mean(drawn(12, 70.0, 1))
    assert row["difference"] == pytest.approx(expected)


def test_what_is_no_better_is_not_established(many: Study) -> None:
    for a, b in (("lambda1", "lambda5"), ("lambda5", "lambda1")):
        judgement = judge(many, a, b)
        assert (judgement.verdict, judgement.seeds_needed) == ("UNDECIDED", None)
        assert any("More seeds hardly help" in note for note in judgement.notes)


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
    judgements = judged(study)
    assert (judgements[0].b.name, judgements[-1].b.name) == (baseline, "lambda5")
    named = judged(study, baseline={"lambda": 0.5})
    assert [(one.asked, one.b.name) for one in named] == [("baseline and runner-up", "lambda5")]


def test_a_baseline_that_wins_is_beaten_by_nobody(tmp_path: Path) -> None:
    trials = [*seeded(0.5, drawn(9, 72.0, 1)), *seeded(0.1, drawn(9, 70.0, 2))]
    (judgement,) = judged(planned(tmp_path, trials, 9))
    assert (judgement.a.name, judgement.b.name) == ("lambda1", "lambda5")
    assert judgement.verdict == "REVERSED"
    assert "The winner is the baseline" in judgement.notes[0]


def test_no_baseline_has_to_be_named(tmp_path: Path) -> None:
    study = unplanned(tmp_path, [*seeded(0.1, [1.0, 2.0]), *seeded(0.3, [2.0, 3.0])])
    with pytest.raises(StudyError, match="--baseline"):
        judged(study)
    assert judged(study, baseline="lambda1")[0].asked == "baseline and runner-up"


def test_fresh_seeds_choose_no_winner_and_are_quoted(tmp_path: Path) -> None:
    trials = [
        *seeded(0.5, [70.0, 70.2, 70.1]),
        *seeded(0.1, [71.0, 71.3, 71.1]),
        *seeded(0.1, [10.0, 11.0], 1000, origin="confirm"),
        *seeded(0.3, [71.2, 70.8, 71.2]),
        *seeded(0.3, [99.0], 1000, origin="confirm"),
    ]
    first, *_ = judged(planned(tmp_path, trials, 3, 2))
    row = first.row()
    assert (row["a"], row["b"], row["n"], row["seeds"]) == ("lambda1", "lambda5", 3, "planned")
    assert any(
        "10.50 +- 0.71 on 2 confirmation seeds: report this mean" in note for note in first.notes
    )


def test_a_confirmation_that_was_stopped_goes_on_with_the_same_number(tmp_path: Path) -> None:
    """Another number begins another confirmation, and wastes the trials of this one."""
    trials = [
        *seeded(0.5, [70.0, 70.2, 70.1]),
        *seeded(0.5, [70.1, 70.3], 1000, origin="confirm"),
        *seeded(0.3, [71.0, 71.3, 71.1]),
        *seeded(0.3, [71.0], 1000, origin="confirm"),
    ]
    (judgement,) = judged(planned(tmp_path, trials, 3, 4))
    assert judgement.comparison is None and judgement.seeds_needed == 4
    assert judgement.next_step.endswith("--confirm 4")
    assert any(
        "has not ended: repeat the search with --confirm 4 to continue" in note
        for note in judgement.notes
    )


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


def test_a_configuration_with_more_seeds_hides_no_noise(tmp_path: Path) -> None:
    trials = [*lambdas(3), *seeded(0.3, drawn(2, 72.0, 9), 3)]
    sd, count = older_noise([unplanned(tmp_path, trials)], DEV)
    assert sd > 0 and count == 3


def test_what_only_measures_is_no_difference(tmp_path: Path) -> None:
    """As where seeds of one configuration were asked for more scores than another's."""
    more = {"own": ["mine=here", "more=there"], "protocols": ["cosine"], "classifier_seeds": 2}
    trials = [
        *seeded(0.5, [70.0, 70.2, 70.1], evaluation=more),
        *seeded(0.3, [72.0, 72.1, 72.3], evaluation={"own": ["mine=here"], "suites": []}),
    ]
    first, *_ = judged(unplanned(tmp_path / "less", trials))
    said = "Whether lambda=0.3 (lambda3) scores higher than lambda=0.5 (lambda5) on"
    assert first.sentence.startswith(said)
    shaped = seeded(0.1, [71.0, 71.2, 71.1], evaluation={"every": 5, "select": "best"})
    judgements = judged(unplanned(tmp_path / "more", [*trials, *shaped]))
    assert any("every=5 (lambda1)" in one.sentence for one in judgements), "which does more"


BEST_OF = seeded(0.7, [69.0, 69.5])
"""A configuration that got two seeds only."""


@pytest.mark.parametrize(
    ("seeds", "more", "halved", "reason"),
    [
        (12, BEST_OF, True, "the search trained only the best configurations with all seeds"),
        (0, [], True, "the study has no seeds that were planned before the search"),
        (12, BEST_OF, False, "not all planned trials have finished"),
        (13, [], False, "not all planned trials have finished"),
    ],
)
def test_seeds_that_were_not_planned_or_not_run_support_no_claim(
    tmp_path: Path, seeds: int, more: list[Trial], halved: bool, reason: str
) -> None:
    # Finds survivors' lucky scores, and seeds that were added after a look, as evidence.
    trials = [*lambdas(12), *more]
    judgement = judge(planned(tmp_path / "a", trials, seeds, halved=halved))
    assert (judgement.verdict, judgement.source) == ("UNDECIDED", "planned")
    needed, said = judgement.seeds_needed, f"{reason}."
    if halved:
        said = f"{reason}; only confirmation seeds can support a claim: --confirm {needed}."
        assert judgement.next_step.endswith(f"--confirm {needed}")
    else:
        assert "The search has not ended: repeat its command." in judgement.notes
    assert judgement.sentence.endswith(said)
    confirmed = without_lambda1(lambdas(6, 1000, 50, origin="confirm"))
    study = planned(tmp_path / "b", [*trials, *confirmed], seeds, 6, halved=halved)
    judgement = judge(study)
    assert (judgement.verdict, judgement.source) == ("ESTABLISHED", "confirm")
    assert judge(study, "lambda3", "lambda1").verdict == "UNDECIDED"


def test_new_seeds_that_a_later_search_chooses_by_are_fresh_no_more(tmp_path: Path) -> None:
    # Finds a winner that is established by the seeds that made it the winner.
    later = without_lambda1(lambdas(6, 1000, 50))
    judgement = judge(
        planned(tmp_path, [*lambdas(12), *later], 0, 6, halved=True), "lambda3", "lambda5"
    )
    assert (judgement.verdict, judgement.source) == ("UNDECIDED", "planned")


def test_a_configuration_that_was_added_supports_no_claim(tmp_path: Path) -> None:
    plan = SeedPlan(tuple(range(12)), 2, ("lambda3", "lambda5"))
    study = write_study(tmp_path, lambdas(12), ["STS-B:spearman"], plan=plan)
    assert judge(study).row()["configurations"] == 2
    sentence = judge(study, "lambda3", "lambda1").sentence
    assert (
        "lambda=0.1 (lambda1) was not trained with the planned seeds; only confirmation"
        in sentence
    )


@pytest.mark.parametrize("first", [0, 100])
def test_seeds_that_a_failure_has_chosen_establish_nothing(tmp_path: Path, first: int) -> None:
    better = losing(drawn(12, 76.0, 3), LOST)
    study = planned(tmp_path, [*better, *seeded(0.5, drawn(12, 70.0, 1), first)], 12)
    for pair in (("lambda3", "lambda5"), ("lambda5", "lambda3")):
        judgement = judge(study, *pair)
        assert (judgement.verdict, judgement.source) == ("UNDECIDED", "planned")
        assert (
            "is undecided: lambda=0.3 (lambda3) lost 4 seeds; only confirmation"
            in judgement.sentence
        )
        assert any("lost 4 of 12 seeds: seeds 0,4,6,8 failed" in note for note in judgement.notes)
        assert judgement.seeds_needed


def test_a_lost_seed_of_a_third_configuration_blocks_no_verdict(tmp_path: Path) -> None:
    # Finds a loss that weighs on all claims, and a lost configuration that is not counted.
    trials = [*seeded(0.5, drawn(12, 70.0, 1)), *seeded(0.3, drawn(12, 72.0, 3))]
    thirds = (seeded(0.1, drawn(12, 60.0, 4)), losing(drawn(12, 60.0, 4), {3: "failed"}, 0.1))
    for third, df in zip(thirds, (22, 11), strict=True):
        row = judge(planned(tmp_path / str(df), [*trials, *third], 12)).row()
        assert (row["verdict"], row["seeds"]) == ("ESTABLISHED", "planned")
        assert (row["configurations"], row["df"]) == (3, df)


def plain(values: Sequence[float], pooling: str = "mean") -> list[Trial]:
    """The untrained encoder with some seeds, which do not change its scores."""
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
def test_the_sign_decides_between_constants(tmp_path: Path, seeds: int) -> None:
    trials = [*plain([47.29] * seeds), *plain([20.29] * 2, "cls")]
    study = unplanned(tmp_path, [*trials, *plain([20.29], "first_last")])
    judgement = judge(study, "mean", "cls")
    assert judgement.verdict == "ESTABLISHED"
    assert "scores 27.00 points higher than" in judgement.sentence
    assert judgement.sentence.endswith("(no seed changes either score).")
    row = judgement.row()
    assert (row["n"], row["procedure"], row["p"]) == (1, "exact", 0.0)
    against = judge(study, "cls", "mean")
    assert (against.verdict, against.sentence) == ("REVERSED", judgement.sentence)
    same = judge(study, "cls", "first_last")
    assert (same.verdict, same.seeds_needed) == ("NO DIFFERENCE", None)
    assert "differ by 0.005 points at most" in same.sentence


def test_a_constant_is_compared_with_every_seed(tmp_path: Path) -> None:
    values = drawn(12, 76.0, 3)
    lost = Trial("lost", config(9, "none", encoder={"pooling": "mean"}), [], "failed", "mean")
    study = planned(tmp_path / "a", [*plain([70.0]), lost, *seeded(0.3, values)], 12)
    judgement = judge(study, "lambda3", "mean")
    assert judgement.row()["difference"] == pytest.approx(np.mean(values) - 70.0)
    assert (judgement.verdict, judgement.row()["n"]) == ("ESTABLISHED", 12)
    assert any("scores the same with every seed" in note for note in judgement.notes)
    assert not any("lost" in note for note in judgement.notes)
    chosen = planned(tmp_path / "b", [*plain([70.0]), *losing(values, LOST)], 12)
    assert judge(chosen, "lambda3", "mean").verdict == "UNDECIDED"


def test_trap_a_score_that_varies_is_no_constant_whatever_the_method_is(tmp_path: Path) -> None:
    study = planned(tmp_path, [*plain([70.0, 70.5, 71.0]), *plain([60.0] * 3, "cls")], 3)
    row = judge(study, "mean", "cls").row()
    assert (row["procedure"], row["n"]) == ("Bonferroni t", 3)


def test_another_score_is_judged_and_the_winner_stays(many: Study) -> None:
    judgements = judged(many, objective=PEARSON)
    assert judgements[0].objective == "STS-B:pearson:dev"
    # The samples' Pearson is -Spearman.
    assert {(one.a.name, one.verdict) for one in judgements} == {("lambda3", "REVERSED")}


@pytest.mark.parametrize(
    "name", ["lambda3", "lambda3seed1", "lambda3s", {"lambda": 0.3}, {"method.lambda": 0.3}]
)
def test_a_configuration_has_many_names(few: Study, name: Any) -> None:
    assert judge(few, name).a.name == "lambda3"


@pytest.mark.parametrize(
    ("name", "configuration"),
    [
        ("untrained, pooling=mean_without_cls", "mean_without_cls"),
        (" untrained (mean_wit) ", "mean_without_cls"),
        ("untrained, pooling=mean_without_cls (mean_wit, older code)", "mean_without_cls"),
        ("scl", "lambda3"),
        ("method=untrained,pooling=cls", "cls"),
    ],
)
def test_what_this_tool_prints_is_a_name(tmp_path: Path, name: str, configuration: str) -> None:
    trials = [*seeded(0.3, [70.0, 71.0]), *plain([60.0], "cls"), *plain([61.0])]
    write_study(tmp_path, [*trials, *plain([62.0], "mean_without_cls")])
    _, out, _ = run("judge", tmp_path, name, "mean", "--json")
    assert json.loads(out)[0]["a"] == configuration
    code, _, err = run("judge", tmp_path, "scl", "untrained")
    assert code == 2 and "untrained: fits several configurations" in err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lambda", "fits several configurations"),
        ("nobody", "fits no configuration"),
        ("", "fits no configuration"),
        ({"lambda": 0.9}, "fits no configuration"),
        ({"method": "scl"}, "fits several configurations"),
        ({"lamda": 0.3}, "is no hyperparameter"),
        ({"lambda": 0.5}, "compared with itself"),
    ],
)
def test_a_name_that_fits_not_one_is_refused(few: Study, name: Any, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        judge(few, name)


def test_an_empty_study_is_refused(tmp_path: Path) -> None:
    study = unplanned(tmp_path / "empty", [])
    with pytest.raises(StudyError, match="Run the study's search first"):
        judge(study)
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
    exit_code, out, _ = run("judge", path, *names)
    assert (exit_code, word in out) == (code, True)
    exit_code, text, _ = run("judge", path, *names, "--json")
    assert exit_code == code
    for row in json.loads(text):
        assert row["verdict"] in ("ESTABLISHED", "NO DIFFERENCE", "REVERSED", "UNDECIDED")
        assert row["sentence"] in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("lambda3",), "Name B after A"),
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
    assert err.startswith("error: ") and word in err


def test_the_printed_interval_is_that_of_the_printed_claim(many: Study) -> None:
    # Finds an interval of A - B beside "B scores higher".
    for a, b, sign in (("lambda3", "lambda5", 1), ("lambda5", "lambda3", -1)):
        judgement = judge(many, a, b)
        assert judgement.verdict == ("ESTABLISHED" if sign > 0 else "REVERSED")
        said = judgement.sentence
        assert said.startswith("lambda=0.3 (lambda3) scores 1.83 points higher")
        row, printed = judgement.row(), re.search(r"96% interval (\S+) to (\S+),", said)
        assert printed is not None
        ends = sorted((sign * row["low"], sign * row["high"]))
        assert [float(end) for end in printed.groups()] == pytest.approx(ends, abs=0.005)
        assert ends[0] > 0


@pytest.mark.parametrize("seeds", [1, 3])
def test_few_seeds_ask_for_as_many_fresh_ones_as_suffice(tmp_path: Path, seeds: int) -> None:
    # Finds a number that another procedure than that of the confirmation seeds needs.
    asked = judged(planned(tmp_path / "a", lambdas(seeds), seeds))[0]
    assert asked.verdict == "UNDECIDED"
    assert seeds > 1 or "one seed does not show the noise between seeds" in asked.sentence
    more = asked.seeds_needed
    assert more is not None and asked.next_step.endswith(f"--confirm {more}")
    trials = [*lambdas(seeds), *lambdas(more, 1000, 50, origin="confirm")]
    study = planned(tmp_path / "b", trials, seeds, more)
    assert judge(study).row()["procedure"] == "Tukey", "a named pair is one of all pairs"
    after = judged(study)[0]
    assert (after.verdict, after.source, after.next_step) == ("ESTABLISHED", "confirm", "")
    comparison, needed = after.comparison, critical_t(2 * (more - 1), 3, 0.04, with_control=True)
    assert comparison is not None
    assert (comparison.procedure, comparison.configurations) == ("Dunnett", 3)
    assert comparison.df == 2 * (more - 1)
    assert comparison.high - comparison.difference == pytest.approx(needed * comparison.error)
    assert stats.nct.sf(needed, comparison.df, 2.0 / np.sqrt(2 / more)) >= 0.8


def test_a_constant_shows_no_noise_of_fresh_seeds(tmp_path: Path) -> None:
    trials = [*plain([60.0]), *seeded(0.3, [72.0]), *seeded(0.5, [70.0])]
    needed = judged(planned(tmp_path, trials, 1))[0].seeds_needed
    assert needed is not None
    assert smallest_shown(needed, 3, 0.04, 2) <= 2.0 < smallest_shown(needed - 1, 3, 0.04, 2)


def test_differences_that_no_table_shows_are_no_difference(tmp_path: Path) -> None:
    # Finds a test that calls "0.00 points higher" established.
    values = drawn(6, 70.0, 1)
    tiny = [value + 1e-5 + 1e-7 * seed for seed, value in enumerate(values)]
    study = planned(tmp_path, [*seeded(0.5, values), *seeded(0.3, tiny)], 6)
    for pair in (("lambda3", "lambda5"), ("lambda5", "lambda3")):
        judgement = judge(study, *pair)
        assert judgement.verdict == "NO DIFFERENCE"
        assert "differ by 0.005 points at most" in judgement.sentence


def test_a_collapsed_seed_is_named_and_counts(tmp_path: Path) -> None:
    # Finds a mean that hides a collapse: without seed 5 lambda 0.3 is 3 points better.
    values = drawn(12, 73.0, 3)
    values[5] = 40.0
    trials = [*seeded(0.5, drawn(12, 70.0, 1)), *seeded(0.1, drawn(12, 70.3, 4))]
    study = planned(tmp_path, [*trials, *seeded(0.3, values)], 12)
    note = "lambda3): 1 of 12 seeds scores far below the others (seed 5: "
    for pair in (("lambda3", "lambda5"), ("lambda5", "lambda3")):
        judgement = judge(study, *pair)
        assert judgement.verdict == "UNDECIDED"
        assert any(note in text for text in judgement.notes)
    assert judge(study, "lambda1", "lambda5").row()["df"] == 11, "the others lose nothing"


def test_fresh_seeds_of_both_decide_alone(tmp_path: Path) -> None:
    # Finds means and a verdict of chosen and confirmation seeds together.
    others = [t for t in lambdas(6, 1000, 50, origin="confirm") if t.configuration != "lambda3"]
    confirmed = [*others, *seeded(0.3, drawn(6, 68.0, 53), 1000, origin="confirm")]
    judgement = judge(planned(tmp_path, [*lambdas(12), *confirmed], 12, 6))
    row = judgement.row()
    assert (row["verdict"], row["seeds"], row["n"]) == ("REVERSED", "confirm", 6)
    assert "6 confirmation seeds as blocks" in judgement.sentence


def test_a_tie_with_the_runner_up_leaves_the_exit_code(tmp_path: Path) -> None:
    # Finds an exit code of the worst verdict, and a runner-up where one baseline was named.
    tie = [*seeded(0.3, drawn(8, 72.0, 3)), *seeded(0.1, drawn(8, 72.0, 4))]
    planned(tmp_path, [*seeded(0.5, drawn(8, 70.0, 1)), *tie], 8)
    code, out, _ = run("judge", tmp_path)
    assert (code, "ESTABLISHED: " in out, "UNDECIDED: " in out) == (0, True, True)
    code, out, _ = run("judge", tmp_path, "--baseline", "lambda=0.5", "--json")
    assert (code, len(json.loads(out))) == (0, 1)


def looks(path: Path, trials: Sequence[Trial], *sizes: int) -> Study:
    """A study whose confirmation of `lambda3` and `lambda5` has doubled."""
    names = ("lambda3", "lambda5")
    all_looks = tuple(Confirmation(tuple(range(1000, 1000 + n)), names) for n in sizes)
    plan = SeedPlan((0, 1, 2), 3, ("lambda5", "lambda1", "lambda3"), all_looks)
    return write_study(path, trials, ["STS-B:spearman"], plan=plan)


def test_a_doubled_confirmation_decides_on_all_its_seeds_at_a_fifth_of_the_level(
    tmp_path: Path,
) -> None:
    # Finds a level that stays, and a verdict that a later look takes back.
    tie = [*seeded(0.3, drawn(4, 71.2, 3), 1000), *seeded(0.5, drawn(4, 70.0, 1), 1000)]
    apart = [*seeded(0.3, drawn(4, 72.2, 5), 1004), *seeded(0.5, drawn(4, 70.0, 6), 1004)]
    low = [*seeded(0.3, drawn(8, 64.0, 5), 1008), *seeded(0.5, drawn(8, 70.0, 6), 1008)]
    tie, apart, low = ([replace(t, origin="confirm") for t in own] for own in (tie, apart, low))
    first = judge(looks(tmp_path / "a", [*lambdas(3), *tie], 4))
    assert (first.verdict, first.source) == ("UNDECIDED", "confirm")
    second = judge(looks(tmp_path / "b", [*lambdas(3), *tie, *apart], 4, 8))
    assert (second.verdict, second.row()["n"]) == ("ESTABLISHED", 8)
    assert second.row()["level"] == pytest.approx(1 - 0.04 / 5)
    third = judge(looks(tmp_path / "c", [*lambdas(3), *tie, *apart, *low], 4, 8, 16))
    assert (third.verdict, third.row()["n"]) == ("ESTABLISHED", 8)
    assert any("on 16 confirmation seeds" in note for note in third.notes)


def test_each_question_is_told_how_likely_the_next_doubling_decides_it(tmp_path: Path) -> None:
    # Finds numbers that say not what they are about, and two commands for one confirmation.
    near = [*seeded(0.1, drawn(4, 72.2, 7), 1000), *seeded(0.3, drawn(4, 72.3, 8), 1000)]
    far = seeded(0.5, drawn(4, 71.0, 9), 1000)
    confirmed = [replace(one, origin="confirm") for one in [*near, *far]]
    study = planned(tmp_path / "a", [*lambdas(3), *confirmed], 3, 4, halved=True)
    judgements = judged(study)
    asked = [one.asked for one in judgements if one.verdict == "UNDECIDED"]
    for one in judgements:
        if one.asked in asked:
            assert any(
                note.startswith(f"Winner and {one.asked}: if the two differ by ")
                and " a search with --confirm 8 settles the comparison " in note
                for note in one.notes
            )
            assert one.chance is not None
    assert len({one.next_step for one in judgements if one.next_step}) == 1


def test_three_seeds_suffice_where_the_search_has_seen_more_than_four_sds(tmp_path: Path) -> None:
    # Finds a proposal that caps a difference which no luck explains.
    trials = [*seeded(0.5, [7.2, 7.3, 7.4]), *seeded(0.3, [63.2, 63.4, 63.7])]
    first, *_ = judged(planned(tmp_path, trials, 3, halved=True))
    assert (first.verdict, first.seeds_needed) == ("UNDECIDED", 3)
    assert first.chance is not None and first.chance > 0.9


def test_a_seed_that_was_lost_is_not_doubled(tmp_path: Path) -> None:
    """None of the doublings of a confirmation with a lost seed could decide."""
    confirmed = [replace(t, origin="confirm") for t in without_lambda1(lambdas(3, 1000, 50))]
    confirmed[-1] = replace(confirmed[-1], scores=[], status="failed")
    standings = Standings.read(looks(tmp_path, [*without_lambda1(lambdas(3)), *confirmed], 3))
    assert confirming_seeds(standings, 3, [])[0] == (1000, 1001, 1002), "the lost one again"
    assert confirming_seeds(standings, 6, [])[0] == tuple(range(1003, 1009))


def test_the_planned_verdict_stays_whatever_later_seeds_say(tmp_path: Path, many: Study) -> None:
    # Finds a fixed-sample test that is repeated on more seeds.
    later = [*seeded(0.5, drawn(9, 70.0, 61), 12), *seeded(0.3, drawn(9, 70.0, 62), 12)]
    judgement = judge(planned(tmp_path, [*lambdas(12), *later], 12))
    assert (judgement.source, judgement.comparison) == ("planned", judge(many).comparison)


def test_a_lost_fresh_seed_is_no_way_back_to_the_chosen_ones(tmp_path: Path) -> None:
    # Finds a winner that fails on confirmation seeds, established by those that chose it.
    confirmed = lambdas(3, 1000, 50, origin="confirm")
    confirmed[-1] = replace(confirmed[-1], scores=[], status="failed")
    judgement = judge(planned(tmp_path, [*lambdas(6), *confirmed], 6, 3))
    assert judgement.verdict == "UNDECIDED"
    assert judgement.sentence.endswith("lost 1 confirmation seed.")
    assert "--confirm" in judgement.next_step


def test_a_pair_that_confirmation_does_not_run_has_no_such_command(tmp_path: Path) -> None:
    # Finds `--confirm` where neither winner, baseline nor runner-up is asked about.
    others = [t for number in (0.7, 0.8) for t in seeded(number, drawn(3, 60.0 + number, 7))]
    judgement = judge(planned(tmp_path, [*lambdas(3), *others], 3), "lambda8", "lambda7")
    assert (judgement.verdict, judgement.next_step) == ("UNDECIDED", "")
