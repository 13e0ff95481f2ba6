"""The evaluation sets that a run reads, and the toy's in their place."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from data_samples import load_graded_pairs, load_nli
from disk_samples import write_sts_root
from test_data_senteval import write_task
from toy_generator.shipped import SHIPPED, shipped_table

from tune_sentcl.config import ProtocolName, SuiteName
from tune_sentcl.data.task import sts_fingerprint
from tune_sentcl.data.tasks.evaluation_sets import load_sets
from tune_sentcl.data.tasks.sts_data import load_sts
from tune_sentcl.errors import DataError

RELATEDNESS: tuple[ProtocolName, ...] = ("relatedness",)
COMPAT: tuple[ProtocolName, ...] = ("scl-paper-compat",)
STS: tuple[SuiteName, ...] = ("sts",)
TRANSFER: tuple[SuiteName, ...] = ("transfer",)
BOTH: tuple[ProtocolName, ...] = ("cosine", "logreg-10fold")


def test_a_task_that_cannot_be_read_keeps_no_other_back(tmp_path: Path) -> None:
    for name in ("MR", "CR", "TREC"):
        write_task(tmp_path, name)
    (tmp_path / "downstream/CR/custrev.neg").unlink()
    sets = load_sets("root", tmp_path, TRANSFER, BOTH)
    assert [task.name for task in sets.transfer] == ["MR", "TREC"]
    assert (sets.data, sets.sts, sets.rated, sets.truncated) == ("root", (), (), ())
    assert {unread.group for unread in sets.unread} == {"transfer"}
    faults = {unread.task: unread.error.faults for unread in sets.unread}
    (fault,) = faults["CR"]
    assert "custrev.neg: the file does not exist" in str(fault)
    assert {name: {f.where.split("/")[-2] for f in own} for name, own in faults.items()} == {
        "CR": {"CR"},
        "SUBJ": {"SUBJ"},
        "MPQA": {"MPQA"},
        "SST2": {"binary"},
        "SST5": {"fine"},
        "MRPC": {"MRPC"},
        "SICK-E": {"SICK"},
    }


def test_only_what_is_scored_is_read(tmp_path: Path) -> None:
    write_sts_root(tmp_path)
    sets = load_sets("root", tmp_path, STS, (*BOTH, "scl-paper-compat"))
    assert len(sets.sts) == 9
    assert (sets.transfer, sets.truncated, sets.rated, sets.unread) == ((), (), (), ())
    nothing = load_sets("root", tmp_path, TRANSFER, ("cosine", "relatedness"))
    assert (nothing.sts, nothing.transfer, nothing.rated, nothing.unread) == ((), (), (), ())
    rated = load_sets("root", tmp_path, STS, RELATEDNESS)
    assert rated.rated == ()
    for unread, name, file in zip(
        rated.unread, ("STS-B", "SICK-R"), ("sts-train.csv", "SICK_train"), strict=True
    ):
        assert (unread.group, unread.task) == ("rated", name) and file in str(unread.error)
    write_task(tmp_path, "MR")
    sets = load_sets("root", tmp_path, TRANSFER, COMPAT)
    assert [task.name for task in sets.truncated] == ["MR"] and sets.transfer == ()
    (unread,) = sets.unread
    assert (unread.group, unread.task) == ("truncated", "SUBJ") and "SUBJ" in str(unread.error)
    (tmp_path / "downstream/STS/STSBenchmark/sts-dev.csv").unlink()
    with pytest.raises(DataError, match=r"sts-dev\.csv: the file does not exist"):
        load_sets("root", tmp_path, ("sts", "transfer"), BOTH)


@pytest.mark.parametrize("root", [None, Path("no/such/folder")])
@pytest.mark.parametrize("suites", [STS, TRANSFER])
def test_sets_need_a_root(root: Path | None, suites: tuple[SuiteName, ...]) -> None:
    with pytest.raises(DataError, match=r"--data DIR` or TUNE_SENTCL_DATA"):
        load_sets("root", root, suites, BOTH)


def test_the_fingerprint_of_sts_sees_content() -> None:
    tasks = load_sts("toy", None)
    first, *others = tasks
    subset = first.subsets[0]
    texts = subset.sentences1
    seen = {sts_fingerprint(tasks), sts_fingerprint(tasks[:-1])}
    for changed in (
        ("other", *texts[1:]),
        (texts[0] + texts[1][:1], texts[1][1:], *texts[2:]),
        texts[::-1],
    ):
        other = replace(first, subsets=(replace(subset, sentences1=changed), *first.subsets[1:]))
        seen.add(sts_fingerprint((other, *others)))
    assert len(seen) == 5


SPLITS = [
    *((f"STS{year}", "test", 70) for year in range(12, 17)),
    ("STS-B", "dev", 150),
    ("STS-B", "test", 150),
    ("SICK-R", "dev", 100),
    ("SICK-R", "test", 100),
]


def test_what_is_shipped_is_what_is_generated() -> None:
    assert pq.read_table(SHIPPED).equals(shipped_table())
    assert SHIPPED.stat().st_size < 100_000


def test_the_toy_is_the_same_everywhere() -> None:
    tasks = load_sts("toy", None)
    assert [(task.name, task.split, len(task)) for task in tasks] == SPLITS
    assert sts_fingerprint(tasks) == "6350417d15733f75"
    assert load_nli("toy").fingerprint == "a525a6ef7f99960d"
    assert load_graded_pairs("toy").fingerprint == "28e65703449f12ee"
