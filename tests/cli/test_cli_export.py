"""The command: what it writes and says, whole or not at all, and that nothing else notices."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_samples import Done, invoke, refused, snapshot
from export_samples import Planted, changed, plant, shaken, toy
from model_samples import SENTENCES
from s3_server import make_bucket, serving, variables

from tune_sentcl.model.checkpoints.checkpoint import resolve_checkpoint
from tune_sentcl.model.encoder import load_encoder

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture(scope="module")
def opposite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials with the same scores, and a worse one."""
    path = tmp_path_factory.mktemp("opposite") / "study"
    base = toy(tail=8)
    trials = {"a": base, "b": changed(base, -1.0), "c": shaken(base, 3, 0.5)}
    plant(path, {name: Planted(encoder) for name, encoder in trials.items()})
    return path


def test_what_is_said_of_a_trial(opposite: Path, place: Path) -> None:
    before = snapshot(opposite)
    done = invoke("export", opposite, "--to", "model")
    said = f"writing trial a (the best of 3) to {place / 'model'}\n"
    assert (done.code, done.err) == (0, said)
    assert done.out.splitlines()[1:] == [f"Model: {place / 'model'}"]
    assert done.out.startswith("Trial: a, STS-B:spearman:dev ")
    (row,) = json.loads(invoke("export", opposite, "--trial", "c", "--to", "c", "--json").out)
    assert (row["model"], row["chosen"], row["to"]) == ("c", "named", str(place / "c"))
    assert snapshot(opposite) == before


def test_bad_input_is_refused_before_anything_is_written(opposite: Path, place: Path) -> None:
    Path("taken").mkdir()
    Path("link").symlink_to(place / "nowhere")
    inside = opposite / "model"
    for arguments, words in (
        ((opposite, "--to", "taken"), "must not exist yet"),
        ((opposite, "--to", "link"), "must not exist yet"),
        ((opposite, "--to", inside), "must not be inside the study"),
        ((opposite.as_uri(), "--to", inside), "must not be inside the study"),
        ((opposite, "--to", "s3://bucket/model"), "folder on this machine"),
        (
            (opposite, "--trial", "a", "--best", "STS-B:spearman", "--to", "x"),
            "Remove all but one",
        ),
        ((opposite, "--best", "STS-B:accuracy", "--to", "x"), "spearman"),
        (("nowhere", "--to", "x"), "must be a study"),
    ):
        refused(invoke("export", *arguments), words)
    done = invoke("export", opposite, "--to", "n" * 250)
    fault = done.err.partition("\n")[2]  # behind what would be exported
    refused(Done(done.code, done.out, fault), "cannot be read or written")
    assert sorted(path.name for path in place.iterdir()) == ["link", "taken"]


def test_what_a_killed_export_left_is_cleared_away(opposite: Path, place: Path) -> None:
    (place / ".model.partial" / "1_Pooling").mkdir(parents=True)
    (place / ".model.x.partial").mkdir()
    assert invoke("export", opposite, "--to", "model").code == 0
    assert {path.name for path in place.iterdir()} == {"model", ".model.x.partial"}


def test_a_study_in_a_bucket(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as url:
        make_bucket(url)
        for name, value in variables(url).items():
            monkeypatch.setenv(name, value)
        base, study = toy(tail=8), "s3://bucket/study"
        plant(study, {"a": Planted(base)})
        assert invoke("export", study, "--to", "model").code == 0
    encoder = load_encoder(resolve_checkpoint("model"), "mean", 64)
    assert np.array_equal(encoder.encode(SENTENCES), base.encode(SENTENCES))
