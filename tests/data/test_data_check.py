"""The check of a data root: what is whole, what is wrong and how to mend it."""

import shutil
from pathlib import Path

import pytest
from data_samples import REAL_ROOT, needs_real_data, write_nli
from disk_samples import write, write_sts_root

from tune_sentcl.data.check import CheckedSet, check_root
from tune_sentcl.errors import DataError


def checked(root: Path) -> dict[str, CheckedSet]:
    return {entry.name: entry for entry in check_root(root)}


@needs_real_data
def test_the_real_root_is_whole() -> None:
    sets = checked(REAL_ROOT)
    # The partial files are no whole sets: `data.source = snli` refuses them without a limit.
    assert sets.pop("SimCSE's NLI").status == "missing"
    for name in ("SNLI", "MultiNLI"):
        whole = sets.pop(name)
        assert (whole.status, whole.problem) == (
            "missing",
            "only a part of the set is in the data root",
        )
    assert {(entry.status, entry.problem + entry.repair) for entry in sets.values()} == {
        ("ok", "")
    }
    rows = {name: entry.rows for name, entry in sets.items()}
    expected = {"MR": 10662, "CR": 3775, "SUBJ": 10000, "MPQA": 10606, "SST2": 70042}
    expected |= {"SST5": 11855, "TREC": 5952, "MRPC": 5801, "STS-B": 8628, "SICK": 9927}
    expected |= {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186}
    expected |= {"SNLI, first 2000": 2000, "SNLI, partial": 92613}
    expected |= {"SNLI dev": 9842, "Wikipedia": 1000000, "WordNet": 117659}
    assert {name: rows[name] for name in expected} == expected
    assert sets["CR"].expected == "2,407 + 1,368"


def reviews(rows: int) -> bytes:
    # Each row holds a byte at which `str.splitlines` and macOS sed go wrong.
    return b"an \x85 \xe9 row\n" * rows


def write_mr(root: Path, positive: int, negative: int) -> None:
    write(root / "downstream/MR/rt-polarity.pos", reviews(positive))
    write(root / "downstream/MR/rt-polarity.neg", reviews(negative))


def test_whole_sets_are_counted_and_all_others_missing(tmp_path: Path) -> None:
    write_mr(tmp_path, 5331, 5331)
    write(tmp_path / "downstream/CR/custrev.pos", "good\n" * 2403 + "\n" * 4)  # empty rows count
    write(tmp_path / "downstream/CR/custrev.neg", "bad\n" * 1368)
    sets = checked(tmp_path)
    assert (sets["MR"].status, sets["MR"].rows, sets["MR"].problem) == ("ok", 10662, "")
    assert {name for name, entry in sets.items() if entry.status != "missing"} == {"MR", "CR"}
    assert sets["CR"].status == "ok"
    assert sets["SNLI"].expected == "549,367" and sets["SNLI"].repair


def test_damaged_sets_are_wrong(tmp_path: Path) -> None:
    root = write_sts_root(tmp_path)
    sets = checked(root)
    # Without their training splits, STS-B and SICK are whole for every evaluation.
    for name, rows in (("STS12", 3108), ("STS-B", 2879), ("SICK", 5427)):
        assert (sets[name].status, sets[name].rows) == ("ok", rows)
    folder = root / "downstream/STS/STS13-en-test"
    shutil.copy(folder / "STS.gs.FNWN.txt", folder / "STS.gs.OnWN.txt")
    write_mr(root, 5331, 5330)
    write(root / "downstream/TREC/TREC_10.label", b"NUM:dist How far ?\n" * 500)
    write(root / "nli/snli_dev.parquet", b"PAR1")
    write_nli(root / "nli/snli_train_first2000.parquet", [("a", "b", 0)] * 2001)
    write(root / "wiki/enwiki_2015_sentences_1m.parquet", b"PAR1")
    sets = checked(root)
    for name, problem in (
        ("STS13", "STS.gs.OnWN.txt must have the same number of lines"),
        ("MR", "rt-polarity.neg: 5330 rows: the file must have 5331 rows"),
        ("TREC", "train_5500.label: the file does not exist"),
        ("SNLI dev", ""),
        ("SNLI, first 2000", "2001 rows: the file must have 2000 rows"),
        ("Wikipedia", ""),
    ):
        assert sets[name].status == "wrong"
        assert problem in sets[name].problem
        assert "sed" not in sets[name].problem + sets[name].repair


def test_folders_without_sets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist, and the check needs it"):
        check_root(tmp_path / "none")
    with pytest.raises(DataError, match="holds none of the sets"):
        check_root(tmp_path)
    with pytest.raises(DataError, match="looks like `downstream` itself: give "):
        check_root(write_sts_root(tmp_path) / "downstream")
