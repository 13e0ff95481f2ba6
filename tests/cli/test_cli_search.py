"""`search`: a repeated command, other studies to learn from, lacking scores, a full disk."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cli_samples import Done, invoke, refused, spawn, trials
from disk_samples import mounted

from tune_sentcl.store import SearchRecord, Study

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

SMALL = ("--set", "data.limit=32", "--set", "evaluation.every=0")


def search(study: Path | str, *options: object) -> Done:
    return invoke("search", "smoke", "--study", study, *SMALL, *options)


def on_ray(*arguments: object) -> Done:
    """In a process of its own, on a Ray of its own."""
    return spawn(*arguments, "--address", "local")


@pytest.mark.parametrize(
    "run", [invoke, pytest.param(on_ray, marks=[pytest.mark.ray, pytest.mark.long])]
)
def test_a_repeated_command_adds_nothing(run: Callable[..., Done]) -> None:
    """What follows the first search needs no Ray."""
    options = ("--trials", "1", "--sampler", "random")
    command = ("search", "smoke", "--study", "study", *SMALL, *options)
    first = run(*command, "--max-concurrent", "1")
    assert first.code == 0, first.err
    assert "3 runs ended now, 0 of them failed" in first.out
    assert "[3/3]" in first.err
    before = trials("study")
    assert [row["status"] for row in before] == ["finished"] * 3
    assert sorted(row["origin"] for row in before) == ["grid", "grid", "sampler"]
    for repeated in (options, ("--trials", "0")):
        again = search("study", *repeated)
        assert again.code == 0, again.err
        assert "0 runs ended now" in again.out
        assert trials("study") == before
    # A test split is an objective with leave, and what the study holds answers it without a run.
    leave = ("--objective", "STS12:spearman", "--allow-test-objective")
    other = search("study", *options, *leave)
    assert other.code == 0, other.err
    assert "0 runs ended now" in other.out and "STS12:spearman:test" in other.out
    scores = Study.read("study").scores().to_pylist()
    expected = {
        score["trial_id"]: score["value"]
        for score in scores
        if (score["task"], score["metric"]) == ("STS12", "spearman")
        and score["aggregation"] == "all"
    }
    assert {row["trial_id"]: row["objective"] for row in trials("study")} == expected
    assert {row["objective_name"] for row in trials("study")} == {"STS12:spearman:test"}
    more = search("study", "--trials", "2", "--sampler", "random")
    assert more.code == 0, more.err
    assert "1 runs ended now" in more.out
    after = {row["trial_id"]: row for row in trials("study")}
    assert len(after) == 4
    assert all(after[row["trial_id"]] == row for row in before)


def test_a_search_learns_from_another(place: Path) -> None:
    drawn = ("--trials", "1", "--sampler", "random")
    first = search("first", *drawn)
    assert first.code == 0, first.err
    url = f"file://{place}/first"
    second = search("second", *drawn, "--learn-from", url)
    assert second.code == 0, second.err
    assert f"the first 1 sampled configurations are the best of {url}" in second.err
    # The sampled one is the best that the other study has beside the grid's.
    assert "3 runs ended now" in second.out
    ids = [{row["trial_id"] for row in trials(study)} for study in ("first", "second")]
    assert ids[0] == ids[1] and len(ids[0]) == 3
    record = Study.read("second").manifest.search
    assert record is not None and record.seed_plan is not None
    plan, expected = record.seed_plan, SearchRecord(("STS-B:spearman:dev",), "random", 0, (url,))
    assert replace(record, seed_plan=None) == replace(expected, shares=(1.0,), first_seed=0)
    assert (plan.seeds, plan.configurations, len(plan.grid)) == ((0,), None, 2)


def test_what_cannot_be_measured_is_trained_again_when_asked(place: Path) -> None:
    assert search("study").code == 0
    more = ("--set", 'evaluation.protocols=["cosine","relatedness"]')
    left = search("study", *more)
    assert left.code == 0, left.err
    assert "1 runs ended now, 0 of them failed" in left.out  # measured: its weights are kept
    assert "1 finished trials lack a requested score" in left.err and "--retrain" in left.err
    planned = invoke("plan", "smoke", "--study", "study", *SMALL, *more, "--retrain", "--json")
    statuses = sorted(row["status"] for row in json.loads(planned.out))
    assert statuses == ["finished", "to train again"]
    again = search("study", *more, "--retrain")
    assert again.code == 0, again.err
    assert "1 runs ended now, 0 of them failed" in again.out and "lack" not in again.err
    assert sorted(row["attempt"] for row in trials("study")) == [1, 2]
    scores = Study.read("study").scores().to_pylist()
    trained = [row for row in scores if row["protocol"] == "relatedness"]
    assert len({row["trial_id"] for row in trained}) == 2
    assert all(row["value"] is not None for row in trained)


def test_a_disk_that_fills_up(place: Path) -> None:
    options = ("--seeds", "0,1,2,3,4,5,6", "--keep", "20", "--max-concurrent", "1")
    with mounted(place / "disk", "-t", "tmpfs", "-o", "size=1200k", "none") as disk:
        full = search(disk / "study", *options)
        assert full.code == 2, full.err
        assert "Traceback" not in full.out + full.err
        errors = [line for line in full.err.splitlines() if line.startswith("error: ")]
        refused(Done(2, full.out, "\n".join(errors)), str(disk / "study"), "some space", "repeat")
        assert 0 < len(trials(disk / "study")) < 14
        subprocess.run(["mount", "-o", "remount,size=32m", str(disk)], check=True)
        again = search(disk / "study", *options)
        assert again.code == 0, again.err
        shutil.copytree(disk / "study", place / "study")
    found = trials("study")
    assert [row["status"] for row in found] == ["finished"] * 14
    assert len({row["trial_id"] for row in found}) == 14
    assert len(list((place / "study" / "checkpoints").iterdir())) == 14
