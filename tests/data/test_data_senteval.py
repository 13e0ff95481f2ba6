"""SentEval's files: formats, order, counts, and what is refused."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from disk_samples import write, write_sts_root

from tune_sentcl.data.task import ClassifiedRows, StsSubset
from tune_sentcl.data.tasks.sts_data import (
    load_sts,
    read_benchmark,
    read_sick,
    read_task,
    read_two_files,
)
from tune_sentcl.data.tasks.transfer_data import (
    TASKS,
    read_mrpc,
    read_one_class,
    read_sick_entailment,
    read_sst2,
    read_sst5,
    read_transfer,
    read_trec,
    read_truncated,
)
from tune_sentcl.errors import DataError

SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
SICK_ROWS = "1\tA b\tC d\t4.5\tENTAILMENT\n2\te\tf\t3\tNEUTRAL\n3\tg\th\t1\tCONTRADICTION\n"
MRPC_HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
BENCHMARK = 'main\tMSRvid\t2012\t0001\t4.750\t"a b\tc d\n'

STS = [
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


COARSE = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
positive = partial(read_one_class, label=1)


@pytest.mark.parametrize(
    ("read", "content", "rows"),
    [
        (positive, b"a  man \teats .\n\nb", [(("a man eats .",), 1), (("",), 1), (("b",), 1)]),
        (positive, "a\n\n", [(("a",), 1), (("",), 1)]),
        (positive, "a\r\nb\r\n", [(("a",), 1), (("b",), 1)]),
        # Byte 0x85 ends a line for `str.splitlines`, which would make two rows of one.
        (positive, b"caf\xe9 one\x85two\n", [(("café one two",), 1)]),
        (
            read_sst2,
            "hide new secretions \t0\nit 's café\t1\n\t1\n",
            [(("hide new secretions",), 0), (("it 's café",), 1), (("",), 1)],
        ),
        (
            read_sst5,
            "4 a stirring , funny film .\n0 3 bad films\n",
            [(("a stirring , funny film .",), 4), (("3 bad films",), 0)],
        ),
        (
            read_trec,
            "".join(f"{name}:x What ?\n" for name in COARSE).encode() + b"LOC:y Qu\xe9bec ?\n",
            [*((("What ?",), label) for label in range(6)), (("Québec ?",), 4)],
        ),
        (
            read_mrpc,
            MRPC_HEADER + '1\t7\t8\t"A" b.\tC  d\r\n0\t7\t8\te\tf\r\n',
            [(('"A" b.', "C d"), 1), (("e", "f"), 0)],
        ),
        (
            read_sick_entailment,
            (SICK_HEADER + SICK_ROWS).replace("\n", "\r\n"),
            [(("A b", "C d"), 2), (("e", "f"), 1), (("g", "h"), 0)],
        ),
        (
            read_sick_entailment,
            "entailment_judgment\tsentence_B\tsentence_A\nNEUTRAL\tB\tA\n",
            [(("A", "B"), 1)],
        ),
        (
            partial(read_sick, expected=3),
            (SICK_HEADER + SICK_ROWS).replace("\n", "\r\n"),
            StsSubset("SICK-R", ("A b", "e", "g"), ("C d", "f", "h"), (4.5, 3.0, 1.0)),
        ),
        # A quotation mark is text, not quoting.
        (
            partial(read_benchmark, expected=1),
            BENCHMARK,
            StsSubset("STS-B", ('"a b',), ("c d",), (4.75,)),
        ),
    ],
)
def test_formats(
    read: Callable[[Path], object], content: str | bytes, rows: object, tmp_path: Path
) -> None:
    assert read(write(tmp_path / "rows.txt", content)) == rows


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_sst2, "a\t0\nb\t2\n", r"line 2: 'b\\t2': a row must be a sentence, a tab, and 0"),
        (read_sst2, "a\t0\n\n", r"line 2: ''"),
        (read_sst2, "x" * 1000, r"'x{57}\.\.\.'"),
        (read_sst2, b"a\t0\nb\xff\t1\n", r"line 2: byte 0xff .*utf-8"),
        (read_sst5, "0 a\n5 b\n", r"line 2: '5 b': a row must be a class from 0 to 4"),
        (read_trec, "HUM:ind Who ?\nHUMAN:ind Who ?\n", r"line 2: .*ABBR, DESC, ENTY, HUM"),
        (read_mrpc, MRPC_HEADER + "1\t7\t8\ta\n", r"line 2: .*two numbers and two sentences"),
        (read_sick_entailment, SICK_HEADER + "1\ta\tb\t4\tMAYBE\n", r"line 2: .*ENTAILMENT"),
        (read_sick_entailment, "pair_ID\tsentence_A\tsentence_B\n", "line 1: .*column entailment"),
        (
            partial(read_sick, expected=1),
            SICK_HEADER + "1\ta\tb\t0.5\tx",
            r"2: gold = '0\.5': .*1",
        ),
        (partial(read_sick, expected=1), SICK_HEADER, "0 found: .*1 rows"),
        (partial(read_benchmark, expected=2), BENCHMARK + "m\tM\t2\t0\t4\ta b\n", "2: 6: .*7 col"),
        (partial(read_benchmark, expected=1), BENCHMARK.replace("4.750", ""), "1: gold = '': "),
        (positive, "", r"the file is empty"),
    ],
)
def test_a_bad_row_is_named(
    read: Callable[[Path], object], content: str | bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=rf"rows\.txt.*{message}"):
        read(write(tmp_path / "rows.txt", content))


def two_files(folder: Path, pairs: str, golds: str, expected: int) -> StsSubset:
    write(folder / "STS.input.x.txt", pairs)
    write(folder / "STS.gs.x.txt", golds)
    return read_two_files(folder, "x", expected)


def test_a_blank_gold_drops_its_pair(tmp_path: Path) -> None:
    subset = two_files(tmp_path, "a\tb\nno tabs at all\nc\td\n\n", "1.5\n\n3\n \n", 2)
    assert subset == StsSubset("x", ("a", "c"), ("b", "d"), (1.5, 3.0))


@pytest.mark.parametrize(
    ("pairs", "golds", "message"),
    [
        ("a\tb\n", "1\n2\n", r"input\.x\.txt: 1 lines: .*gs\.x\.txt .* has 2"),
        ("a\tb\nc\td\n", "1\n5.1\n", r"gs\.x\.txt line 2: gold = '5\.1'"),
        ("a\tb\n", "nan\n", "number from 0 to 5"),
        ("a\tb\tc\n", "1\n", r"input\.x\.txt line 1: 3: .*2 columns"),
        ("a\t \n", "1\n", r"input\.x\.txt line 1: .*blank"),
        ("a\tb\nc\td\n", "1\n2\n", r"input\.x\.txt: 2 found: .*1 rows"),
    ],
)
def test_a_bad_row_of_two_files_is_named(
    pairs: str, golds: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        two_files(tmp_path, pairs, golds, 1)


def test_a_whole_root_of_sts_and_all_of_its_faults(tmp_path: Path) -> None:
    root = write_sts_root(tmp_path)
    tasks = load_sts("root", root)
    assert [(task.name, task.split, len(task)) for task in tasks] == STS
    assert [subset.name for subset in tasks[1].subsets] == ["FNWN", "headlines", "OnWN"]
    for task, split in (("STS12", "dev"), ("STS17", "test")):
        with pytest.raises(KeyError):
            read_task(root, task, split)  # type: ignore[arg-type]
    damaged = ["STS.gs.FNWN.txt", "STS.input.OnWN.txt", "sts-dev.csv", "SICK_trial.txt"]
    (root / "downstream/STS/STS13-en-test" / damaged[0]).unlink()
    (root / "downstream/STS/STS13-en-test" / damaged[1]).unlink()
    (root / "downstream/STS/STSBenchmark" / damaged[2]).write_bytes(b"\xff")
    (root / "downstream/SICK" / damaged[3]).write_text("")
    with pytest.raises(DataError) as caught:
        load_sts("root", root)
    where = [Path(fault.where.split(" line ")[0]).name for fault in caught.value.faults]
    assert where == damaged


def write_task(root: Path, name: str) -> Path:
    """Whole files of MR, CR, SUBJ, MPQA or TREC, with made-up sentences."""
    for split, file in ((split, file) for split, files in TASKS[name].items() for file in files):
        start = "HUM:ind Who is" if name == "TREC" else f"{split} {file.path}"
        lines = "".join(f"{start} {row}\n" for row in range(file.rows))
        write(root / "downstream" / file.path, lines)
    return root / "downstream" / name


def cut(path: Path, rows: int) -> None:
    """Leave the first rows of a file."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:rows]))


