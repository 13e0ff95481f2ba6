"""Whoever names a study's best configuration names the same one, on the same data."""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from operator import sub
from pathlib import Path
from random import Random

import pytest
from analysis_samples import DEV, PEARSON, Status, Trial, config, score, write_study
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tune_sentcl.analysis import configurations, read_study
from tune_sentcl.analysis.frames import rows_of
from tune_sentcl.analysis.report.first_screen import OTHER, TUNED, FirstScreen
from tune_sentcl.analysis.report.report_data import ReportData
from tune_sentcl.analysis.report.scores import leaderboard_frame, leaderboards
from tune_sentcl.cli import app
from tune_sentcl.errors import StudyError
from tune_sentcl.export.choice import Choice
from tune_sentcl.history import rank_keys
from tune_sentcl.results.judgement import Judgement, judge
from tune_sentcl.results.standings import Standings
from tune_sentcl.store import Study
from tune_sentcl.store.manifest import Confirmation, SeedPlan

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
    return CliRunner().invoke(app, words).output


def winners(study: Study) -> dict[str, str]:
    """Whom each of those that rank configurations puts first."""
    path = study.files.where
    frames = read_study(path)
    subject = ReportData(frames, frames.objectives())
    table, shown = configurations(study).set_index("rank"), FirstScreen(subject).rows
    return {
        "configurations": table["configuration"][1],
        "read_study": frames.configurations().set_index("rank")["configuration"][1],
        "report": leaderboard_frame(subject).set_index("rank")["configuration"][1],
        "first screen": [one for name, one in shown.items() if name != OTHER][-1].name,
        "judge": Standings.read(study).scored()[0].name,
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
    "one lucky seed, has 1 seed, the winner 3": [
        ("lucky", [81.0]),
        ("good", [80.2, 80.8, 81.1]),
        ("weak", [78.5]),
        ("poor", [77.0, 79.9]),
        ("still", [70.0, 70.0]),
    ],
    "lost seeds, lost 2 of 3 seeds": [
        ("lucky", [90.0, "failed", "pruned"]),
        ("whole", [80.0, 80.1, 80.2]),
        ("plain", [70.0, 70.1, 70.2]),
    ],
    "a lost seed of a constant": [
        ("still", [83.0, 83.0, "failed"]),
        ("drawn", [82.0, 82.1, 82.2]),
        ("weaker", [70.0, 70.0, 70.0]),
    ],
    # Folds move with the seed: then the scores show that something was drawn.
    "a lost seed of what moves": [
        ("still", [83.0, 84.0, "failed"]),
        ("drawn", [82.0, 82.1, 82.2]),
        ("weaker", [70.0, 70.0, 70.0]),
    ],
}
RANKED = {
    "one lucky seed, has 1 seed, the winner 3": ["good", "still"],
    "lost seeds, lost 2 of 3 seeds": ["whole", "plain"],
    "a lost seed of what moves": ["drawn", "weaker"],
}
"""The configurations with a rank; in the other cases all have one."""


@pytest.mark.parametrize("case", SEEDS)
def test_everybody_orders_by_the_mean_and_ranks_whole_configurations(
    tmp_path: Path, case: str
) -> None:
    # Finds a lucky seed that wins, and an order in which whoever has most seeds comes first.
    trials = [trial(name, n, value) for name, row in SEEDS[case] for n, value in enumerate(row)]
    study = write_study(tmp_path, reversed(trials), ["STS-B:spearman"])
    expected = [name for name, _ in SEEDS[case]]
    places = RANKED.get(case, expected)
    assert set(winners(study).values()) == {places[0]}
    table = configurations(study)
    assert table["configuration"].to_list() == expected
    ranked = table.dropna(subset="rank")
    assert ranked["configuration"].to_list() == places
    assert ranked["rank"].to_list() == [*range(1, 1 + len(places))]
    assert Standings.read(study).scored()[0].name == places[0]
    if "lost" in table:
        assert table["lost"].to_list() == [
            sum(isinstance(v, str) for v in row) for _, row in SEEDS[case]
        ]
    told = run("judge", str(tmp_path), "--json")
    note = case.partition(", ")[2]
    assert (f"has a higher mean than the winner, but {note}" if note else '"verdict"') in told
    counts = case.startswith(("lost seeds", "a lost seed of what moves"))
    assert ("lost" in table) == counts and ("lost" in told) <= counts


