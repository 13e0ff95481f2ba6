"""Which study speaks for a trial that several have, and what studies must agree about."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from store_samples import opened, points, row, scores

from tune_sentcl.config import parse_config
from tune_sentcl.errors import StudyError
from tune_sentcl.score import Score
from tune_sentcl.store import Study, TrialRow
from tune_sentcl.store.study import Snapshot
from tune_sentcl.store.union import union

Status = Literal["failed", "pruned", "finished"]
Trials = Mapping[str, tuple[TrialRow, list[Score]]]


def write(path: Path, trials: Trials) -> Snapshot:
    with opened(path) as driver:
        for ended, found in trials.values():
            driver.commit(ended, found, points(float(ended.attempt)))
    return Snapshot.of(Study.read(path))


def united(tmp_path: Path, *studies: Trials) -> Snapshot:
    return union({f"s{n}": write(tmp_path / f"s{n}", s) for n, s in enumerate(studies)})


def said(found: Snapshot, folder: str, column: str) -> list[tuple[Any, ...]]:
    table = found.tables[folder]
    return list(zip(*(table[name].to_pylist() for name in ("trial_id", column)), strict=True))


def test_a_trial_is_of_the_first_study_in_which_it_finished_else_of_the_first(
    tmp_path: Path,
) -> None:
    kinds: tuple[Status, ...] = ("failed", "pruned", "finished")
    studies: list[dict[str, tuple[TrialRow, list[Score]]]] = [{}, {}]
    expected = {}
    for first, second in itertools.product(kinds, kinds):
        name = f"{first}-{second}"
        studies[0][name] = (row(name, first, attempt=1), scores(70.0))
        studies[1][name] = (row(name, second, attempt=2), scores(71.0))
        expected[name] = 2 if second == "finished" != first else 1
    studies[0]["z"], studies[1]["a"] = (row("z"), scores()), (row("a"), scores())
    expected |= {"z": 1, "a": 1}
    found = united(tmp_path, *studies)
    assert dict(said(found, "trials", "attempt")) == expected
    assert len(found.tables["trials"]) == len(expected)
    # Curves and scores are of the same study, and so is its name.
    assert dict(said(found, "curves", "value")) == {n: float(k) for n, k in expected.items()}
    scored = dict(said(found, "scores", "value"))
    assert scored.keys() == {n for n in expected if "finished" in n or len(n) == 1}
    assert (scored["failed-finished"], scored["finished-finished"]) == (71.0, 70.0)
    for folder in ("trials", "scores", "curves"):
        names = dict(said(found, folder, "study"))
        assert (names["pruned-finished"], names["finished-pruned"]) == ("s1", "s0")
        assert sorted(names.values()) == list(names.values())


def with_data(data: str, **more: Any) -> TrialRow:
    config = {"method": {"name": "scl"}, "evaluation": {"data": data}}
    return row("t", "failed", config=parse_config(config, "test"), **more)


MINE = replace(scores()[0], suite="own", task="mine", split="dev", version="v1")
TWO = (("STS-B:spearman:dev", 80.5), ("STS12:spearman:test", 3.0))


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        (row("t"), row("t", objective=80.6), "trial t: STS-B:spearman:dev = 80.5 in s0 and 80.6"),
        (row("t"), row("t", objective=80.504), ""),
        (
            replace(row("t"), objectives=TWO),
            replace(row("t"), objectives=(*TWO[:1], ("STS12:spearman:test", 4.0))),
            "trial t: STS12:spearman:test = 3.0 in s0 and 4.0 in s1",
        ),
        (row("t"), replace(row("t"), objectives=(("SICK-R:spearman:dev", 1.0),)), ""),
        (
            replace(row("t"), objectives=(*TWO[:1], ("cost:milliseconds_1:dev", 3.0))),
            replace(row("t"), objectives=(*TWO[:1], ("cost:milliseconds_1:dev", 4.0))),
            "",
        ),
        (row("t"), row("t", "pruned", objective=1.0), ""),
        (
            replace(row("t"), data_fingerprint="f"),
            replace(row("t"), data_fingerprint="g"),
            "trial t: data_fingerprint = f in s0 and g in s1",
        ),
        (row("t"), replace(row("t"), host="elsewhere", wall_seconds=9.0, attempt=4), ""),
        (
            with_data("toy"),
            with_data("root"),
            "all trials: evaluation.data = toy in s0 and root in s1",
        ),
        (MINE, replace(MINE, version="v2"), "task mine: version of dev, own = v1 in s0 and v2 in"),
        (MINE, replace(MINE, version=None), ""),
        (MINE, replace(MINE, task="yours", version="v2"), ""),
        (MINE, replace(MINE, split="test", version="v2"), ""),
        (MINE, replace(MINE, value=None, reason="no", version="v2"), ""),
    ],
)
def test_studies_that_differ_are_refused_in_one_sentence(
    one: TrialRow | Score, other: TrialRow | Score, differs: str, tmp_path: Path
) -> None:
    studies = [
        {"t": (found, scores())} if isinstance(found, TrialRow) else {name: (row(name), [found])}
        for name, found in (("t", one), ("u", other))
    ]
    if not differs:
        united(tmp_path, *studies)
        return
    with pytest.raises(StudyError) as caught:
        united(tmp_path, *studies)
    assert str(caught.value).startswith(differs)
    assert len(caught.value.faults) == 1


def test_a_snapshot_stays_as_it_was_read(tmp_path: Path) -> None:
    assert [len(table) for table in united(tmp_path, {}, {}).tables.values()] == [0, 0, 0]
    study = tmp_path / "study"
    found = write(study, {"t": (row("t"), scores())})
    with opened(study) as driver:
        driver.commit(row("u"))
    assert found.trials(["trial_id"]).to_pylist() == [{"trial_id": "t"}]
    assert len(found.scores(["value"], among={"t": None})) == 2
    assert len(found.scores(["value"], among={})) == 0
    assert len(found.curves(["value"])) == 3
