"""Whoever names a study's best configuration names the same one, on the same data."""

import math
from itertools import permutations
from pathlib import Path

import pytest
from analysis_samples import DEV, Data, Status, Trial, config, score, write_study
from typer.testing import CliRunner

from tune_sentcl.analysis import configurations, read_study
from tune_sentcl.analysis.contenders import Contenders
from tune_sentcl.analysis.judging import judge, judge_winner
from tune_sentcl.analysis.report.leaderboard import leaderboard_frame
from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.cli import app
from tune_sentcl.export.choice import Choice
from tune_sentcl.history import rank_key, ranked_data
from tune_sentcl.store import Study


def trial(
    name: str, seed: int, value: float | Status, data: Data = "root", method: str = "scl"
) -> Trial:
    """A trial of a configuration that is named by its lambda; without a value how it ended."""
    number = {"plain": 0.0}.get(name, sum(map(ord, name)) % 97 / 100)
    own = {"lambda": number} if method == "scl" else {}
    found = config(seed, method={"name": method, **own}, evaluation={"data": data})
    if isinstance(value, str):
        return Trial(f"{name}{data}{seed}", found, [], value, name)
    return Trial(f"{name}{data}{seed}", found, [score(DEV, value, data)], "finished", name)


def winners(study: Study) -> dict[str, str]:
    """Whom each of those that rank configurations puts first."""
    path = study.files.where
    frames = read_study(path)
    subject = Subject(frames, frames.objectives())
    shown = CliRunner().invoke(app, ["show", path]).stdout.partition("Means over seeds")[2]
    known = Contenders.read(study).found
    return {
        "configurations": configurations(study)["configuration"][0],
        "report": leaderboard_frame(subject)["configuration"][0],
        "figures": subject.shown["configuration", ""][0],
        "show": min(known, key=lambda name: (found := shown.find(name)) < 0 or found),
        "judge": Contenders.read(study).scored()[0].name,
    }


def test_the_order_is_absent_then_lost_then_mean_then_name() -> None:
    best = [
        rank_key(2.0, 0, "b"),
        rank_key(1.0, 0, "a"),
        rank_key(1.0, 0, "b"),
        rank_key(9.0, 1, "a"),
    ]
    absent = [rank_key(math.nan, 0, "a"), rank_key(None, 0, "b"), rank_key(math.nan, 0, "c")]
    ordered = [*best, rank_key(9.0, 2, "b"), *absent]
    backwards = ordered[::-1]
    backwards.sort()
    assert backwards == ordered


def test_what_lost_seeds_comes_behind_for_everybody(tmp_path: Path) -> None:
    trials = [
        *(trial("whole", seed, 80.0 + seed / 10) for seed in range(3)),
        *(trial("plain", seed, 70.0 + seed / 10) for seed in range(3)),
        trial("lucky", 0, 90.0),
        trial("lucky", 1, "failed"),
        trial("lucky", 2, "pruned"),
    ]
    study = write_study(tmp_path, trials, ["STS-B:spearman"])
    assert set(winners(study).values()) == {"whole"}
    table = configurations(study).set_index("configuration")
    assert table["lost"].to_dict() == {"whole": 0, "plain": 0, "lucky": 2}
    report = CliRunner().invoke(app, ["report", str(tmp_path), "--format", "md"]).stdout
    assert "| lost |" in report
    (note, *_) = judge_winner(study)[0].notes
    assert "has a higher mean, but lost 2 of 3 seeds" in note


@pytest.mark.parametrize("moves", [False, True])
def test_a_lost_seed_of_what_draws_nothing_says_nothing(tmp_path: Path, *, moves: bool) -> None:
    # Folds move with the seed: then the scores show that something was drawn.
    trials = [
        *(trial("drawn", seed, 82.0 + seed / 10) for seed in range(3)),
        *(trial("still", seed, 83.0 + moves * seed, method="none") for seed in range(2)),
        trial("still", 2, "failed", method="none"),
        *(trial("weaker", seed, 70.0, method="none") for seed in range(3)),
    ]
    study = write_study(tmp_path, trials, ["STS-B:spearman"])
    assert set(winners(study).values()) == {"drawn" if moves else "still"}
    (first, *_) = judge_winner(study)
    assert {first.a.name, first.b.name} == {"drawn", "weaker" if moves else "still"}
    assert moves or not any("lost" in note for note in first.notes)


def test_a_score_that_could_not_be_taken_is_a_lost_seed(tmp_path: Path) -> None:
    collapsed = score(DEV, None, reason="the embeddings are not finite")
    trials = [
        *(trial("whole", seed, 80.0) for seed in range(2)),
        trial("lucky", 0, 90.0),
        Trial("x", trial("lucky", 1, 0.0).config, [collapsed], configuration="lucky"),
        trial("other", 0, 95.0),
        Trial("y", trial("other", 1, 0.0).config, configuration="other"),  # nobody asked for it
    ]
    study = write_study(tmp_path, trials, ["STS-B:spearman"])
    assert configurations(study)["configuration"].to_list() == ["other", "whole", "lucky"]


def test_equal_means_are_equal_in_whatever_order_the_seeds_come(tmp_path: Path) -> None:
    values = list(permutations((80.1, 80.2, 80.3)))
    trials = [
        *(trial("plain", seed, 70.0 + seed) for seed in range(3)),
        *(trial(f"c{n}", s, value) for n, row in enumerate(values) for s, value in enumerate(row)),
    ]
    study = write_study(tmp_path, trials, ["STS-B:spearman"])
    expected = [f"c{n}" for n in range(6)]
    assert set(winners(study).values()) == {"c0"}
    assert configurations(study)["configuration"].to_list() == [*expected, "plain"]
    assert [one.name for one in Contenders.read(study).scored()] == [*expected, "plain"]


@pytest.mark.parametrize(
    ("finished", "expected"),
    [
        ([], "root"),
        ([("toy", True)], "toy"),
        ([("toy", True), ("root", True)], "root"),
        ([("toy", True), ("root", False)], "toy"),
        ([("toy", False)], "toy"),
    ],
)
def test_the_data_is_that_of_the_scores(finished: list[tuple[str, bool]], expected: str) -> None:
    assert ranked_data(finished) == expected


@pytest.mark.parametrize("ended", ["failed", "pruned", "unmeasured"])
def test_trials_without_a_score_do_not_choose_the_data(tmp_path: Path, ended: str) -> None:
    names = ("plain", "better")
    trials = [
        trial(name, seed, 50.0 + seed + 10 * rank_key, "toy")
        for rank_key, name in enumerate(names)
        for seed in range(3)
    ]
    for name in names:
        if ended == "unmeasured":
            trials.append(Trial(f"{name}r", trial(name, 5, 0.0).config, configuration=name))
        else:
            trials += [trial(name, 5, "failed" if ended == "failed" else "pruned")]
    study = write_study(tmp_path, trials, ["STS-B:spearman"])
    frames = read_study(tmp_path)
    assert Subject(frames, frames.objectives()).data == "toy"
    assert Choice.read(study, DEV).data == "toy"
    assert judge(study, "better", "plain").data == "toy"
    assert set(winners(study).values()) == {"better"}
