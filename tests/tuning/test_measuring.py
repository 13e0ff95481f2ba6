"""`measure`: tasks and scores are added to a study, from kept weights or by further trainings."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planted_spaces import let_toys_have_all_stages
from search_samples import (
    LAMBDA,
    Row,
    checkpoints,
    lambda_space,
    measure_planted,
    numbers,
    rows,
    run_here,
    run_planted,
    tiny_space,
)
from stand_in import StandIn, by

from tune_sentcl import measure, read_study
from tune_sentcl.errors import ConfigError, ObjectiveError, StudyError, TuneSentclError
from tune_sentcl.results.standings import Standings
from tune_sentcl.space import Space, load_space
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.study import Study
from tune_sentcl.tuning.measuring import Request, measure_study
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import Question, ask
from tune_sentcl.tuning.search import run_and_confirm
from tune_sentcl.watch.terminal import terminal_watcher

MORE: dict[str, Any] = {"evaluation.suites": ["transfer"]}
BOTH: dict[str, Any] = {"evaluation.suites": ["sts", "transfer"]}
SST2 = frozenset({"SST2"})


def tables(study: Path) -> list[list[Row]]:
    """The rows of the three tables, each sorted."""
    kept = Study.read(study)
    three = (kept.trials(), kept.scores(), kept.curves())
    return [sorted(table.to_pylist(), key=repr) for table in three]


def scored(study: Path, task: str = "SST2") -> set[str]:
    """The trials with a score of a task."""
    return {
        key[0] for key, value in numbers(study).items() if key[1] == task and value is not None
    }


def settled(study: Path) -> dict[str, Row]:
    """What `measure` must not change in the rows of trials."""
    columns = ("status", "origin", "attempt", "stages", "steps", "objective", "seed")
    return {row["trial_id"]: {name: row[name] for name in columns} for row in rows(study)}


def confirmed(folder: Path, *lambdas: float, **options: Any) -> Path:
    """A study of planted trials with two seeds and two fresh ones, and of no weights."""
    space, study = lambda_space(folder / "space", *lambdas), folder / "study"
    given = {"launcher": "local", "gpus_per_trial": 0.0, "confirm": 2, "keep": 0, **options}
    question = ask(space, None, (0, 1), SearchOptions(**given), str(study))
    run_and_confirm(question, str(study), by(StandIn(study, keep=False)))
    return study


def test_a_study_s_search_asks_for_a_part_of_its_tasks_and_gets_all(tmp_path: Path) -> None:
    space, study = lambda_space(tmp_path / "space", 0.1, 0.3), tmp_path / "study"
    run_planted(space, study, keep=2)
    measure_planted(study, MORE)
    larger = lambda_space(tmp_path / "larger", 0.1, 0.3, 0.7)
    outcome, actions = run_planted(larger, study, keep=2)
    assert (outcome.trials, outcome.ran, actions) == (3, 1, ["train"])
    assert len(scored(study)) == 3
    assert {tuple(row["evaluation.suites"]) for row in rows(study)} == {("sts", "transfer")}
    before = tables(study)
    asked = {"evaluation.cost": True, "evaluation.protocols": ["cosine", "relatedness"]}
    with pytest.raises(ConfigError) as caught:
        run_planted(larger.with_overrides({**BOTH, **asked}), study)
    moves = [fault.move for fault in caught.value.faults]
    way = "Add the score first: tune-sentcl measure STUDY --set 'evaluation."
    assert moves == [f'{way}protocols=["relatedness"]\'.', f"{way}cost=true'."]
    assert tables(study) == before


@pytest.mark.parametrize(
    ("key", "grid", "ranges"),
    [
        ("suites", '[["sts"], ["sts", "transfer"]]', ""),
        ("cost", "[true, false]", ""),
        ("cost", "[false]", "{ choices = [true] }"),
        ("classifier_seeds", "[2]", "{ low = 1, high = 2 }"),
    ],
)
def test_all_trials_of_a_space_are_scored_alike(
    tmp_path: Path, key: str, grid: str, ranges: str
) -> None:
    ranges = ranges and f"evaluation.{key} = {ranges}"
    space = tiny_space(tmp_path, f"grid.evaluation.{key} = {grid}", ranges=ranges)
    with pytest.raises(ConfigError, match=rf"evaluation.{key} = .*the same in all trials"):
        run_planted(space, tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_sampled_study_stays_as_it_is_but_for_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finds halvings, ends of stages or a journal that are lost, so that others are sampled."""
    let_toys_have_all_stages(monkeypatch)
    fixed = "optimizer.epochs = 4\nevaluation.every = 1"
    space = lambda_space(tmp_path / "space", 0.3, ranges=LAMBDA, fixed=fixed)
    study, other = tmp_path / "study", tmp_path / "other"
    asked: dict[str, Any] = {"scheduler": "halving", "seeds": (0, 1), "keep": 9}
    run_planted(space, study, samples=8, **asked)
    shutil.copytree(study, other)
    before, journal = settled(study), (study / "optuna.journal").read_bytes()
    search = Study.read(study).manifest.search
    assert search is not None and search.halvings
    assert any(row["stages"] for row in before.values() if row["status"] == "finished")
    outcome, handed = measure_planted(study, MORE, samples=99)
    finished = {name for name, row in before.items() if row["status"] == "finished"}
    assert {name for name, _ in handed} == finished == scored(study)
    assert outcome.trials == len(finished) < len(before)
    assert (settled(study), Study.read(study).manifest.search) == (before, search)
    assert (study / "optuna.journal").read_bytes() == journal
    for place in (study, other):
        assert run_planted(space, place, samples=8, **asked)[0].ran == 0
        run_planted(space, place, samples=16, **asked)
    assert settled(study) == settled(other)


