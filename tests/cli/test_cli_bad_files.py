"""Data, checkpoints, studies and disks that cannot be read or written."""

import shutil
from pathlib import Path

import pytest
from cli_samples import TOY, invoke, refused, snapshot
from disk_samples import write

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
        refused(done, "STSBenchmark", "line 5", "byte 0xe9", "must be utf-8", "Convert the file")
        assert done.out == "" or command[0] == "data"
    assert snapshot(place) == before


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["model"], ["'model'", "a checkpoint is a folder", "Name the folder"]),
        (["model/readme"], ["encoder.checkpoint: 'model'", "holds no config.json"]),
        (
            ["model/config.json", "model/model.safetensors", "model/vocab.txt"],
            ["encoder.checkpoint: 'model'", "cannot be loaded", "Repair the model's files."],
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


def test_a_folder_that_is_no_study_of_this_space(held: Path, place: Path) -> None:
    write(place / "mine" / "thesis.tex", "mine")
    shutil.copytree(held, place / "study")
    before = snapshot(place)
    holds = ["holds thesis.tex and no study.json", "new or empty folder"]
    refused(invoke("train", *TOY, "--study", "mine"), "mine", *holds)
    refused(invoke("search", "smoke", "--study", "mine"), "mine", *holds)
    refused(invoke("show", "mine"), "mine", "must be a study", "Check the path.")
    other = invoke("search", "smoke", "--study", "study")
    refused(
        other,
        "study",
        "belongs to the search space 'single', not to 'smoke'",
        "Choose another folder",
    )
    assert snapshot(place) == before
