import shutil
from pathlib import Path

import pytest
from data_samples import REAL_ROOT, needs_real_data
from disk_samples import write, write_sts_root

from tune_sentcl.data.check import CheckedSet, check_root
from tune_sentcl.errors import DataError


def found(root: Path, name: str) -> CheckedSet:
    return next(entry for entry in check_root(root) if entry.name == name)


@needs_real_data
def test_the_real_root_is_whole() -> None:
    checked = {entry.name: entry for entry in check_root(REAL_ROOT)}
    # The partial files are no whole sets: `data.source = snli` refuses them without a limit.
    assert checked.pop("SimCSE's NLI").status == "missing"
    for name in ("SNLI", "MultiNLI"):
        whole = checked.pop(name)
        assert (whole.status, whole.problem) == ("missing", "only a part of the set is there")
    assert {entry.status for entry in checked.values()} == {"ok"}
    assert {entry.problem + entry.repair for entry in checked.values()} == {""}
    rows = {name: entry.rows for name, entry in checked.items()}
    assert (rows["MR"], rows["CR"], rows["SUBJ"], rows["MPQA"]) == (10662, 3775, 10000, 10606)
    assert (rows["SST2"], rows["SST5"], rows["TREC"], rows["MRPC"]) == (70042, 11855, 5952, 5801)
    assert (rows["STS-B"], rows["SICK"], rows["STS16"]) == (8628, 9927, 1186)
    assert (rows["SNLI, first 2000"], rows["SNLI, partial"]) == (2000, 92613)
    assert (rows["SNLI dev"], rows["Wikipedia"], rows["WordNet"]) == (9842, 1000000, 117659)
    assert checked["CR"].expected == "2,407 + 1,368"


def reviews(rows: int) -> bytes:
    # Each row holds a byte at which `str.splitlines` and macOS sed go wrong.
    return b"an \x85 \xe9 row\n" * rows


def write_mr(root: Path, positive: int, negative: int) -> None:
    write(root / "downstream/MR/rt-polarity.pos", reviews(positive))
    write(root / "downstream/MR/rt-polarity.neg", reviews(negative))


def test_latin_1_rows_are_counted(tmp_path: Path) -> None:
    write_mr(tmp_path, 5331, 5331)
    entry = found(tmp_path, "MR")
    assert (entry.status, entry.rows, entry.problem) == ("ok", 10662, "")
    assert {other.status for other in check_root(tmp_path) if other.name != "MR"} == {"missing"}


def test_empty_rows_count(tmp_path: Path) -> None:
    write(tmp_path / "downstream/CR/custrev.pos", "good\n" * 2403 + "\n" * 4)
    write(tmp_path / "downstream/CR/custrev.neg", "bad\n" * 1368)
    assert found(tmp_path, "CR").status == "ok"


def test_the_truncation_by_macos_sed_is_named(tmp_path: Path) -> None:
    write_mr(tmp_path, 43, 31)
    write(tmp_path / "downstream/SUBJ/subj.objective", reviews(5000))
    write(tmp_path / "downstream/SUBJ/subj.subjective", reviews(20))
    for name, files in (("MR", 2), ("SUBJ", 1)):
        entry = found(tmp_path, name)
        assert (entry.status, entry.rows) == ("wrong", None)
        assert entry.problem.count("macOS sed truncation") == files
        assert "GNU sed/LC_ALL=C" in entry.repair
        assert "2021-09-03" in entry.repair


def test_another_count_is_not_the_truncation(tmp_path: Path) -> None:
    write_mr(tmp_path, 5331, 5330)
    entry = found(tmp_path, "MR")
    assert entry.status == "wrong"
    assert "rt-polarity.neg: 5330 rows: the file must have 5331 rows" in entry.problem
    assert "sed" not in entry.problem + entry.repair


def test_half_a_set_is_wrong(tmp_path: Path) -> None:
    write(tmp_path / "downstream/TREC/TREC_10.label", b"NUM:dist How far ?\n" * 500)
    entry = found(tmp_path, "TREC")
    assert entry.status == "wrong"
    assert "train_5500.label: the file does not exist" in entry.problem


def test_sts_files_are_read_not_only_counted(tmp_path: Path) -> None:
    root = write_sts_root(tmp_path)
    # Without their training splits, STS-B and SICK are whole for every evaluation.
    for name, rows in (("STS12", 3108), ("STS-B", 2879), ("SICK", 5427)):
        entry = found(root, name)
        assert (entry.status, entry.rows) == ("ok", rows)
    shutil.copy(
        root / "downstream/STS/STS13-en-test/STS.gs.FNWN.txt",
        root / "downstream/STS/STS13-en-test/STS.gs.OnWN.txt",
    )
    entry = found(root, "STS13")
    assert entry.status == "wrong"
    assert "STS.gs.OnWN.txt must have as many lines" in entry.problem


def test_broken_parquet_is_wrong(tmp_path: Path) -> None:
    write(tmp_path / "nli/snli_dev.parquet", b"PAR1")
    write(tmp_path / "wiki/enwiki_2015_sentences_1m.parquet", b"PAR1")
    assert found(tmp_path, "SNLI dev").status == "wrong"
    assert found(tmp_path, "Wikipedia").status == "wrong"
    missing = found(tmp_path, "SNLI")
    assert (missing.status, missing.expected) == ("missing", "549,367")
    assert missing.repair


def test_refuses_folders_without_sets(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist, and the check needs it"):
        check_root(tmp_path / "none")
    with pytest.raises(DataError, match="holds none of the sets"):
        check_root(tmp_path)
    with pytest.raises(DataError, match="looks like `downstream` itself: give "):
        check_root(write_sts_root(tmp_path) / "downstream")
