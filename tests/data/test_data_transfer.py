"""The readers of the transfer tasks: formats, SentEval's order, counts, and what is refused."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from data_samples import REAL_ROOT, needs_real_data
from disk_samples import write, write_sts_root

from tune_sentcl.config import ProtocolName, SuiteName
from tune_sentcl.data.task import ClassifiedRows, TransferTask
from tune_sentcl.data.tasks.evaluation_sets import load_sets
from tune_sentcl.data.tasks.transfer_data import (
    TASKS,
    Row,
    read_mrpc,
    read_one_class,
    read_sick_entailment,
    read_sst2,
    read_sst5,
    read_transfer,
    read_trec,
    read_truncated,
)
from tune_sentcl.data.toy import toy_transfer
from tune_sentcl.errors import DataError

STS: tuple[SuiteName, ...] = ("sts",)
TRANSFER: tuple[SuiteName, ...] = ("transfer",)
LOGREG: tuple[ProtocolName, ...] = ("logreg-10fold",)
RELATEDNESS: tuple[ProtocolName, ...] = ("relatedness",)
COMPAT: tuple[ProtocolName, ...] = ("scl-paper-compat",)

SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
MRPC_HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"

REAL = {
    "MR": [[5331, 5331]],
    "CR": [[1368, 2407]],
    "SUBJ": [[5000, 5000]],
    "MPQA": [[7294, 3312]],
    "SST2": [[29780, 37569], [428, 444], [912, 909]],
    "SST5": [
        [1092, 2218, 1624, 2322, 1288],
        [139, 289, 229, 279, 165],
        [279, 633, 389, 510, 399],
    ],
    "TREC": [[86, 1162, 1250, 1223, 835, 896], [9, 138, 94, 65, 81, 113]],
    "MRPC": [[1323, 2753], [578, 1147]],
    "SICK-E": [[665, 2536, 1299], [74, 282, 144], [720, 2793, 1414]],
}
"""Rows of each class of each split."""


def by_class(part: ClassifiedRows) -> list[int]:
    counts = Counter(part.labels)
    return [counts[label] for label in range(max(counts) + 1)]


def one_class(path: Path) -> list[Row]:
    return read_one_class(path, 1)


def write_task(root: Path, name: str) -> Path:
    """Whole files of MR, CR, SUBJ, MPQA or TREC, with made-up sentences."""
    for split, files in TASKS[name].items():
        for file in files:
            if name == "TREC":
                lines = [f"HUM:ind Who is {row} ?" for row in range(file.rows)]
            else:
                lines = [f"{split} {file.path} {row}" for row in range(file.rows)]
            write(root / "downstream" / file.path, "\n".join(lines) + "\n")
    return root


def cut(path: Path, rows: int) -> None:
    """Leave the first rows of a file."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:rows]))


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_file_of_one_class_keeps_its_empty_lines(tmp_path: Path, end: str) -> None:
    path = write(tmp_path / "a", f"a  man \teats .\n\nb{end}".encode("latin-1"))
    assert read_one_class(path, 0) == [(("a man eats .",), 0), (("",), 0), (("b",), 0)]


def test_only_the_final_newline_is_dropped(tmp_path: Path) -> None:
    assert [text for (text,), _ in one_class(write(tmp_path / "a", "a\n\n"))] == ["a", ""]
    assert [text for (text,), _ in one_class(write(tmp_path / "b", "a\r\nb\r\n"))] == ["a", "b"]


def test_latin_1_rows_end_at_newlines_alone(tmp_path: Path) -> None:
    # Byte 0x85 ends a line for `str.splitlines`, which would make two rows of one.
    path = write(tmp_path / "a", b"caf\xe9 one\x85two\n")
    assert read_one_class(path, 1) == [(("café one two",), 1)]


