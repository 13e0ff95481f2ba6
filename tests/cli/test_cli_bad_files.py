"""Data, checkpoints, studies and disks that cannot be read or written."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
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


PAIR_FAULTS: list[tuple[Callable[[Path], object], list[str]]] = [
    (lambda p: write_pairs(p, label=[0, 7] * 8), ["row 2", "label = 7", "must be 0, 1 or 2"]),
    (
        lambda p: write_pairs(p, premise=[" "] * 16),
        ["rows 1, 2, 3, 4, 5 and 11 more: premise", "16 are", "--set data.blanks=drop"],
    ),
    (lambda p: None, ["the file does not exist", "data.source"]),
    (lambda p: p.write_bytes(b"junk"), ["cannot be read as parquet", "copy the file again"]),
]


@pytest.mark.parametrize(("make", "words"), PAIR_FAULTS)
def test_bad_pairs(make: Callable[[Path], object], words: list[str], place: Path) -> None:
    make(place / "p.parquet")
    before = snapshot(place)
    settings = ["--set", f"data.source={place / 'p.parquet'}", "--set", "evaluation.data=toy"]
    for command in (["train", *TOY], ["search", "smoke"]):
        done = invoke(*command, *settings, "--study", "study")
        refused(done, "p.parquet", *words)
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


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("study.json", ["study.json", "must be JSON", "from a copy"]),
        ("trials/000001.parquet", ["000001.parquet", "complete Parquet file", "Restore"]),
    ],
)
def test_a_damaged_study(file: str, words: list[str], held: Path, place: Path) -> None:
    shutil.copytree(held, place / "study")
    path = place / "study" / file
    path.write_bytes(path.read_bytes()[:-20])
    before = snapshot(place / "study" / "trials")
    for command in (["train", *TOY, "--study", "study"], ["show", "study"]):
        done = invoke(*command)
        refused(done, *words)
        assert done.out == ""
    assert snapshot(place / "study" / "trials") == before


def test_a_file_in_place_of_a_study(place: Path) -> None:
    write(place / "study", "mine")
    for command in (["train", *TOY, "--study", "study"], ["show", "study"]):
        refused(invoke(*command), "study", "must be a folder", "Choose another path")


def test_a_folder_that_is_no_study(place: Path) -> None:
    write(place / "study" / "thesis.tex", "mine")
    before = snapshot(place)
    for command in (["train", *TOY], ["search", "smoke"]):
        done = invoke(*command, "--study", "study")
        refused(done, "study", "holds thesis.tex but no study.json", "new or empty folder")
    refused(invoke("show", "study"), "study", "must be a study", "Check the path.")
    assert snapshot(place) == before


def test_a_study_of_another_space(held: Path, place: Path) -> None:
    shutil.copytree(held, place / "study")
    before = snapshot(place)
    done = invoke("search", "smoke", "--study", "study")
    refused(done, "study", "belongs to space 'single', not 'smoke'", "Choose another folder")
    assert snapshot(place) == before


def test_a_read_only_disk(held: Path, place: Path) -> None:
    shutil.copytree(held, place / "kept")
    with mounted(place / "bound", "--bind", str(place / "kept")) as bound:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(bound)], check=True)
        before = snapshot(bound)
        for study, command in ((bound, ["train", *TOY]), (bound / "new", ["search", "smoke"])):
            done = invoke(*command, "--study", study)
            refused(done, str(study), "read-only", "Choose another folder")
        assert invoke("show", bound).code == 0
        assert snapshot(bound) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_of_somebody_else(place: Path) -> None:
    place.chmod(0o555)
    try:
        done = invoke("train", *TOY, "--study", place / "study")
    finally:
        place.chmod(0o755)
    refused(done, "study", "must be allowed", "permissions")


def test_a_disk_that_is_too_small(place: Path) -> None:
    with mounted(place / "disk", "-t", "tmpfs", "-o", "size=64k", "none") as disk:
        done = invoke("search", "smoke", "--study", disk / "study")
        refused(done, str(disk / "study"), "MB free", "Make room", "--keep")
        assert not list(disk.rglob("*.parquet"))
    with mounted(place / "disk", "-t", "tmpfs", "-o", "size=4k", "none") as disk:
        done = invoke("train", *TOY, "--study", disk / "study")
        refused(done, str(disk / "study"), "room")