@pytest.mark.parametrize("best", [0, 1, 3])
def test_trials_without_weights_of_the_best_configurations_are_trained_again(
    tmp_path: Path, best: int, capsys: pytest.CaptureFixture[str]
) -> None:
    study = confirmed(tmp_path, 0.1, 0.3, 0.5, 0.7, 0.9)
    configurations, before = Standings.read(Study.read(study)), settled(study)
    ranked = [each.name for each in configurations.scored()]
    baseline = configurations.baselines()[0].name
    wanted = {*ranked[:2], baseline} if best == 0 else set(ranked[:best])
    of_best = {r["trial_id"] for r in rows(study) if r["configuration"] in wanted}
    assert {before[name]["origin"] for name in of_best} == {"grid", "confirm"}
    stand_in = StandIn(study)
    outcome, handed = measure_planted(study, MORE, stand_in, best=best)
    assert sorted(handed) == sorted((name, "train") for name in of_best)
    said = f"{len(of_best)} trials of {len(wanted)} configurations are trained again"
    assert said in capsys.readouterr().err
    assert outcome.ran == len(of_best) and scored(study) == checkpoints(study) == of_best
    after = settled(study)
    for name, row in after.items():
        assert row == {**before[name], "attempt": before[name]["attempt"] + (name in of_best)}
    assert measure_planted(study, best=best)[1] == []
    # What is kept now is measured from now on.
    more = measure_planted(study, {"evaluation.protocols": ["relatedness"]}, best=best)[1]
    assert {action for _, action in more} == {"measure"}


def test_fresh_seeds_that_were_trained_again_choose_no_weights(tmp_path: Path) -> None:
    # Finds the lucky confirmation seed's weights in the place of the winner's.
    study = confirmed(tmp_path, 0.1, 0.3, 0.7)
    measure_planted(study, MORE, best=0)
    space = lambda_space(tmp_path / "space", 0.1, 0.3, 0.7)
    run_planted(space, study, seeds=(0, 1), keep=1)
    (kept,) = checkpoints(study)
    (row,) = [row for row in rows(study) if row["trial_id"] == kept]
    winner = Standings.read(Study.read(study)).scored()[0].name
    assert (row["origin"], row["configuration"]) == ("grid", winner)


def test_what_another_command_has_done_meanwhile_is_not_undone(tmp_path: Path) -> None:
    # Finds scores and tasks of a command that ran between the reading and the lock.
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    run_planted(space, study)

    def slow(question: Question, path: str) -> Any:
        measure_planted(study, {"evaluation.cost": True})
        return nullcontext(StandIn(study))

    asked = SearchOptions(launcher="local", gpus_per_trial=0.0)
    with pytest.raises(StudyError, match=r"in the meantime.*Repeat the command"):
        measure_study(str(study), Request(MORE), None, asked, slow, terminal_watcher(shown=False))
    measured = Study.read(study).manifest.measured
    assert measured is not None and measured["cost"] and measured["suites"] == ["sts"]


@pytest.mark.parametrize(
    "lost", [{"protocol": "senteval-5fold"}, {"task": "TREC"}, {"split": "dev", "suite": "sts"}]
)
def test_every_score_that_is_asked_for_counts(tmp_path: Path, lost: Row) -> None:
    folds = {"evaluation.protocols": ["cosine", "senteval-5fold"]}
    asked = {**BOTH, **folds, "evaluation.classifier_seeds": 2}
    space, study = lambda_space(tmp_path / "space", 0.3).with_overrides(asked), tmp_path / "study"
    run_planted(space, study)
    assert measure_planted(study)[1] == []
    (path,) = (study / "scores").glob("*.parquet")
    table = pq.read_table(path)
    kept = [row for row in table.to_pylist() if not lost.items() <= row.items()]
    assert 0 < len(kept) < len(table)
    pq.write_table(pa.Table.from_pylist(kept, schema=table.schema), path)
    if lost.get("suite") == "sts":  # the objective among them
        with pytest.raises(ObjectiveError, match=r"no such score.*tune-sentcl measure STUDY"):
            run_planted(space, study)
    else:
        assert run_planted(space, study)[1] == [], "a search asks for the objective alone"
    assert [action for _, action in measure_planted(study)[1]] == ["measure"]
    assert run_planted(space, study)[1] == []


