"""`tune-sentcl evaluate` on the transfer tasks, and what it says of those it cannot score."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from cli_samples import invoke, refused, rows
from disk_samples import write

from tune_sentcl.data.tasks.transfer_data import TASKS

pytest_plugins = ["cli_fixtures"]
pytestmark = pytest.mark.usefixtures("place")

TOY_TASKS = {"MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICK-E"}


@pytest.fixture
def small(place: Path) -> Iterator[Path]:
    """A data root whose MR and CR have 30 rows each, and nothing else in it."""
    root = place / "root"
    smaller: dict[str, Any] = {}
    for name in ("MR", "CR"):
        files = [type(f)(f.path, 15, f.read) for f in TASKS[name]["train"]]
        smaller[name] = {"train": files}
        for file in files:
            text = "".join(f"{Path(file.path).name} number {row}\n" for row in range(15))
            write(root / "downstream" / file.path, text)
    with patch.dict(TASKS, smaller, clear=True):  # it puts the order back too
        yield root


def test_the_default_of_all_suites_is_what_draws_nothing() -> None:
    everything = ("evaluate", "toy", "--toy", "--suite", "all")
    found = rows(*everything)
    protocols = {("sts", "cosine"), ("transfer", "logreg-10fold")}
    assert {(row["suite"], row["protocol"]) for row in found} == protocols
    assert {row["classifier_seed"] for row in found} == {None}
    transfer = rows(*everything, "--protocol", "logreg-10fold")
    assert transfer == [row for row in found if row["suite"] == "transfer"]
    assert {row["task"] for row in transfer} == TOY_TASKS
    mrpc = [row["metric"] for row in transfer if row["task"] == "MRPC"]
    assert mrpc == ["accuracy", "accuracy", "f1"]
    assert all(row["value"] > 0 for row in transfer if row["metric"] == "accuracy")


def test_a_missing_task_keeps_no_other_back(small: Path) -> None:
    given = ("evaluate", "toy", "--suite", "transfer", "--data", small)
    whole = rows(*given)
    assert {row["task"] for row in whole} == {"MR", "CR"}
    assert {(row["data"], row["n"]) for row in whole} == {("root", 30)}
    for name in ("custrev.pos", "custrev.neg"):
        (small / "downstream" / "CR" / name).unlink()
    done = invoke(*given, "--json")
    refused(done, "custrev.pos", "custrev.neg", "does not exist", faults=2)
    lacking, *rest = json.loads(done.out)
    assert rest == [row for row in whole if row["task"] == "MR"]
    assert (lacking["task"], lacking["value"]) == ("CR", None)
    assert "custrev.pos" in lacking["reason"] and "does not exist" in lacking["reason"]
    shown = invoke(*given)
    refused(shown, "custrev.pos", faults=2)
    assert "MR" in shown.out and "CR" not in shown.out


NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--protocol x --protocol cosine", ["--protocol: x", "must be one of cosine"]),
        ("--device cuda:x", ["--device: cuda:x", "must be cpu or cuda", "Write --device cpu"]),
        pytest.param("--device cuda", ["--device: cuda", "no GPU", "--device cpu"], marks=NO_GPU),
    ],
)
def test_options_that_cannot_be(options: str, words: list[str]) -> None:
    done = invoke("evaluate", "toy", "--toy", "--suite", "all", *options.split())
    refused(done, *words)
    assert done.out == ""
