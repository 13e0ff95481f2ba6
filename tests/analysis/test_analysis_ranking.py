"""Whoever names a study's best configuration names the same one, on the same data."""

import math
from itertools import permutations
from pathlib import Path
from random import Random

import pytest
from analysis_samples import DEV, Data, Status, Trial, config, score, write_study
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tune_sentcl.analysis import configurations, read_study
from tune_sentcl.analysis.report.scores import leaderboard_frame
from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.cli import app
from tune_sentcl.export.choice import Choice
from tune_sentcl.history import rank_keys
from tune_sentcl.judging.configurations import Configurations
from tune_sentcl.judging.judgement import judge
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
    known = Configurations.read(study).tried
    return {
        "configurations": configurations(study)["configuration"][0],
        "report": leaderboard_frame(subject)["configuration"][0],
        "figures": subject.over_seeds.index[0],
        "show": min(known, key=lambda name: (found := shown.find(name)) < 0 or found),
        "judge": Configurations.read(study).scored()[0].name,
        "export": Choice.read(study, DEV).ranked[0].row["configuration"],
    }


scores_by_name = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.lists(st.floats(-100, 100).map(lambda value: round(value, 2)), max_size=5),
    max_size=9,
)


def by_loops(scores: dict[str, list[float]], lost: set[str]) -> list[str]:
    """The order again: the best of what is left, one after another."""
    left, found = sorted(scores), list[str]()
    while left:
        best = left[0]
        for name in left[1:]:
            ours, theirs = (
                (bool(scores[n]), n not in lost, len(scores[n]), math.fsum(scores[n]))
                for n in (name, best)
            )
            best = name if ours > theirs else best
        left.remove(best)
        found.append(best)
    return found


def in_order(scores: dict[str, list[float]], lost: set[str]) -> list[str]:
    return sorted(scores, key=rank_keys(scores, dict.fromkeys(lost, 1)).__getitem__)


@given(scores_by_name, st.sets(st.text("abcdef", min_size=1, max_size=1)))
def test_the_order_is_that_of_plain_loops(scores: dict[str, list[float]], lost: set[str]) -> None:
    # Finds a mean that beats more seeds, and a lost seed that is forgiven.
    assert in_order(scores, lost) == by_loops(scores, lost)


@given(scores_by_name, st.randoms())
def test_neither_the_order_of_seeds_nor_of_configurations_matters(
    scores: dict[str, list[float]], random: Random
) -> None:
    # Finds a sum that rounds by its order: then two readers of a study could differ.
    names = random.sample(sorted(scores), len(scores))
    shuffled = {name: random.sample(scores[name], len(scores[name])) for name in names}
    assert rank_keys(scores) == rank_keys(shuffled)


def test_one_lucky_seed_does_not_win(tmp_path: Path) -> None:
    # Finds a table, verdict or choice that goes by the mean alone.
    values = {"lucky": [81.0], "good": [80.2, 80.8, 81.1], "poor": [77.0, 79.9], "weak": [78.5]}
    trials = [trial(name, seed, v) for name, row in values.items() for seed, v in enumerate(row)]
    trials += [trial("still", seed, 70.0, method="none") for seed in range(2)]
    study = write_study(tmp_path, trials, ["STS-B:spearman"])
    assert set(winners(study).values()) == {"good"}
    # A constant has as many seeds as the most: it holds for them too.
    expected = ["good", "still", "poor", "lucky", "weak"]
    table = configurations(study)
    assert table["configuration"].to_list() == expected
    assert [one.name for one in Configurations.read(study).scored()] == expected
    assert table["objective_mean"][0] == pytest.approx(math.fsum(values["good"]) / 3)
    (note, *_) = judge(study)[0].notes
    assert "has a higher mean, but has 1 seed and the winner 3" in note


def test_a_configuration_without_a_score_is_the_last(tmp_path: Path) -> None:
    scores = {"absent": [], "lost": [9.0, 9.0], "whole": [1.0]}
    keys = rank_keys(scores, {"lost": 1})
    assert sorted(keys, key=keys.__getitem__) == ["whole", "lost", "absent"]
    assert rank_keys(scores, {"lost": 1}, {"lost"})["lost"] < keys["whole"]


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
    (note, *_) = judge(study)[0].notes
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
    (first, *_) = judge(study)
    assert {first.a.name, first.b.name} == {"drawn", "weaker" if moves else "still"}
    assert moves or not any("lost" in note for note in first.notes)


def test_a_score_that_could_not_be_taken_is_a_lost_seed(tmp_path: Path) -> None:
    collapsed = score(DEV, None, reason="the embeddings are not finite")
    trials = [
        *(trial("whole", seed, 80.0) for seed in range(2)),
        trial("lucky", 0, 90.0),
        Trial("x", trial("lucky", 1, 0.0).config, [collapsed], configuration="lucky"),
        trial("other", 0, 85.0),
        Trial("y", trial("other", 1, 0.0).config, configuration="other"),  # nobody asked for it
    ]
    study = write_study(tmp_path, trials, ["STS-B:spearman"])
    assert configurations(study)["configuration"].to_list() == ["whole", "other", "lucky"]


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
    assert [one.name for one in Configurations.read(study).scored()] == [*expected, "plain"]