def test_sst2(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "hide new secretions \t0\nit 's café\t1\n\t1\n")
    assert read_sst2(path) == [
        (("hide new secretions",), 0),
        (("it 's café",), 1),
        (("",), 1),
    ]


def test_sst5(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "4 a stirring , funny film .\n0 3 bad films\n")
    assert read_sst5(path) == [(("a stirring , funny film .",), 4), (("3 bad films",), 0)]


def test_trec_counts_the_coarse_class(tmp_path: Path) -> None:
    lines = [f"{name}:x What ?" for name in ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")]
    path = write(tmp_path / "a", "\n".join(lines).encode() + b"\nLOC:other Where is Qu\xe9bec ?\n")
    rows = read_trec(path)
    assert [label for _, label in rows] == [0, 1, 2, 3, 4, 5, 4]
    assert rows[-1][0] == ("Where is Québec ?",)


def test_mrpc_below_its_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a", MRPC_HEADER + '1\t7\t8\t"A" b.\tC  d\r\n0\t7\t8\te\tf\r\n')
    assert read_mrpc(path) == [(('"A" b.', "C d"), 1), (("e", "f"), 0)]


def test_sick_finds_its_columns_by_name(tmp_path: Path) -> None:
    body = "1\tA b\tC d\t4.5\tENTAILMENT\n2\te\tf\t3\tNEUTRAL\n3\tg\th\t1\tCONTRADICTION\n"
    expected = [(("A b", "C d"), 2), (("e", "f"), 1), (("g", "h"), 0)]
    path = write(tmp_path / "a", (SICK_HEADER + body).replace("\n", "\r\n"))
    assert read_sick_entailment(path) == expected
    other = "entailment_judgment\tsentence_B\tsentence_A\nNEUTRAL\tB\tA\n"
    assert read_sick_entailment(write(tmp_path / "b", other)) == [(("A", "B"), 1)]
    with pytest.raises(DataError, match=r"b line 1: .*column entailment_judgment"):
        read_sick_entailment(write(tmp_path / "b", "pair_ID\tsentence_A\tsentence_B\n1\tA\tB\n"))


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_sst2, "a\t0\nb\t2\n", r"line 2: 'b\\t2': a row must be a sentence, a tab, and 0"),
        (read_sst2, "a 0\n", r"line 1: 'a 0'"),
        (read_sst2, "a\tb\t0\n", r"line 1: "),
        (read_sst2, "a\t0\n\n", r"line 2: ''"),
        (read_sst5, "0 a\n5 b\n", r"line 2: '5 b': a row must be a class from 0 to 4"),
        (read_sst5, "a b\n", r"line 1: 'a b'"),
        (read_sst5, "-1 b\n", r"line 1: '-1 b'"),
        (read_trec, "HUM:ind Who ?\nHUMAN:ind Who ?\n", r"line 2: .*ABBR, DESC, ENTY, HUM"),
        (read_trec, "hum:ind Who ?\n", r"line 1: "),
        (read_mrpc, MRPC_HEADER + "1\t7\t8\ta\n", r"line 2: .*two numbers and two sentences"),
        (read_mrpc, MRPC_HEADER + "1\t7\t8\ta\tb\n2\t7\t8\ta\tb\n", r"line 3: "),
        (read_sick_entailment, SICK_HEADER + "1\ta\tb\t4\tMAYBE\n", r"line 2: .*ENTAILMENT"),
        (read_sick_entailment, SICK_HEADER + "1\ta\tb\t4\n", r"line 2: .*two sentences"),
        (read_sick_entailment, SICK_HEADER + "1\ta\tb\t4\tNEUTRAL\tc\n", r"line 2: "),
        (read_sst2, b"a\t0\nb\xff\t1\n", r"line 2: byte 0xff .*utf-8"),
        (one_class, "", r"the file is empty"),
    ],
)
def test_a_bad_row_is_named(
    tmp_path: Path, read: Callable[[Path], list[Row]], content: str | bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(write(tmp_path / "rows.txt", content))
    assert str(tmp_path / "rows.txt") in str(caught.value)


def test_a_long_bad_row_is_shown_short(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'x{57}\.\.\.'"):
        read_sst2(write(tmp_path / "a", "x" * 1000))


def test_rows_are_in_sentevals_order(tmp_path: Path) -> None:
    write_task(tmp_path, "CR")
    folder = tmp_path / "downstream" / "CR"
    lines = ["z z", "", "y", "longer than all others", *["w w w"] * 2403]
    write(folder / "custrev.pos", "\n".join(lines) + "\n")
    write(folder / "custrev.neg", "\n".join(["a b", "", "x", *["v v v"] * 1365]) + "\n")
    train = read_transfer(tmp_path, "CR").train
    # By length in words, then by class; rows alike in both stay as they stood in their file.
    assert train.first[:6] == ("", "", "x", "y", "a b", "z z")
    assert train.labels[:6] == (0, 1, 0, 1, 0, 1)
    assert set(train.first[6:1371]) == {"v v v"}
    assert train.first[-1] == "longer than all others"
    assert (len(train), train.second) == (3775, None)


def test_pairs_are_ordered_by_both_lengths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = TASKS["MRPC"]
    small = {split: [type(f)(f.path, 4, f.read) for f in found] for split, found in files.items()}
    monkeypatch.setitem(TASKS, "MRPC", small)
    body = "1\t0\t0\ta b\tc\n1\t0\t0\td\te f\n1\t0\t0\tg\th\n0\t0\t0\ti\tj\n"
    for found in files.values():
        write(tmp_path / "downstream" / found[0].path, MRPC_HEADER + body)
    task = read_transfer(tmp_path, "MRPC")
    assert (
        task.test
        == task.train
        == ClassifiedRows(("i", "g", "d", "a b"), ("j", "h", "e f", "c"), (0, 1, 1, 1))
    )
    assert (task.dev, task.design) == (None, "folds_then_test")


def test_every_fault_of_a_task_is_listed(tmp_path: Path) -> None:
    write_task(tmp_path, "TREC")
    folder = tmp_path / "downstream" / "TREC"
    cut(folder / "train_5500.label", 5000)
    (folder / "TREC_10.label").unlink()
    with pytest.raises(DataError) as caught:
        read_transfer(tmp_path, "TREC")
    first, second = caught.value.faults
    assert first.where.endswith("train_5500.label") and first.value == "5000 rows"
    assert "TREC must have 5452 rows" in first.rule and "macOS" not in first.rule
    assert second.where.endswith("TREC_10.label") and "does not exist" in second.rule
    with pytest.raises(KeyError):
        read_transfer(tmp_path, "GLUE")


@pytest.mark.parametrize(
    ("name", "file", "left"),
    [
        ("MR", "rt-polarity.pos", 43),
        ("MR", "rt-polarity.neg", 31),
        ("SUBJ", "subj.subjective", 20),
    ],
)
def test_what_macos_sed_leaves_is_refused_by_name(
    tmp_path: Path, name: str, file: str, left: int
) -> None:
    path = write_task(tmp_path, name) / "downstream" / name / file
    cut(path, left + 1)
    with pytest.raises(DataError) as other:
        read_transfer(tmp_path, name)
    assert "macOS" not in str(other.value)
    cut(path, left)
    with pytest.raises(DataError, match=r"macOS sed truncation.*GNU sed/LC_ALL=C") as caught:
        read_transfer(tmp_path, name)
    (fault,) = caught.value.faults
    assert (fault.where, fault.value) == (str(path), f"{left} rows")


@pytest.mark.parametrize(("name", "counts"), [("MR", [31, 43]), ("SUBJ", [20, 5000])])
def test_the_truncated_sets_come_from_either_files(
    tmp_path: Path, name: str, counts: list[int]
) -> None:
    write_task(tmp_path, name)
    whole = read_truncated(tmp_path, name)
    assert (whole.name, by_class(whole.train), whole.design) == (name, counts, "nested")
    for file in TASKS[name]["train"]:
        cut(tmp_path / "downstream" / file.path, file.truncated or file.rows)
    assert read_truncated(tmp_path, name) == whole
    cut(tmp_path / "downstream" / TASKS[name]["train"][1].path, 7)
    with pytest.raises(DataError, match="7 rows"):
        read_truncated(tmp_path, name)


def test_a_task_that_cannot_be_read_keeps_no_other_back(tmp_path: Path) -> None:
    for name in ("MR", "CR", "TREC"):
        write_task(tmp_path, name)
    (tmp_path / "downstream/CR/custrev.neg").unlink()
    sets = load_sets("root", tmp_path, TRANSFER, ("cosine", "logreg-10fold"))
    assert [task.name for task in sets.transfer] == ["MR", "TREC"]
    assert (sets.data, sets.sts, sets.rated, sets.truncated) == ("root", (), (), ())
    first, *others = sets.unread
    assert (first.group, first.task) == ("transfer", "CR")
    assert "custrev.neg: the file does not exist" in str(first.error)
    assert len(first.error.faults) == 1
    folders = {
        one.task: {fault.where.split("/")[-2] for fault in one.error.faults} for one in others
    }
    assert folders == {
        "SUBJ": {"SUBJ"},
        "MPQA": {"MPQA"},
        "SST2": {"binary"},
        "SST5": {"fine"},
        "MRPC": {"MRPC"},
        "SICK-E": {"SICK"},
    }


def test_only_what_is_scored_is_read(tmp_path: Path) -> None:
    write_sts_root(tmp_path)
    sets = load_sets("root", tmp_path, STS, ("cosine", "logreg-10fold", "scl-paper-compat"))
    assert (len(sets.sts), sets.transfer, sets.truncated, sets.rated) == (9, (), (), ())
    assert sets.unread == ()
    none = load_sets("root", tmp_path, TRANSFER, ("cosine", "relatedness"))
    assert (none.sts, none.transfer, none.rated, none.unread) == ((), (), (), ())
    rated = load_sets("root", tmp_path, STS, RELATEDNESS)
    assert rated.rated == ()
    assert [(one.group, one.task) for one in rated.unread] == [
        ("rated", "STS-B"),
        ("rated", "SICK-R"),
    ]
    stsb, sick = (str(one.error) for one in rated.unread)
    assert "sts-train.csv" in stsb and "SICK_train" in sick
    write_task(tmp_path, "MR")
    truncated = load_sets("root", tmp_path, TRANSFER, COMPAT)
    assert [task.name for task in truncated.truncated] == ["MR"]
    assert truncated.transfer == ()
    (missing,) = truncated.unread
    assert (missing.group, missing.task) == ("truncated", "SUBJ")
    assert "SUBJ" in str(missing.error)


@pytest.mark.parametrize("root", [None, Path("no/such/folder")])
@pytest.mark.parametrize("suites", [STS, TRANSFER])
def test_sets_need_a_root(root: Path | None, suites: tuple[SuiteName, ...]) -> None:
    with pytest.raises(DataError, match=r"--data DIR` or TUNE_SENTCL_DATA"):
        load_sets("root", root, suites, LOGREG)


def test_an_sts_file_that_is_missing_is_an_error_of_the_whole(tmp_path: Path) -> None:
    write_sts_root(tmp_path)
    (tmp_path / "downstream/STS/STSBenchmark/sts-dev.csv").unlink()
    with pytest.raises(DataError, match=r"sts-dev\.csv: the file does not exist"):
        load_sets("root", tmp_path, ("sts", "transfer"), ("cosine", "logreg-10fold"))


def test_toy_sets_stand_in_for_all_but_the_truncated() -> None:
    protocols: tuple[ProtocolName, ...]
    protocols = ("cosine", "relatedness", "senteval-5fold", "scl-paper-compat")
    sets = load_sets("toy", None, ("sts", "transfer"), protocols)
    assert (len(sets.sts), len(sets.transfer), len(sets.truncated)) == (9, 9, 0)
    assert [(r.train.name, r.train.split) for r in sets.rated] == [
        ("STS-B", "train"),
        ("SICK-R", "train"),
    ]
    assert all((r.dev.split, r.test.split) == ("dev", "test") for r in sets.rated)
    for rated in sets.rated:
        assert rated.dev in sets.sts and rated.test in sets.sts
    known = set(sets.sentences())
    for task in sets.transfer:
        for part in task.parts:
            assert known >= {*part.first, *(part.second or ())}
    for rated in sets.rated:
        assert known >= set(rated.train.subsets[0].sentences2)


def test_toy_tasks_have_the_names_and_splits_of_the_real_ones() -> None:
    tasks = {name: toy_transfer(name) for name in TASKS}
    for name, task in tasks.items():
        assert (task.dev is not None, task.test is not None) == (
            "dev" in TASKS[name],
            "test" in TASKS[name],
        )
        sizes = {"nested": [120], "folds_then_test": [120, 60], "dev_then_test": [120, 40, 60]}
        assert [len(part) for part in task.parts] == sizes[task.design]
        for part in task.parts:
            counts = by_class(part)
            assert len(counts) == len(REAL[name][0]) and min(counts) >= 3
            assert (part.second is None) == (name not in ("MRPC", "SICK-E"))
            assert len(part.first) == len(part.second or part.first) == len(part)
        # Every class has a row for each of ten folds.
        assert task.design == "dev_then_test" or min(by_class(task.train)) >= 10
    assert {name: task.design for name, task in tasks.items()} == {
        **dict.fromkeys(("MR", "CR", "SUBJ", "MPQA"), "nested"),
        **dict.fromkeys(("SST2", "SST5", "SICK-E"), "dev_then_test"),
        **dict.fromkeys(("TREC", "MRPC"), "folds_then_test"),
    }


def test_toy_tasks_are_not_each_other() -> None:
    fresh = [toy_transfer(name) for name in TASKS]
    assert len({task.train.first for task in fresh}) == 9
    for task in fresh:
        rows = [set(zip(p.first, p.second or p.first, strict=True)) for p in task.parts]
        assert all(
            len(found) > 0.9 * len(part) for found, part in zip(rows, task.parts, strict=True)
        )
        assert all(len(rows[0] & other) < 0.1 * len(other) for other in rows[1:])


def test_the_design_follows_from_the_splits() -> None:
    rows = ClassifiedRows(("a",), None, (0,))
    assert TransferTask("x", rows).design == "nested"
    assert TransferTask("x", rows, test=rows).design == "folds_then_test"
    assert TransferTask("x", rows, rows, rows).design == "dev_then_test"


@needs_real_data
@pytest.mark.parametrize("name", list(TASKS))
def test_real_counts(name: str) -> None:
    task = read_transfer(REAL_ROOT, name)
    assert [by_class(part) for part in task.parts] == REAL[name]
    empty = {"CR": 4, "MPQA": 3}.get(name, 0)
    assert sum(text == "" for part in task.parts for text in part.first) == empty
    assert not any(text == "" for part in task.parts for text in part.second or ())
    for part in task.parts:
        texts = zip(part.first, part.second or part.first, part.labels, strict=True)
        keys = [(len(a.split()), len(b.split()), label) for a, b, label in texts]
        assert keys == sorted(keys)


@needs_real_data
def test_real_truncated_sets() -> None:
    assert by_class(read_truncated(REAL_ROOT, "MR").train) == [31, 43]
    assert by_class(read_truncated(REAL_ROOT, "SUBJ").train) == [20, 5000]
