"""Whoever names a study's best configuration names the same one, on the same data."""

import json
import math
from itertools import permutations
from pathlib import Path
from random import Random

import numpy as np
import pytest
from analysis_samples import DEV, Data, Status, Trial, config, score, write_study
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tune_sentcl.analysis import configurations, read_study
from tune_sentcl.analysis.report.leaderboard import leaderboard_frame
from tune_sentcl.analysis.report.subject import Subject
from tune_sentcl.cli import app
from tune_sentcl.export.choice import Choice
from tune_sentcl.history import best_configuration, estimates, rank_key, ranked_data
from tune_sentcl.judging.contenders import Contenders
from tune_sentcl.judging.judgement import judge, judge_winner
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
        "export": Choice.read(study, DEV).ranked[0].row["configuration"],
    }


scores_by_name = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.lists(st.floats(-100, 100).map(lambda value: round(value, 2)), max_size=5),
    max_size=9,
)


def by_loops(scores: dict[str, list[float]]) -> dict[str, float]:
    """The formula again, with numpy's statistics of a table."""
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    several = [values for values in scores.values() if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several)
    noise = sum(float(np.var(v, ddof=1)) * (len(v) - 1) for v in several) / freedom
    best = sorted(scores, key=lambda n: (means[n], len(scores[n])), reverse=True)
    best = best[: max(3, math.ceil(len(best) / 2))]
    errors = [noise / len(scores[name]) for name in best]
    seen = float(np.var([means[name] for name in best], ddof=1))
    true = max(seen - float(np.mean(errors)), 0.05 * noise)
    center = float(np.mean([means[name] for name in best]))
    return {
        name: center + true / (true + noise / len(scores[name])) * (mean - center)
        for name, mean in means.items()
    }


@given(scores_by_name)
def test_the_estimate_is_that_of_plain_loops(scores: dict[str, list[float]]) -> None:
    # Finds a wrong number of degrees of freedom, half, or share of the noise.
    scores = {name: values for name, values in scores.items() if values}
    assume(len(scores) > 2 and len({len(values) for values in scores.values()}) > 1)
    assume(any(max(values) > min(values) for values in scores.values()))
    assert estimates(scores) == pytest.approx(by_loops(scores), abs=1e-9)


@given(scores_by_name, st.randoms())
def test_neither_the_order_of_seeds_nor_of_configurations_matters(
    scores: dict[str, list[float]], random: Random
) -> None:
    # Finds a sum that rounds by its order: then two readers of a study could differ.
    names = random.sample(sorted(scores), len(scores))
    shuffled = {name: random.sample(scores[name], len(scores[name])) for name in names}
    found, again = estimates(scores), estimates(shuffled)
    assert {n: repr(found[n]) for n in scores} == {n: repr(again[n]) for n in scores}


@given(st.integers(1, 4), st.lists(st.lists(st.floats(0, 100), min_size=4, max_size=4)))
def test_equal_numbers_of_seeds_keep_their_means(n: int, rows: list[list[float]]) -> None:
    # Finds an estimate where it could change no order: tables of such studies stay as they are.
    scores = {f"c{number}": row[:n] for number, row in enumerate(rows)}
    assert estimates(scores) == {name: math.fsum(row) / n for name, row in scores.items()}


def test_more_seeds_are_shrunk_less_and_some_configurations_not_at_all() -> None:
    # Finds a weight that grows with the noise, and constants or lucky seeds that set the noise.
    scores = {
        "one": [81.0],
        "two": [80.5, 81.5],
        "five": [80.0, 80.5, 81.0, 81.5, 82.0],
        **{f"other{number}": [76.0 + number, 77.0 + number] for number in range(4)},
    }
    found = estimates(scores)
    assert max(found[f"other{number}"] for number in range(4)) < found["one"]
    assert found["one"] < found["two"] < found["five"] < 81.0
    apart = {"constant": [99.0, 99.0], "lost": [50.0, 90.0], "absent": []}
    again = estimates({**scores, **apart}, {"constant", "lost"})
    assert {name: again[name] for name in scores} == found
    assert (again["constant"], again["lost"]) == (99.0, 70.0) and math.isnan(again["absent"])
    assert estimates({"a": [1.0], "b": [3.0, 5.0]}) == {"a": 1.0, "b": 4.0}


def test_a_choice_by_the_estimate_loses_less_than_one_by_the_mean() -> None:
    # Finds a shrinkage that is right by its formula and useless for the choice.
    random, lost = np.random.default_rng(0), {"mean": 0.0, "estimate": 0.0}
    for _ in range(300):
        true = 80 - random.exponential(1.0, 40)
        first = {f"c{number}": [value + random.normal()] for number, value in enumerate(true)}
        for name in sorted(first, key=lambda name: -first[name][0])[:6]:
            first[name] += (true[int(name[1:])] + random.normal(size=4)).tolist()
        by_mean = max(first, key=lambda name: float(np.mean(first[name])))
        lost["mean"] += true.max() - true[int(by_mean[1:])]
        lost["estimate"] += true.max() - true[int(best_configuration(first)[1:])]
    assert lost["estimate"] < 0.9 * lost["mean"]


def test_one_lucky_seed_does_not_win(tmp_path: Path) -> None:
    # Finds a table, verdict or choice that still goes by the mean.
    values = {"lucky": [81.0], "good": [80.2, 80.8, 81.1], "poor": [77.0, 79.9], "weak": [78.5]}
    trials = [trial(name, seed, v) for name, row in values.items() for seed, v in enumerate(row)]
    trials += [trial("still", seed, 70.0, method="none") for seed in range(5)]
    study = write_study(tmp_path, trials, ["STS-B:spearman"])
    assert set(winners(study).values()) == {"good"}
    assert best_configuration({**values, "still": [70.0] * 5}, {"still"}) == "good"
    table = configurations(study).set_index("configuration")
    assert list(table).index("objective_estimate") == list(table).index("objective_mean") + 1
    assert table["objective_estimate"].to_dict() == pytest.approx(
        {**by_loops(values), "still": 70.0}
    )
    order = [one.name for one in Contenders.read(study).scored()]
    assert order == table.index.to_list()
    shown = f"{table['objective_estimate']['good']:.2f}"
    runner = CliRunner()
    (judged, *_) = json.loads(runner.invoke(app, ["judge", str(tmp_path), "--json"]).stdout)
    assert f"{judged['a_estimate']:.2f}" == shown and judged["a_mean"] > judged["a_estimate"]
    for words in (["show"], ["judge"], ["report", "--format", "md"]):
        done = runner.invoke(app, [words[0], str(tmp_path), *words[1:]])
        assert shown in done.output and "estimate" in done.output, words


def test_the_order_is_absent_then_lost_then_estimate_then_seeds_then_mean_then_name() -> None:
    best = [
        rank_key(2.0, [1.0], 0, "b"),
        rank_key(1.0, [1.0, 2.0], 0, "c"),
        rank_key(1.0, [3.0], 0, "b"),
        rank_key(1.0, [2.0], 0, "a"),
        rank_key(1.0, [2.0], 0, "b"),
        rank_key(9.0, [9.0], 1, "a"),
    ]
    absent = [rank_key(math.nan, [], 0, name) for name in "abc"]
    ordered = [*best, rank_key(9.0, [9.0], 2, "b"), *absent]
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
