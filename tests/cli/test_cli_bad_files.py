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

COPY = "Copy the file again"
STS_B, SICK = "downstream/STS/STSBenchmark", "downstream/SICK"
STS_12 = "downstream/STS/STS12-en-test"


def cut(path: Path, lines: int) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def spoil(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


STS_FAULTS: list[tuple[str, str, Callable[[Path], object], list[str]]] = [
    ("missing file", f"{STS_B}/sts-dev.csv", Path.unlink, ["does not exist", "copy the file"]),
    ("empty file", f"{STS_B}/sts-dev.csv", lambda p: cut(p, 0), ["file is empty", "Copy it"]),
    (
        "broken UTF-8",
        f"{STS_B}/sts-test.csv",
        lambda p: spoil(p, b"left 4\t", b"l\xe9ft 4\t"),
        ["line 5", "byte 0xe9", "must be utf-8", "Convert it"],
    ),
    (
        "gold and input of different lengths",
        f"{STS_12}/STS.gs.MSRpar.txt",
        lambda p: cut(p, 749),
        ["STS.input.MSRpar.txt", "750 lines", "as many lines, and has 749", COPY],
    ),
]


@pytest.mark.parametrize(
    ("file", "damage", "words"), [pytest.param(*case[1:], id=case[0]) for case in STS_FAULTS]
)
def test_damaged_evaluation_sets(
    file: str, damage: Callable[[Path], object], words: list[str], sts_root: Path, place: Path
) -> None:
    root = place / "root"
    shutil.copytree(sts_root, root)
    damage(root / file)
    before = snapshot(place)
    pairs = ["--set", "evaluation.data=root", "--data", root]
    commands = [
        ["evaluate", "toy", "--data", root],
        ["train", *TOY, *pairs, "--study", "study"],
        ["search", "smoke", *pairs, "--study", "study"],
        ["data", "check", root],
    ]
    for command in commands:
        done = invoke(*command)
        refused(done, Path(file).parent.name, *words)
        assert done.out == "" or command[0] == "data"
    assert snapshot(place) == before


def test_every_missing_file_is_told(sts_root: Path, place: Path) -> None:
    shutil.copytree(sts_root, place / "root")
    for name in ("sts-dev.csv", "sts-test.csv"):
        (place / "root" / STS_B / name).unlink()
    done = invoke("evaluate", "toy", "--data", "root")
    refused(done, "sts-dev.csv", "sts-test.csv", "does not exist", faults=2)


@pytest.mark.parametrize("sizes", [(43, 31), (43, 5331), (5331, 31)])
def test_the_truncation_by_sed_is_named(sizes: tuple[int, int], place: Path) -> None:
    for name, rows in zip(("pos", "neg"), sizes, strict=True):
        path = place / "root/downstream/MR" / f"rt-polarity.{name}"
        write(path, "".join(f"a film {row} .\n" for row in range(rows)))
    done = invoke("data", "check", "root")
    words = ["MR: ", "5331 rows", "macOS sed", "GNU sed"]
    refused(done, *words, *(f"{rows} rows" for rows in sizes if rows < 5331))
    asked = invoke("data", "check", "root", "--json")
    refused(asked, *words)
    (row,) = [row for row in json.loads(asked.out) if row["status"] == "wrong"]
    assert row["name"] == "MR"
    assert row["rows"] is None
    assert "macOS sed" in row["problem"]
    assert "GNU sed" in row["repair"]


def test_a_whole_root(sts_root: Path) -> None:
    done = invoke("data", "check", sts_root)
    assert (done.code, done.err) == (0, "")
    asked = invoke("data", "check", sts_root, "--json")
    found = {row["name"]: (row["status"], row["rows"]) for row in json.loads(asked.out)}
    assert found["STS12"] == ("ok", 3108)
    assert found["STS-B"] == ("ok", 2879)
    assert found["MR"] == ("missing", None)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (None, ["root", "the folder does not exist", "downstream/", "TUNE_SENTCL_DATA"]),
        ("root/readme", ["root", "none of the sets", "downstream/ as SentEval"]),
        ("root/STS/readme", ["root", "none of the sets", "looks like `downstream` itself"]),
        ("root", ["root", "this is not a folder", "downstream/ as SentEval"]),
    ],
)
def test_a_data_root_that_is_none(make: str | None, words: list[str], place: Path) -> None:
    if make is not None:
        write(place / make, "nothing")
    refused(invoke("data", "check", "root"), *words)


