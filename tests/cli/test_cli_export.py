"""The command: what it writes and says, whole or not at all, and that nothing else notices."""

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from cli_samples import Done, invoke, refused, snapshot
from export_samples import Planted, changed, dev, plant, shaken, toy
from model_samples import SENTENCES, sentence_transformer
from s3_server import make_bucket, serving, variables

from tune_sentcl.errors import DamagedError
from tune_sentcl.export.record import soup_id
from tune_sentcl.model.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import Encoder, load_encoder
from tune_sentcl.model.export import export
from tune_sentcl.space import load_space
from tune_sentcl.store import Study, StudyDriver
from tune_sentcl.store.merging import merge

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

STUDIES = Path(__file__).parents[1] / "store" / "studies"


@pytest.fixture(scope="module")
def opposite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials with the same scores whose weights cancel each other, and a worse one."""
    path = tmp_path_factory.mktemp("opposite") / "study"
    base = toy(tail=8)
    trials = {"a": base, "b": changed(base, -1.0), "c": shaken(base, 3, 0.5)}
    plant(path, {name: Planted(encoder) for name, encoder in trials.items()})
    return path


def test_a_soup_of_weights_that_cancel_is_the_best_member_alone(
    opposite: Path, place: Path
) -> None:
    shutil.copytree(opposite, "study")
    with Study.read("study").checkpoint("a") as folder:
        best = load_encoder(resolve_checkpoint(str(folder)), "mean", 64)
    done = invoke("export", "study", "--soup", 2, "--to", "model", "--json")
    (row,) = json.loads(done.out)
    assert done.code == 0 and "no average was as good on dev" in done.err
    assert (row["kind"], row["model"]) == ("soup", soup_id(["a"]))
    assert [(one["trial_id"], one["taken"]) for one in row["tried"]] == [("a", True), ("b", False)]
    assert row["tried"][1]["with_it"] is None
    assert row["value"] == pytest.approx(row["members"][0]["value"], abs=1e-6)
    found = load_encoder(resolve_checkpoint("model"), "mean", 64)
    assert np.array_equal(found.encode(SENTENCES), best.encode(SENTENCES))


@dataclass(frozen=True)
class Soup:
    """A study with noisy copies of one encoder, and the soup that was exported of it.

    Attributes:
        place: Where `study` and `model` lie.
        encoders: The trials' weights.
        row: What the command printed.
        before: The study's files before.
        shown: What `show` said before.
    """

    place: Path
    encoders: dict[str, Encoder]
    row: dict[str, Any]
    before: dict[str, bytes | None]
    shown: str


@pytest.fixture(scope="module")
def soup(tmp_path_factory: pytest.TempPathFactory) -> Soup:
    """Tests copy its study before they touch it."""
    place, base = tmp_path_factory.mktemp("soup"), toy(tail=8)
    encoders = {f"t{seed}": shaken(base, seed, 0.1) for seed in range(4)}
    trials = {name: Planted(encoder) for name, encoder in encoders.items()}
    elsewhere = {"checkpoint_fingerprint": "elsewhere"}
    # The same weights as another's, so that they stand high in the order and are looked at.
    high = max(encoders, key=lambda name: dev(encoders[name]))
    trials["zz-other"] = Planted(encoders[high], row=elsewhere)
    plant(place / "study", trials)
    before, shown = snapshot(place / "study"), invoke("show", place / "study", "--json").out
    to = place / "model"
    done = invoke("export", place / "study", "--soup", 4, "--to", to, "--json")
    assert done.code == 0, done.err
    return Soup(place, encoders, json.loads(done.out)[0], before, shown)


@pytest.mark.slow
def test_a_soup_is_the_average_of_its_members_and_no_worse_than_the_best(soup: Soup) -> None:
    row, values = soup.row, {name: dev(encoder) for name, encoder in soup.encoders.items()}
    tried = [one for one in row["tried"] if not one["left_out"]]
    assert [one["trial_id"] for one in tried] == sorted(values, key=lambda n: (-values[n], n))
    assert [one["left_out"] for one in row["tried"] if one["trial_id"] == "zz-other"] == [
        "it started from another encoder"
    ]
    taken = [one["trial_id"] for one in tried if one["taken"]]
    assert [member["trial_id"] for member in row["members"]] == taken
    exported = load_encoder(resolve_checkpoint(str(soup.place / "model")), "mean", 64)
    for name, weight in exported.state_dict().items():
        members = [soup.encoders[member].state_dict()[name].double() for member in taken]
        mean = sum(members[1:], members[0]) / len(members)
        np.testing.assert_allclose(weight.numpy(), mean.numpy(), atol=1e-6)
    assert row["value"] == pytest.approx(dev(exported), abs=1e-6)
    assert row["best_member"] == tried[0]["with_it"]
    assert row["value"] >= max(values.values()) - 1e-6
    given = sentence_transformer(soup.place / "model").encode(SENTENCES, show_progress_bar=False)
    np.testing.assert_allclose(given, exported.encode(SENTENCES), atol=1e-5)


@pytest.mark.slow
def test_a_soup_has_scores_of_its_own_and_a_card(soup: Soup) -> None:
    whole = [s for s in soup.row["scores"] if s["aggregation"] in (None, "all")]
    found = {(s["task"], s["split"], s["metric"]): s["value"] for s in whole if not s["subset"]}
    assert found["STS-B", "dev", "spearman"] == soup.row["value"]
    assert {task for task, split, _ in found if split == "test"} == {
        *(f"STS{year}" for year in range(12, 17)),
        *("STS-B", "SICK-R"),
    }
    card = (soup.place / "model" / "README.md").read_text()
    assert "It is no trial" in card and "started from another encoder" in card
    assert card.count("tune-sentcl train --study") == len(soup.row["members"])


@pytest.mark.slow
def test_a_study_knows_a_soup_as_what_it_is_and_nothing_else_notices(
    soup: Soup, place: Path
) -> None:
    shutil.copytree(soup.place / "study", "study")
    (record,) = Study.read("study").soups()
    assert record == {key: value for key, value in soup.row.items() if key != "to"}
    added = {"soups", f"soups/{record['model']}.json"}
    after = {k: v for k, v in snapshot(Path("study")).items() if k not in added}
    assert after == soup.before
    assert invoke("show", "study", "--json").out == soup.shown
    with StudyDriver.open("study", space=load_space("smoke"), command=["again"]) as driver:
        driver.compact()
        assert driver.study.soups() == [record]
    assert json.loads(invoke("show", "study", "--json").out) == json.loads(soup.shown)
    plant("second", {"another": Planted(None, value=1.0)})
    merge(["study", "second"], "both", command=["merge"])
    both = Study.read("both")
    assert len(both.trials()) == len(json.loads(soup.shown)) + 1 and both.soups() == []
    # The same members are the same soup.
    again = invoke("export", "study", "--soup", 4, "--to", "again", "--json")
    assert json.loads(again.out)[0]["model"] == record["model"]
    assert len(Study.read("study").soups()) == 1
    Path("study", "soups", f"{record['model']}.json").write_text("[]")
    with pytest.raises(DamagedError, match="must be the record of this soup"):
        Study.read("study").soups()


def stopped(done: Done, *words: str) -> None:
    """Bad input that showed only after it was said what would be exported."""
    said, _, fault = done.err.partition("\n")
    assert "error" not in said
    refused(Done(done.code, done.out, fault), *words)


@pytest.mark.slow
def test_a_soup_needs_weights_and_the_data_of_the_search(place: Path) -> None:
    one = plant("one", {"a": Planted(toy()), "b": Planted(None, value=1.0)})
    stopped(invoke("export", "one", "--soup", 2, "--to", "x"), "kept: a", "takes two trials")
    refused(invoke("export", "one", "--soup", 1, "--to", "x"), "--soup", "2 or more")
    start = {"checkpoint_fingerprint": "elsewhere"}
    plant("apart", {"a": Planted(toy()), "b": Planted(shaken(toy(), 1), row=start)})
    stopped(invoke("export", "apart", "--soup", 2, "--to", "x"), "another encoder")
    plant("wide", {"a": Planted(toy(tail=8)), "b": Planted(toy(tail=9))})
    stopped(invoke("export", "wide", "--soup", 2, "--to", "x"), "another architecture")
    root = {"evaluation.data": "root"}
    plant("real", {name: Planted(toy(), 70.0, settings=root) for name in "ab"})
    stopped(invoke("export", "real", "--soup", 2, "--to", "x"), "needs a data root")
    plant("moved", {name: Planted(toy(), 70.0) for name in "ab"})
    done = invoke("export", "moved", "--soup", 2, "--to", "x")
    stopped(done, "must hold the sets that the search read", "70.00 in the study and")
    assert not Path("x").exists()
    assert one.soups() == []


def test_a_study_that_cannot_be_written_still_gives_its_soup(opposite: Path, place: Path) -> None:
    shutil.copytree(opposite, "study")
    Path("elsewhere").mkdir()
    Path("study/soups").symlink_to(place / "elsewhere")
    done = invoke("export", "study", "--soup", 2, "--to", "model")
    assert done.code == 0 and "no record of the soup" in done.err and "is a link" in done.err
    assert Path("model/modules.json").is_file() and not list(Path("elsewhere").iterdir())


def test_what_is_said_of_a_trial(opposite: Path, place: Path) -> None:
    before = snapshot(opposite)
    done = invoke("export", opposite, "--to", "model")
    said = f"trial a, the best of 3, is written to {place / 'model'}\n"
    assert (done.code, done.err) == (0, said)
    assert done.out.splitlines()[1:] == [f"Model: {place / 'model'}"]
    assert done.out.startswith("Trial: a, STS-B:spearman:dev ")
    (row,) = json.loads(invoke("export", opposite, "--trial", "c", "--to", "c", "--json").out)
    assert (row["kind"], row["chosen"], row["to"]) == ("trial", "named", str(place / "c"))
    assert snapshot(opposite) == before


@pytest.mark.slow
def test_what_is_exported_is_said_before_torch_is_loaded(opposite: Path, place: Path) -> None:
    program = (
        "import sys; from tune_sentcl.export.exporting import export_trial\n"
        "def say(text): print(text, 'torch' in sys.modules)\n"
        f"export_trial({str(opposite)!r}, 'model', say=say)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("trial a, ") and done.stdout.endswith(" False\n")


def test_bad_input_is_refused_before_anything_is_written(opposite: Path, place: Path) -> None:
    Path("taken").mkdir()
    Path("link").symlink_to(place / "nowhere")
    for to in ("taken", "link"):
        refused(invoke("export", opposite, "--to", to), "must not exist yet")
    refused(invoke("export", opposite, "--to", opposite / "model"), "must not lie in the study")
    refused(invoke("export", opposite, "--to", "s3://bucket/model"), "folder of this machine")
    both = ("--trial", "a", "--best", "STS-B:spearman")
    refused(invoke("export", opposite, *both, "--to", "x"), "--trial, --best", "Keep one")
    refused(invoke("export", opposite, "--best", "STS-B:accuracy", "--to", "x"), "spearman")
    refused(invoke("export", "nowhere", "--to", "x"), "must be a study")
    stopped(invoke("export", opposite, "--to", "n" * 250), "cannot be read or written")
    assert sorted(path.name for path in place.iterdir()) == ["link", "taken"]


def test_what_a_killed_export_left_is_cleared_away(opposite: Path, place: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    dead = place / f".model.0123abcd.{process.pid}@{socket.gethostname()}"
    (dead / "1_Pooling").mkdir(parents=True)
    alive = place / f".model.0123abcd.{os.getpid()}@{socket.gethostname()}"
    of_another = place / f".model.x.0123abcd.{process.pid}@{socket.gethostname()}"
    for folder in (alive, of_another):
        folder.mkdir()
    assert invoke("export", opposite, "--to", "model").code == 0
    assert {path.name for path in place.iterdir()} == {"model", alive.name, of_another.name}


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_studies_of_older_schemas(version: str, place: Path) -> None:
    shutil.copytree(STUDIES / version, "study")
    study = Study.read("study")
    rows = study.trials(["trial_id", "status"]).to_pylist()
    finished = next(row["trial_id"] for row in rows if row["status"] == "finished")
    done = invoke("export", "study", "--trial", finished, "--to", "model")
    refused(done, finished, "has not kept its weights", "tune-sentcl train")
    stored = pq.read_table("study/trials/all.parquet")["trial_id"].to_pylist()
    old = finished if finished in stored else stored[0]
    export(toy(), Path("study/checkpoints") / old, {})
    done = invoke("export", "study", "--trial", finished, "--to", "model")
    assert done.code == 0, done.err
    assert resolve_checkpoint("model").pooling == "mean"


@pytest.mark.slow
def test_a_study_in_a_bucket(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as url:
        make_bucket(url)
        for name, value in variables(url).items():
            monkeypatch.setenv(name, value)
        base = toy(tail=8)
        study = "s3://bucket/study"
        plant(study, {"a": Planted(base), "b": Planted(changed(base, -1.0))})
        assert invoke("export", study, "--to", "model").code == 0
        done = invoke("export", study, "--soup", 2, "--to", "soup", "--json")
        assert done.code == 0, done.err
        (record,) = Study.read(study).soups()
        assert record["model"] == json.loads(done.out)[0]["model"]
        found = load_encoder(resolve_checkpoint("model"), "mean", 64)
        assert np.array_equal(found.encode(SENTENCES), base.encode(SENTENCES))
