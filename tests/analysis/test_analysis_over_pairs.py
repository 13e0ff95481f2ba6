"""The interval over sentence pairs, on studies whose trials have kept them."""

from pathlib import Path

import numpy as np
import pytest
from analysis_samples import DEV, SICK, Trial, config, score, write_study

from tune_sentcl.analysis.judging import judge
from tune_sentcl.analysis.over_pairs import over_pairs
from tune_sentcl.evaluate.correlation import spearman
from tune_sentcl.score import Predictions
from tune_sentcl.store import Study, TrialFiles

PAIRS = 400


def said(stream: int, noise: float) -> Predictions:
    """What an encoder says of 400 pairs: the human scores with noise."""
    gold = np.random.default_rng(0).integers(0, 6, PAIRS).astype(np.float32)
    found = gold + np.random.default_rng(stream).normal(size=PAIRS) * noise
    return Predictions("STS-B", "dev", "cosine", found.astype(np.float32), gold)


def study_of(path: Path, kept: tuple[str, ...] = ("scl0", "scl1", "sbert0", "sbert1")) -> Study:
    """SCL, with little noise, and SBERT, with much; two seeds each."""
    found = {
        f"{name}{seed}": (config(seed, name), said(10 + seed + (name == "scl") * 5, noise))
        for name, noise in (("scl", 1.0), ("sbert", 2.0))
        for seed in (0, 1)
    }
    trials = [
        Trial(
            trial_id,
            asked,
            [score(DEV, 100 * spearman(p.predicted.tolist(), p.gold.tolist(), "x"))],
        )
        for trial_id, (asked, p) in found.items()
    ]
    write_study(path, trials, compact=True)
    for trial_id in kept:
        TrialFiles(path).write_pairs(trial_id, [found[trial_id][1]])
    return Study.read(path)


def test_a_difference_has_an_interval_over_pairs(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    row = judge(study, "scl", "sbert").row()
    assert row["pairs_n"] == PAIRS
    assert 0 < row["pairs_low"] < row["difference"] < row["pairs_high"]
    found = over_pairs(study, DEV, {0: "scl0", 1: "scl1"}, {0: "sbert0", 1: "sbert1"})
    assert found is not None
    assert (found.low, found.high, found.seeds) == (row["pairs_low"], row["pairs_high"], 2)
    table = study.pairs(["scl0"])
    assert table["predicted"].to_numpy() == pytest.approx(said(15, 1.0).predicted)
    assert str(table.schema.field("gold").type) == "float"


def test_only_seeds_of_which_both_have_pairs_count(tmp_path: Path) -> None:
    found = judge(study_of(tmp_path / "one", ("scl0", "scl1", "sbert1")), "scl", "sbert")
    assert found.over_pairs is not None
    assert found.over_pairs.seeds == 1
    none = judge(study_of(tmp_path / "none", ("scl0", "sbert1")), "scl", "sbert")
    assert none.over_pairs is None
    assert none.row()["pairs_low"] is None


def test_what_cannot_be_compared_has_none(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    assert over_pairs(study, SICK, {0: "scl0"}, {0: "sbert0"}) is None
    assert over_pairs(study, DEV, {0: "scl0"}, {1: "sbert1"}) is None
    other = said(3, 1.0)
    moved = Predictions("STS-B", "dev", "cosine", other.predicted, other.gold[::-1])
    TrialFiles(tmp_path).write_pairs("sbert0", [moved])
    assert over_pairs(study, DEV, {0: "scl0"}, {0: "sbert0"}) is None