def test_rows_are_in_sentevals_order(tmp_path: Path) -> None:
    folder = tmp_path / "downstream/CR"
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
    files = {
        split: [type(f)(f.path, 4, f.read) for f in fs] for split, fs in TASKS["MRPC"].items()
    }
    monkeypatch.setitem(TASKS, "MRPC", files)
    body = "1\t0\t0\ta b\tc\n1\t0\t0\td\te f\n1\t0\t0\tg\th\n0\t0\t0\ti\tj\n"
    for (file,) in files.values():
        write(tmp_path / "downstream" / file.path, MRPC_HEADER + body)
    task = read_transfer(tmp_path, "MRPC")
    rows = ClassifiedRows(("i", "g", "d", "a b"), ("j", "h", "e f", "c"), (0, 1, 1, 1))
    assert task.parts == (rows, rows) and task.design == "folds_then_test"


def test_every_fault_of_a_task_is_listed(tmp_path: Path) -> None:
    folder = write_task(tmp_path, "TREC")
    cut(folder / "train_5500.label", 5000)
    (folder / "TREC_10.label").unlink()
    with pytest.raises(DataError) as caught:
        read_transfer(tmp_path, "TREC")
    first, second = caught.value.faults
    assert first.where.endswith("train_5500.label") and first.value == "5000 rows"
    assert "the file must have 5452 rows" in first.rule and "macOS" not in first.rule
    assert second.where.endswith("TREC_10.label") and "does not exist" in second.rule


@pytest.mark.parametrize(
    ("name", "file", "left"),
    [
        ("MR", "rt-polarity.pos", 43),
        ("SUBJ", "subj.subjective", 20),
    ],
)
def test_what_macos_sed_leaves_is_refused_by_name(
    tmp_path: Path, name: str, file: str, left: int
) -> None:
    path = write_task(tmp_path, name) / file
    cut(path, left + 1)
    with pytest.raises(DataError) as other:
        read_transfer(tmp_path, name)
    assert "macOS" not in str(other.value)
    cut(path, left)
    message = rf"{file}: {left} rows: .*macOS sed truncated.*GNU sed and LC_ALL=C"
    with pytest.raises(DataError, match=message):
        read_transfer(tmp_path, name)


def by_class(part: ClassifiedRows) -> list[int]:
    counts = Counter(part.labels)
    return [counts[label] for label in range(max(counts) + 1)]


@pytest.mark.parametrize(("name", "counts"), [("MR", [31, 43]), ("SUBJ", [20, 5000])])
def test_the_truncated_sets_come_from_whole_and_from_truncated_files(
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