SAID = {
    "ESTABLISHED": "proven worse",
    "REVERSED": "proven better",
    "NO DIFFERENCE": "no difference",
    "UNDECIDED": "not proven",
}
NAMES = ("plain", "still", "a", "bb", "c")
seeds_of = st.lists(
    st.floats(60, 90).map(lambda value: round(value, 1)) | st.just("failed"), max_size=3
)


@settings(max_examples=8)
@given(
    st.dictionaries(st.sampled_from(NAMES), seeds_of, min_size=2),
    st.dictionaries(st.sampled_from(NAMES), st.floats(60, 90), max_size=3),
)
def test_no_view_names_another_winner_order_or_verdict_than_judge(
    searched: dict[str, list[float | Status]], fresh: dict[str, float]
) -> None:
    # Finds a table with statistics of its own.
    plan = SeedPlan((0, 1, 2), len(searched), tuple(sorted(searched)))
    if len(fresh) > 1:
        look = Confirmation((1000, 1001), tuple(fresh))
        plan = replace(plan, confirmations=(look,))
    trials = [
        trial(name, n, value) for name, row in searched.items() for n, value in enumerate(row)
    ]
    for name, value in fresh.items():
        for seed in (1000, 1001):
            own = value if name in CONSTANT else round(value + seed % 7 / 10, 1)
            trials.append(replace(trial(name, seed, own), origin="confirm"))
    with tempfile.TemporaryDirectory() as folder:
        study = write_study(Path(folder), trials, ["STS-B:spearman"], plan=plan)
        standings = Standings.read(study)
        order = [one.name for one in standings.ordered]
        table = configurations(study)
        frames = read_study(folder)
        assert table["configuration"].to_list() == order
        assert frames.configurations()["configuration"].to_list() == order
        report = ReportData(frames, frames.objectives())
        assert leaderboard_frame(report)["configuration"].to_list() == order
        assert means(standings, order) == sorted(means(standings, order), reverse=True)
        if len(standings.scored()) < 2 or not standings.baselines():
            return
        said = {row["configuration"]: row["verdict"] for row in rows_of(table)}
        screen = FirstScreen(report)
        for one in judge(study):
            if one.a.name == standings.scored()[0].name:
                told = SAID[one.verdict] if one.comparison else None
                assert said[one.b.name] == told
                check_difference(screen, one)
        assert set(winners(study).values()) == {standings.scored()[0].name}


def check_difference(screen: FirstScreen, judged: Judgement) -> None:
    """The first screen has the means of the verdict."""
    labels = [label for label, row in screen.rows.items() if row.name == judged.b.name]
    for label in labels if judged.comparison and TUNED in screen.rows else ():
        scores = (screen.score(one, DEV, label).mean for one in (TUNED, label))
        assert sub(*scores) == pytest.approx(judged.comparison and judged.comparison.difference)


def means(standings: Standings, order: Sequence[str]) -> list[float]:
    """The means of the seeds of the search; no score is below all."""
    scores = (standings.tried[name].chosen_scores().values() for name in order)
    return [math.fsum(own) / len(own) if own else -math.inf for own in scores]


