"""Data, checkpoints, studies and disks that cannot be read or written."""

import json
import shutil
from pathlib import Path

import pytest
from cli_samples import TOY, invoke, refused, snapshot, write_pairs
from disk_samples import mounted, write

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

STS_B = "downstream/STS/STSBenchmark"


def test_a_damaged_evaluation_set(sts_root: Path, place: Path) -> None:
    shutil.copytree(sts_root, place / "root")
    file = place / "root" / STS_B / "sts-test.csv"
    file.write_bytes(file.read_bytes().replace(b"left 4\t", b"l\xe9ft 4\t", 1))
    before = snapshot(place)
    pairs = ["--set", "evaluation.data=root", "--data", "root"]
    commands = [
        ["evaluate", "toy", "--data", "root"],
        ["train", *TOY, *pairs, "--study", "study"],
        ["search", "smoke", *pairs, "--study", "study"],
        ["data", "check", "root"],
    ]
    for command in commands:
        done = invoke(*command)
        refused(done, "STSBenchmark", "line 5", "byte 0xe9", "must be utf-8", "Convert it")
        assert done.out == "" or command[0] == "data"
    assert snapshot(place) == before


def test_every_missing_file_is_told(sts_root: Path, place: Path) -> None:
    shutil.copytree(sts_root, place / "root")
    for name in ("sts-dev.csv", "sts-test.csv"):
        (place / "root" / STS_B / name).unlink()
    done = invoke("evaluate", "toy", "--data", "root")
    refused(done, "sts-dev.csv", "sts-test.csv", "does not exist", "copy the file", faults=2)


def test_a_file_that_sed_cut_short_is_named(place: Path) -> None:
    for name, rows in (("pos", 43), ("neg", 5331)):
        path = place / "root/downstream/MR" / f"rt-polarity.{name}"
        write(path, "".join(f"a film {row} .\n" for row in range(rows)))
    done = invoke("data", "check", "root", "--json")
    refused(done, "MR: ", "43 rows", "5331 rows", "macOS sed", "GNU sed")
    (row,) = [row for row in json.loads(done.out) if row["status"] == "wrong"]
    assert (row["name"], row["rows"]) == ("MR", None)
    assert "macOS sed" in row["problem"] and "GNU sed" in row["repair"]


def test_a_whole_root(sts_root: Path) -> None:
    done = invoke("data", "check", sts_root)
    assert (done.code, done.err) == (0, "")
    asked = invoke("data", "check", sts_root, "--json")
    found = {row["name"]: (row["status"], row["rows"]) for row in json.loads(asked.out)}
    assert found["STS12"] == ("ok", 3108)
    assert found["STS-B"] == ("ok", 2879)
    assert found["MR"] == ("missing", None)


def test_bad_pairs(place: Path) -> None:
    write_pairs(place / "p.parquet", label=[0, 7] * 8, premise=[" "] * 16)
    before = snapshot(place)
    settings = ["--set", f"data.source={place / 'p.parquet'}", "--set", "evaluation.data=toy"]
    for command in (["train", *TOY], ["search", "smoke"]):
        done = invoke(*command, *settings, "--study", "study")
        refused(done, "p.parquet", "row 2", "label = 7", "must be 0, 1 or 2")
        assert done.out == ""
    assert snapshot(place) == before


def test_a_data_root_without_the_set(place: Path) -> None:
    (place / "root").mkdir()
    settings = ["--set", "data.source=snli", "--set", "evaluation.data=toy", "--data", "root"]
    done = invoke("train", *TOY, *settings, "--study", "study")
    refused(done, "data.source = snli", "must hold nli/snli_train.parquet", "Copy the file there")
    assert not (place / "study").exists()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["model"], ["'model'", "a checkpoint is a folder", "Name the folder"]),
        (["model/readme"], ["encoder.checkpoint: 'model'", "holds no config.json"]),
        (
            ["model/config.json", "model/model.safetensors", "model/vocab.txt"],
            ["encoder.checkpoint: 'model'", "cannot be loaded", "Repair the files."],
        ),
    ],
)
def test_what_is_no_checkpoint(files: list[str], words: list[str], place: Path) -> None:
    for name in files:
        write(place / name, "junk")
    before = snapshot(place)
    refused(invoke("evaluate", "model", "--toy"), *words)
    refused(invoke("train", *TOY, "--set", "encoder.checkpoint=model"), *words)
    assert snapshot(place) == before


def test_a_damaged_study(held: Path, place: Path) -> None:
    shutil.copytree(held, place / "study")
    path = place / "study" / "trials" / "000001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    before = snapshot(place / "study" / "trials")
    for command in (["train", *TOY, "--study", "study"], ["show", "study"]):
        done = invoke(*command)
        refused(done, "000001.parquet", "complete Parquet file", "Restore")
        assert done.out == ""
    assert snapshot(place / "study" / "trials") == before


def test_a_folder_that_is_no_study_of_this_space(held: Path, place: Path) -> None:
    write(place / "mine" / "thesis.tex", "mine")
    shutil.copytree(held, place / "study")
    before = snapshot(place)
    holds = ["holds thesis.tex but no study.json", "new or empty folder"]
    refused(invoke("train", *TOY, "--study", "mine"), "mine", *holds)
    refused(invoke("search", "smoke", "--study", "mine"), "mine", *holds)
    refused(invoke("show", "mine"), "mine", "must be a study", "Check the path.")
    other = invoke("search", "smoke", "--study", "study")
    refused(other, "study", "belongs to space 'single', not 'smoke'", "Choose another folder")
    assert snapshot(place) == before


def test_a_disk_that_is_too_small(place: Path) -> None:
    with mounted(place / "disk", "-t", "tmpfs", "-o", "size=64k", "none") as disk:
        done = invoke("search", "smoke", "--study", disk / "study")
        refused(done, str(disk / "study"), "MB free", "Make room", "--keep")
        assert not list(disk.rglob("*.parquet"))
    with mounted(place / "disk", "-t", "tmpfs", "-o", "size=4k", "none") as disk:
        done = invoke("train", *TOY, "--study", disk / "study")
        refused(done, str(disk / "study"), "room")
