"""What a trial says of each sentence pair, where it was asked to keep that."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tune_sentcl.evaluate.correlation import pearson, spearman
from tune_sentcl.launch.options import SearchOptions
from tune_sentcl.launch.search import search
from tune_sentcl.store.study import Study


def run(study: Path, **options: Any) -> Study:
    overrides = options.pop("overrides", {})
    asked = SearchOptions(launcher="local", gpus_per_trial=0.0, **options)
    search("smoke", study, overrides={"method.lambda": 0.3, **overrides}, options=asked)
    return Study.read(study)


@pytest.mark.slow
def test_the_pairs_give_the_scores_and_outlast_another_measurement(tmp_path: Path) -> None:
    study = run(tmp_path / "study", keep_pairs=True)
    (trial_id,) = study.trials(["trial_id"])["trial_id"].to_pylist()
    pairs = study.pairs([trial_id])
    assert pairs.num_rows == sum(
        row["n"]
        for row in study.scores().to_pylist()
        if (row["metric"], row["subset"]) == ("spearman", None)
        and row["aggregation"] in (None, "all")
    )
    frame = pairs.to_pandas()
    for (task, split), rows in frame.groupby(["task", "split"]):
        assert list(rows["row"]) == list(range(len(rows)))
        sides = [rows[key].to_numpy().astype(np.float64) for key in ("predicted", "gold")]
        for metric, correlate in (("spearman", spearman), ("pearson", pearson)):
            (value,) = [
                row["value"]
                for row in study.scores().to_pylist()
                if (row["task"], row["split"], row["metric"]) == (task, split, metric)
                and row["subset"] is None
                and row["aggregation"] in (None, "all")
            ]
            assert 100 * correlate(sides[0], sides[1], "pairs") == pytest.approx(value, abs=2e-3)
    # Kept weights are measured by another protocol; what they say of the pairs stays.
    wider = {"evaluation.protocols": ["cosine", "relatedness"]}
    before = study.trials(["attempt_files"]).to_pylist(), len(study.scores())
    again = run(tmp_path / "study", overrides=wider)
    assert again.trials(["attempt_files"]).to_pylist() != before[0]
    assert len(again.scores()) > before[1]
    assert again.pairs([trial_id]).equals(pairs)
    assert len(list((tmp_path / "study" / "pairs").iterdir())) == 1, "who reads files counts once"


@pytest.mark.slow
def test_nothing_is_kept_that_was_not_asked_for(tmp_path: Path) -> None:
    study = run(tmp_path / "study")
    (trial_id,) = study.trials(["trial_id"])["trial_id"].to_pylist()
    assert len(study.pairs([trial_id])) == 0
    assert not (tmp_path / "study" / "pairs").exists()