def test_a_worse_configuration_is_marked_by_the_verdict_alone(tmp_path: Path) -> None:
    """The winner stands at 63, the untrained encoder at 7, and neither is like the other."""
    trials = [
        *(trial("winner", seed, 63.0 + seed / 10) for seed in range(3)),
        *(trial("second", seed, 59.0 + seed / 9) for seed in range(3)),
        trial("never", 0, 8.8),
        trial("still", 0, 7.3),
    ]
    again = [(name, 1000 + n, 59.2 + n / 9) for n in range(3) for name in ("second",)]
    again += [("winner", 1000 + n, 63.3 + n / 10) for n in range(3)]
    trials += [replace(trial(*one), origin="confirm") for one in again]
    look = Confirmation((1000, 1001, 1002), ("winner", "still", "second"))
    plan = SeedPlan((0, 1, 2), None, ("still",), (look,))
    study = write_study(tmp_path, trials, ["STS-B:spearman"], plan=plan)
    standings = Standings.read(study)
    marks = {name: standings.mark(name) for name in ("winner", "second", "never", "still")}
    assert marks == {"winner": "winner", "second": "worse", "never": "", "still": "worse"}


def test_a_score_that_could_not_be_taken_is_a_lost_seed(tmp_path: Path) -> None:
    collapsed = score(DEV, None, reason="the embeddings are not finite")
    trials = [
        *(trial("whole", seed, 80.0) for seed in range(2)),
        trial("lucky", 0, 90.0),
        replace(trial("lucky", 1, 0.0), scores=[collapsed]),
        trial("other", 0, 85.0),
        replace(trial("other", 1, 0.0), scores=[score(PEARSON, 80.0)]),  # nobody asked for it
    ]
    study = write_study(tmp_path, trials, ["STS-B:spearman"])
    table = configurations(study)
    assert table["configuration"].to_list() == ["lucky", "other", "whole"]
    assert table["rank"].fillna(0).to_list() == [0, 0, 1]


def test_another_objective_says_by_which_score_the_winner_was_chosen(tmp_path: Path) -> None:
    # Finds a view that calls the first of another order the winner.
    trials = [
        replace(one, scores=[*one.scores, score(PEARSON, pearson)])
        for name, value, pearson in (("plain", 70.0, 75.0), ("d", 80.0, 60.0), ("bb", 75.0, 90.0))
        for one in (trial(name, seed, value + seed / 10) for seed in range(3))
    ]
    plan = SeedPlan((0, 1, 2), 3, ("plain", "d", "bb"))
    study = write_study(tmp_path, trials, ["STS-B:spearman"], plan=plan)
    table = configurations(study, [PEARSON]).set_index("configuration")
    assert table.index.to_list() == ["bb", "plain", "d"]
    assert table["verdict"]["d"] == "winner"
    whose = "The search chose the winner by STS-B:spearman:dev."
    frames = read_study(tmp_path)
    subject = ReportData(frames, frames.objectives([PEARSON]))
    screen, (board, *_) = FirstScreen(subject), leaderboards(subject, 0)
    assert whose in screen.notes and whose in board.note
    assert screen.steps == [f"tune-sentcl judge {tmp_path} --objective STS-B:pearson:dev"]
    for asked, is_told in ((PEARSON, True), (DEV, False)):
        option = ("--objective", str(asked))
        for command in ("judge", "show"):
            told = " ".join(run(command, str(tmp_path), *option).split())
            assert (whose in told) == is_told
    (best,) = {one.row["configuration"] for one in Choice.read(study, PEARSON).ranked[:1]}
    assert best == "bb"


def test_a_lost_file_of_scores_is_named(tmp_path: Path) -> None:
    # Finds finished trials that count as trials without a score.
    study = write_study(tmp_path, [trial("a", 0, 80.0), trial("bb", 0, 70.0)], ["STS-B:spearman"])
    (file,) = (tmp_path / "scores").iterdir()
    file.unlink()
    for read in (Standings.read, configurations, judge):
        with pytest.raises(
            StudyError, match="scores: the study lacks the scores of 2 of 2 finished trials"
        ):
            read(study)
