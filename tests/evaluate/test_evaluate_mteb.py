"""Tasks of MTEB, defined here so that nothing is downloaded, against the same rows as own ones."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_samples import write_pairs

from tune_sentcl.analysis.frames import read_study
from tune_sentcl.data.tasks.sts_data import load_sts
from tune_sentcl.errors import DataError
from tune_sentcl.evaluate import Evaluation, Measures, evaluate
from tune_sentcl.launch import search
from tune_sentcl.tuning.options import SearchOptions

mteb = pytest.importorskip("mteb")

REVISION = "1" * 40


def toy_pairs() -> list[tuple[str, str, float]]:
    dev = next(t for t in load_sts("toy", None) if (t.name, t.split) == ("STS-B", "dev"))
    (pairs,) = dev.subsets
    return list(zip(pairs.sentences1, pairs.sentences2, pairs.gold, strict=True))


def local_task() -> type[Any]:
    import datasets
    from mteb.abstasks import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class LocalSTS(AbsTaskSTS):  # type: ignore[misc]
        metadata = TaskMetadata(
            name="LocalSTS",
            description="Pairs that are made here.",
            dataset={"path": "nobody/local", "revision": REVISION},
            type="STS",
            category="t2t",
            eval_splits=["validation", "test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
        )
        min_score, max_score = 0, 5

        def load_data(self, **_: Any) -> None:
            first, second, gold = map(list, zip(*toy_pairs(), strict=True))
            rows = {"sentence1": first, "sentence2": second, "score": gold}
            whole = datasets.Dataset.from_dict(rows)
            self.dataset = {"default": {"validation": whole, "test": whole.select(range(50))}}
            self.data_loaded = True

    return LocalSTS


def registry() -> dict[str, Any]:
    tasks: dict[str, Any] = vars(importlib.import_module("mteb.get_tasks"))["_TASKS_REGISTRY"]
    return tasks


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry(), "LocalSTS", local_task())


def encode(texts: list[str]) -> np.ndarray:
    rows = [np.bincount([ord(c) % 32 for c in text], minlength=32) for text in texts]
    return np.asarray(rows, np.float32)


def measured(*own: str) -> Evaluation:
    return evaluate(encode, "toy", Measures((), ("cosine",), own=own))


def test_its_main_score_is_that_of_the_same_pairs_as_ones_own(tmp_path: Path) -> None:
    found = measured(f"same={write_pairs(tmp_path / 'pairs.tsv', toy_pairs())}", "mteb:LocalSTS")
    assert not found.errors
    scores = {(s.task, s.split, s.metric): s for s in found.scores}
    dev = scores["LocalSTS", "dev", "cosine_spearman"]
    expected = scores["same", "dev", "spearman"].value
    assert dev.value == pytest.approx(expected, abs=1e-4)
    assert (dev.suite, dev.protocol, dev.n) == ("mteb", "mteb", 300)
    assert dev.version == f"{REVISION}, mteb {mteb.__version__}"
    assert ("LocalSTS", "test", "cosine_spearman") in scores


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(DataError, match="NoSuchTask"):
        measured("mteb:NoSuchTask")


def test_a_task_that_cannot_be_loaded_keeps_no_other_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def offline(self: Any, **_: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(registry()["LocalSTS"], "load_data", offline)
    found = measured(f"same={write_pairs(tmp_path / 'pairs.tsv', toy_pairs())}", "mteb:LocalSTS")
    assert "no network" in str(found.errors[0]) and "cache" in str(found.errors[0])
    by_value = {(s.task, s.suite): s.value is None for s in found.scores}
    assert by_value == {("same", "own"): False, ("LocalSTS", "mteb"): True}


def test_a_search_by_it(tmp_path: Path) -> None:
    changes = {
        "data.limit": 64,
        "method.lambda": 0.3,
        "evaluation.suites": [],
        "evaluation.every": 0,
        "evaluation.own": "mteb:LocalSTS",
    }
    options = SearchOptions(launcher="local", gpus_per_trial=0.0)
    outcome = search("smoke", tmp_path / "study", overrides=changes, options=options)
    assert (outcome.ran, outcome.failures) == (1, 0)
    frames = read_study(tmp_path / "study")
    assert frames.searched == (("LocalSTS:cosine_spearman:dev",),)
    assert frames.trials["objective"].notna().all()