PAIR_FAULTS: list[tuple[str, str, Callable[[Path], object], list[str]]] = [
    (
        "unknown label",
        "p.parquet",
        lambda p: write_pairs(p, label=[0, 7] * 8),
        ["row 2", "label = 7", "must be 0, 1 or 2", "Correct the row"],
    ),
    (
        "blank sentence",
        "p.parquet",
        lambda p: write_pairs(p, premise=[" "] * 16),
        ["rows 1, 2, 3, 4, 5 and 11 more: premise", "16 are", "--set data.blanks=drop"],
    ),
    ("no file", "p.parquet", lambda p: None, ["the file does not exist", "data.source"]),
    (
        "broken Parquet",
        "p.parquet",
        lambda p: p.write_bytes(b"junk"),
        ["cannot be read as parquet", "copy the file again"],
    ),
]


@pytest.mark.parametrize(
    ("name", "make", "words"), [pytest.param(*case[1:], id=case[0]) for case in PAIR_FAULTS]
)
def test_bad_pairs(
    name: str, make: Callable[[Path], object], words: list[str], place: Path
) -> None:
    make(place / name)
    before = snapshot(place)
    settings = ["--set", f"data.source={place / name}", "--set", "evaluation.data=toy"]
    for command in (["train", *TOY], ["search", "smoke"]):
        done = invoke(*command, *settings, "--study", "study")
        refused(done, name, *words)
        assert done.out == ""
    assert snapshot(place) == before


def test_a_data_root_without_the_set(place: Path) -> None:
    (place / "root").mkdir()
    settings = ["--set", "data.source=snli", "--set", "evaluation.data=toy", "--data", "root"]
    done = invoke("train", *TOY, *settings, "--study", "study")
    refused(done, "data.source = snli", "must hold nli/snli_train.parquet", "Copy the file there")
    assert not (place / "study").exists()


CHECKPOINT_FAULTS: list[tuple[str, list[str], list[str]]] = [
    ("no config", [], ["holds no config.json", "save_pretrained"]),
    (
        "junk",
        ["config.json", "model.safetensors", "vocab.txt"],
        ["cannot be loaded", "Repair the files."],
    ),
]


@pytest.mark.parametrize(
    ("files", "words"), [pytest.param(*case[1:], id=case[0]) for case in CHECKPOINT_FAULTS]
)
def test_a_folder_that_is_no_checkpoint(files: list[str], words: list[str], place: Path) -> None:
    (place / "model").mkdir()
    for name in files:
        write(place / "model" / name, "junk")
    before = snapshot(place)
    done = invoke("evaluate", "model", "--toy")
    refused(done, "encoder.checkpoint: 'model'", *words)
    done = invoke("train", *TOY, "--set", "encoder.checkpoint=model")
    refused(done, "encoder.checkpoint: 'model'", *words)
    assert snapshot(place) == before


def test_a_file_in_place_of_a_checkpoint(place: Path) -> None:
    write(place / "model", "junk")
    done = invoke("evaluate", "model", "--toy")
    refused(done, "'model'", "a checkpoint is a folder", "Name the folder")


def damage_manifest(study: Path) -> None:
    write(study / "study.json", '{"schema": 1,')


def make_file(study: Path) -> None:
    shutil.rmtree(study)
    write(study, "mine")


def truncate_table(study: Path) -> None:
    path = study / "trials" / "000001.parquet"
    path.write_bytes(path.read_bytes()[:-20])


STUDY_FAULTS: list[tuple[str, Callable[[Path], object], list[str]]] = [
    ("damaged manifest", damage_manifest, ["study.json", "must be JSON", "from a copy"]),
    ("truncated table", truncate_table, ["000001.parquet", "complete Parquet file", "Restore"]),
    ("file", make_file, ["study", "must be a folder", "Choose another path"]),
]


@pytest.mark.parametrize(
    ("make", "words"), [pytest.param(*case[1:], id=case[0]) for case in STUDY_FAULTS]
)
def test_a_damaged_study(
    make: Callable[[Path], object], words: list[str], held: Path, place: Path
) -> None:
    study = place / "study"
    shutil.copytree(held, study)
    make(study)
    before = snapshot(study) if study.is_dir() else study.read_bytes()
    for command in (["train", *TOY, "--study", "study"], ["show", "study"]):
        done = invoke(*command)
        refused(done, *words)
        assert done.out == ""
    refused(invoke("show", "study", "--json"), *words)
    after = snapshot(study) if study.is_dir() else study.read_bytes()
    if make is not truncate_table:  # the driver may note in study.json that it came
        assert after == before


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


def test_a_study_that_is_not_there(place: Path) -> None:
    for option in ((), ("--json",), ("--csv",)):
        refused(invoke("show", "none", *option), "none", "must be a study", "Check the path.")
    assert snapshot(place) == {}


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
