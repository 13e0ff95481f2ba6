"""Whoever names a study's best configuration names the same one, on the same data."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from random import Random

import pytest
from analysis_samples import DEV, Status, Trial, config, score, write_study
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tune_sentcl.analysis import configurations, read_study
from tune_sentcl.analysis.report.report_data import ReportData
from tune_sentcl.analysis.report.scores import leaderboard_frame
from tune_sentcl.cli import app
from tune_sentcl.export.choice import Choice
from tune_sentcl.history import rank_keys
from tune_sentcl.results.standings import Standings
from tune_sentcl.store import Study

CONSTANT = ("still", "weaker")
"""The configurations whose method draws nothing."""


def trial(name: str, seed: int, value: float | Status) -> Trial:
    """A trial of a configuration that is named by its lambda; without a value how it ended."""
    number = {"plain": 0.0}.get(name, sum(map(ord, name)) % 97 / 100)
    method = {"name": "none"} if name in CONSTANT else {"name": "scl", "lambda": number}
    own = config(seed, method=method, evaluation={"data": "root"})
    if isinstance(value, str):
        return Trial(f"{name}{seed}", own, [], value, name)
    return Trial(f"{name}{seed}", own, [score(DEV, value)], "finished", name)


def run(*words: str) -> str:
    return CliRunner().invoke(app, words).stdout


def winners(study: Study) -> dict[str, str]:
    """Whom each of those that rank configurations puts first."""
    path = study.files.where
    frames = read_study(path)
    subject = ReportData(frames, frames.objectives())
    shown = run("show", path).partition("Means over seeds")[2]
    judged = [one.name for one in Standings.read(study).scored()]
    return {
        "configurations": configurations(study)["configuration"][0],
        "report": leaderboard_frame(subject)["configuration"][0],
        "figures": subject.over_seeds.index[0],
        "show": min(judged, key=lambda name: (place := shown.find(name)) < 0 or place),
        "judge": judged[0],
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


SEEDS: dict[str, list[tuple[str, Sequence[float | Status]]]] = {
    # A constant has as many seeds as the most: it holds for them too.
    "one lucky seed, has 1 seed and the winner 3": [
        ("good", [80.2, 80.8, 81.1]),
        ("still", [70.0, 70.0]),
        ("poor", [77.0, 79.9]),
        ("lucky", [81.0]),
        ("weak", [78.5]),
    ],
    "lost seeds, lost 2 of 3 seeds": [
        ("whole", [80.0, 80.1, 80.2]),
        ("plain", [70.0, 70.1, 70.2]),
        ("lucky", [90.0, "failed", "pruned"]),
    ],
    "a lost seed of a constant": [
        ("still", [83.0, 83.0, "failed"]),
        ("drawn", [82.0, 82.1, 82.2]),
        ("weaker", [70.0, 70.0, 70.0]),
    ],
    # Folds move with the seed: then the scores show that something was drawn.
    "a lost seed of what moves": [
        ("drawn", [82.0, 82.1, 82.2]),
        ("weaker", [70.0, 70.0, 70.0]),
        ("still", [83.0, 84.0, "failed"]),
    ],
    "equal means": [
        *((f"c{n}", list(row)) for n, row in enumerate(permutations((80.1, 80.2, 80.3)))),
        ("plain", [70.0, 71.0, 72.0]),
    ],
}


@pytest.mark.parametrize("case", SEEDS)
def test_everybody_ranks_configurations_alike(tmp_path: Path, case: str) -> None:
    # Finds a table, verdict or choice that goes by the mean alone.
    trials = [trial(name, n, value) for name, row in SEEDS[case] for n, value in enumerate(row)]
    study = write_study(tmp_path, reversed(trials), ["STS-B:spearman"])
    expected = [name for name, _ in SEEDS[case]]
    assert set(winners(study).values()) == {expected[0]}
    table = configurations(study)
    assert table["configuration"].to_list() == expected
    assert [one.name for one in Standings.read(study).scored()] == expected
    if "lost" in table:
        assert table["lost"].to_list() == [
            sum(isinstance(v, str) for v in row) for _, row in SEEDS[case]
        ]
    told = run("judge", str(tmp_path), "--json")
    note = case.partition(", ")[2]
    assert (f"has a higher mean, but {note}" if note else '"verdict"') in told
    counts = case.startswith(("lost seeds", "a lost seed of what moves"))
    assert ("lost" in table) == counts and ("lost" in told) <= counts


def test_a_configuration_without_a_score_is_the_last() -> None:
    keys = rank_keys({"absent": [], "lost": [9.0, 9.0], "whole": [1.0]}, {"lost": 1})
    assert sorted(keys, key=keys.__getitem__) == ["whole", "lost", "absent"]
    assert rank_keys({"lost": [9.0, 9.0]}, {"lost": 1}, {"lost"})["lost"] < keys["whole"]


def test_a_score_that_could_not_be_taken_is_a_lost_seed(tmp_path: Path) -> None:
    collapsed = score(DEV, None, reason="the embeddings are not finite")
    trials = [
        *(trial("whole", seed, 80.0) for seed in range(2)),
        trial("lucky", 0, 90.0),
        replace(trial("lucky", 1, 0.0), scores=[collapsed]),
        trial("other", 0, 85.0),
        replace(trial("other", 1, 0.0), scores=[]),  # nobody asked for it
    ]
    study = write_study(tmp_path, trials, ["STS-B:spearman"])
    assert configurations(study)["configuration"].to_list() == ["whole", "other", "lucky"]
