from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from data_samples import REAL_ROOT, needs_real_data
from disk_samples import write, write_sts_root

from tune_sentcl.data.task import sts_fingerprint
from tune_sentcl.data.tasks.sts_data import (
    load_sts,
    read_benchmark,
    read_sick,
    read_task,
    read_two_files,
)
from tune_sentcl.errors import DataError

SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\n"

COUNTS = [
    ("STS12", "test", 3108),
    ("STS13", "test", 1500),
    ("STS14", "test", 3750),
    ("STS15", "test", 3000),
    ("STS16", "test", 1186),
    ("STS-B", "dev", 1500),
    ("STS-B", "test", 1379),
    ("SICK-R", "dev", 500),
    ("SICK-R", "test", 4927),
]


def write_pair(folder: Path, pairs: str, golds: str) -> Path:
    write(folder / "STS.input.x.txt", pairs)
    write(folder / "STS.gs.x.txt", golds)
    return folder


def test_reads_a_whole_root(tmp_path: Path) -> None:
    tasks = load_sts("root", write_sts_root(tmp_path))
    assert [(task.name, task.split, len(task)) for task in tasks] == COUNTS
    assert [subset.name for subset in tasks[1].subsets] == ["FNWN", "headlines", "OnWN"]
    trial = tasks[7].subsets[0]
    assert (trial.sentences1[3], trial.sentences2[3], trial.gold[3]) == ("left 3", "right 3", 4.0)


@needs_real_data
def test_reads_the_real_root() -> None:
    tasks = load_sts("root", REAL_ROOT)
    assert [(task.name, task.split, len(task)) for task in tasks] == COUNTS
    assert len(read_task(REAL_ROOT, "STS-B", "train")) == 5749
    assert len(read_task(REAL_ROOT, "SICK-R", "train")) == 4500
    dev = tasks[5].subsets[0]
    assert dev.sentences1[0] == "a man with a hard hat is dancing ."
    assert dev.sentences2[1] == "a child is riding a horse ."
    assert dev.gold[:2] == (5.0, 4.75)
    # The released file of the test split has CRLF ends.
    assert not any("\r" in text for text in tasks[8].subsets[0].sentences2)


def test_drops_blank_gold(tmp_path: Path) -> None:
    folder = write_pair(tmp_path, "a\tb\nno tabs at all\nc\td\n\n", "1.5\n\n3\n \n")
    subset = read_two_files(folder, "x", 2)
    assert subset.sentences1 == ("a", "c")
    assert subset.sentences2 == ("b", "d")
    assert subset.gold == (1.5, 3.0)


@pytest.mark.parametrize(
    ("pairs", "golds", "message"),
    [
        ("a\tb\n", "1\n2\n", r"input\.x\.txt: 1 lines: .*gs\.x\.txt .* has 2"),
        ("a\tb\n", "one\n", r"gs\.x\.txt line 1: gold = 'one': .*number from 0 to 5"),
        ("a\tb\nc\td\n", "1\n5.1\n", r"gs\.x\.txt line 2: gold = '5\.1'"),
        ("a\tb\n", "-1\n", "number from 0 to 5"),
        ("a\tb\n", "nan\n", "number from 0 to 5"),
        ("a\tb\n", "0_1\n", "number from 0 to 5"),
        ("a\tb\tc\n", "1\n", r"input\.x\.txt line 1: 3: .*2 columns"),
        ("a b\n", "1\n", r"input\.x\.txt line 1: 1: .*2 columns"),
        ("a\t \n", "1\n", r"input\.x\.txt line 1: .*blank"),
        ("a\tb\nc\td\n", "1\n2\n", r"input\.x\.txt: 2 found: .*1 rows"),
        ("a\tb\n", "\n", r"0 found"),
    ],
)
def test_refuses_bad_rows(tmp_path: Path, pairs: str, golds: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_two_files(write_pair(tmp_path, pairs, golds), "x", 1)


def test_benchmark_rows(tmp_path: Path) -> None:
    # A quotation mark is text, not quoting.
    row = 'main\tMSRvid\t2012\t0001\t4.750\t"a b\tc d\n'
    subset = read_benchmark(write(tmp_path / "a", row), 1)
    assert (subset.sentences1, subset.sentences2, subset.gold) == (('"a b',), ("c d",), (4.75,))
    with pytest.raises(DataError, match=r"a line 2: 6: .*7 columns"):
        read_benchmark(write(tmp_path / "a", row + "m\tM\t2\t0\t4\ta b\n"), 2)
    with pytest.raises(DataError, match=r"a line 1: gold = '': .*number"):
        read_benchmark(write(tmp_path / "a", row.replace("4.750", "")), 1)


def test_sick_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a", (SICK_HEADER + "1\tA b\tC d\t4.5\n").replace("\n", "\r\n"))
    subset = read_sick(path, 1)
    assert (subset.sentences1, subset.sentences2, subset.gold) == (("A b",), ("C d",), (4.5,))
    with pytest.raises(DataError, match=r"a line 2: gold = '0\.5': .*from 1 to 5"):
        read_sick(write(tmp_path / "a", SICK_HEADER + "1\tA b\tC d\t0.5\n"), 1)
    with pytest.raises(DataError, match=r"a line 1: .*column relatedness_score"):
        read_sick(write(tmp_path / "a", SICK_HEADER.replace("relatedness", "gold")), 1)
    with pytest.raises(DataError, match=r"0 found: .*1 rows"):
        read_sick(write(tmp_path / "a", SICK_HEADER), 1)


def test_lists_every_fault_at_once(tmp_path: Path) -> None:
    root = write_sts_root(tmp_path)
    (root / "downstream/STS/STS13-en-test/STS.gs.FNWN.txt").unlink()
    (root / "downstream/STS/STS13-en-test/STS.input.OnWN.txt").unlink()
    (root / "downstream/STS/STSBenchmark/sts-dev.csv").write_bytes(b"\xff")
    (root / "downstream/SICK/SICK_trial.txt").write_text("")
    with pytest.raises(DataError) as caught:
        load_sts("root", root)
    files = [Path(fault.where.split(" line ")[0]).name for fault in caught.value.faults]
    assert files == [
        "STS.gs.FNWN.txt",
        "STS.input.OnWN.txt",
        "sts-dev.csv",
        "SICK_trial.txt",
    ]


@pytest.mark.parametrize("root", [None, Path("no/such/folder")])
def test_needs_a_root(root: Path | None) -> None:
    with pytest.raises(DataError, match=r"--data DIR` or TUNE_SENTCL_DATA"):
        load_sts("root", root)


def test_unknown_task(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        read_task(tmp_path, "STS12", "dev")
    with pytest.raises(KeyError):
        read_task(tmp_path, "STS17", "test")


CHANGES: list[Callable[[tuple[str, ...]], tuple[str, ...]]] = [
    lambda texts: ("other", *texts[1:]),
    lambda texts: (texts[0] + texts[1][:1], texts[1][1:], *texts[2:]),
    lambda texts: texts[::-1],
]


@pytest.mark.parametrize("change", CHANGES)
def test_fingerprint_sees_content(change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
    tasks = load_sts("toy", None)
    first = tasks[0]
    subset = first.subsets[0]
    other = replace(subset, sentences1=change(subset.sentences1))
    changed = (replace(first, subsets=(other, *first.subsets[1:])), *tasks[1:])
    assert sts_fingerprint(changed) != sts_fingerprint(tasks)
    assert sts_fingerprint(tasks) == sts_fingerprint(list(load_sts("toy", None)))
    assert sts_fingerprint(tasks[:-1]) != sts_fingerprint(tasks)