def test_trials_whose_rows_have_changed_stay_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their weights belong to the old rows, and a training would take the new ones."""
    lines = ["premise,hypothesis,label", *(f"a man {i},someone {i},{i % 3}" for i in range(64))]
    (tmp_path / "pairs.csv").write_text("\n".join(lines))
    fixed = 'evaluation.data = "toy"'
    space = lambda_space(tmp_path / "space", 0.3, 0.7, fixed=fixed)
    space = space.with_overrides({"data.source": str(tmp_path / "pairs.csv")})
    study = tmp_path / "study"
    run_planted(space, study, keep=9)
    (tmp_path / "pairs.csv").write_text("\n".join([*lines[:-1], "a dog,a cat,0"]))
    before = settled(study)
    assert measure_planted(study, MORE, best=0)[1] == []
    assert "2 trials that lack a score are not scored" in capsys.readouterr().err
    assert settled(study) == before


BAD: list[tuple[dict[str, Any], str]] = [
    ({"evaluation.suites": ["stsb"]}, "evaluation.suites"),
    (
        {"evaluation.suite": ["sts"]},
        r"evaluation.suite = .*does not set what is scored.*Set one of",
    ),
    ({"evaluation.every": 3}, "evaluation.every = .*does not set what is scored"),
    ({"method.lambda": 0.4}, r"method\.lambda = .*does not set what is scored"),
    ({"suites": ["transfer"]}, "suites = .*does not set what is scored"),
    ({"evaluation.own": ["a=nowhere"]}, "no such file"),
    ({"evaluation.classifier_seeds": "2"}, "classifier_seeds"),
    ({"evaluation.cost": 2}, "evaluation.cost"),
]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> tuple[Space, Path]:
    """A space and its finished study, which no test changes."""
    folder = tmp_path_factory.mktemp("held")
    space, study = lambda_space(folder / "space", 0.3), folder / "study"
    run_planted(space, study)
    return space, study


@pytest.mark.parametrize(("settings", "said"), BAD, ids=str)
def test_bad_settings_are_refused_and_change_nothing(
    held: tuple[Space, Path], settings: dict[str, Any], said: str
) -> None:
    before = {path: path.read_bytes() for path in held[1].rglob("*") if path.is_file()}
    with pytest.raises(TuneSentclError, match=said):
        measure(held[1], settings)
    assert {path: path.read_bytes() for path in held[1].rglob("*") if path.is_file()} == before


def test_what_holds_no_trial_to_score_is_refused(tmp_path: Path, held: tuple[Space, Path]) -> None:
    space, study = held[0], tmp_path / "study"
    with pytest.raises(StudyError, match="must be a study"):
        measure(tmp_path / "gone")
    run_planted(space, study, StandIn(study, lambda config: "fail"))
    with pytest.raises(StudyError, match=r"no finished trial to score.*Search first"):
        measure(study, MORE)
    with pytest.raises(
        ConfigError, match="best: 2: applies only to trials that are trained again"
    ):
        measure(held[1], best=2)
    with pytest.raises(ConfigError, match=r"best: -1"):
        measure(held[1], train=True, best=-1)
    with (
        StudyDriver.open(held[1], space=space, command=["test"]),
        pytest.raises(StudyError, match="another"),
    ):
        measure(held[1])


def test_scores_of_kept_weights_are_those_that_the_training_would_give(tmp_path: Path) -> None:
    """Real training."""
    study, whole = tmp_path / "study", tmp_path / "whole"
    small = {"data.limit": 64, "method.lambda": 0.3}
    here = SearchOptions(launcher="local", gpus_per_trial=0.0)
    run_here(load_space("smoke", small), study, seeds=(0, 1), gpus_per_trial=0.0)
    run_here(load_space("smoke", {**small, **BOTH}), whole, seeds=(0, 1), gpus_per_trial=0.0)
    before = read_study(study)
    (kept,) = checkpoints(study)
    outcome = measure(study, MORE, options=here)
    assert (outcome.ran, outcome.failures) == (1, 0)
    assert any("1 trials lack a score" in note for note in outcome.notes)
    after = read_study(study)
    old, new = (frames.trials.set_index("trial_id").loc[kept] for frames in (before, after))
    assert list(new["evaluation.suites"]) == ["sts", "transfer"]
    same = ["attempt", "status", "steps", "train_seconds"]
    assert new[same].to_dict() == old[same].to_dict()
    assert new["evaluation_seconds"] > old["evaluation_seconds"]
    assert len(before.curves) == len(after.curves) > 0
    outcome = measure(study, train=True, options=here)
    assert (outcome.ran, outcome.failures) == (1, 0)
    assert numbers(study) == pytest.approx(numbers(whole), abs=1e-3)
    assert len(checkpoints(study)) == 2
