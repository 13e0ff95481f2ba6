"""`search`: a repeated command, other studies to learn from, lacking scores, a full disk."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import Done, invoke, refused, spawn, trials
from disk_samples import mounted

from tune_sentcl.store import Study

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

SMALL = ("--set", "data.limit=32", "--set", "evaluation.every=0")


def search(study: Path | str, *options: object) -> Done:
    done = invoke("search", "smoke", "--study", study, *SMALL, *options)
    assert done.code == 0, done.err
    return done


def on_ray(*arguments: object) -> Done:
    """In a process of its own, on a Ray of its own."""
    return spawn(*arguments, "--address", "local")


@pytest.mark.parametrize(
    "run", [invoke, pytest.param(on_ray, marks=[pytest.mark.ray, pytest.mark.long])]
)
def test_a_repeated_command_adds_nothing(run: Callable[..., Done]) -> None:
    """What follows the first search needs no Ray."""
    options = ("--samples", "1", "--sampler", "random")
    first = run("search", "smoke", "--study", "study", *SMALL, *options, "--max-concurrent", "1")
    assert first.code == 0, first.err
    assert "3 trials ended in this run, 0 of them failed" in first.out and "[3/3]" in first.err
    before = trials("study")
    assert [row["status"] for row in before] == ["finished"] * 3
    assert sorted(row["origin"] for row in before) == ["grid", "grid", "sampler"]
    assert "0 trials ended in this run" in search("study", *options).out
    assert trials("study") == before
    (told,) = json.loads(search("study", *options, "--json").out)
    (best,) = {row["configuration"] for row in before if row["verdict"] == "winner"}
    assert (told["study"], told["ran"], told["winner"]) == ("study", 0, best)
    found = told["scores"]["STS-B:spearman:dev"]["mean"]
    assert found == max(row["objective"] for row in before)
    judged = json.loads(invoke("judge", "study", "--json").out)
    assert (told["verdict"], told["next"]) == (judged[0]["verdict"], [judged[0]["next_step"]])
    # A test split is an objective with leave, and what the study holds answers it without a run.
    leave = "--objective STS12:spearman --allow-test-objective --stage-objective STS-B:spearman"
    other = search("study", *options, *leave.split())
    assert "0 trials ended in this run" in other.out and "STS12:spearman:test" in other.out
    expected = {
        score["trial_id"]: score["value"]
        for score in Study.read("study").scores().to_pylist()
        if (score["task"], score["metric"]) == ("STS12", "spearman")
        and score["aggregation"] == "all"
    }
    assert {row["trial_id"]: row["objective"] for row in trials("study")} == expected
    assert {row["objective_name"] for row in trials("study")} == {"STS12:spearman:test"}
    # Another study learns from it: beside the grid its sampled configuration is that one.
    url = f"file://{Path('study').absolute()}"
    second = search("second", *options, "--learn-from", url)
    assert f"the next 1 sampled configurations are the best of {url}" in second.err
    ids = [{row["trial_id"] for row in trials(study)} for study in ("study", "second")]
    assert ids[0] == ids[1]
    record = Study.read("second").manifest.search
    assert record is not None and record.learned_from == (url,)


def test_a_disk_that_fills_up(place: Path) -> None:
    options = ("--seeds", "0,1,2,3,4,5,6", "--keep", "20", "--max-concurrent", "1")
    with mounted(place / "disk", "-t", "tmpfs", "-o", "size=1200k", "none") as disk:
        full = invoke("search", "smoke", "--study", disk / "study", *SMALL, *options)
        errors = [line for line in full.err.splitlines() if line.startswith("error: ")]
        refused(Done(full.code, "", errors[-1]), str(disk / "study"), "some space", "repeat")
        assert len(errors) == 1 and "Traceback" not in full.out + full.err
        assert 0 < len(trials(disk / "study")) < 14
        subprocess.run(["mount", "-o", "remount,size=32m", str(disk)], check=True)
        search(disk / "study", *options)
        assert [row["status"] for row in trials(disk / "study")] == ["finished"] * 14
        assert len(list((disk / "study" / "checkpoints").iterdir())) == 14
