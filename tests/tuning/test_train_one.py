"""One trial as a library trains it, without Ray."""

from pathlib import Path

import pytest
from own_samples import write_pairs
from search_samples import rows

from tune_sentcl.errors import ObjectiveError
from tune_sentcl.launch import train_one
from tune_sentcl.tuning.search_options import SearchOptions

TOY = {"encoder.checkpoint": "toy", "data.source": "toy", "data.limit": 64}
PAIRS = [(f"a man plays {n}", f"someone plays {n // 2}", float(n % 5)) for n in range(20)]
HERE = SearchOptions(gpus_per_trial=0.0)


def test_a_trial_takes_one_core_and_no_gpu_unless_it_is_told(tmp_path: Path) -> None:
    scores = train_one(TOY, study=tmp_path / "study", data=None, options=HERE)
    (row,) = rows(tmp_path / "study")
    assert (row["cpus"], row["gpus"], row["origin"], row["attempt"]) == (1, 0.0, "single", 1)
    assert {score["trial_id"] for score in scores} == {row["trial_id"]}
    assert train_one(TOY, study=tmp_path / "study", data=None, options=HERE) == scores
    alone = train_one(TOY, study=None, data=None, options=HERE)
    values = [{s["task"]: s["value"] for s in found} for found in (alone, scores)]
    assert values[0] == values[1]


def test_what_a_trial_is_compared_by_is_as_for_a_search(tmp_path: Path) -> None:
    """It shapes the name of a trial whose best weights are kept, and of no other."""
    own = f"mine={write_pairs(tmp_path / 'mine' / 'dev.tsv', PAIRS).parent}"
    asked = (("STS-B:spearman:dev",), ("mine:pearson:dev",), ("mine:spearman:dev",))
    for select, names in (("best", 3), ("last", 1)):
        settings = {"evaluation.every": 2, "evaluation.select": select, "evaluation.own": own}
        found = [
            train_one(
                {**TOY, **settings},
                study=None,
                data=None,
                options=SearchOptions(gpus_per_trial=0.0, objectives=objectives),
            )
            for objectives in asked
        ]
        assert len({scores[0]["trial_id"] for scores in found}) == names


def test_a_trial_that_nothing_steers_needs_no_dev_split(tmp_path: Path) -> None:
    own = f"mine={write_pairs(tmp_path / 'mine' / 'test.tsv', PAIRS).parent}"
    settings = {**TOY, "evaluation.suites": [], "evaluation.own": own}
    scores = train_one(settings, study=tmp_path / "study", data=None, options=HERE)
    assert {(score["task"], score["split"]) for score in scores} == {("mine", "test")}
    (row,) = rows(tmp_path / "study")
    assert (row["status"], row["objective_name"]) == ("finished", "mine:spearman:test")
    with pytest.raises(ObjectiveError, match="has a dev split"):
        points = {**settings, "evaluation.every": 1}
        train_one(points, study=None, data=None, options=HERE)
    with pytest.raises(ObjectiveError, match="--allow-test-objective"):
        named = SearchOptions(gpus_per_trial=0.0, objectives=("mine:spearman:test",))
        train_one(settings, study=None, data=None, options=named)
