"""Which study speaks for a trial that several have."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from store_samples import opened, points, row, scores, worker

from tune_sentcl.config import parse_config
from tune_sentcl.score import Score
from tune_sentcl.store import Study, TrialRow
from tune_sentcl.store.snapshot import Snapshot
from tune_sentcl.store.union import CombinedStudies, combine

Status = Literal["failed", "pruned", "finished"]


def write(path: Path, trials: Mapping[str, tuple[TrialRow, list[Score]]]) -> Snapshot:
    with opened(path) as driver:
        for trial_id, (ended, found) in trials.items():
            worker(driver).write_scores(trial_id, found)
            worker(driver).write_curves(trial_id, points(float(ended.attempt)))
            driver.commit(ended)
    return Snapshot.of(Study.read(path))


def united(
    tmp_path: Path, *studies: Mapping[str, tuple[TrialRow, list[Score]]]
) -> CombinedStudies:
    names = [f"s{number}" for number in range(len(studies))]
    found = [write(tmp_path / n, s) for n, s in zip(names, studies, strict=True)]
    return combine(found, names)


def said(union: CombinedStudies, folder: str, column: str) -> list[tuple[Any, ...]]:
    table = union.snapshot.tables[folder]
    return list(zip(*(table[name].to_pylist() for name in ("trial_id", column)), strict=True))


def test_finished_goes_before_pruned_before_failed_and_then_the_first(tmp_path: Path) -> None:
    kinds: tuple[Status, ...] = ("failed", "pruned", "finished")
    studies: list[dict[str, tuple[TrialRow, list[Score]]]] = [{}, {}]
    expected = {}
    for one in kinds:
        for other in kinds:
            name = f"{one}-{other}"
            studies[0][name] = (row(name, one, attempt=1), scores(70.0))
            studies[1][name] = (row(name, other, attempt=2), scores(70.0))
            expected[name] = 2 if kinds.index(other) > kinds.index(one) else 1
    union = united(tmp_path, *studies)
    assert dict(said(union, "trials", "attempt")) == expected
    assert len(union.snapshot.tables["trials"]) == len(expected)
    assert not union.disagreements
    # Curves and scores are of the same study.
    assert dict(said(union, "curves", "value")) == {n: float(k) for n, k in expected.items()}
    scored = [name for name, _ in said(union, "scores", "value")]
    assert sorted(scored) == sorted(2 * [n for n in expected if "finished" in n])


def test_trials_keep_the_order_of_the_studies(tmp_path: Path) -> None:
    one = {name: (row(name), scores()) for name in ("z", "b")}
    other = {name: (row(name), scores()) for name in ("a", "b")}
    union = united(tmp_path, one, other)
    for folder in ("trials", "scores", "curves"):
        names = union.snapshot.tables[folder]["trial_id"].to_pylist()
        assert list(dict.fromkeys(names)) == [*Study.read(tmp_path / "s0").ended(), "a"]


def test_scores_that_only_one_study_has_stand_beside_those_of_the_first(tmp_path: Path) -> None:
    failed = replace(scores()[0], task="MR", value=None, reason="it fell over")
    taken = replace(failed, value=60.0, reason=None)
    union = united(
        tmp_path,
        {"t": (row("t"), [*scores(70.0, 2), failed])},
        {"t": (row("t"), [*scores(70.004, 3), taken])},
    )
    assert not union.disagreements
    table = union.snapshot.tables["scores"].select(["task", "value"]).to_pylist()
    values = {found["task"]: found["value"] for found in table}
    assert values == {"STS12": 70.0, "STS13": 70.0, "STS14": 70.004, "MR": 60.0}
    assert len(table) == 4


@pytest.mark.parametrize(
    ("column", "values", "change"),
    [
        ("steps", "10 in s0 and 11 in s1", {"steps": 11}),
        ("configuration", "c0 in s0 and c1 in s1", {"configuration": "c1"}),
        (
            "objective",
            "80.5 in s0 and 80.6 in s1",
            {"objectives": (("STS-B:spearman:dev", 80.6),)},
        ),
        ("STS12:spearman:test:cosine, sts, toy", "70.0 in s0 and 70.01 in s1", 70.01),
    ],
)
def test_finished_rows_that_do_not_agree_are_named(
    column: str, values: str, change: Any, tmp_path: Path
) -> None:
    found = scores(70.0)
    other = row("t")
    if isinstance(change, dict):
        other = replace(other, **change)
    else:
        found = [replace(found[0], value=change), found[1]]
    same = {"u": (row("u"), scores())}
    union = united(
        tmp_path, {"t": (row("t"), scores(70.0)), **same}, {"t": (other, found), **same}
    )
    (fault,) = union.disagreements
    assert str(fault).startswith(f"trial t: {column} = {values}: two finished rows")
    assert dict(said(union, "scores", "value"))["t"] == 70.0  # the first one's stand


def test_scores_of_several_versions_of_a_task_are_named(tmp_path: Path) -> None:
    plain = scores()
    mine = replace(plain[0], suite="own", task="mine", split="dev", version="v1")
    studies: list[dict[str, tuple[TrialRow, list[Score]]]] = [
        {"a": (row("a"), [*plain, mine])},
        {"b": (row("b"), [*plain, replace(mine, version="v2")])},
        {"c": (row("c"), [*plain, replace(mine, version=None)])},  # of no version: says nothing
        {"d": (row("d"), [*plain, replace(mine, task="yours", version="v2"), mine])},
        {"e": (row("e"), [*plain, replace(mine, split="test", version="v2")])},
        {"f": (row("f"), [*plain, replace(mine, value=None, reason="no", version="v2")])},
    ]
    (fault,) = united(tmp_path, *studies).disagreements
    said_ = "task mine: version of dev, own = v1 in s0 and v2 in s1: all studies must have"
    assert str(fault).startswith(said_)
    assert not united(tmp_path / "again", studies[0], *studies[2:]).disagreements


def test_where_and_how_long_a_trial_ran_is_no_disagreement(tmp_path: Path) -> None:
    other = replace(row("t"), host="elsewhere", wall_seconds=9.0, device="gpu", attempt=4)
    renamed = replace(other, objectives=(("SICK-R:spearman:dev", 1.0),))
    for number, changed in enumerate((other, renamed)):
        place = tmp_path / str(number)
        union = united(place, {"t": (row("t"), scores())}, {"t": (changed, scores())})
        assert not union.disagreements
        assert said(union, "trials", "attempt") == [("t", 1)]


@pytest.mark.parametrize("real", [0, 1])
def test_of_a_trial_on_toy_and_real_sets_the_real_row_counts_in_any_order(
    tmp_path: Path, real: int
) -> None:
    studies: list[dict[str, tuple[TrialRow, list[Score]]]] = []
    for number in range(2):
        data: Literal["toy", "root"] = "root" if number == real else "toy"
        value = 80.0 if data == "root" else 30.0
        config = parse_config({"method": {"name": "scl"}, "evaluation": {"data": data}}, "test")
        found = [replace(one, data=data) for one in scores(value)]
        found += [replace(one, task="STS16") for one in scores(value / 1e5, 1)]
        ended = row("t", config=config, objective=value, attempt=1 + number)
        studies.append({"t": (ended, found)})
    union = united(tmp_path, *studies)
    assert not union.disagreements
    assert said(union, "trials", "objective") == [("t", 80.0)]
    assert said(union, "trials", "evaluation.data") == [("t", "root")]
    assert dict(said(union, "curves", "value")) == {"t": 1.0 + real}
    values = sorted(value for _, value in said(union, "scores", "value"))
    assert values == [0.0008, 30.0, 30.0, 80.0, 80.0]  # of both, and that of the row


def test_objectives_on_the_same_data_must_agree_behind_other_data(tmp_path: Path) -> None:
    toy, real = (
        parse_config({"method": {"name": "scl"}, "evaluation": {"data": data}}, "test")
        for data in ("toy", "root")
    )
    rows = [row("t", config=c, objective=v) for c, v in ((toy, 30.0), (real, 80.0), (real, 81.0))]
    (fault,) = united(tmp_path, *({"t": (one, [])} for one in rows)).disagreements
    assert str(fault).startswith("trial t: objective = 80.0 in s1 and 81.0 in s2")


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_seeds_that_one_study_has_chosen_by_are_fresh_in_none(
    tmp_path: Path, status: Status
) -> None:
    confirmed = {name: (replace(row(name), origin="confirm"), scores()) for name in ("t", "u")}
    searched = {"t": (replace(row("t", status), origin="sampler"), scores())}
    for number, studies in enumerate(((confirmed, searched), (searched, confirmed))):
        union = united(tmp_path / str(number), *studies)
        assert dict(said(union, "trials", "origin")) == {"t": "sampler", "u": "confirm"}


def test_studies_without_trials_come_to_one_without(tmp_path: Path) -> None:
    union = united(tmp_path, {}, {})
    assert [len(table) for table in union.snapshot.tables.values()] == [0, 0, 0]


def test_a_snapshot_stays_as_it_was_read(tmp_path: Path) -> None:
    found = write(tmp_path, {"t": (row("t"), scores())})
    with opened(tmp_path) as driver:
        driver.commit(row("u"))
    assert found.trials(["trial_id"]).to_pylist() == [{"trial_id": "t"}]
    assert len(found.scores(["value"], among={"t": None})) == 2
    assert len(found.scores(["value"], among={})) == 0
    assert len(found.curves(["value"])) == 3
